//! The head: what was measured, and Stillpoint's place against the best peer of each row.

use std::collections::BTreeSet;

use maud::{Markup, html};

use super::standing::{Standing, standing};
use super::torture;
use crate::load::Load;
use crate::report::draw::{Better, Unit, ordinal};
use crate::report::stored::{Row, Stored};

/// A row of the comparison: what is compared, and what of the best peer belongs beside it.
struct Tile {
    title: &'static str,
    label: &'static str,
    part: &'static str,
    scenario: Option<&'static str>,
    variant: &'static str,
    metric: &'static str,
    unit: Unit,
    better: Better,
    /// Another figure of the best peer, and what it is of.
    price: Option<(&'static str, Unit, &'static str)>,
}

const TILES: [Tile; 9] = [
    Tile {
        title: "Read-side cost",
        label: "to enter and leave a read section",
        part: "read",
        scenario: Some("alone"),
        variant: "guard",
        metric: "ns_per_pair",
        unit: Unit::Nanoseconds,
        better: Better::Less,
        price: None,
    },
    Tile {
        title: "Reclamation cost",
        label: "to allocate an object and free it after a grace period, 16 threads at once",
        part: "kfree",
        scenario: None,
        variant: "per-page",
        metric: "ns_per_object",
        unit: Unit::Nanoseconds,
        better: Better::Less,
        price: None,
    },
    Tile {
        title: "Peak unreclaimed memory",
        label: "above the start, in the same run",
        part: "kfree",
        scenario: None,
        variant: "per-page",
        metric: "peak_mib",
        unit: Unit::Mebibytes,
        better: Better::Less,
        price: Some(("ns_per_object", Unit::Nanoseconds, "an object")),
    },
    Tile {
        title: "Grace-period latency",
        label: "to wait for readers, 1,000 of which sleep",
        part: "sync",
        scenario: Some("idle1000"),
        variant: "rcu",
        metric: "mean_us",
        unit: Unit::Microseconds,
        better: Better::Less,
        price: None,
    },
    Tile {
        title: "Callback latency",
        label: "from queueing a callback to its call",
        part: "sync",
        scenario: Some("callback"),
        variant: "rcu",
        metric: "mean_us",
        unit: Unit::Microseconds,
        better: Better::Less,
        price: None,
    },
    Tile {
        title: "Sections across an await",
        label: "read sections ended by 10,000 tasks",
        part: "trace",
        scenario: Some("async10000"),
        variant: "native",
        metric: "reads_per_s",
        unit: Unit::PerSecond,
        better: Better::More,
        price: None,
    },
    Tile {
        title: "Address look-up",
        label: "to find the area around an address, among 100,000",
        part: "vmap",
        scenario: Some("find-100000"),
        variant: "rcu",
        metric: "find_ns",
        unit: Unit::Nanoseconds,
        better: Better::Less,
        price: None,
    },
    Tile {
        title: "Hash map",
        label: "operations by two threads, 98 % of them reads",
        part: "map",
        scenario: Some("readheavy-2"),
        variant: "hash",
        metric: "ops_per_s",
        unit: Unit::PerSecond,
        better: Better::More,
        price: None,
    },
    Tile {
        title: "Cache",
        label: "reads by two threads, all of them hits",
        part: "cache",
        scenario: Some("read-2"),
        variant: "default",
        metric: "ops_per_s",
        unit: Unit::PerSecond,
        better: Better::More,
        price: None,
    },
];

/// What has to be known of a peer's figure: part, peer, what.
const CONDITIONS: [(&str, &str, &str); 3] = [
    (
        "read",
        "liburcu-qsbr",
        "its readers must report quiescent states",
    ),
    ("sync", "ps-reclaim", "it registers 255 readers at most"),
    ("trace", "arc-swap", "its readers take a reference count"),
];

/// Title, summary and tiles.
pub fn header(stored: &Stored) -> Markup {
    let host = &stored.machine;
    let failures: Vec<_> = stored.failures().collect();
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

/// That the machine had other work.
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
    let drawn: Vec<Markup> = TILES
        .iter()
        .filter_map(|tile| draw(tile, stored))
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

fn draw(tile: &Tile, stored: &Stored) -> Option<Markup> {
    let standing = standing(
        stored,
        tile.part,
        tile.scenario,
        tile.variant,
        tile.metric,
        tile.better,
    )?;
    let value = standing.ours.figure(tile.metric)?;
    let spread = standing.ours.spread.get(tile.metric);
    let times = times(tile, &standing);
    let is_first = standing.place == 1 && times.is_some();
    Some(html! {
        div.tile.first[is_first] {
            h2 { (tile.title) }
            p.figure { (tile.unit.show(value)) }
            p { (tile.label) }
            @if let Some([least, greatest]) = spread {
                p.rounds { "rounds: " (tile.unit.show(*least)) " to " (tile.unit.show(*greatest)) }
            }
            @if standing.best.is_none() { p.beside { "No other in this run has it." } }
            @if let Some(best) = standing.best {
                p.beside { b { (ordinal(standing.place)) " of " (standing.of) } ". " (compared(tile, &standing, best, times.as_deref())) }
            }
        }
    })
}

/// How many times as much the greater of Stillpoint's figure and the best peer's is; `None` where
/// the two are level.
fn times(tile: &Tile, standing: &Standing) -> Option<String> {
    let value = standing.ours.figure(tile.metric)?;
    let peer = standing.best?.figure(tile.metric)?;
    if !standing.is_clear || value <= 0.0 || peer <= 0.0 {
        return None;
    }
    tile.unit.times((value / peer).max(peer / value))
}

/// The best peer's figure, and how far Stillpoint's is from it.
fn compared(tile: &Tile, standing: &Standing, best: &Row, times: Option<&str>) -> String {
    let figure = |row: &Row| row.figure(tile.metric).unwrap_or_default();
    let peer = figure(best);
    let role = if standing.place == 1 { "Next" } else { "Best" };
    let mut text = format!("{role}: {}, {}", best.subject, tile.unit.show(peer));
    let price = tile
        .price
        .and_then(|(metric, unit, of)| Some((best.figure(metric)?, unit, of)));
    if let Some((price, unit, of)) = price {
        text += &format!(", at {} {of}", unit.show(price));
    }
    match times {
        Some(times) if figure(standing.ours) > peer => text += &format!(", {times} here"),
        Some(times) => text += &format!(", {times}"),
        None => text += ", level",
    }
    let condition = CONDITIONS
        .iter()
        .find(|(part, peer, _)| *part == tile.part && *peer == best.subject);
    if let Some((.., condition)) = condition {
        text += &format!("; {condition}");
    }
    text
}

/// The stored date, in words: it is in UTC.
fn date(stored: &str) -> String {
    let (day, time) = stored.split_once('T').unwrap_or((stored, ""));
    format!("{day} {} UTC", time.get(..5).unwrap_or(time))
}
