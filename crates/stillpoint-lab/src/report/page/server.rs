//! Cache servers.

use maud::{Markup, html};

use super::{Section, bars, table};
use crate::report::draw::{Better, Unit};
use crate::report::stored::Stored;

const PART: &str = "server";

/// The section.
pub fn section(stored: &Stored) -> Option<Section> {
    Section::of(stored, "server", "Cache servers", &[PART], || body(stored))
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
    html! {
        p {
            "A client on one processor asks a server on another over a Unix socket: stillcache, and the memcached and redis that the system has. Beside a neighbour that floods, a tenant of stillcache has a guaranteed minimum; "
            "with the others both use one key space."
        }
        div.charts {
            (chart("get-1", "A get: the server's processor time", "cpu_us_per_op", Unit::Microseconds))
            (chart("get-pipelined", "One of 50 gets in a write: the server's processor time", "cpu_us_per_op", Unit::Microseconds))
            (chart("isolation", "Hits that a neighbour's flood costs", "hits_lost", Unit::Bare))
        }
        (table::all(stored, PART, "cache servers"))
    }
}
