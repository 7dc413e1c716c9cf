//! Read sections.

use maud::{Markup, html};

use super::{Section, bars, table};
use crate::report::draw::{Better, Unit};
use crate::report::stored::Stored;

const PART: &str = "read";

/// The section.
pub fn section(stored: &Stored) -> Option<Section> {
    Section::of(stored, "read", "Read sections", &[PART], || body(stored))
}

fn body(stored: &Stored) -> Markup {
    html! {
        p {
            "One thread enters and leaves an empty section, again and again, the loop included; the " em { "limit" } " is that loop. "
            "It is alone, or beside a thread that retires objects without a pause. "
            em { "qsbr" } " readers say now and then that they are between sections, and pay nothing for each; "
            em { "trace-owned" } " is a guard that a task may hold across an await."
        }
        div.charts {
            (bars(stored, PART, Some("alone"), "A pair of lock and unlock", "ns_per_pair", Unit::Nanoseconds, Better::Less))
            (bars(stored, PART, Some("beside-flood"), "The same beside a thread that retires", "ns_per_pair", Unit::Nanoseconds, Better::Less))
        }
        (table::all(stored, PART, "read sections"))
    }
}
