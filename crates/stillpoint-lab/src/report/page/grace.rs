//! Waiting for readers.

use maud::{Markup, html};

use super::{Section, bars, command, commands, name, table, tone};
use crate::report::authors::{BRIDGE_MEDIAN_MS, SYNC_SUMMARY_MS};
use crate::report::draw::{Better, Curves, Line, Pair, Pairs, Side, Tone, Unit};
use crate::report::stored::{Row, Stored};

const PART: &str = "sync";

/// The scenarios: name, what a bar is, and whether its distribution is drawn.
const SCENARIOS: [(&str, &str, bool); 11] = [
    ("idle", "A wait without readers", false),
    ("idle16", "A wait beside 16 threads that sleep", false),
    ("idle255", "A wait beside 254 threads that sleep", false),
    ("idle1000", "A wait beside 1,000 threads that sleep", true),
    (
        "busy1",
        "A wait beside a thread that reads without a pause",
        true,
    ),
    (
        "busy-oversub",
        "A wait beside two such readers, on the waiter's own two CPUs",
        true,
    ),
    ("herd64", "A wait of each of 64 threads at once", true),
    (
        "bridge",
        "A wait of 400, one after the other, beside 64 threads that sleep",
        false,
    ),
    ("callback", "From queueing a callback to its call", true),
    ("barrier", "A callback and the barrier behind it", false),
    (
        "poll",
        "From starting a grace period to the first poll that says it has ended",
        true,
    ),
];

/// A row's name at a curve's end, where there is little room.
fn short_name(row: &Row) -> String {
    if tone(row) == Tone::Ours {
        format!("{} (ours)", row.variant)
    } else {
        name(row)
    }
}

/// The patch's means and medians, simulated and measured beside them.
pub fn pairs(stored: &Stored) -> Vec<Pair> {
    let authors = |title: &str, [before, after]: [f64; 2]| Pair {
        title: title.to_owned(),
        tone: Tone::Authors,
        sides: vec![
            Side::new("before", before, Unit::Milliseconds),
            Side::new("after", after, Unit::Milliseconds),
        ],
    };
    let simulated = |part: &str, metric: &str, title: &str, variants: [&str; 2]| {
        let side = |variant| {
            let figure = stored.figure(part, None, "stillpoint", variant, metric)?;
            Some(Side::new(variant, figure, Unit::Milliseconds))
        };
        Some(Pair {
            title: title.to_owned(),
            tone: Tone::Simulated,
            sides: variants.map(side).into_iter().collect::<Option<_>>()?,
        })
    };
    let measured = || {
        let side = |variant: &str| {
            let figure = stored.figure(PART, Some("bridge"), "stillpoint", variant, "mean_us")?;
            Some(Side::new(variant, figure, Unit::Microseconds))
        };
        let sides = ["service-led", "rcu"]
            .map(side)
            .into_iter()
            .collect::<Option<_>>()?;
        Some(Pair {
            title: "Here, measured, beside 64 threads that sleep, mean".to_owned(),
            tone: Tone::Accent,
            sides,
        })
    };
    let mut pairs = vec![authors(
        "Kernel's patch, synchronize_rcu() on 32 CPUs, mean",
        SYNC_SUMMARY_MS,
    )];
    pairs.extend(simulated(
        "sim-sync",
        "mean_ms",
        "The same, simulated",
        ["baseline", "fix"],
    ));
    pairs.push(authors(
        "Kernel's patch with direct wake-ups, a bridge on 64 CPUs, median",
        BRIDGE_MEDIAN_MS,
    ));
    pairs.extend(simulated(
        "sim-bridge",
        "p50_ms",
        "The same, simulated",
        ["default", "fix+wake"],
    ));
    pairs.extend(measured());
    pairs
}

/// The section.
pub fn section(stored: &Stored) -> Option<Section> {
    Section::of(stored, "grace", "Waiting for readers", &[PART], || {
        body(stored)
    })
}

fn body<'s>(stored: &'s Stored) -> Markup {
    let command = command(stored, PART);
    let all_commands = commands(stored, &[PART, "sim-sync", "sim-bridge"]);
    let curves = |scenario: &'static str, title| {
        let line = |row: &'s Row| {
            Some(Line {
                name: short_name(row),
                tone: tone(row),
                points: &row.curve.as_ref()?.points,
            })
        };
        let lines = stored
            .scene(PART, Some(scenario))
            .filter_map(line)
            .collect();
        Curves {
            title,
            unit: Unit::Microseconds,
            lines,
            command,
        }
        .draw()
    };
    html! {
        p {
            "A writer has taken something away, and waits until no reader can hold it. " em { "service-led" } " is the wait as a callback "
            "through a service thread, as the kernel had it before direct wake-ups. " em { "kernel" } " is the running kernel's own grace period, through "
            "membarrier; the " em { "limit" } " is a bare expedited membarrier. Of each wait the mean, and further down the whole distribution."
        }
        (Pairs { title: "Before and after", better: Better::Less, pairs: &pairs(stored), command: &all_commands }.draw())
        div.charts {
            @for (scenario, title, _) in SCENARIOS { (bars(stored, PART, Some(scenario), title, "mean_us", Unit::Microseconds, Better::Less)) }
            (bars(stored, PART, Some("herd64"), "Waits of 64 threads together", "calls_per_s", Unit::PerSecond, Better::More))
        }
        h3 { "How long the slowest waits took" }
        div.charts {
            @for (scenario, title, is_drawn) in SCENARIOS { @if is_drawn { (curves(scenario, title)) } }
        }
        (table::all(stored, PART, "waiting for readers"))
    }
}
