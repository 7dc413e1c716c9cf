//! Concurrent hash maps.

use maud::{Markup, html};

use super::{Section, bars, table};
use crate::report::draw::{Better, Unit};
use crate::report::stored::Stored;

const PART: &str = "map";

/// The section.
pub fn section(stored: &Stored) -> Option<Section> {
    Section::of(stored, "map", "Hash maps", &[PART], || body(stored))
}

fn body(stored: &Stored) -> Markup {
    let operations = |scenario, title| {
        bars(
            stored,
            PART,
            Some(scenario),
            title,
            "ops_per_s",
            Unit::PerSecond,
            Better::More,
        )
    };
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
    html! {
        p {
            "Two threads use one map from numbers to numbers, in the mixes of conc-map-bench; all maps hash alike. The " em { "limit" }
            " is a map for each thread, without any synchronization."
        }
        div.charts {
            (less("get-100000", "Read one of 100,000 entries", "ns_per_op", Unit::Nanoseconds))
            (less("get-100000", "The same, if the last one told its key", "dependent_ns", Unit::Nanoseconds))
            (operations("readheavy-2", "98 % reads: operations a second"))
            (operations("exchange-2", "80 % inserts and removals: operations a second"))
            (operations("rapidgrow-2-grow", "80 % inserts, from empty: operations a second"))
            (less("memory", "Bytes an entry, of 2,000,000", "bytes_per_entry", Unit::Bare))
        }
        (table::all(stored, PART, "hash maps"))
    }
}
