//! LRU lists of many tenants.

use maud::{Markup, html};

use super::{Section, bars, table};
use crate::report::authors::LRU_SPINLOCK_PERCENT;
use crate::report::draw::{Better, Pair, Side, Tone, Unit};
use crate::report::stored::Stored;

const PART: &str = "lru";
const CROWD: &str = "threads-16";

/// What went into locks, before and after.
pub fn pairs(stored: &Stored) -> Vec<Pair> {
    let authors = Pair {
        title: "Kernel's patch, profile in two spinlock functions (4 CPUs)".to_owned(),
        tone: Tone::Authors,
        sides: vec![
            Side::new(
                "before",
                LRU_SPINLOCK_PERCENT.iter().sum::<f64>() / 100.0,
                Unit::Share,
            ),
            Side::new("after", 0.0, Unit::Share).told("not among those listed"),
        ],
    };
    let share = |variant| stored.figure(PART, Some(CROWD), "stillpoint", variant, "lock_share");
    let ours = share("spinlock")
        .zip(share("rcu"))
        .map(|(before, after)| Pair {
            title: "Here, measured, samples in locks (16 threads)".to_owned(),
            tone: Tone::Accent,
            sides: vec![
                Side::new("one spinlock", before, Unit::Share),
                Side::new("rcu", after, Unit::Share),
            ],
        });
    [authors].into_iter().chain(ours).collect()
}

/// The section.
pub fn section(stored: &Stored) -> Option<Section> {
    Section::of(stored, "lru", "LRU lists of many tenants", &[PART], || {
        body(stored)
    })
}

fn body(stored: &Stored) -> Markup {
    let counts = |scenario, title| {
        bars(
            stored,
            PART,
            Some(scenario),
            title,
            "counts_per_s",
            Unit::PerSecond,
            Better::More,
        )
    };
    let adds = |scenario, title| {
        bars(
            stored,
            PART,
            Some(scenario),
            title,
            "adds_per_s",
            Unit::PerSecond,
            Better::More,
        )
    };
    html! {
        p {
            "A thread that is short of memory asks every list of every tenant how much it has: here 40 lists of 1,000 tenants, while others add and delete. "
            em { "one spinlock" } " and " em { "one mutex" } " are a lock for all tenants of a list, as the kernel had; the " em { "limit" } " has counters and no lists."
        }
        div.charts {
            (counts(CROWD, "Counts a second: 14 threads count, 2 change the lists"))
            (adds(CROWD, "Additions a second meanwhile"))
            (counts("threads-2", "Counts a second: one thread counts, one changes"))
            (counts("spread-16", "Counts a second: 14 threads, each its own list"))
            (adds("spread-16", "Additions a second meanwhile, each its own list"))
        }
        (table::all(stored, PART, "LRU lists"))
    }
}
