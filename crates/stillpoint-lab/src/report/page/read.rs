//! Read sections.

use maud::{Markup, html};

use super::{Section, bars, table};
use crate::report::draw::{Better, Unit};
use crate::report::stored::Stored;

const PART: &str = "read";

/// The section.
pub fn section(stored: &Stored) -> Option<Section> {
    Section::of(stored, "read", "Read", &[PART], || body(stored))
}

fn body(stored: &Stored) -> Markup {
    html! {
        p {
            "One thread enters and leaves an empty read section, again and again. The " em { "limit" } " is the loop without a section. "
            "Readers of " em { "qsbr" } " report quiescent states now and then, and pay nothing for a section; "
            em { "trace-owned" } " is a guard that a task may hold across an await."
        }
        div.charts {
            (bars(stored, PART, Some("alone"), "Enter and leave a read section", "ns_per_pair", Unit::Nanoseconds, Better::Less))
            (bars(stored, PART, Some("beside-flood"), "The same beside a thread that retires", "ns_per_pair", Unit::Nanoseconds, Better::Less))
        }
        (table::all(stored, PART, "read sections"))
    }
}
