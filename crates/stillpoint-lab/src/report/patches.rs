//! The five kernel patches that Stillpoint's systems follow: the tables of `stillpoint seeds`, with the figures of this
//! report.

use maud::{Markup, html};

use super::page::{Section, scrolling};
use super::stored::Stored;
use crate::output::Row;
use crate::run::Case;
use crate::seeds::Found;
use crate::seeds::systems::{self, System};

/// The parts of a report that measure the systems, and what `stillpoint seeds` calls them.
const PARTS: [(&str, &str); 8] = [
    ("kfree", "kfree"),
    ("sync", "sync"),
    ("lru", "lru"),
    ("trace", "trace"),
    ("vmap", "vmap"),
    ("sim-sync", "sim sync"),
    ("sim-bridge", "sim bridge"),
    ("sim-trace", "sim trace"),
];

/// Returns the section; `None` if the report has no figures but the kernel's.
pub fn section(stored: &Stored) -> Option<Section> {
    let mut found = Found::of_the_kernel();
    for (part, experiment) in PARTS {
        let rows = stored.rows_of(part).map(|row| {
            let case = Case::new(&row.subject, &row.variant, row.scenario.as_deref());
            Row::new(case, row.metrics.clone())
        });
        found.add(experiment, rows);
    }
    let systems: Vec<System> = systems::all(&found, stored.machine.cpus)
        .into_iter()
        .map(without_empty_lines)
        .filter(|system| system.lines.iter().any(|line| line.origin != "kernel"))
        .collect();
    (!systems.is_empty()).then(|| Section {
        id: "patches",
        title: "Five patches of the kernel",
        parts: Vec::new(),
        commands: Vec::new(),
        body: html! {
            p {
                "Each system of Stillpoint follows a patch to the Linux kernel: before and after it, by its author and here. The authors' machines had up to 64 "
                "CPUs, so compare the factors and not the figures. " em { "Here" } " is this machine, by the commands of the sections above; "
                em { "simulated" } " is the kernel's machinery in virtual time, by those of the section below."
            }
            @for system in &systems { (draw(system)) }
        },
    })
}

/// Removes the lines of variants that the report has not measured.
fn without_empty_lines(mut system: System) -> System {
    system
        .lines
        .retain(|line| line.cells.iter().any(Option::is_some));
    system
}

fn draw(system: &System) -> Markup {
    let head = html! { th scope="col" {} th scope="col" {} @for column in &system.columns { th.number scope="col" { (column) } } };
    let body = html! {
        @for line in &system.lines {
            tr {
                th scope="row" { (line.origin) }
                td.text { (line.label) }
                @for cell in &line.cells { td.number { (cell.as_deref().unwrap_or("–")) } }
            }
        }
    };
    html! {
        h3 { (system.title) }
        p { (system.patch) }
        (scrolling(system.title, &head, &body))
        p.note { (system.about) }
        ul.rules { @for gain in &system.gains { li { (gain) } } }
    }
}
