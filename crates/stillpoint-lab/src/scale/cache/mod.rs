//! `stillpoint scale cache`: caches that threads share, from `u64` to `u64` where nothing else is said.
//!
//! Caches hash with `foldhash::fast` where they can be told, and allocate from the system's
//! allocator. The limit is hashbrown with neither synchronization nor eviction, a table for each
//! thread; it takes part where nothing is evicted. In `mix` it is what knows all requests beforehand.
//!
//! | scenarios | figures | |
//! |---|---|---|
//! | `read-N`, `mixed-2` | `ns_per_op`, `ops_per_s` | [`read`]: on N threads; N is a number, or `n` for `--threads` |
//! | `read-200k`, `insert-200k`, `mixed-200k` | `ns_per_op`, `ops_per_s`, `hit_ratio` (mixed), `p999_ns` (inserts) | [`strings`]: keys and values are strings, on one thread |
//! | `read-N` with `--count` | `shared_rmw_per_op`, `shared_stores_per_op` | [`read`]: what a hit writes of cache lines that two threads share |
//! | `oltp-N`, `p3-N`, `p6-N` | `hit_ratio` | [`replay`]: over a trace, in a cache of N entries; of OLTP with the suffix `-6` by six clients, and `hit_ratio_one` of one client with the requests in the same order |
//! | `loop-*`, `two-loops`, `sawtooth`, `zipf*`, `set-*`, `recent-*` | `hit_ratio` | [`patterns`]: a million requests, in a cache of 10,000 entries |
//! | `memory` | `bytes_per_entry` | [`memory`]: resident memory beyond key and value |
//! | `isolation` | `hits_lost`, `hit_ratio` | [`isolation`]: a tenant beside a neighbour that scans |
//! | `mix`, `mix-static` | `hit_ratio` | [`mix`]: 53 tenants as Twitter's caches are |
//! | `pressure` | `rss_ms`, `rss_ratio` | [`memory`]: a cache of bytes is told to shrink |

use clap::Args;
use serde::{Deserialize, Serialize};

use super::traces::Folder;
use super::{Benchmarks, leak};
use crate::cache::{ByteCache, Cache, StringCache};
use crate::choice::{Explained, Family, explained, families, scenarios};
use crate::output::{Metric, metrics};
use crate::peers;
use crate::subject::{Peer, Registry};

mod isolation;
mod memory;
mod mix;
mod ours;
mod patterns;
mod read;
mod replay;
mod strings;
mod twitter;

/// The scenarios, in the table's order.
const SCENARIOS: &[Family] = families! {
    "read-1", "read-2", "read-n" => "Reads, all of which hit, on 1, 2 or --threads threads.";
    "mixed-2" => "One insert for three reads; the cache evicts.";
    "read-200k", "insert-200k", "mixed-200k" => "Reads, inserts, or three reads for an insert, in a full cache of 200,000 strings, on one thread.";
    "oltp-1000", "oltp-2000", "oltp-5000" => "One client replays the trace OLTP in a cache of 1,000, 2,000 or 5,000 entries.", once;
    "p3-20000", "p3-40000", "p3-80000" => "The same of the trace P3.", once;
    "p6-20000", "p6-40000", "p6-80000" => "The same of the trace P6.", once;
    "oltp-1000-6", "oltp-2000-6", "oltp-5000-6" => "Six clients replay parts of OLTP in turn.", once;
    "loop-9800", "loop-11000", "loop-20000" => "A million requests for N keys in turn, in a cache of 10,000 entries.", once;
    "two-loops" => "6,000 and 7,000 keys in turn, five rounds each, in a cache of 10,000 entries.", once;
    "sawtooth" => "15,000 keys up and down, in a cache of 10,000 entries.", once;
    "zipf", "zipf-scan", "zipf-once", "zipf-moves" => "Keys by Zipf's law, 10,000 entries: alone, with scans, with 70 % new keys, with keys that change.", once;
    "set-moves", "set-to-zipf" => "8,000 keys that change, or 10,000 and then others by Zipf's law, 10,000 entries.", once;
    "recent-3", "recent-2" => "A new key, then two, or one, of those that were new shortly before, 10,000 entries.", once;
    "memory" => "A full cache.", once;
    "isolation" => "A tenant beside a neighbour that scans.", once;
    "mix", "mix-static" => "53 tenants as Twitter's caches are; with an equal share for each.", once;
    "pressure" => "A full cache of bytes is told to be half as large.", once;
};

/// What the work depends on.
#[derive(Args, Serialize, Deserialize)]
pub struct Work {
    /// Threads in the scenarios with -n, which run only if they are named
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=4096))]
    threads: u32,

    #[command(flatten)]
    #[serde(flatten)]
    traces: Folder,

    /// Count the shared cache lines that a hit writes, too, in the scenarios read-N
    #[arg(long)]
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    count: bool,

    /// Divide the operations, the requests and the entries, and replay the first part of a trace
    /// only, for a quick look
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    divide: u32,
}

impl Work {
    /// So many, or as many as a quick look has.
    fn divided(&self, number: usize) -> usize {
        number / self.divide as usize
    }
}

impl super::Work for Work {
    const NAME: &'static str = "cache";

    const SHOWS: &'static str = "What caches that threads share cost, what they keep, and what a neighbour costs a tenant. Less is \
        better, but of ops_per_s and hit_ratio more is; \
        hit_ratio_one is that of one client with the requests in the order that six had them in. oltp, p3 and p6 are traces of N. Megiddo and D. S. Modha, \"ARC: A \
        Self-Tuning, Low Overhead Replacement Cache\", USENIX FAST 2003, pp. 115-130. The tenants of mix follow the statistics of J. \
        Yang, Y. Yue and K. V. Rashmi, \"A large scale analysis of hundreds of in-memory cache clusters at Twitter\", USENIX OSDI \
        2020.";

    const VARIANTS: &'static [Explained] = explained! {
        "default" => "Cache, and its tenants where there are several";
    };

    const SCENARIOS: &'static [Family] = SCENARIOS;

    const ONLY_IF_NAMED: &'static [&'static str] = &["read-n"];

    const METRICS: &'static [Metric] = metrics! {
        "ns_per_op" 1 "time of a thread for an operation";
        "ops_per_s" 0 "operations of all threads in a second";
        "p999_ns" 0 "99.9th percentile of the time of an insert";
        "shared_rmw_per_op" 2 "atomic read-modify-writes of shared cache lines for a hit (with --count)";
        "shared_stores_per_op" 2 "plain stores to shared cache lines for a hit (with --count)";
        "hit_ratio" 4 "hits of all requests, in mixed-200k of all reads, 0 to 1";
        "hit_ratio_one" 4 "the same of one client with the requests in the order that six had them in";
        "bytes_per_entry" 1 "resident memory for an entry, less 16 bytes for key and value";
        "hits_lost" 0 "requests of a tenant that missed beside its neighbour, of 200,000 that hit without it";
        "rss_ms" 2 "from telling the cache to shrink until resident memory is down; absent after two seconds";
        "rss_ratio" 3 "resident memory divided by what the cache says it holds";
    };

    /// Where one thread asks, what it finds takes no account of time.
    fn is_untimed(scenario: &str) -> bool {
        replay::Plan::of(scenario).is_some_and(|plan| plan.is_of_one())
            || patterns::is_one(scenario)
            || matches!(scenario, "mix" | "mix-static")
    }

    fn skipped(&self, scenario: &str) -> Option<&'static str> {
        let plan = replay::Plan::of(scenario)?;
        let found = self.traces.file(plan.trace).is_some();
        (!found).then_some("no traces")
    }

    fn check(&self) -> Result<(), clap::Error> {
        self.traces.check()
    }

    fn add_to(all: &mut Benchmarks<Self>) {
        ours::register(all);
        peers::register(all);
        let limit = Peer::LIMIT;
        for scenario in scenarios(SCENARIOS) {
            if let Some(plan) = read::Plan::of(scenario).filter(read::Plan::is_read_only) {
                all.add(limit, scenario, move |work| read::limit(work, plan));
            }
            if patterns::is_one(scenario) {
                let lru = Peer::new("lru");
                all.add(lru, scenario, move |work| patterns::lru(work, scenario));
            }
        }
        all.add(limit, "mix", |work| mix::limit(work, true));
        all.add(limit, "mix-static", |work| mix::limit(work, false));
    }
}

impl Benchmarks<Work> {
    fn without_tenants<C: Cache>(&mut self, peer: Peer) {
        for scenario in scenarios(SCENARIOS) {
            if let Some(plan) = read::Plan::of(scenario) {
                self.add(peer, scenario, move |work| read::measure::<C>(work, plan));
            }
            if patterns::is_one(scenario) {
                self.add(peer, scenario, move |work| {
                    patterns::measure::<C>(work, scenario)
                });
            }
        }
        for (scenario, plan) in replay::Plan::all() {
            self.add(peer, scenario, move |work| replay::measure::<C>(work, plan));
        }
        self.add(peer, "memory", memory::bytes_per_entry::<C>);
    }
}

impl Registry for Benchmarks<Work> {
    fn caches<C: Cache>(&mut self, peer: Peer) {
        self.without_tenants::<C>(peer);
        self.add(peer, "isolation", isolation::of_one_cache::<C>);
        self.add(peer, "mix", mix::of_one_cache::<C>);
        self.add(peer, "mix-static", mix::of_a_cache_each::<C>);
    }

    fn strings<C: StringCache>(&mut self, peer: Peer) {
        for scenario in scenarios(SCENARIOS) {
            if let Some(plan) = strings::Plan::of(scenario) {
                self.add(peer, scenario, move |work| {
                    strings::measure::<C>(work, plan)
                });
            }
        }
    }

    fn shrinks<C: ByteCache>(&mut self, peer: Peer) {
        self.add(peer, "pressure", memory::shrink::<C>);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Work as _;
    use super::*;

    #[test]
    fn what_one_thread_replays_is_measured_beside_others() {
        let (untimed, timed): (Vec<&str>, Vec<&str>) =
            scenarios(SCENARIOS).partition(|scenario| Work::is_untimed(scenario));
        assert_eq!(untimed.len(), 9 + 13 + 2);
        for of_threads in ["read-1", "mixed-2", "oltp-1000-6", "isolation"] {
            assert!(timed.contains(&of_threads), "{of_threads}");
        }
    }
}
