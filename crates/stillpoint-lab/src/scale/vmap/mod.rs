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
use crate::choice::PossibleValues;
use crate::output::Metric;
use crate::run::{Curve, Metrics, Sample};
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
        "rcu",
        "one-section",
        "found-once",
        "section-alone",
        "unchecked",
        "node-rwlock",
        "node-spinlock",
        "global-lock",
        "global-mutex",
        "heap",
    ]);

    const PEERS: PossibleValues = PossibleValues::of_peers(&["std-rwlock-btreemap", "mmap"]);

    const SCENARIOS: Option<PossibleValues> = Some(PossibleValues::of_scenarios(&[
        "find-1000",
        "find-100000",
        "find-1000000",
        "copy-256",
        "copy-4096",
        "copy-256-2threads",
        "copy-4096-2threads",
        "alloc-pool",
        "fix-size",
        "full-fit",
        "long-busy-list",
        "random-size",
        "fix-align",
        "random-size-align",
        "purge",
        "purge-single",
    ]));

    const METRICS: &'static [Metric] = &[
        Metric {
            name: "find_ns",
            decimals: 2,
        },
        Metric {
            name: "find_dependent_ns",
            decimals: 2,
        },
        Metric {
            name: "check_ns",
            decimals: 2,
        },
        Metric {
            name: "requests_per_s",
            decimals: 0,
        },
        Metric {
            name: "alloc_free_ns",
            decimals: 0,
        },
        Metric {
            name: "purge_ns_per_page",
            decimals: 0,
        },
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

fn sample<const N: usize>(figures: [(&str, f64); N]) -> Sample {
    Sample {
        metrics: figures
            .into_iter()
            .map(|(name, figure)| (name.to_owned(), figure))
            .collect::<Metrics>(),
        curve: Curve::new(),
    }
}
