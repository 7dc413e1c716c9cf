//! A row's name and colour on the page. Older ways to do the work are measured as variants of
//! Stillpoint; on the page they have neither its name nor its colour.

use super::stored::Row;
use crate::output::plot::Tone;

/// Stillpoint's default in each experiment.
const DEFAULT: [&str; 7] = [
    "per-page", "guard", "rcu", "native", "hash", "drop-in", "default",
];

/// The older ways: part, variant, name.
const OLD: [(&str, &str, &str); 11] = [
    ("kfree", "whole-batch", "one grace period for all"),
    ("sync", "service-led", "as a callback"),
    ("lru", "spinlock", "one spinlock"),
    ("lru", "mutex", "one mutex"),
    ("vmap", "unchecked", "no check"),
    ("vmap", "section-alone", "no check, in a section"),
    ("vmap", "heap", "no check, on the heap"),
    ("vmap", "node-rwlock", "rwlock per node"),
    ("vmap", "node-spinlock", "spinlock per node"),
    ("vmap", "global-lock", "one spinlock"),
    ("vmap", "global-mutex", "one mutex"),
];

/// Returns the older way's name, if the row is one.
pub fn old(row: &Row) -> Option<&'static str> {
    OLD.iter()
        .find(|(part, variant, _)| row.is_ours() && row.part == *part && row.variant == *variant)
        .map(|(.., name)| *name)
}

/// Returns whether the row does less work than the others, and so comes after them.
pub fn does_less(row: &Row) -> bool {
    row.subject == "limit" || old(row).is_some_and(|name| name.starts_with("no check"))
}

/// Returns how a row is drawn.
pub fn tone(row: &Row) -> Tone {
    match row.subject.as_str() {
        "stillpoint" if old(row).is_some() => Tone::Old,
        "stillpoint" if DEFAULT.contains(&row.variant.as_str()) => Tone::Accent,
        "stillpoint" => Tone::Ours,
        "limit" => Tone::Limit,
        _ => Tone::Peer,
    }
}

/// Returns a row's name on the page.
pub fn name(row: &Row) -> String {
    match (row.subject.as_str(), old(row)) {
        (_, Some(old)) => old.to_owned(),
        ("stillpoint", None) if tone(row) == Tone::Accent => "Stillpoint".to_owned(),
        (subject, None) if row.variant == "default" => subject.to_owned(),
        ("stillpoint", None) => format!("Stillpoint {}", row.variant),
        (subject, None) => format!("{subject} {}", row.variant),
    }
}
