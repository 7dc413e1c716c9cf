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

use stillpoint::lab::Sound;
use stillpoint_map::lab::Sound as SoundMap;

use super::session::Session;
use super::tally::{FAULTS, Fault};
use broken::{EarlyPages, NoWaiting, ShortCookies, SkipsOneHoldout};
use copy_map::WritesAtOnce;
use map::FreesAtOnce;

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
    const fn new(
        name: &'static str,
        about: &'static str,
        threads: Threads,
        run: fn(&Arc<Session>),
    ) -> Self {
        Self {
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

    const fn broken(mut self, expected_faults: &'static [Fault]) -> Self {
        self.expected_faults = expected_faults;
        self
    }

    const fn in_the_hardware(mut self) -> Self {
        self.in_the_hardware = true;
        self
    }

    const fn without(mut self, options: &'static [&'static str]) -> Self {
        self.unsupported_options = options;
        self
    }

    const fn isolated(mut self) -> Self {
        self.isolated = true;
        // A handler that reads would wake a waiter that has missed its wake-up.
        self.without(&["--readers", "--writers", "--fakewriters", "--signals"])
    }

    /// Returns whether a part has been left out on purpose.
    pub fn is_broken(&self) -> bool {
        !self.expected_faults.is_empty()
    }
}

const EARLY: &[Fault] = &[Fault::TooShort, Fault::Ordering, Fault::Cookie];

/// Lists and caches belong to the global domain, which is as old as the process.
const OLD_DOMAIN: &[&str] = &["--gpwrap"];
const OF_CACHES: &[&str] = &["--signals", "--gpwrap"];

/// Returns a table of flavours: name, threads, function and explanation of each in a line, and what else there is
/// to it.
macro_rules! flavours {
    ($($name:literal $threads:ident $run:path => $about:literal $(, $what:ident($($argument:expr)?))*;)*) => {
        &[$(Entry::new($name, $about, $threads, $run)$(.$what($($argument)?))*),*]
    };
}

/// All flavours, the sound ones first.
pub const FLAVOURS: &[Entry] = flavours! {
    "rcu" USUAL thread::torture::<Sound> => "readers by guards, grace periods by membarrier";
    "rcu-fence" USUAL thread::rcu_fence => "the same with fences on both sides";
    "qsbr" USUAL qsbr::run => "readers by quiescent states, in a domain with fences";
    "trace" USUAL trace::torture::<Sound> => "readers that sleep, and hand their sections on to other threads";
    "trace-async" USUAL trace_async::run => "readers that are tasks, await in sections, and are cancelled there";
    "kvfree" USUAL kvfree::torture::<Sound> => "deferred frees, of all kinds";
    "lru" USUAL lru::run => "LRU lists whose tenants come and go, counted without locks", without(OLD_DOMAIN);
    "vmap" USUAL vmap::run => "areas that are found, checked and copied while they are freed and purged";
    "map" USUAL map::torture::<SoundMap> => "a hash map whose table grows and shrinks, found, walked and written";
    "copy-map" USUAL copy_map::torture::<SoundMap> => "the same of a map of copies, whose slots are used again";
    "btree" USUAL btree::torture::<SoundMap> => "an ordered map whose nodes are divided and merged, found, walked and written";
    "cache" USUAL cache::run => "a cache whose tenants, limits and pins change, while entries expire, are loaded, and used", without(OF_CACHES);
    "cache-bytes" USUAL cache_bytes::run => "byte values of a cache, moved while they are read, cloned, replaced and evicted", without(OF_CACHES);
    "wake" PAIR wake::run => "one reader and one waiter, which sleeps without bound, or looks whether a cookie of start_poll has come true", isolated();
    "busted" FEW thread::torture::<NoWaiting> => "grace periods do not wait for readers", broken(EARLY);
    "busted-membarrier" PAIR thread::busted_membarrier => "no heavy barrier before the scan", broken(EARLY), in_the_hardware();
    "busted-cookie" FEW thread::torture::<ShortCookies> => "a cookie names one grace period too few", broken(EARLY);
    "busted-kvfree" FEW kvfree::torture::<EarlyPages> => "a page of deferred frees has a cookie one too old", broken(EARLY);
    "busted-lru" FEW lru::busted => "lists are counted outside of sections", broken(&[Fault::Count]), without(&["--fakewriters", "--signals", "--gpwrap"]);
    "busted-vmap" FEW vmap::busted => "memory is purged without a grace period", broken(&[Fault::Content]);
    "busted-map" FEW map::torture::<FreesAtOnce> => "entries of a hash map are freed without a grace period", broken(&[Fault::TooShort]);
    "busted-btree" FEW btree::torture::<FreesAtOnce> => "entries of an ordered map are freed without a grace period", broken(&[Fault::TooShort]);
    "busted-cache" FEW cache::busted => "entries that are invalidated are dropped without a grace period", broken(&[Fault::TooShort]), without(OF_CACHES);
    "busted-cache-bytes" FEW cache_bytes::busted => "byte values' old places are written over without a grace period", broken(&[Fault::Content]), without(OF_CACHES);
    "busted-copy-map" FEW copy_map::torture::<WritesAtOnce> => "slots of a map of copies are used again without a grace period", broken(&[Fault::Lost, Fault::Content]);
    "busted-trace" FEW trace::torture::<SkipsOneHoldout> => "a scan passes over one holdout", broken(EARLY);
    "busted-barrier" FEW thread::busted_barrier => "a barrier does not wait for callbacks", broken(&[Fault::Barrier]);
    "busted-wake" PAIR wake::busted => "no second barrier before sleeping, without bound", broken(&[Fault::WriterStall]), isolated(), in_the_hardware();
    "busted-poll" PAIR wake::busted_poll => "cookies of start_poll come true only if they are polled", broken(&[Fault::WriterStall]), isolated();
};

/// A line for each, for scripts: see the option `--list`.
pub fn list() -> String {
    let name_of = |fault: &Fault| FAULTS[*fault as usize].1;
    let line = |entry: &Entry| {
        let kind = match (entry.is_broken(), entry.in_the_hardware) {
            (false, _) => "sound",
            (true, false) => "broken",
            (true, true) => "broken-in-the-hardware",
        };
        let faults: Vec<_> = entry.expected_faults.iter().map(name_of).collect();
        let line = format!("{} {kind} {}", entry.name, faults.join(","));
        line.trim_end().to_owned() + "\n"
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
    let is_meant = |entry: &&Entry| match name {
        ALL => !entry.is_broken(),
        name => entry.name == name,
    };
    FLAVOURS.iter().filter(is_meant).collect()
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
