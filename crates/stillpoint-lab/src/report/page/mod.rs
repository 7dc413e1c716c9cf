//! The page: a head, the patches and what became of them here, a section for each system, the
//! torture, the machine.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::draw::{Bar, Bars, Better, Tone, Unit};
use super::stored::{Row, Stored};

mod about;
mod grace;
mod head;
mod kfree;
mod lru;
mod read;
mod simulated;
mod table;
mod torture;
mod trace;
mod vmap;

pub use head::best_of;

const STYLE: &str = include_str!("style.css");

/// Stillpoint's default variant in each experiment. The other variants are there for comparison, or
/// are for special readers.
const USUAL: [&str; 5] = ["per-page", "guard", "rcu", "native", "default"];

/// The page of a report.
pub fn draw(stored: &Stored) -> String {
    let sections = [
        kfree::section(stored),
        read::section(stored),
        grace::section(stored),
        trace::section(stored),
        lru::section(stored),
        vmap::section(stored),
        simulated::section(stored),
        torture::section(stored),
        about::section(stored),
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
                    (head::patches(stored))
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
        Some(Self {
            id,
            title,
            parts,
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

/// What repeats a part.
fn command<'s>(stored: &'s Stored, part: &str) -> &'s str {
    stored.part(part).map_or("", |part| part.command.as_str())
}

/// What repeats several parts, a line each.
fn commands(stored: &Stored, parts: &[&str]) -> String {
    parts
        .iter()
        .map(|part| command(stored, part))
        .filter(|command| !command.is_empty())
        .collect::<Vec<_>>()
        .join("\n")
}

/// How a row is drawn.
fn tone(row: &Row) -> Tone {
    match row.subject.as_str() {
        "stillpoint" if USUAL.contains(&row.variant.as_str()) => Tone::Accent,
        "stillpoint" => Tone::Ours,
        "limit" => Tone::Limit,
        _ => Tone::Peer,
    }
}

/// A row's name on the page.
fn name(row: &Row) -> String {
    match row.subject.as_str() {
        "stillpoint" => format!("Stillpoint {}", row.variant),
        "limit" => "limit".to_owned(),
        _ => row.name(),
    }
}

/// A bar for each row of a scenario that has the figure.
fn bars<'t>(
    stored: &'t Stored,
    part: &'t str,
    scenario: Option<&'t str>,
    title: &'t str,
    metric: &str,
    unit: Unit,
    better: Better,
) -> Markup {
    let bar = |row: &Row| {
        Some(Bar {
            name: name(row),
            tone: tone(row),
            value: row.figure(metric)?,
        })
    };
    let bars = stored.scene(part, scenario).filter_map(bar).collect();
    Bars {
        title,
        better,
        unit,
        bars,
        command: command(stored, part),
    }
    .draw()
}
