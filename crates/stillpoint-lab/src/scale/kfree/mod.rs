//! `stillpoint scale kfree`: threads allocate small objects and retire each at once, as the
//! kernel's rcuscale does in its kfree_rcu test; how long that takes, and how much memory waits for
//! grace periods meanwhile.
//!
//! [`workload`] says what is measured and why it is fair, [`super::memory`] how memory is read.

use anyhow::Result;
use clap::Args;
use clap::error::ErrorKind;
use procfs::{Current, Meminfo};
use serde::{Deserialize, Serialize};

use super::Benchmarks;
use super::subjects::{Fences, FreeAtOnce, Global};
use crate::choice::{Explained, explained};
use crate::object;
use crate::output::{Metric, metrics};
use crate::peers;
use crate::run::Sample;
use crate::subject::{Peer, Reclaimer, Registry};
use workload::measure;

#[cfg(feature = "peers")]
mod lines;
mod ours;
mod workload;

/// The figure of `--count`.
const SHARED_RMW: &str = "shared_rmw_per_object";

/// What the work depends on.
#[derive(Args, Serialize, Deserialize)]
pub struct Work {
    /// Threads that allocate and retire
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=4096))]
    threads: u32,

    /// Loops of each thread
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    loops: u32,

    /// Objects of each loop
    #[arg(long, value_name = "N", default_value_t = 8000, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    objects: u32,

    /// Bytes of an object, a power of two from 16 to 4096
    #[arg(long, value_name = "BYTES", default_value_t = 32, value_parser = object::parse_size)]
    object_size: usize,

    /// Threads that do nothing but read, section after section
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=4096))]
    readers: u32,

    /// Microseconds that a read section of theirs lasts
    #[arg(long, value_name = "U", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=10_000_000))]
    reader_hold_us: u64,

    /// Count the shared cache lines that a retire writes, too
    #[cfg(feature = "peers")]
    #[arg(long)]
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    count: bool,
}

impl Work {
    fn all_objects(&self) -> u64 {
        // Fits: each factor's range on the command line bounds the product below 2^59.
        u64::from(self.threads) * u64::from(self.loops) * u64::from(self.objects)
    }
}

impl super::Work for Work {
    const NAME: &'static str = "kfree";

    const SHOWS: &'static str = "What it costs to allocate an object and free it once no reader can hold it, and the \
        memory that this takes; less is better.";

    /// Stillpoint's own variants.
    const VARIANTS: &'static [Explained] = explained! {
        "per-page" => "retire() as it is: a grace period for each page of objects";
        "whole-batch" => "one grace period for all that waits, as the kernel did it before its patch";
        "call" => "a callback for each object, by call()";
        "fences" => "a private domain whose readers fence, so that no membarrier is issued";
        "budget-1" => "per-page with a budget of 1 MiB instead of 8";
        "budget-2" => "per-page with a budget of 2 MiB";
        "budget-4" => "per-page with a budget of 4 MiB";
    };

    const METRICS: &'static [Metric] = metrics! {
        "ns_per_object" 2 "wall time from the common start to the last retire, divided by the objects of all threads";
        "total_s" 3 "that wall time";
        "footprint_mib" 1 "resident memory above the start, averaged over the run";
        "peak_mib" 1 "the most resident memory above the start";
        "drain_ms" 2 "from the last retire until all is freed; absent where the subject cannot say";
        "grace_periods" 0 "grace periods that ended meanwhile";
        "membarriers_per_s" 0 "heavy barriers issued in a second";
        SHARED_RMW 3 "atomic read-modify-writes of shared cache lines for an object (with --count)";
    };

    fn add_to(all: &mut Benchmarks<Self>) {
        let prepared = |variant, prepare| Peer::ours(variant).prepared_by(prepare);
        all.add(Peer::ours("per-page"), None, per_page);
        all.reclaims::<Global>(prepared("whole-batch", ours::drain_whole_batches));
        all.reclaims::<ours::Call>(Peer::ours("call"));
        all.reclaims::<Fences>(Peer::ours("fences"));
        all.reclaims::<Global>(prepared("budget-1", ours::set_budget::<1>));
        all.reclaims::<Global>(prepared("budget-2", ours::set_budget::<2>));
        all.reclaims::<Global>(prepared("budget-4", ours::set_budget::<4>));
        peers::register(all);
        all.reclaims::<FreeAtOnce>(Peer::LIMIT);
    }

    /// Refuses work that cannot fit: the limit alone holds one loop's objects of all threads at
    /// once.
    fn check(&self) -> Result<(), clap::Error> {
        let bytes = u64::from(self.threads) * u64::from(self.objects) * self.object_size as u64;
        let half = Meminfo::current().map_or(u64::MAX, |memory| memory.mem_total / 2);
        if bytes <= half {
            return Ok(());
        }
        let message = format!(
            "{} threads with {} objects of {} bytes hold {} MiB at once, more than half of this machine's memory ({half} MiB); \
             lower --threads, --objects or --object-size\n",
            self.threads,
            self.objects,
            self.object_size,
            bytes >> 20,
            half = half >> 20,
        );
        Err(clap::Error::raw(ErrorKind::ValueValidation, message))
    }
}

/// Measures `retire`, and counts what it writes if that is asked for.
fn per_page(work: &Work) -> Result<Sample> {
    #[cfg_attr(
        not(feature = "peers"),
        expect(unused_mut, reason = "nothing is counted")
    )]
    let mut sample = measure::<Global>(work)?;
    #[cfg(feature = "peers")]
    if work.count && super::shared_lines::available().is_ok() {
        sample.add([(SHARED_RMW, lines::count(work.threads as usize)?)]);
    }
    Ok(sample)
}

impl Registry for Benchmarks<Work> {
    fn reclaims<S: Reclaimer>(&mut self, peer: Peer) {
        self.add(peer, None, measure::<S>);
    }
}

#[cfg(all(test, feature = "peers"))]
mod tests {
    use std::sync::atomic::Ordering;
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// Some of what a thread retires is freed while the thread lives and retires on, or this is no
    /// figure of reclamation. Each peer's objects have their own size, by which they are told
    /// from those of the others.
    #[derive(Default)]
    struct Frees {
        tried: Vec<&'static str>,
    }

    impl Registry for Frees {
        fn reclaims<S: Reclaimer>(&mut self, peer: Peer) {
            if self.tried.contains(&peer.name) {
                return;
            }
            match self.tried.len() {
                0 => assert_frees::<S, 16>(peer.name),
                1 => assert_frees::<S, 32>(peer.name),
                2 => assert_frees::<S, 64>(peer.name),
                3 => assert_frees::<S, 128>(peer.name),
                4 => assert_frees::<S, 256>(peer.name),
                5 => assert_frees::<S, 512>(peer.name),
                6 => assert_frees::<S, 1024>(peer.name),
                7 => assert_frees::<S, 2048>(peer.name),
                8 => assert_frees::<S, 4096>(peer.name),
                _ => panic!("more peers than sizes: add a size"),
            }
            self.tried.push(peer.name);
        }
    }

    fn assert_frees<S: Reclaimer, const N: usize>(peer: &str) {
        let freed = || object::DROPPED[N.ilog2() as usize].load(Ordering::Relaxed);
        assert_eq!(freed(), 0, "{peer}: its size is another's as well");
        let retire = move || {
            let mut part = S::register_thread();
            // The pause is for peers that free on their own thread.
            (0..5_000).any(|_| {
                (0..100).for_each(|_| part.allocate_and_retire::<N>());
                part.end_loop::<N>();
                freed() > 0 || {
                    thread::sleep(Duration::from_millis(1));
                    false
                }
            })
        };
        assert!(
            thread::spawn(retire).join().expect("no panic"),
            "{peer} frees nothing of 500,000 objects while its thread lives"
        );
    }

    #[test]
    fn every_peer_frees_while_objects_are_retired() {
        let mut frees = Frees::default();
        peers::register(&mut frees);
        assert!(frees.tried.len() >= 4, "{:?}", frees.tried);
    }
}
