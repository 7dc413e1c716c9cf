//! The torture: that what is sound holds, and that what is broken is detected.

use maud::{Markup, html};

use super::{Section, command};
use crate::report::draw::{Bar, Bars, Better, Tone, Unit};
use crate::report::stored::{Part, Row, Stored};
use crate::torture::{self, Entry};

const PART: &str = "torture";

/// What is counted, and its name.
const COUNTS: [(&str, &str); 8] = [
    ("survived_s", "seconds"),
    ("reader_sections", "sections"),
    ("grace_periods", "grace periods"),
    ("callbacks", "callbacks"),
    ("objects", "objects freed"),
    ("signals", "signals"),
    ("forks", "forks"),
    ("errors", "errors"),
];

/// The section.
pub fn section(stored: &Stored) -> Option<Section> {
    let parts: Vec<&'static str> = [PART]
        .into_iter()
        .chain(broken().map(|flavour| flavour.name))
        .collect();
    Section::of(stored, "torture", "Torture", &parts, || body(stored))
}

fn broken() -> impl Iterator<Item = &'static Entry> {
    torture::flavours().filter(|flavour| flavour.is_broken())
}

fn about(name: &str) -> &'static str {
    torture::flavours()
        .find(|flavour| flavour.name == name)
        .map_or("", |flavour| flavour.about)
}

fn body(stored: &Stored) -> Markup {
    html! {
        p {
            "Readers, writers and callbacks on elements that are recycled, among signals, forks, threads that come and go, preemption, floods and stalls. Every "
            "section looks for an element that was freed too early. A test that never fails shows little; so some flavours have a part left out on purpose, "
            "and must be detected."
        }
        (sound(stored))
        (survived(stored))
        (left_out(stored))
    }
}

fn sound(stored: &Stored) -> Markup {
    let rows: Vec<&Row> = stored.rows_of(PART).collect();
    if rows.is_empty() {
        return Markup::default();
    }
    html! {
        h3 { "What is sound" }
        div.scroll tabindex="0" role="region" aria-label="Torture of the sound flavours" {
            table {
                thead { tr { th scope="col" { "flavour" } @for (_, name) in COUNTS { th.number scope="col" { (name) } } } }
                tbody {
                    @for row in rows {
                        tr {
                            th scope="row" title=(about(&row.variant)) { (row.variant) }
                            @for (metric, _) in COUNTS { td.number { (row.figure(metric).map_or_else(|| "–".to_owned(), |count| counted(metric, count))) } }
                        }
                    }
                }
            }
        }
        p.repeat { span { "Repeat" } code { (command(stored, PART)) } }
    }
}

/// Counts are exact, however large.
fn counted(metric: &str, count: f64) -> String {
    if metric.ends_with("_s") {
        return format!("{count:.1}");
    }
    let digits = format!("{count:.0}");
    let groups: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .filter_map(|group| std::str::from_utf8(group).ok())
        .collect();
    groups.join(",")
}

/// The broken flavours that were run, each with its part and its row.
fn broken_rows(stored: &Stored) -> impl Iterator<Item = (&'static Entry, &Part, Option<&Row>)> {
    broken().filter_map(|flavour| {
        Some((
            flavour,
            stored.part(flavour.name)?,
            stored.rows_of(flavour.name).next(),
        ))
    })
}

fn survived(stored: &Stored) -> Markup {
    let found = broken_rows(stored).filter(|(_, part, _)| part.failure.is_none());
    let bars = found
        .filter_map(|(flavour, _, row)| {
            let seconds = row?.figure("survived_s")?;
            Some(Bar {
                name: flavour.name.to_owned(),
                tone: Tone::Peer,
                value: seconds,
            })
        })
        .collect();
    let title = "How long the broken flavours survived";
    Bars {
        title,
        better: Better::Less,
        unit: Unit::Seconds,
        bars,
        command: "",
    }
    .draw()
}

fn left_out(stored: &Stored) -> Markup {
    let all: Vec<_> = broken_rows(stored).collect();
    if all.is_empty() {
        return Markup::default();
    }
    let verdict = |part: &Part, row: Option<&Row>| match (&part.failure, row) {
        (Some(_), _) => "NOT detected".to_owned(),
        (None, None) => part.notes.clone(),
        (None, Some(row)) => row
            .figure("survived_s")
            .map_or_else(String::new, |seconds| {
                format!("found after {}", Unit::Seconds.show(seconds))
            }),
    };
    html! {
        h3 { "What is broken on purpose" }
        div.scroll tabindex="0" role="region" aria-label="Flavours broken on purpose" {
            table {
                thead { tr { th scope="col" { "flavour" } th scope="col" { "left out" } th scope="col" { "verdict" } th scope="col" { "repeat" } } }
                tbody {
                    @for (flavour, part, row) in all {
                        tr {
                            th scope="row" { (flavour.name) }
                            td { (flavour.about) }
                            td { (verdict(part, row)) }
                            td { code { (part.command) } }
                        }
                    }
                }
            }
        }
    }
}
