//! The section on torture: sound flavours hold, broken ones are detected.

use anyhow::Result;
use maud::{Markup, html};

use super::page::{Section, figure, scrolling};
use super::stored::{Part, Row, Stored};
use crate::output::numbers::{Unit, grouped};
use crate::output::plot::{Bar, Panel, Tone};
use crate::torture::{self, Entry};

const PART: &str = "torture";

/// Counts, and their names on the page.
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

/// Returns the section; `None` if no torture was run.
pub fn section(stored: &Stored) -> Result<Option<Section>> {
    let parts: Vec<&'static str> = [PART]
        .into_iter()
        .chain(broken().map(|flavour| flavour.name))
        .collect();
    // One command stands for those of all broken flavours.
    let broken = broken_rows(stored).next().map(|(flavour, part, _)| {
        let name = format!(" {} ", flavour.name);
        part.command.replacen(&name, " NAME ", 1)
    });
    let sound = stored.part(PART).map(|part| part.command.clone());
    let section = Section::of(stored, "torture", "Torture", &parts, body(stored)?);
    Ok(section.map(|section| Section {
        commands: sound.into_iter().chain(broken).collect(),
        ..section
    }))
}

/// Returns whether a part is a flavour that is broken on purpose.
pub fn is_broken(part: &str) -> bool {
    broken().any(|flavour| flavour.name == part)
}

/// Returns the outcome of all runs, for the head.
pub fn tile(stored: &Stored) -> Option<Markup> {
    let sound: Vec<&Row> = stored.rows_of(PART).collect();
    let all: Vec<_> = broken_rows(stored).collect();
    let failed = stored.part(PART).is_some_and(|part| part.failure.is_some());
    if sound.is_empty() && all.is_empty() && !failed {
        return None;
    }
    let errors: f64 = sound.iter().filter_map(|row| row.figure("errors")).sum();
    let failures = all.iter().filter(|(_, part, _)| part.failure.is_some());
    let found = all
        .iter()
        .filter(|(_, part, row)| part.failure.is_none() && row.is_some());
    let detected = found.count();
    let shown = detected + failures.count();
    let holds = !failed && errors == 0.0 && detected == shown;
    let flavours = |count: usize| {
        format!(
            "{count} {}",
            if count == 1 { "flavour" } else { "flavours" }
        )
    };
    Some(html! {
        div.tile.first[holds].bad[!holds] {
            h2 { "Torture" }
            @if !sound.is_empty() {
                p.figure { (counted("errors", errors)) @if errors == 1.0 { " error" } @else { " errors" } }
                p { (flavours(sound.len())) " among signals, forks, floods and stalls" }
            } @else if failed { p.figure { "failed" } }
            @else { p.figure { (detected) " of " (shown) } p { "broken versions detected" } }
            @if failed && !sound.is_empty() { p { "The torture did not come to a good end." } }
            @if !sound.is_empty() && shown > 0 { p.beside { b { (detected) " of " (shown) } " versions that are broken on purpose detected" } }
            @if shown < all.len() { p.beside { (all.len() - shown) " more cannot be shown on this machine" } }
        }
    })
}

fn broken() -> impl Iterator<Item = &'static Entry> {
    torture::flavours().filter(|flavour| flavour.is_broken())
}

fn about(name: &str) -> &'static str {
    torture::flavours()
        .find(|flavour| flavour.name == name)
        .map_or("", |flavour| flavour.about)
}

fn body(stored: &Stored) -> Result<Markup> {
    Ok(html! {
        p {
            "Readers, writers and callbacks on elements that are recycled, among signals, forks, threads that come and go, preemption, floods and stalls. Every "
            "section looks for an element that was freed too early. A test that never fails shows little; so some flavours have a part left out on purpose, "
            "and must be detected."
        }
        (sound(stored))
        (survived(stored)?)
        (left_out(stored))
    })
}

fn sound(stored: &Stored) -> Markup {
    let rows: Vec<&Row> = stored.rows_of(PART).collect();
    if rows.is_empty() {
        return Markup::default();
    }
    let head = html! { th scope="col" { "flavour" } @for (_, name) in COUNTS { th.number scope="col" { (name) } } };
    let body = html! {
        @for row in rows {
            tr {
                th scope="row" title=(about(&row.variant)) { (row.variant) }
                @for (metric, _) in COUNTS { td.number { (row.figure(metric).map_or_else(|| "–".to_owned(), |count| counted(metric, count))) } }
            }
        }
    };
    html! { h3 { "Sound flavours" } (scrolling("Torture of the sound flavours", &head, &body)) }
}

/// Formats a count with all its digits.
fn counted(metric: &str, count: f64) -> String {
    if metric.ends_with("_s") {
        return format!("{count:.1}");
    }
    grouped(&format!("{count:.0}"))
}

/// Returns the broken flavours that were run, each with its part and its row.
fn broken_rows(stored: &Stored) -> impl Iterator<Item = (&'static Entry, &Part, Option<&Row>)> {
    broken().filter_map(|flavour| {
        Some((
            flavour,
            stored.part(flavour.name)?,
            stored.rows_of(flavour.name).next(),
        ))
    })
}

fn survived(stored: &Stored) -> Result<Markup> {
    let found = broken_rows(stored).filter(|(_, part, _)| part.failure.is_none());
    let bar = |(flavour, _, row): (&Entry, _, Option<&Row>)| {
        let seconds = row?.figure("survived_s")?;
        Some(Bar {
            name: flavour.name.to_owned(),
            tone: Tone::Peer,
            value: seconds,
            text: Unit::Seconds.show(seconds),
            spread: None,
        })
    };
    let bars: Vec<Bar> = found.filter_map(bar).collect();
    if bars.is_empty() {
        return Ok(Markup::default());
    }
    figure(&[Panel {
        title: "Time until a broken flavour was detected".to_owned(),
        how: "less is better".to_owned(),
        bars,
    }])
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
                format!("detected after {}", Unit::Seconds.show(seconds))
            }),
    };
    let head = html! { th scope="col" { "flavour" } th scope="col" { "left out" } th scope="col" { "verdict" } };
    let body = html! {
        @for (flavour, part, row) in all {
            tr {
                th scope="row" { (flavour.name) }
                td.text { (flavour.about) }
                td.text { (verdict(part, row)) }
            }
        }
    };
    html! { h3 { "Broken on purpose" } (scrolling("Flavours broken on purpose", &head, &body)) }
}
