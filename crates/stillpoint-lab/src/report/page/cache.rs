//! Caches.

use maud::{Markup, html};

use super::{Section, bars, table};
use crate::report::draw::{Better, Unit};
use crate::report::stored::Stored;

const PART: &str = "cache";

/// The section.
pub fn section(stored: &Stored) -> Option<Section> {
    Section::of(stored, "cache", "Caches", &[PART], || body(stored))
}

fn body(stored: &Stored) -> Markup {
    let chart = |scenario, title, metric, unit, better| {
        bars(stored, PART, Some(scenario), title, metric, unit, better)
    };
    html! {
        p {
            "Two threads use one cache from numbers to numbers. Beside a neighbour that scans, a tenant of Stillpoint's has a guaranteed minimum; "
            "with a peer both use one cache."
        }
        div.charts {
            (chart("read-2", "Reads a second, by two threads", "ops_per_s", Unit::PerSecond, Better::More))
            (chart("mixed-2", "A quarter inserts: operations a second", "ops_per_s", Unit::PerSecond, Better::More))
            (chart("isolation", "Hits of 200,000 that a neighbour's scan costs", "hits_lost", Unit::Bare, Better::Less))
        }
        (table::all(stored, PART, "caches"))
    }
}
