//! The head: what was measured, and Stillpoint's place against the best peer of each row. Also the
//! section about the machine.

use std::collections::BTreeSet;

use maud::{Markup, html};

use super::charts::Chart;
use super::page::{Section, charts, scrolling};
use super::standing::{Standing, standing};
use super::stored::{Row, Stored};
use super::torture;
use crate::load::Load;
use crate::output::numbers::{Unit, ordinal, significant};

/// Notes on peers' figures: part, peer, note.
const CONDITIONS: [(&str, &str, &str); 3] = [
    (
        "read",
        "liburcu-qsbr",
        "its readers must report quiescent states",
    ),
    ("sync", "ps-reclaim", "it registers 255 readers at most"),
    ("trace", "arc-swap", "its readers take a reference count"),
];

/// Draws title, summary and tiles.
pub fn header(stored: &Stored) -> Markup {
    let host = &stored.machine;
    let failures: Vec<_> = stored.failures().collect();
    let missing: Vec<_> = stored.missing().collect();
    let busy = host.load.as_ref().filter(|load| load.busy);
    html! {
        header {
            p.brand { "Stillpoint " (host.version) }
            h1 { "How fast it is, how small, and whether it holds" }
            p.lead {
                "Stillpoint is the kernel's RCU, and the memory reclaim built on it, for programs in user space. "
                "This page shows " (if stored.params.quick { "a quick run" } else { "one run" }) " of its lab on " (host.cpus)
                @if host.cpus == 1 { " CPU" } @else { " CPUs" }
                @if let Some(model) = &host.cpu_model { " (" (model) ")" }
                ", " (date(&host.date)) (beside(stored)) "."
            }
            @if !failures.is_empty() {
                div.failed role="alert" {
                    p { strong { (failures.len()) " of " (stored.parts.len()) " parts failed" } "; what they have measured all the same is here:" }
                    ul { @for part in &failures { li { code { (part.command) } } } }
                }
            }
            @if !missing.is_empty() {
                div.failed role="alert" {
                    p { strong { "Not finished: " (missing.len()) " of " (stored.parts.len() + missing.len()) " parts are missing" } ". The run was broken off before these:" }
                    ul { @for command in &missing { li { code { (command) } } } }
                }
            }
            @if !host.optimised { p.failed { "This program was built without optimisation: its figures are no measure of anything." } }
            @if let Some(load) = busy { (warning(load)) }
            (tiles(stored))
        }
    }
}

fn beside(stored: &Stored) -> String {
    let others: BTreeSet<&str> = stored
        .rows
        .iter()
        .filter(|row| !["stillpoint", "limit", "seed"].contains(&row.subject.as_str()))
        .map(|row| row.subject.as_str())
        .collect();
    match others.len() {
        0 => String::new(),
        1 => ": Stillpoint beside one other that does such work".to_owned(),
        count => format!(": Stillpoint beside {count} others that do such work"),
    }
}

/// Warns that the machine had other work.
fn warning(load: &Load) -> Markup {
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    html! {
        p.busy role="note" {
            strong { "The machine was busy. " }
            "Other programs took " (percent(load.others)) " of the processors' time, the hypervisor took " (percent(load.steal))
            ", and the load average was " (format!("{:.1}", load.before)) " before the run. All times are longer than on a quiet machine: compare "
            "the figures of this page with each other only."
        }
    }
}

fn tiles(stored: &Stored) -> Markup {
    let drawn: Vec<Markup> = charts()
        .filter_map(|(part, chart)| draw(stored, part, chart))
        .chain(torture::tile(stored))
        .collect();
    if drawn.is_empty() {
        return Markup::default();
    }
    html! {
        div.tiles { @for tile in &drawn { (tile) } }
        p.note {
            "A place is that of the median among Stillpoint and the others, each at its best setting for that row. Two are level where their rounds overlap, or less than a tenth is between them."
        }
    }
}

fn draw(stored: &Stored, part: &str, chart: &Chart) -> Option<Markup> {
    let standing = standing(stored, part, chart)?;
    let value = standing.ours.figure(chart.metric)?;
    let spread = standing.ours.spread.get(chart.metric);
    let times = times(chart, &standing);
    let is_first = standing.place == 1 && times.is_some();
    Some(html! {
        div.tile.first[is_first] {
            h2 { (chart.title) }
            p.figure { (chart.unit.show(value)) }
            @if let Some([least, greatest]) = spread {
                p.rounds { "rounds: " (chart.unit.show(*least)) " to " (chart.unit.show(*greatest)) }
            }
            @match standing.best {
                None => p.beside { "No other in this run has it." },
                Some(best) => p.beside {
                    b { (ordinal(standing.place)) " of " (standing.of) } ". "
                    (compared(part, chart, &standing, best, times.as_deref()))
                },
            }
        }
    })
}

/// Returns the ratio of the larger to the smaller of Stillpoint's figure and the best peer's; `None`
/// if they are level.
fn times(chart: &Chart, standing: &Standing<'_>) -> Option<String> {
    let value = standing.ours.figure(chart.metric)?;
    let peer = standing.best?.figure(chart.metric)?;
    if !standing.is_clear || value <= 0.0 || peer <= 0.0 {
        return None;
    }
    chart.unit.times((value / peer).max(peer / value))
}

/// Returns the best peer's figure, and how far Stillpoint's is from it.
fn compared(
    part: &str,
    chart: &Chart,
    standing: &Standing<'_>,
    best: &Row,
    times: Option<&str>,
) -> String {
    let figure = |row: &Row| row.figure(chart.metric).unwrap_or_default();
    let role = if standing.place == 1 { "Next" } else { "Best" };
    let mut text = format!(
        "{role}: {}, {}",
        best.subject,
        chart.unit.show(figure(best))
    );
    if chart.metric == "peak_mib"
        && let Some(price) = best.figure("ns_per_object")
    {
        text += &format!(", at {} an object", Unit::Nanoseconds.show(price));
    }
    match times {
        Some(times) if figure(standing.ours) > figure(best) => text += &format!(", {times} here"),
        Some(times) => text += &format!(", {times}"),
        None => text += ", level",
    }
    let is_meant = |(of, peer, _): &&(&str, &str, &str)| *of == part && *peer == best.subject;
    if let Some((.., condition)) = CONDITIONS.iter().find(is_meant) {
        text += &format!("; {condition}");
    }
    text
}

/// Formats the stored date, which is in UTC.
fn date(stored: &str) -> String {
    let (day, time) = stored.split_once('T').unwrap_or((stored, ""));
    format!("{day} {} UTC", time.get(..5).unwrap_or(time))
}

/// Draws the section about the machine and the method.
pub fn about(stored: &Stored) -> Section {
    let host = &stored.machine;
    let kind = match host.is_virtual {
        Some(true) => ", a virtual machine",
        Some(false) => "",
        None => ", perhaps a virtual machine",
    };
    let memory = |mib: u64| format!("{} GiB", significant(mib as f64 / 1024.0));
    let commit = host.commit.as_ref();
    let commit = commit.map_or_else(String::new, |commit| format!(", commit {commit}"));
    let membarrier = if host.membarrier {
        "on: readers go without fences"
    } else {
        "off: both sides fence"
    };
    let facts = [
        ("CPUs", format!("{}{kind}", host.cpus)),
        ("CPU model", host.cpu_model.clone().unwrap_or_default()),
        ("Memory", host.memory_mib.map(memory).unwrap_or_default()),
        ("Kernel", host.kernel.clone()),
        ("membarrier", membarrier.to_owned()),
        (
            "Stillpoint",
            format!("{}{commit}, by {}", host.version, host.rustc),
        ),
        ("Date", host.date.clone()),
        ("Seed", stored.params.seed.to_string()),
        ("Peers", versions(stored)),
    ];
    let took: f64 = stored.parts.iter().map(|part| part.took_s).sum();
    let head = html! { th scope="col" { "command" } th.number scope="col" { "seconds" } th scope="col" { "outcome" } };
    let parts = html! {
        @for part in &stored.parts {
            tr {
                td { code { (part.command) } }
                td.number { (format!("{:.1}", part.took_s)) }
                td { @if part.failure.is_some() { strong { "failed" } } @else if torture::is_broken(&part.name) { "detected, as it must be" } @else { "done" } }
            }
        }
    };
    let notes = || stored.parts.iter().filter(|part| !part.notes.is_empty());
    let body = html! {
        dl.facts { @for (name, fact) in facts.iter().filter(|(_, fact)| !fact.is_empty()) { dt { (name) } dd { (fact) } } }
        ul.rules {
            li { "Every subject does the same work with the same allocator, in a fresh process for each round; the order within a round is random; figures are medians of the rounds, and a line goes from the least round to the greatest." }
            li { "Peers are at their best documented use. What a subject cannot do is absent, never 0." }
            li { "Other work on the machine is in the figures. Compare within a chart; differences of a tenth or two are noise." }
            li { "Bars begin at 0. Where figures are more than 40 times apart the chart has a " em { "log scale" } " and dots." }
            li { "Every command takes " code { "--json FILE" } ", and then writes what this page was drawn from." }
        }
        h3 { "The parts, " (Unit::Seconds.show(took)) " in all" }
        (scrolling("The parts of this report", &head, &parts))
        @if notes().next().is_some() {
            h3 { "Messages" }
            @for part in notes() { p { code { (part.command) } } pre { (part.notes) } }
        }
    };
    Section {
        id: "about",
        title: "The machine",
        parts: Vec::new(),
        commands: Vec::new(),
        body,
    }
}

/// Returns the peers that took part, with their versions if known.
fn versions(stored: &Stored) -> String {
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
