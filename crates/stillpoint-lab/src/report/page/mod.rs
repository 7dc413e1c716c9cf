//! The page: a head with Stillpoint's place among the others, a section for each system, the
//! torture, the machine, and last the kernel's patches and what became of them here.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::draw::{Bar, Bars, Better, Unit};
use super::stored::{Row, Stored};

mod about;
mod cache;
mod epoch;
mod grace;
mod head;
mod kfree;
mod lru;
mod map;
mod names;
mod patches;
mod read;
mod server;
mod simulated;
mod standing;
mod table;
mod torture;
mod trace;
mod vmap;

pub use standing::{best_of, peers};

const STYLE: &str = include_str!("style.css");

/// The page of a report.
pub fn draw(stored: &Stored) -> String {
    let sections = [
        read::section(stored),
        kfree::section(stored),
        kfree::memory(stored),
        grace::section(stored),
        trace::section(stored),
        lru::section(stored),
        vmap::section(stored),
        map::section(stored),
        epoch::section(stored),
        cache::section(stored),
        server::section(stored),
        torture::section(stored),
        about::section(stored),
        patches::section(stored),
        simulated::section(stored),
    ];
    let sections: Vec<Section> = sections.into_iter().flatten().collect();
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { "Stillpoint: report of " (stored.machine.date) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                main {
                    (head::header(stored))
                    nav aria-label="Contents" { @for section in &sections { a href={ "#" (section.id) } { (section.title) } } }
                    @for section in &sections { (section.draw(stored)) }
                }
            }
        }
    };
    page.into_string()
}

/// A section of the page.
pub struct Section {
    id: &'static str,
    title: &'static str,
    /// The parts of the report that it shows.
    parts: Vec<&'static str>,
    /// What repeats them.
    commands: Vec<String>,
    body: Markup,
}

impl Section {
    /// The section, unless none of its parts has been run.
    fn of(
        stored: &Stored,
        id: &'static str,
        title: &'static str,
        parts: &[&'static str],
        body: impl FnOnce() -> Markup,
    ) -> Option<Self> {
        let parts: Vec<_> = parts
            .iter()
            .copied()
            .filter(|part| stored.part(part).is_some())
            .collect();
        if parts.is_empty() {
            return None;
        }
        let commands = parts
            .iter()
            .filter_map(|part| stored.part(part))
            .map(|part| part.command.clone())
            .collect();
        Some(Self {
            id,
            title,
            parts,
            commands,
            body: body(),
        })
    }

    fn draw(&self, stored: &Stored) -> Markup {
        html! {
            section id=(self.id) {
                h2 { (self.title) }
                @for part in self.parts.iter().filter_map(|part| stored.part(part)) {
                    @if let Some(failure) = &part.failure { (failed(&part.command, failure)) }
                }
                (self.body)
                @if !self.commands.is_empty() { p.repeat { span { "Repeat" } @for command in &self.commands { code { (command) } " " } } }
            }
        }
    }
}

/// What a part that is no success has to say.
fn failed(command: &str, failure: &str) -> Markup {
    html! {
        div.failed role="note" {
            p { strong { "Failed: " } code { (command) } }
            pre { (failure) }
        }
    }
}

/// A mark for each row of a scenario that has the figure, the best first.
fn bars(
    stored: &Stored,
    part: &str,
    scenario: Option<&str>,
    title: &str,
    metric: &str,
    unit: Unit,
    better: Better,
) -> Markup {
    let mut rows: Vec<(&Row, f64)> = stored
        .rows_of(part)
        .filter(|row| row.scenario.as_deref() == scenario)
        .filter_map(|row| Some((row, row.figure(metric)?)))
        .collect();
    rows.sort_by(|(a, figure), (b, other)| {
        let order = match better {
            Better::Less => figure.total_cmp(other),
            Better::More => other.total_cmp(figure),
        };
        names::does_less(a).cmp(&names::does_less(b)).then(order)
    });
    let bar = |(row, value): &(&Row, f64)| Bar {
        name: names::name(row),
        tone: names::tone(row),
        value: *value,
        spread: row.spread.get(metric).copied(),
    };
    Bars {
        title,
        better,
        unit,
        bars: rows.iter().map(bar).collect(),
    }
    .draw()
}
