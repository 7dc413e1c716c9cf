//! Deferred frees.

use maud::{Markup, html};

use super::{Section, bars, command, name, table, tone};
use crate::report::authors::{KVFREE_FOOTPRINT_MB, KVFREE_TOTAL_NS, median};
use crate::report::draw::{Better, Line, Multiples, Pair, Pairs, Side, Tone, Unit};
use crate::report::stored::Stored;

const PART: &str = "kfree";

/// The patch's footprint and time, and ours.
pub fn pairs(stored: &Stored) -> Vec<Pair> {
    let range = |runs: [f64; 5]| {
        let least = runs.iter().copied().fold(f64::INFINITY, f64::min);
        let most = runs.iter().copied().fold(0.0, f64::max);
        format!("{least} to {most} MB")
    };
    let [before, after] = KVFREE_FOOTPRINT_MB;
    let side = |name, runs| {
        Side::new(name, median(runs), Unit::Megabytes).told(&format!("{} MB", median(runs)))
    };
    let authors = Pair {
        title: format!(
            "Kernel's patch, memory (rcuscale, 64 CPUs; medians of five runs of {}, then {})",
            range(before),
            range(after)
        ),
        tone: Tone::Authors,
        sides: vec![side("before", before), side("after", after)],
    };
    let [before, after] = KVFREE_TOTAL_NS.map(median);
    let time = Pair {
        title: "Kernel's patch, time in all (medians of five)".to_owned(),
        tone: Tone::Authors,
        sides: vec![
            Side::new("before", before, Unit::Nanoseconds),
            Side::new("after", after, Unit::Nanoseconds),
        ],
    };
    let ours = |metric: &str, title: &str, unit| {
        let figure = |variant| stored.figure(PART, None, "stillpoint", variant, metric);
        let sides = vec![
            Side::new("whole-batch", figure("whole-batch")?, unit),
            Side::new("per-page", figure("per-page")?, unit),
        ];
        Some(Pair {
            title: title.to_owned(),
            tone: Tone::Accent,
            sides,
        })
    };
    let memory = ours("footprint_mib", "Here, measured, memory", Unit::Mebibytes);
    let total = ours("total_s", "Here, measured, time in all", Unit::Seconds);
    [authors]
        .into_iter()
        .chain(memory)
        .chain([time])
        .chain(total)
        .collect()
}

/// The section.
pub fn section(stored: &Stored) -> Option<Section> {
    Section::of(stored, "kfree", "Deferred frees", &[PART], || body(stored))
}

fn body(stored: &Stored) -> Markup {
    let command = command(stored, PART);
    let lines = stored
        .rows_of(PART)
        .filter_map(|row| {
            Some(Line {
                name: name(row),
                tone: tone(row),
                points: &row.curve.as_ref()?.points,
            })
        })
        .collect();
    html! {
        p {
            "Sixteen threads allocate objects of 32 bytes and retire each at once; it is freed when no reader can hold it any more. "
            em { "per-page" } " is Stillpoint's way, " em { "whole-batch" } " the kernel's before the patch, " em { "call" } " a callback an object. The "
            em { "limit" } " frees at once, without waiting for readers."
        }
        div.charts {
            (bars(stored, PART, None, "Time for an object, allocated, retired and freed", "ns_per_object", Unit::Nanoseconds, Better::Less))
            (bars(stored, PART, None, "Memory that waits to be freed (rcuscale's footprint)", "footprint_mib", Unit::Mebibytes, Better::Less))
            (Pairs { title: "Before and after: a grace period for each page", better: Better::Less, pairs: &pairs(stored), command }.draw())
            (bars(stored, PART, None, "From the last retire until nothing waits", "drain_ms", Unit::Milliseconds, Better::Less))
        }
        (Multiples { title: "Memory over time, above the start", lines, command }.draw())
        (table::all(stored, PART, "deferred frees"))
    }
}
