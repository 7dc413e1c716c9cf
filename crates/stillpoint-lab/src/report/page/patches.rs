//! The five patches of the kernel that Stillpoint's systems follow, and what became of them here.

use maud::{Markup, html};

use super::{Section, grace, kfree, lru, trace, vmap};
use crate::report::draw::{Better, Pair, Pairs, Tone};
use crate::report::stored::Stored;

/// The section; none where nothing of ours stands beside the authors' figures.
pub fn section(stored: &Stored) -> Option<Section> {
    let patches = [
        (
            "Deferred frees: a grace period per page",
            Better::Less,
            kfree::pairs(stored),
        ),
        (
            "Waiting: direct wake-ups, one scan where one will do",
            Better::Less,
            grace::pairs(stored),
        ),
        ("LRU lists: time in locks", Better::Less, lru::pairs(stored)),
        (
            "Readers that sleep: shorter polls and pauses",
            Better::Less,
            trace::pairs(stored),
        ),
        (
            "Address space: no lock for all areas",
            Better::More,
            vmap::pairs(stored),
        ),
    ];
    let is_shown = |pairs: &[Pair]| pairs.iter().any(|pair| pair.tone != Tone::Authors);
    let charts: Vec<Markup> = patches
        .iter()
        .filter(|(.., pairs)| is_shown(pairs))
        .map(|(title, better, pairs)| {
            Pairs {
                title,
                better: *better,
                pairs,
            }
            .draw()
        })
        .collect();
    if charts.is_empty() {
        return None;
    }
    Some(Section {
        id: "patches",
        title: "Five patches of the kernel",
        parts: Vec::new(),
        commands: Vec::new(),
        body: html! {
            p {
                "Each system of Stillpoint follows a patch to the Linux kernel: before and after it, by its authors and here. The authors' machines had up to 64 "
                "CPUs, so compare the ratios and not the figures. " em { "Measured" } " is this machine, by the commands of the sections above; "
                em { "simulated" } " is the kernel's machinery in virtual time, by those of the section below."
            }
            div.charts { @for chart in &charts { (chart) } }
        },
    })
}
