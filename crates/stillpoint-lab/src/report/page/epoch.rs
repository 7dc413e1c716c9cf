//! Programs on crossbeam-epoch, with the drop-in package and with the original.

use maud::{Markup, html};

use super::{Section, bars, table};
use crate::report::draw::{Better, Unit};
use crate::report::stored::Stored;

const PART: &str = "epoch";

/// The section.
pub fn section(stored: &Stored) -> Option<Section> {
    Section::of(
        stored,
        "epoch",
        "Programs on crossbeam-epoch",
        &[PART],
        || body(stored),
    )
}

fn body(stored: &Stored) -> Markup {
    let chart = |scenario, title, metric, unit| {
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
    let time = |scenario, title| chart(scenario, title, "cpu_ns_per_op", Unit::Nanoseconds);
    html! {
        p {
            "Stillpoint has a package with the interface of crossbeam-epoch, which takes its place by one line. The same program is built with either; what is "
            "shown is the processor time of all its threads. " em { "nofence" } " is for programs that need no fence in a pin. The " em { "limit" }
            " takes no guard and frees at once."
        }
        div.charts {
            (time("pin", "A pin and its end"))
            (time("box-2", "Make a box and defer its end, two threads"))
            (time("moka-50", "moka: half reads, half writes, two threads"))
            (chart("flood-loaded", "MiB at the peak: 16 threads flood two busy CPUs", "peak_mib", Unit::Bare))
        }
        (table::all(stored, PART, "programs"))
    }
}
