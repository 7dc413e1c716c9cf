//! `stillpoint scale server`: cache servers that one client asks over a Unix socket.
//!
//! The server runs in its own process, on the first of the processors that this one may use; the
//! client is this process, on the second. Where there is one processor only, they share it.
//! Stillpoint's is `stillcache`, which this program has in it; memcached and redis are those of the
//! system. All serve with as many threads as `--threads` says, but redis, which has one. Keys have
//! [`keys::LEN`] bytes.
//!
//! | scenarios | figures | |
//! |---|---|---|
//! | `get-1`, `get-pipelined`, `set` | `cpu_us_per_op`, `ops_per_s`, latencies | [`load`]: what a request costs |
//! | `memory` | `bytes_per_item` | [`weight`]: resident memory beyond key and value |
//! | `shrink` | `p999_us`, `p999_ratio`, `rss_ms`, `rss_ratio` | [`shrink`]: the limit halves under load |
//! | `isolation` | `hits_lost`, `hit_ratio` | [`isolation`]: a tenant beside a neighbour that floods |
//! | `replay-oltp` | `hit_ratio` | [`replay`]: a trace, at the same `-m` |

use anyhow::Result;
use clap::Args;
use serde::{Deserialize, Serialize};

use super::Benchmarks;
use super::traces::Folder;
use crate::choice::{Explained, Family, explained, families, scenarios};
use crate::output::{Metric, metrics};
use crate::peers::servers::Kind;
use crate::run::Sample;
use crate::subject::Peer;

mod client;
mod isolation;
mod keys;
mod load;
mod open;
mod process;
mod replay;
mod shrink;
mod weight;

/// The scenarios, in the table's order.
const SCENARIOS: &[Family] = families! {
    "get-1", "get-pipelined" => "16 connections with a get each, or with 50 in a write.";
    "set" => "16 connections with a set each.";
    "memory" => "A server that is filled with items.", once;
    "shrink" => "The limit of a full server halves under load.", once;
    "isolation" => "A tenant with a guaranteed minimum beside a neighbour that floods; peers have one key space.", once;
    "replay-oltp" => "One client replays the trace OLTP, with -m 8.", once;
};

/// What the work depends on.
#[derive(Args, Serialize, Deserialize)]
pub struct Work {
    /// Threads of a server
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=512))]
    threads: u32,

    #[command(flatten)]
    #[serde(flatten)]
    traces: Folder,

    /// Divide times and items, and replay the first part of a trace only, for a quick look
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    divide: u32,
}

impl Work {
    /// So many, or as many as a quick look has; one at least.
    fn divided(&self, number: u64) -> u64 {
        (number / u64::from(self.divide)).max(1)
    }
}

impl super::Work for Work {
    const NAME: &'static str = "server";

    const SHOWS: &'static str = "What cache servers cost, what they keep, and what a neighbour costs a tenant, asked over a Unix socket. \
        Less is better, but of ops_per_s and hit_ratio more is. Latencies are those of an open loop of 20,000 requests a second, from \
        when a request should have been sent. replay is traces of N. Megiddo and D. S. Modha, \"ARC: A Self-Tuning, Low Overhead \
        Replacement Cache\", USENIX FAST 2003, pp. 115-130.";

    const VARIANTS: &'static [Explained] = explained! {
        "stillcache" => "the server of this project";
    };

    const SCENARIOS: &'static [Family] = SCENARIOS;

    const METRICS: &'static [Metric] = metrics! {
        "cpu_us_per_op" 2 "processor time of the server for a key asked for or stored, the system's part included";
        "ops_per_s" 0 "keys asked for or stored in a second";
        "p50_us" 0 "half of the requests of an open loop of 20,000 a second took no longer";
        "p99_us" 0 "99 of 100 took no longer";
        "p999_us" 0 "999 of 1,000 took no longer";
        "p999_ratio" 2 "that divided by the same before the limit fell";
        "bytes_per_item" 1 "resident memory for an item, less key and value";
        "rss_ms" 0 "from the new limit until resident memory is down";
        "rss_ratio" 3 "resident memory divided by the limit";
        "hits_lost" 0 "requests of a tenant that missed beside its neighbour, and hit without it";
        "hit_ratio" 4 "hits of all requests, 0 to 1";
    };

    fn skipped(&self, scenario: &str) -> Option<&'static str> {
        let is_here = scenario != "replay-oltp" || self.traces.file(replay::TRACE).is_some();
        (!is_here).then_some("no traces")
    }

    fn check(&self) -> Result<(), clap::Error> {
        self.traces.check()
    }

    fn add_to(all: &mut Benchmarks<Self>) {
        for kind in Kind::ALL {
            let peer = match kind {
                Kind::Stillcache => Peer::ours("stillcache"),
                _ => Peer::new(kind.name()),
            };
            for scenario in scenarios(SCENARIOS) {
                all.add(peer, scenario, move |work| measure(work, kind, scenario));
            }
        }
    }
}

fn measure(work: &Work, kind: Kind, scenario: &str) -> Result<Sample> {
    match scenario {
        "memory" => weight::measure(work, kind),
        "shrink" => shrink::measure(work, kind),
        "isolation" => isolation::measure(work, kind),
        "replay-oltp" => replay::measure(work, kind),
        "get-1" => load::measure(work, kind, load::GET),
        "get-pipelined" => load::measure(work, kind, load::PIPELINED),
        "set" => load::measure(work, kind, load::SET),
        _ => unreachable!("{scenario} is measured by no one"),
    }
}
