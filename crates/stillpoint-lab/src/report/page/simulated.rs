//! The kernel's timing, simulated, beside what the authors of the patches measured.

use maud::{Markup, html};

use super::{Section, table};
use crate::report::draw::{Bar, Bars, Better, Tone, Unit};
use crate::report::stored::Stored;

const PARTS: [&str; 3] = ["sim-sync", "sim-bridge", "sim-trace"];

/// The section.
pub fn section(stored: &Stored) -> Option<Section> {
    Section::of(
        stored,
        "simulated",
        "The kernel's timing, simulated",
        &PARTS,
        || body(stored),
    )
}

fn body(stored: &Stored) -> Markup {
    html! {
        p {
            "The patches were measured on machines with 32 and 64 CPUs. The simulation has the kernel's machinery in virtual time: ticks, idle states, the "
            "timer wheel, the tree of CPUs, the grace-period thread. Its constants are the kernel's; a few that no source gives were chosen to fit, which "
            code { "stillpoint sim sync --help" } " lists. So agreement says that the mechanism explains the figures, and does not predict other machines'."
        }
        div.charts {
            (beside(stored, "sim-sync", "mean_ms", "Mean synchronize_rcu(), 32 idle CPUs"))
            (beside(stored, "sim-bridge", "p50_ms", "Median wait, a network bridge on 64 CPUs"))
            (beside(stored, "sim-trace", "mean_ms", "Mean RCU Tasks Trace wait, patch by patch"))
        }
        (table::all(stored, "sim-sync", "synchronize_rcu(), simulated"))
        (table::all(stored, "sim-bridge", "a network bridge, simulated"))
        (table::all(stored, "sim-trace", "RCU Tasks Trace, simulated"))
    }
}

/// For each variant what was measured, and what was simulated.
fn beside(stored: &Stored, part: &str, metric: &str, title: &str) -> Markup {
    let mut bars = Vec::new();
    for row in stored.rows_of(part).filter(|row| row.is_ours()) {
        let seed = stored.figure(part, row.scenario.as_deref(), "seed", &row.variant, metric);
        let bar = |value, tone, how| Bar {
            name: format!("{}, {how}", row.variant),
            tone,
            value,
            spread: None,
        };
        bars.extend(seed.map(|value| bar(value, Tone::Authors, "authors")));
        bars.extend(
            row.figure(metric)
                .map(|value| bar(value, Tone::Simulated, "simulated")),
        );
    }
    Bars {
        title,
        better: Better::Less,
        unit: Unit::Milliseconds,
        bars,
    }
    .draw()
}
