//! `stillpoint scale map`: concurrent maps from `u64` to `u64`, hash maps and ordered ones.
//!
//! All hash maps hash with `foldhash::fast` and allocate from the system's allocator; each call enters
//! and leaves what its map protects readers with. The limit is hashbrown without any
//! synchronization, a map for each thread where there are several. Where maps are ordered it is std's
//! `BTreeMap`.
//!
//! | scenarios | figures | |
//! |---|---|---|
//! | `get-N` | `ns_per_op`, `dependent_ns` | [`get`]: of N entries |
//! | `readheavy-N`, `exchange-N`, `rapidgrow-N` | `ops_per_s` | [`mix`]: conc-map-bench's mixes on N threads, with the capacity known; with the suffix `-grow` the map is not told it; N is a number, or `n` for `--threads` |
//! | `growth` | `p999_us`, `p9999_us`, `max_us`, `read_p999_us`, `read_rest_p999_us` | [`growth`]: single inserts and single reads, while a map grows |
//! | `memory` | `bytes_per_entry` | resident memory of a map that was not told how many entries will come |
//! | `oget-N` | as `get-N` | [`get`]: of N entries of an ordered map |
//! | `oscan` | `ns_per_key` | [`ordered`]: a hundred entries from a random key on |
//! | `omixed-2` | `ops_per_s` | [`ordered`]: reads and replaced values, half and half, on two threads |

use anyhow::{Result, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};

use super::keys::key;
use super::memory::settle;
use super::{Benchmarks, leak};
use crate::choice::{Explained, Family, explained, families, scenarios};
use crate::map::{Map, MapHandle, OrderedMap};
use crate::output::{Metric, metrics};
use crate::peers;
use crate::run::Sample;
use crate::subject::{Peer, Registry};
use subjects::{Hash, Inline, Limit, OrderedLimit, Tree};

mod get;
mod growth;
mod mix;
mod ordered;
mod subjects;

/// The scenarios, in the table's order.
const SCENARIOS: &[Family] = families! {
    "get-1000", "get-100000", "get-2000000" => "One thread reads random keys of a map of 1,000, 100,000 or 2,000,000 entries.";
    "readheavy-1", "readheavy-2", "readheavy-n" => "98 % reads, 1 % inserts, 1 % removals, on 1, 2 or --threads threads.";
    "exchange-1", "exchange-2", "exchange-n" => "10 % reads, 40 % inserts, 40 % removals, 10 % updates.";
    "rapidgrow-1", "rapidgrow-2", "rapidgrow-n" => "5 % reads, 80 % inserts, 5 % removals, 10 % updates.";
    "exchange-1-grow", "exchange-2-grow", "exchange-n-grow" => "exchange in a map that is not told how large it will be.";
    "rapidgrow-1-grow", "rapidgrow-2-grow", "rapidgrow-n-grow" => "rapidgrow in a map that is not told how large it will be.";
    "growth" => "Single inserts into a growing map beside a reader.", once;
    "memory" => "A map of 2,000,000 entries.", once;
    "oget-100000", "oget-2000000" => "Ordered maps: as get.";
    "oscan" => "Ordered maps: visit the 100 entries behind a random key, of a million.";
    "omixed-2" => "Ordered maps: half reads, half replaced values on two threads, keys by a Zipf law.";
};

/// What the work depends on.
#[derive(Args, Serialize, Deserialize)]
pub struct Work {
    /// Threads in the scenarios with -n, which run only if they are named
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=4096))]
    threads: u32,

    /// The logarithm of the capacity, and of the operations, of the mixes: 25 in conc-map-bench
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(10..=28))]
    capacity_log2: u32,

    /// Divide the entries of growth (16 million), memory (2 million) and oscan (a million), for a quick look
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
    const NAME: &'static str = "map";

    const SHOWS: &'static str =
        "What maps that threads share cost; less is better, but of ops_per_s more is.";

    const VARIANTS: &'static [Explained] = explained! {
        "hash" => "HashMap";
        "hash-inline" => "CopyMap, whose buckets hold the values";
        "btree" => "BTreeMap, in the scenarios of ordered maps";
    };

    const SCENARIOS: &'static [Family] = SCENARIOS;

    const ONLY_IF_NAMED: &'static [&'static str] = &[
        "readheavy-n",
        "exchange-n",
        "rapidgrow-n",
        "exchange-n-grow",
        "rapidgrow-n-grow",
        "oget-100000",
        "oget-2000000",
        "oscan",
        "omixed-2",
    ];

    const METRICS: &'static [Metric] = metrics! {
        "ns_per_op" 1 "a read of a random key that is there";
        "dependent_ns" 1 "a read whose key is the value that the last one found";
        "ops_per_s" 0 "operations of all threads in a second";
        "p999_us" 2 "999 of 1,000 single inserts took no longer";
        "p9999_us" 2 "9,999 of 10,000 single inserts took no longer";
        "max_us" 0 "the longest insert";
        "read_p999_us" 2 "999 of 1,000 single reads meanwhile took no longer";
        "read_rest_p999_us" 2 "the same of reads after the last insert";
        "bytes_per_entry" 1 "resident memory for an entry, after garbage has been freed";
        "ns_per_key" 1 "time of a scan for each entry that it visits";
    };

    fn add_to(all: &mut Benchmarks<Self>) {
        all.maps::<Hash>(Peer::ours("hash"));
        all.maps::<Inline>(Peer::ours("hash-inline"));
        all.orders::<Tree>(Peer::ours("btree"));
        peers::register(all);
        all.maps::<Limit>(Peer::LIMIT);
        all.orders::<OrderedLimit>(Peer::LIMIT);
    }
}

impl Registry for Benchmarks<Work> {
    fn maps<M: Map>(&mut self, peer: Peer) {
        for (scenario, entries) in [
            ("get-1000", 1_000),
            ("get-100000", 100_000),
            ("get-2000000", 2_000_000),
        ] {
            self.add(peer, scenario, move |_| get::measure::<M>(entries));
        }
        for scenario in scenarios(SCENARIOS) {
            if let Some(plan) = mix::Plan::of(scenario) {
                self.add(peer, scenario, move |work| mix::measure::<M>(work, plan));
            }
        }
        self.add(peer, "growth", growth::measure::<M>);
        self.add(peer, "memory", bytes_per_entry::<M>);
    }

    fn orders<M: OrderedMap>(&mut self, peer: Peer) {
        for (scenario, entries) in [("oget-100000", 100_000), ("oget-2000000", 2_000_000)] {
            self.add(peer, scenario, move |_| get::measure_ordered::<M>(entries));
        }
        self.add(peer, "oscan", ordered::scan::<M>);
        self.add(peer, "omixed-2", ordered::mixed::<M>);
    }
}

/// Entries whose resident memory is measured.
const ENTRIES: usize = 2_000_000;

/// Measures the resident memory of an entry.
fn bytes_per_entry<M: Map>(work: &Work) -> Result<Sample> {
    let entries = work.divided(ENTRIES);
    // Memory that the subject allocates once is not counted.
    leak(M::with_capacity(0)).handle(1).insert(0, 0);
    let before = settle()?;
    let mut handle = leak(M::with_capacity(0)).handle(1);
    for number in 0..entries as u64 {
        handle.insert(key(number), number);
    }
    let bytes = settle()?.saturating_sub(before);
    ensure!(
        handle.count() == entries,
        "{} entries of {entries}",
        handle.count()
    );
    let per_entry = bytes as f64 / entries as f64;
    Ok(Sample::of([("bytes_per_entry", per_entry)]))
}
