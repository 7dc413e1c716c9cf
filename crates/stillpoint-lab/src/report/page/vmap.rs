//! An address space.

use maud::{Markup, html};

use super::{Section, bars, table};
use crate::report::authors::VMAP_REQUESTS_PER_S;
use crate::report::draw::{Better, Pair, Side, Tone, Unit};
use crate::report::stored::Stored;

const PART: &str = "vmap";
const SMALL: &str = "copy-256";

/// Requests a second, before and after, and without any check.
pub fn pairs(stored: &Stored) -> Vec<Pair> {
    let [before, after, unchecked] = VMAP_REQUESTS_PER_S;
    let side = |name, value| Side::new(name, value, Unit::PerSecond);
    let authors = Pair {
        title: "Kernel's series, requests to nginx (48 CPUs)".to_owned(),
        tone: Tone::Authors,
        sides: vec![
            side("one lock", before),
            side("lock per node", after),
            side("no check", unchecked),
        ],
    };
    let figure =
        |variant| stored.figure(PART, Some(SMALL), "stillpoint", variant, "requests_per_s");
    let ours = || {
        let sides = vec![
            side("one spinlock", figure("global-lock")?),
            side("rcu", figure("rcu")?),
            side("no check", figure("unchecked")?),
        ];
        Some(Pair {
            title: "Here, measured, messages of 256 bytes (16 threads)".to_owned(),
            tone: Tone::Accent,
            sides,
        })
    };
    [authors].into_iter().chain(ours()).collect()
}

/// The section.
pub fn section(stored: &Stored) -> Option<Section> {
    Section::of(stored, "vmap", "An address space", &[PART], || body(stored))
}

fn body(stored: &Stored) -> Markup {
    let copies = |scenario, title| {
        bars(
            stored,
            PART,
            Some(scenario),
            title,
            "requests_per_s",
            Unit::PerSecond,
            Better::More,
        )
    };
    let less = |scenario, title, metric| {
        bars(
            stored,
            PART,
            Some(scenario),
            title,
            metric,
            Unit::Nanoseconds,
            Better::Less,
        )
    };
    html! {
        p {
            "Which area is around this address, and is it still allocated? A server may ask that before every copy. " em { "one spinlock" } ", " em { "per node" }
            " and so on ask a tree under locks, as the kernel did; with " em { "no check" } " it does not ask. The " em { "limit" }
            " of a look-up is an array; that of a purge is one large call."
        }
        div.charts {
            (less("find-1000", "Find an area among 1,000", "find_ns"))
            (less("find-100000", "Find an area among 100,000", "find_ns"))
            (less("find-1000000", "Find an area among 1,000,000", "find_ns"))
            (less("find-100000", "Check a range among 100,000 areas", "check_ns"))
            (copies(SMALL, "Check and copy 256 bytes, 16 threads"))
            (copies("copy-4096", "Check and copy 4 KiB, 16 threads"))
            (copies("copy-256-2threads", "Check and copy 256 bytes, 2 threads"))
            (copies("copy-4096-2threads", "Check and copy 4 KiB, 2 threads"))
            (less("alloc-pool", "Allocate and free 4 pages", "alloc_free_ns"))
            (less("random-size", "Allocate and free areas of random size", "alloc_free_ns"))
            (less("purge", "Give a page back to the system, in areas of 16", "purge_ns_per_page"))
            (less("purge-single", "Give a page back to the system, one by one", "purge_ns_per_page"))
        }
        (table::all(stored, PART, "an address space"))
    }
}
