//! Readers that sleep.

use maud::{Markup, html};

use super::{Section, bars, table};
use crate::report::authors::{TRACE_MS, TRACE_READ_NS};
use crate::report::draw::{Better, Pair, Side, Tone, Unit};
use crate::report::stored::Stored;

const PART: &str = "trace";

/// The series' grace periods and readers, simulated beside them.
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
    [authors]
        .into_iter()
        .chain(simulated())
        .chain([read])
        .collect()
}

/// The section.
pub fn section(stored: &Stored) -> Option<Section> {
    Section::of(stored, "trace", "Readers that sleep", &[PART], || {
        body(stored)
    })
}

fn body(stored: &Stored) -> Markup {
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
            "Read sections that block, sleep, or are held by a task across an await. Readers of " em { "read-mb" } " fence, so that grace periods "
            "interrupt no processor; by default readers do not fence. Ten thousand tasks hold a section across a timer of 1 to 10 ms while a "
            "thread replaces what they read; their " em { "limit" } " reads something that never changes."
        }
        div.charts {
            (more("Read sections of 10,000 tasks", "reads_per_s"))
            (more("Updates beside 10,000 reading tasks", "updates_per_s"))
            (less("idle", "Enter and leave a section on a thread", "read_ns", Unit::Nanoseconds))
            (less("idle", "Grace period without readers", "gp_mean_ms", Unit::Milliseconds))
            (less("sleepers", "From the last reader's end to the wait's end", "exit_to_gp_us", Unit::Microseconds))
            (less("async10000", "Wait in one domain, 10,000 sections open in another", "other_domain_gp_us", Unit::Microseconds))
        }
        (table::all(stored, PART, "readers that sleep"))
    }
}
