//! The machine, and how all of it was done.

use std::collections::BTreeSet;

use maud::{Markup, html};

use super::Section;
use crate::report::draw::{Unit, significant};
use crate::report::stored::Stored;

/// The section.
pub fn section(stored: &Stored) -> Option<Section> {
    Some(Section {
        id: "about",
        title: "The machine",
        parts: Vec::new(),
        commands: Vec::new(),
        body: body(stored),
    })
}

fn body(stored: &Stored) -> Markup {
    let host = &stored.machine;
    let kind = match host.is_virtual {
        Some(true) => ", a virtual machine",
        Some(false) => "",
        None => ", perhaps a virtual machine",
    };
    let commit = host
        .commit
        .as_ref()
        .map_or_else(String::new, |commit| format!(", commit {commit}"));
    let facts = [
        ("CPUs", format!("{}{kind}", host.cpus)),
        ("CPU model", host.cpu_model.clone().unwrap_or_default()),
        (
            "Memory",
            host.memory_mib
                .map(|mib| format!("{} GiB", significant(mib as f64 / 1024.0)))
                .unwrap_or_default(),
        ),
        ("Kernel", host.kernel.clone()),
        (
            "membarrier",
            if host.membarrier {
                "on: readers go without fences"
            } else {
                "off: both sides fence"
            }
            .to_owned(),
        ),
        (
            "Stillpoint",
            format!("{}{commit}, by {}", host.version, host.rustc),
        ),
        ("Date", host.date.clone()),
        ("Seed", stored.params.seed.to_string()),
        ("Peers", peers(stored)),
    ];
    let took: f64 = stored.parts.iter().map(|part| part.took_s).sum();
    html! {
        dl.facts { @for (name, fact) in facts.iter().filter(|(_, fact)| !fact.is_empty()) { dt { (name) } dd { (fact) } } }
        ul.rules {
            li { "Every subject does the same work with the same allocator, in a fresh process for each round; the order within a round is random; figures are medians of the rounds, and a whisker goes from the least round to the greatest." }
            li { "Peers are at their best documented use. What a subject cannot do is absent, never 0." }
            li { "Other work on the machine is in the figures. Compare within a chart; differences of a tenth or two are noise." }
            li { "Bars begin at 0. Where figures are more than 40 times apart the chart has a " em { "log scale" } " and dots: each line is ten times the one before." }
            li { "Every command takes " code { "--json FILE" } ", and then writes what this page was drawn from." }
        }
        h3 { "The parts, " (Unit::Seconds.show(took)) " in all" }
        div.scroll tabindex="0" role="region" aria-label="The parts of this report" {
            table {
                thead { tr { th scope="col" { "command" } th.number scope="col" { "seconds" } th scope="col" { "outcome" } } }
                tbody {
                    @for part in &stored.parts {
                        tr {
                            td { code { (part.command) } }
                            td.number { (format!("{:.1}", part.took_s)) }
                            td { @if part.failure.is_some() { strong { "failed" } } @else if part.params.get("flavour").is_some() && part.name != "torture" { "detected, as it must be" } @else { "done" } }
                        }
                    }
                }
            }
        }
        @let notes: Vec<_> = stored.parts.iter().filter(|part| part.failure.is_none() && !part.notes.is_empty()).collect();
        @if !notes.is_empty() {
            h3 { "Messages" }
            @for part in notes { p { code { (part.command) } } pre { (part.notes) } }
        }
    }
}

/// The peers that took part, with their versions where they have one.
fn peers(stored: &Stored) -> String {
    let subjects: BTreeSet<&str> = stored.rows.iter().map(|row| row.subject.as_str()).collect();
    let named = |subject: &str| {
        let version = stored.machine.version_of(subject)?;
        Some(format!("{subject} {version}"))
    };
    subjects
        .into_iter()
        .filter(|subject| *subject != "stillpoint")
        .filter_map(named)
        .collect::<Vec<_>>()
        .join(", ")
}
