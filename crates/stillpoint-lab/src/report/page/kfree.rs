//! Deferred frees: time, and memory.

use maud::html;

use super::names::{name, tone};
use super::{Section, bars, table};
use crate::report::authors::{KVFREE_FOOTPRINT_MB, KVFREE_TOTAL_NS, median};
use crate::report::draw::{Better, Line, Multiples, Pair, Side, Tone, Unit};
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
            Side::new("one for all", figure("whole-batch")?, unit),
            Side::new("per page", figure("per-page")?, unit),
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

/// The section about time.
pub fn section(stored: &Stored) -> Option<Section> {
    Section::of(stored, "kfree", "Free", &[PART], || {
        html! {
            p {
                "Sixteen threads allocate objects of 32 bytes and retire each at once. An object is freed when no reader can still hold it. "
                em { "Stillpoint" } " waits for a grace period per page of objects; " em { "one grace period for all" } " is how the kernel did it before its patch; "
                em { "call" } " queues a callback per object. The " em { "limit" } " frees at once and waits for no reader."
            }
            div.charts {
                (bars(stored, PART, None, "Allocate an object and free it later", "ns_per_object", Unit::Nanoseconds, Better::Less))
                (bars(stored, PART, None, "From the last retire until all is freed", "drain_ms", Unit::Milliseconds, Better::Less))
            }
            (table::all(stored, PART, "deferred frees"))
        }
    })
}

/// The section about memory.
pub fn memory(stored: &Stored) -> Option<Section> {
    Section::of(stored, "memory", "Memory", &[PART], || {
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
                "What has been retired and is not freed yet takes memory. This is what the process gained over its start, while the sixteen threads of the "
                "section above ran; the objects just allocated are in it, so the " em { "limit" } " has some too."
            }
            div.charts {
                (bars(stored, PART, None, "Peak unreclaimed memory", "peak_mib", Unit::Mebibytes, Better::Less))
                (bars(stored, PART, None, "Average unreclaimed memory", "footprint_mib", Unit::Mebibytes, Better::Less))
            }
            (Multiples { title: "Unreclaimed memory over time", lines }.draw())
        }
    })
}
