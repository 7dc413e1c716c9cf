//! The head: what was measured, the most important figures, and the five patches beside what became
//! of them here.

use maud::{Markup, html};

use super::{grace, kfree, lru, trace, vmap};
use crate::report::draw::{Pair, Tone, Unit, ratio};
use crate::report::stored::{Row, Stored};

/// A figure of the head: what of, the figure that is compared, whom with.
struct Tile {
    label: &'static str,
    part: &'static str,
    scenario: Option<&'static str>,
    variant: &'static str,
    metric: &'static str,
    unit: Unit,
    peer: &'static str,
}

const TILES: [Tile; 6] = [
    Tile {
        label: "to enter and leave a read section",
        part: "read",
        scenario: Some("alone"),
        variant: "guard",
        metric: "ns_per_pair",
        unit: Unit::Nanoseconds,
        peer: "crossbeam-epoch",
    },
    Tile {
        label: "to allocate an object and free it after a grace period, 16 threads at once",
        part: "kfree",
        scenario: None,
        variant: "per-page",
        metric: "ns_per_object",
        unit: Unit::Nanoseconds,
        peer: "crossbeam-epoch",
    },
    Tile {
        label: "of memory waiting meanwhile",
        part: "kfree",
        scenario: None,
        variant: "per-page",
        metric: "footprint_mib",
        unit: Unit::Mebibytes,
        peer: "crossbeam-epoch",
    },
    Tile {
        label: "to wait for readers, among 1,000 threads that sleep",
        part: "sync",
        scenario: Some("idle1000"),
        variant: "rcu",
        metric: "mean_us",
        unit: Unit::Microseconds,
        peer: "liburcu-memb",
    },
    Tile {
        label: "from a callback's queueing to its call",
        part: "sync",
        scenario: Some("callback"),
        variant: "rcu",
        metric: "mean_us",
        unit: Unit::Microseconds,
        peer: "liburcu-memb",
    },
    Tile {
        label: "to find the area around an address, among 100,000",
        part: "vmap",
        scenario: Some("find-100000"),
        variant: "rcu",
        metric: "find_ns",
        unit: Unit::Nanoseconds,
        peer: "std-rwlock-btreemap",
    },
];

/// A peer's best row: of several variants the one with the least figure.
pub fn best_of<'s>(
    stored: &'s Stored,
    part: &'s str,
    scenario: Option<&'s str>,
    peer: &str,
    metric: &str,
) -> Option<&'s Row> {
    let rows = stored
        .scene(part, scenario)
        .filter(|row| row.subject == peer && row.figure(metric).is_some());
    rows.min_by(|a, b| {
        a.figure(metric)
            .unwrap_or_default()
            .total_cmp(&b.figure(metric).unwrap_or_default())
    })
}

/// Title, summary and tiles.
pub fn header(stored: &Stored) -> Markup {
    let host = &stored.machine;
    let failures: Vec<_> = stored.failures().collect();
    let subjects: std::collections::BTreeSet<&str> = stored
        .rows
        .iter()
        .filter(|row| !["stillpoint", "limit", "seed"].contains(&row.subject.as_str()))
        .map(|row| row.subject.as_str())
        .collect();
    html! {
        header {
            p.brand { "Stillpoint " (host.version) }
            h1 { "How fast it is, how small, and whether it holds" }
            p.lead {
                "Stillpoint brings the kernel's RCU, and the memory reclaim that stands on it, to programs in user space. "
                "This page shows one run of its lab"
                @if !subjects.is_empty() { ", beside " (subjects.len()) " others that do such work" }
                ": " (if stored.params.quick { "a quick one, " } else { "" }) "on " (host.cpus)
                @if host.cpus == 1 { " CPU" } @else { " CPUs" }
                @if let Some(model) = &host.cpu_model { " (" (model) ")" }
                ", " (date(&host.date)) "."
            }
            @if !failures.is_empty() {
                div.failed role="alert" {
                    p { strong { (failures.len()) " of " (stored.parts.len()) " parts failed" } "; what they have measured all the same is here:" }
                    ul { @for part in &failures { li { code { (part.command) } } } }
                }
            }
            @if !host.optimised { p.failed { "This program was built without optimisation: its figures are no measure of anything." } }
            div.tiles { @for tile in &TILES { (draw(tile, stored)) } }
        }
    }
}

fn draw(tile: &Tile, stored: &Stored) -> Markup {
    let Some(value) = stored.figure(
        tile.part,
        tile.scenario,
        "stillpoint",
        tile.variant,
        tile.metric,
    ) else {
        return Markup::default();
    };
    let peer = best_of(stored, tile.part, tile.scenario, tile.peer, tile.metric)
        .and_then(|row| row.figure(tile.metric));
    html! {
        div.tile {
            p.figure { (tile.unit.show(value)) }
            p { (tile.label) }
            @if let Some(peer) = peer {
                p.beside { (tile.peer) ": " (tile.unit.show(peer)) @if value > 0.0 && peer > 0.0 { ", " b { (ratio(peer / value)) } } }
            }
        }
    }
}

/// The stored date, in words: it is in UTC.
fn date(stored: &str) -> String {
    let (day, time) = stored.split_once('T').unwrap_or((stored, ""));
    format!("{day} {} UTC", time.get(..5).unwrap_or(time))
}

/// The five patches, and what became of them here.
pub fn patches(stored: &Stored) -> Markup {
    let cards = [
        (
            "kfree",
            "Deferred frees",
            "A grace period for each page of objects, instead of one for all.",
            kfree::pairs(stored),
        ),
        (
            "grace",
            "Waiting for readers",
            "Direct wake-ups, and no second scan where one will do.",
            grace::pairs(stored),
        ),
        (
            "lru",
            "LRU lists of many tenants",
            "Counted under RCU instead of a lock.",
            lru::pairs(stored),
        ),
        (
            "trace",
            "Readers that sleep",
            "Grace periods that poll, interrupt and pause less clumsily.",
            trace::pairs(stored),
        ),
        (
            "vmap",
            "An address space",
            "Areas found without one lock for all.",
            vmap::pairs(stored),
        ),
    ];
    // The authors' own figures are no reason to show a card: something of ours must stand beside
    // them.
    let cards: Vec<_> = cards
        .into_iter()
        .filter(|(.., pairs)| pairs.iter().any(|pair| pair.tone != Tone::Authors))
        .collect();
    if cards.is_empty() {
        return Markup::default();
    }
    html! {
        section #patches {
            h2 { "Five patches, and what became of them here" }
            p {
                "Each system of Stillpoint follows a patch to the Linux kernel. The authors measured on machines of their own, with up to 64 CPUs; so "
                "compare the ratios, not the figures. " em { "Measured" } " is this machine, " em { "simulated" } " is the kernel's own "
                "machinery in virtual time."
            }
            div.cards {
                @for (id, title, what, pairs) in &cards {
                    div.card {
                        h3 { a href={ "#" (id) } { (title) } }
                        p { (what) }
                        dl { @for pair in pairs { (summary(pair)) } }
                    }
                }
            }
        }
    }
}

fn summary(pair: &Pair) -> Markup {
    html! {
        div.(pair.tone.class()) {
            dt { (pair.title) }
            dd {
                @for (index, side) in pair.sides.iter().take(2).enumerate() { @if index > 0 { " → " } span { (side.text) } }
                @if pair.ratio().is_some() { " " b { (pair.ratio_in_words()) } }
            }
        }
    }
}
