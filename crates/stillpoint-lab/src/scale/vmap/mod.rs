//! `stillpoint scale vmap`: what it costs to find the area around an address, to check a range
//! before each copy, and to allocate and free areas.
//!
//! [`find`] looks areas up, [`connections`] is a server that checks and copies every message,
//! [`allocate`] has the shapes of the kernel's test_vmalloc, and [`index`] the subjects that look
//! up under a lock. All subjects work on areas of the same arena, at the same addresses;
//! Stillpoint's arena is in the global domain, whose sections are the cheapest.

use anyhow::Result;
use clap::Args;
use serde::{Deserialize, Serialize};
use stillpoint_vmap::Arena;

use super::Benchmark;
use crate::choice::{Family, PossibleValues};
use crate::output::{Metric, metric};
use crate::run::Sample;
use crate::subject::Peer;
use allocate::{Mmap, Pooled};
use index::{Flat, FoundOnce, Global, Nodes, OneSection, Rcu, SectionAlone, StdTree};

mod allocate;
mod connections;
mod find;
mod index;

/// What the work depends on.
#[derive(Args, Serialize, Deserialize)]
pub struct Work {
    /// Threads that serve connections in copy-256 and copy-4096
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,

    /// Connections, each with a ring buffer in an area of its own, in the copy scenarios
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    connections: u32,

    /// Milliseconds that each copy scenario is measured for
    #[arg(long, value_name = "MS", default_value_t = 120, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    copy_ms: u32,
}

impl super::Work for Work {
    const NAME: &'static str = "vmap";

    const SHOWS: &'static str = "What it takes to find the area of an address, to check a range, and to allocate and free \
        areas (less is better), and how many requests a server answers in a second (more is \
        better).";

    /// Stillpoint's own variants: a section and a check for each copy, fewer of them, and for
    /// comparison none, the kernel's ways, and buffers that are no areas.
    const VARIANTS: PossibleValues = PossibleValues::of_variants(&[
        ("rcu", "a section and a check for each copy"),
        (
            "one-section",
            "a check for each copy, but one section for all copies of a turn",
        ),
        (
            "found-once",
            "one section for a turn, and one look-up for both copies of a message",
        ),
        (
            "section-alone",
            "sections and the copy, without a check: what rcu costs at least",
        ),
        ("unchecked", "neither section nor check"),
        (
            "node-rwlock",
            "a tree for each node under an RwLock, as the kernel has since its patch",
        ),
        ("node-spinlock", "the same under a spinlock"),
        (
            "global-lock",
            "one tree under a spinlock, as the kernel had",
        ),
        ("global-mutex", "one tree under a mutex"),
        ("heap", "buffers of malloc, without a check"),
    ]);

    const PEERS: PossibleValues = PossibleValues::of_peers(&["std-rwlock-btreemap", "mmap"]);

    const SCENARIOS: &'static [Family] = &[
        Family::of(
            &["find-1000", "find-100000", "find-1000000"],
            "Find the area around a random address, among so many.",
        ),
        Family::of(
            &[
                "copy-256",
                "copy-4096",
                "copy-256-2threads",
                "copy-4096-2threads",
            ],
            "Check and copy messages of so many bytes, on --threads threads (16) or on 2.",
        ),
        Family::of(
            &["alloc-pool", "fix-size", "full-fit", "long-busy-list"],
            "Allocate and free 4 pages, 1 page, 1 page among holes of that size, 100 and 1 among 15,000.",
        ),
        Family::of(
            &["random-size", "fix-align", "random-size-align"],
            "Allocate and free areas of random size, of 32 KiB alignment, of random size and alignment.",
        ),
        Family::of(
            &["purge", "purge-single"],
            "Give pages back to the system, in areas of 16 pages or of one.",
        ),
    ];

    const METRICS: &'static [Metric] = &[
        metric(
            "find_ns",
            2,
            "to find the area around a random address, section or lock included",
        ),
        metric(
            "find_dependent_ns",
            2,
            "the same where each address depends on the area found before",
        ),
        metric("check_ns", 2, "to check that a range lies in one live area"),
        metric(
            "requests_per_s",
            0,
            "messages copied into and out of rings in a second, each copy checked",
        ),
        metric("alloc_free_ns", 0, "to allocate an area and free it"),
        metric("purge_ns_per_page", 0, "to give a page back to the system"),
    ];

    fn benchmarks() -> Vec<Benchmark<Self>> {
        type NodeRwLock = Nodes<std::sync::RwLock<index::Tree>>;
        type NodeSpinlock = Nodes<spin::Mutex<index::Tree>>;
        type GlobalLock = Global<spin::Mutex<index::Tree>>;
        type GlobalMutex = Global<parking_lot::Mutex<index::Tree>>;

        let mut benchmarks = Vec::new();
        benchmarks.extend(finds::<Rcu>(Peer::new("stillpoint").variant("rcu")));
        benchmarks.extend(finds::<SectionAlone>(
            Peer::new("stillpoint").variant("section-alone"),
        ));
        benchmarks.extend(finds::<StdTree>(Peer::new("std-rwlock-btreemap")));
        benchmarks.extend(finds::<Flat>(Peer::new("limit")));
        benchmarks.extend(copies("rcu", connections::in_areas::<Rcu>));
        benchmarks.extend(copies("one-section", connections::in_areas::<OneSection>));
        benchmarks.extend(copies("found-once", connections::in_areas::<FoundOnce>));
        benchmarks.extend(copies(
            "section-alone",
            connections::in_areas::<SectionAlone>,
        ));
        benchmarks.extend(copies("unchecked", connections::unchecked));
        benchmarks.extend(copies("node-rwlock", connections::in_areas::<NodeRwLock>));
        benchmarks.extend(copies(
            "node-spinlock",
            connections::in_areas::<NodeSpinlock>,
        ));
        benchmarks.extend(copies("global-lock", connections::in_areas::<GlobalLock>));
        benchmarks.extend(copies("global-mutex", connections::in_areas::<GlobalMutex>));
        benchmarks.extend(copies("heap", connections::on_the_heap));
        benchmarks.extend(allocations::<Pooled>(
            Peer::new("stillpoint").variant("rcu"),
        ));
        benchmarks.extend(allocations::<Mmap>(Peer::new("mmap")));
        benchmarks.extend(purges(
            Peer::new("stillpoint").variant("rcu"),
            allocate::drain,
        ));
        benchmarks.extend(purges(Peer::new("mmap"), allocate::unmap));
        benchmarks.extend(purges(Peer::new("limit"), allocate::one_call));
        benchmarks
    }
}

fn finds<I: index::Index>(subject: Peer) -> impl Iterator<Item = Benchmark<Work>> {
    [
        ("find-1000", 1_000),
        ("find-100000", 100_000),
        ("find-1000000", 1_000_000),
    ]
    .into_iter()
    .map(move |(scenario, areas)| {
        Benchmark::new(subject, move |_work: &Work| find::measure::<I>(areas)).in_scenario(scenario)
    })
}

type Serve = fn(&Work, threads: u32, message: usize) -> Result<Sample>;

fn copies(variant: &'static str, serve: Serve) -> impl Iterator<Item = Benchmark<Work>> {
    let few = [("copy-256-2threads", 256), ("copy-4096-2threads", 4096)]
        .map(|(name, message)| (name, Some(2), message));
    let many =
        [("copy-256", 256), ("copy-4096", 4096)].map(|(name, message)| (name, None, message));
    many.into_iter()
        .chain(few)
        .map(move |(scenario, threads, message)| {
            let measure = move |work: &Work| serve(work, threads.unwrap_or(work.threads), message);
            Benchmark::ours(variant, measure).in_scenario(scenario)
        })
}

fn allocations<A: allocate::Allocator>(subject: Peer) -> impl Iterator<Item = Benchmark<Work>> {
    allocate::shapes::<A>()
        .into_iter()
        .map(move |(scenario, measure)| {
            Benchmark::new(subject, move |_work: &Work| measure()).in_scenario(scenario)
        })
}

fn purges(
    subject: Peer,
    purge: fn(usize) -> Result<Sample>,
) -> impl Iterator<Item = Benchmark<Work>> {
    [("purge", 16), ("purge-single", 1)]
        .into_iter()
        .map(move |(scenario, pages)| {
            Benchmark::new(subject, move |_work: &Work| purge(pages)).in_scenario(scenario)
        })
}

/// The arena that every subject's areas are of.
fn arena() -> Result<Arena> {
    Ok(Arena::builder().domain(stillpoint::global()).build()?)
}
