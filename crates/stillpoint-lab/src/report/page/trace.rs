//! Readers that sleep.

use maud::{Markup, html};

use super::{Section, bars, commands, table};
use crate::report::authors::{TRACE_MS, TRACE_READ_NS};
use crate::report::draw::{Better, Pair, Pairs, Side, Tone, Unit};
use crate::report::stored::Stored;

const PART: &str = "trace";

/// The series' grace periods and readers, simulated and measured beside them.
pub fn pairs(stored: &Stored) -> Vec<Pair> {
    let [before, after] = TRACE_MS;
    let authors = Pair {
        title: "Kernel's series, mean grace period (a laptop)".to_owned(),
        tone: Tone::Authors,
        sides: vec![
            Side::new("before", before, Unit::Milliseconds),
            Side::new("after", after, Unit::Milliseconds),
        ],
    };
    let simulated = || {
        let side = |variant: &str| {
            let figure = stored.figure("sim-trace", None, "stillpoint", variant, "mean_ms")?;
            Some(Side::new(variant, figure, Unit::Milliseconds))
        };
        let sides = ["baseline", "gp_sleep"]
            .map(side)
            .into_iter()
            .collect::<Option<_>>()?;
        Some(Pair {
            title: "The same, simulated".to_owned(),
            tone: Tone::Simulated,
            sides,
        })
    };
    let [before, after] = TRACE_READ_NS;
    let read = Pair {
        title: "Kernel's series, a pair of lock and unlock".to_owned(),
        tone: Tone::Authors,
        sides: vec![
            Side::new("before", before, Unit::Nanoseconds),
            Side::new("after", after, Unit::Nanoseconds),
        ],
    };
    let measured = |metric: &str, unit, title: &str| {
        let figure = stored.figure(PART, Some("idle"), "stillpoint", "native", metric)?;
        Some(Pair {
            title: title.to_owned(),
            tone: Tone::Accent,
            sides: vec![Side::new("native", figure, unit)],
        })
    };
    let mut pairs = vec![authors];
    pairs.extend(simulated());
    pairs.extend(measured(
        "gp_mean_ms",
        Unit::Milliseconds,
        "Here, measured, a grace period without readers",
    ));
    pairs.push(read);
    pairs.extend(measured(
        "read_ns",
        Unit::Nanoseconds,
        "Here, measured, a pair of lock and unlock",
    ));
    pairs
}

/// The section.
pub fn section(stored: &Stored) -> Option<Section> {
    Section::of(stored, "trace", "Readers that sleep", &[PART], || {
        body(stored)
    })
}

fn body(stored: &Stored) -> Markup {
    let all_commands = commands(stored, &[PART, "sim-trace"]);
    let compared: Vec<Pair> = pairs(stored)
        .into_iter()
        .filter(|pair| pair.sides.len() > 1)
        .collect();
    let less = |scenario, title, metric, unit| {
        bars(
            stored,
            PART,
            Some(scenario),
            title,
            metric,
            unit,
            Better::Less,
        )
    };
    let more = |title, metric| {
        bars(
            stored,
            PART,
            Some("async10000"),
            title,
            metric,
            Unit::PerSecond,
            Better::More,
        )
    };
    html! {
        p {
            "Sections that block, sleep, or are held by a task across an await. " em { "native" } " readers go without fences, " em { "read-mb" }
            " ones fence, and their grace periods interrupt no processor. Ten thousand tasks hold a section across a timer of 1 to 10 ms while a thread replaces "
            "what they read; their " em { "limit" } " reads something that never changes."
        }
        div.charts {
            (Pairs { title: "Before and after", better: Better::Less, pairs: &compared, command: &all_commands }.draw())
            (less("idle", "A grace period without readers", "gp_mean_ms", Unit::Milliseconds))
            (less("idle", "A pair of lock and unlock on a thread", "read_ns", Unit::Nanoseconds))
            (less("sleepers", "From the last reader's end to the wait's", "exit_to_gp_us", Unit::Microseconds))
            (more("Sections of 10,000 tasks", "reads_per_s"))
            (more("Updates beside 10,000 tasks", "updates_per_s"))
            (less("async10000", "A wait elsewhere, while 10,000 sections are open", "other_domain_gp_us", Unit::Microseconds))
        }
        (table::all(stored, PART, "readers that sleep"))
    }
}
