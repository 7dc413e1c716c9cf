//! What can be tortured. A new flavour is a file here with a function that runs it, and a line in
//! [`FLAVOURS`].
//!
//! | file | flavours |
//! |---|---|
//! | `thread` | rcu and rcu-fence: readers by guards |
//! | `qsbr` | readers by quiescent states |
//! | `trace`, `trace_async` | readers that sleep, and that are tasks |
//! | `kvfree` | deferred frees |
//! | `lru`, `vmap` | LRU lists and their arrays; the address space |
//! | `map`, `copy_map`, `btree` | the hash maps; the ordered map |
//! | `cache`, `cache_bytes` | the cache; its byte values, which are moved |
//! | `wake` | one waiter and one reader, again and again: wake-ups and promises |
//! | `broken` | the policies of the broken flavours |
//! | `subject`, `keyed` | what the flavours of data structures share; those of maps |
//! | `elements` | elements that values live in |
//! | `pipe_test` | what the other flavours share |

use std::sync::Arc;

use super::session::Session;
use super::tally::{FAULTS, Fault};

mod broken;
mod btree;
mod cache;
mod cache_bytes;
mod copy_map;
mod elements;
mod keyed;
mod kvfree;
mod lru;
mod map;
mod pipe_test;
mod qsbr;
mod subject;
mod thread;
mod trace;
mod trace_async;
mod vmap;
mod wake;

/// Threads that a flavour has unless the command line says otherwise.
#[derive(Debug, Clone, Copy)]
pub struct Threads {
    /// Those that read.
    pub readers: u32,
    /// Those that replace.
    pub writers: u32,
    /// Those that only wait.
    pub fakewriters: u32,
}

const USUAL: Threads = Threads {
    readers: 3,
    writers: 2,
    fakewriters: 2,
};
const FEW: Threads = Threads {
    readers: 2,
    writers: 1,
    fakewriters: 0,
};
const PAIR: Threads = Threads {
    readers: 1,
    writers: 1,
    fakewriters: 0,
};

/// A flavour.
pub struct Entry {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is about; of a broken one, what is left out.
    pub about: &'static str,
    /// The faults of which a broken flavour must show one. Empty: it is sound.
    pub expected_faults: &'static [Fault],
    /// True if only optimised code shows what is broken, where membarrier works, to two processors.
    pub in_the_hardware: bool,
    /// True if it is about wake-ups: no thread but its own reader may end a waiter's sleep. So
    /// nothing goes on around it unless that is asked for, and a waiter that does not come back is
    /// missed soon.
    pub isolated: bool,
    /// Options that it would have to ignore, and refuses.
    pub unsupported_options: &'static [&'static str],
    /// Its threads.
    pub threads: Threads,
    /// Runs it.
    pub run: fn(&Arc<Session>),
}

impl Entry {
    /// Returns whether a part has been left out on purpose.
    pub fn is_broken(&self) -> bool {
        !self.expected_faults.is_empty()
    }
}

const fn sound(
    name: &'static str,
    about: &'static str,
    threads: Threads,
    run: fn(&Arc<Session>),
) -> Entry {
    Entry {
        name,
        about,
        expected_faults: &[],
        in_the_hardware: false,
        isolated: false,
        unsupported_options: &[],
        threads,
        run,
    }
}

const fn broken(
    name: &'static str,
    about: &'static str,
    expected_faults: &'static [Fault],
    threads: Threads,
    run: fn(&Arc<Session>),
) -> Entry {
    Entry {
        name,
        about,
        expected_faults,
        in_the_hardware: false,
        isolated: false,
        unsupported_options: &[],
        threads,
        run,
    }
}

const fn isolated(
    name: &'static str,
    about: &'static str,
    expected_faults: &'static [Fault],
    run: fn(&Arc<Session>),
) -> Entry {
    // A handler that reads would wake a waiter that has missed its wake-up.
    let unsupported_options = &["--readers", "--writers", "--fakewriters", "--signals"];
    Entry {
        name,
        about,
        expected_faults,
        in_the_hardware: false,
        isolated: true,
        unsupported_options,
        threads: PAIR,
        run,
    }
}

const EARLY: &[Fault] = &[Fault::TooShort, Fault::Ordering, Fault::Cookie];

/// All flavours, the sound ones first.
pub const FLAVOURS: &[Entry] = &[
    sound(
        "rcu",
        "readers by guards, grace periods by membarrier",
        USUAL,
        thread::rcu,
    ),
    sound(
        "rcu-fence",
        "the same with fences on both sides",
        USUAL,
        thread::rcu_fence,
    ),
    sound(
        "qsbr",
        "readers by quiescent states, in a domain with fences",
        USUAL,
        qsbr::run,
    ),
    sound(
        "trace",
        "readers that sleep, and hand their sections on to other threads",
        USUAL,
        trace::run,
    ),
    sound(
        "trace-async",
        "readers that are tasks, await in sections, and are cancelled there",
        USUAL,
        trace_async::run,
    ),
    sound("kvfree", "deferred frees, of all kinds", USUAL, kvfree::run),
    // Lists belong to the global domain, which is as old as the process.
    Entry {
        unsupported_options: &["--gpwrap"],
        ..sound(
            "lru",
            "LRU lists whose tenants come and go, counted without locks",
            USUAL,
            lru::run,
        )
    },
    sound(
        "vmap",
        "areas that are found, checked and copied while they are freed and purged",
        USUAL,
        vmap::run,
    ),
    sound(
        "map",
        "a hash map whose table grows and shrinks, found, walked and written",
        USUAL,
        map::run,
    ),
    sound(
        "copy-map",
        "the same of a map of copies, whose slots are used again",
        USUAL,
        copy_map::run,
    ),
    sound(
        "btree",
        "an ordered map whose nodes are divided and merged, found, walked and written",
        USUAL,
        btree::run,
    ),
    // Caches belong to the global domain, which is as old as the process.
    Entry {
        unsupported_options: &["--signals", "--gpwrap"],
        ..sound(
            "cache",
            "a cache whose tenants, limits and pins change, while entries expire, are loaded, and used",
            USUAL,
            cache::run,
        )
    },
    Entry {
        unsupported_options: &["--signals", "--gpwrap"],
        ..sound(
            "cache-bytes",
            "byte values of a cache, moved while they are read, cloned, replaced and evicted",
            USUAL,
            cache_bytes::run,
        )
    },
    isolated(
        "wake",
        "one reader and one waiter, which sleeps without bound, or looks whether a cookie of start_poll has come true",
        &[],
        wake::run,
    ),
    broken(
        "busted",
        "grace periods do not wait for readers",
        EARLY,
        FEW,
        thread::busted,
    ),
    Entry {
        in_the_hardware: true,
        ..broken(
            "busted-membarrier",
            "no heavy barrier before the scan",
            EARLY,
            PAIR,
            thread::busted_membarrier,
        )
    },
    broken(
        "busted-cookie",
        "a cookie names one grace period too few",
        EARLY,
        FEW,
        thread::busted_cookie,
    ),
    broken(
        "busted-kvfree",
        "a page of deferred frees has a cookie one too old",
        EARLY,
        FEW,
        kvfree::busted,
    ),
    Entry {
        unsupported_options: &["--fakewriters", "--signals", "--gpwrap"],
        ..broken(
            "busted-lru",
            "lists are counted outside of sections",
            &[Fault::Count],
            FEW,
            lru::busted,
        )
    },
    broken(
        "busted-vmap",
        "memory is purged without a grace period",
        &[Fault::Content],
        FEW,
        vmap::busted,
    ),
    broken(
        "busted-map",
        "entries of a hash map are freed without a grace period",
        &[Fault::TooShort],
        FEW,
        map::busted,
    ),
    broken(
        "busted-btree",
        "entries of an ordered map are freed without a grace period",
        &[Fault::TooShort],
        FEW,
        btree::busted,
    ),
    Entry {
        unsupported_options: &["--signals", "--gpwrap"],
        ..broken(
            "busted-cache",
            "entries that are invalidated are dropped without a grace period",
            &[Fault::TooShort],
            FEW,
            cache::busted,
        )
    },
    Entry {
        unsupported_options: &["--signals", "--gpwrap"],
        ..broken(
            "busted-cache-bytes",
            "byte values' old places are written over without a grace period",
            &[Fault::Content],
            FEW,
            cache_bytes::busted,
        )
    },
    broken(
        "busted-copy-map",
        "slots of a map of copies are used again without a grace period",
        &[Fault::Lost, Fault::Content],
        FEW,
        copy_map::busted,
    ),
    broken(
        "busted-trace",
        "a scan passes over one holdout",
        EARLY,
        FEW,
        trace::busted,
    ),
    broken(
        "busted-barrier",
        "a barrier does not wait for callbacks",
        &[Fault::Barrier],
        FEW,
        thread::busted_barrier,
    ),
    Entry {
        in_the_hardware: true,
        ..isolated(
            "busted-wake",
            "no second barrier before sleeping, without bound",
            &[Fault::WriterStall],
            wake::busted,
        )
    },
    isolated(
        "busted-poll",
        "cookies of start_poll come true only if they are polled",
        &[Fault::WriterStall],
        wake::busted_poll,
    ),
];

/// A line for each, for scripts: see the option `--list`.
pub fn list() -> String {
    let name_of = |fault: &Fault| {
        FAULTS
            .iter()
            .find(|(known, ..)| known == fault)
            .map_or("", |&(_, _, name)| name)
    };
    let line = |entry: &Entry| {
        let kind = match (entry.is_broken(), entry.in_the_hardware) {
            (false, _) => "sound",
            (true, false) => "broken",
            (true, true) => "broken-in-the-hardware",
        };
        let faults: Vec<_> = entry.expected_faults.iter().map(name_of).collect();
        format!("{} {kind} {}", entry.name, faults.join(","))
            .trim_end()
            .to_owned()
            + "\n"
    };
    FLAVOURS.iter().map(line).collect()
}

/// The name of all sound flavours together.
pub const ALL: &str = "all";

/// The flavours that names with commas between them stand for, in their order.
pub fn named(names: &str) -> Vec<&'static Entry> {
    names.split(',').flat_map(of_one_name).collect()
}

fn of_one_name(name: &str) -> Vec<&'static Entry> {
    FLAVOURS
        .iter()
        .filter(|entry| {
            if name == ALL {
                !entry.is_broken()
            } else {
                entry.name == name
            }
        })
        .collect()
}

/// Reads flavours' names.
pub fn parse(names: &str) -> Result<String, String> {
    match names.split(',').find(|name| of_one_name(name).is_empty()) {
        None => Ok(names.to_owned()),
        Some(unknown) => {
            let names: Vec<_> = FLAVOURS.iter().map(|entry| entry.name).collect();
            Err(format!(
                "no flavour '{unknown}'; say {ALL}, {}",
                names.join(", ")
            ))
        }
    }
}

/// The table for the help.
pub fn help() -> String {
    let lines = FLAVOURS
        .iter()
        .map(|Entry { name, about, .. }| format!("  {name:18} {about}\n"));
    let table: String = lines.collect();
    format!(
        "Flavours; of the broken ones, what is left out on purpose, and has to be detected:\n{table}\n{NOT_HERE}"
    )
}

/// What a run on x86-64 cannot show.
const NOT_HERE: &str = "Broken variants that an x86-64 processor cannot show, because its loads and its stores stay in order, fail in the \
models instead: acquire and release left out at the labels R1, R2, R4, W1, W4 to W6 and in gp/stack.rs, and areas published too early or cleared too late, under loom \
(cargo test with --cfg stillpoint_loom); and all forms without the heavy barrier, the one that busted-membarrier needs included, \
in the store-buffer model (models/check). busted-membarrier and busted-wake need membarrier(2) and an optimised build.";
