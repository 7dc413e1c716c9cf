//! `stillpoint scale vmap`: what it costs to find the area around an address, to check a range
//! before each copy, and to allocate and free areas.
//!
//! [`find`] looks areas up, [`connections`] is a server that checks and copies every message,
//! [`allocate`] has shapes of the kernel's test_vmalloc, and [`index`] the subjects that look
//! up under a lock. All subjects work on areas of the same arena, at the same addresses;
//! Stillpoint's arena is in the global domain, whose sections are the cheapest.

use std::sync::RwLock;

use anyhow::Result;
use clap::Args;
use serde::{Deserialize, Serialize};
use stillpoint_vmap::Arena;

use super::Benchmarks;
use crate::choice::{Explained, Family, explained, families};
use crate::output::{Metric, metrics};
use crate::run::Sample;
use crate::subject::Peer;
use connections::{in_areas, on_the_heap, unchecked};
use index::{Flat, FoundOnce, Global, Index, Nodes, OneSection, Rcu, SectionAlone, StdTree, Tree};

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

    /// Connections, each with a ring buffer in its own area, in the copy scenarios
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
    const VARIANTS: &'static [Explained] = explained! {
        "rcu" => "a section and a check for each copy";
        "one-section" => "a check for each copy, but one section for all copies of a turn";
        "found-once" => "one section for a turn, and one look-up for both copies of a message";
        "section-alone" => "sections and the copy, without a check: what rcu costs at least";
        "unchecked" => "neither section nor check";
        "node-rwlock" => "a tree for each node under an RwLock, as the kernel has since its patch";
        "node-spinlock" => "the same under a spinlock";
        "global-lock" => "one tree under a spinlock, as the kernel had";
        "global-mutex" => "one tree under a mutex";
        "heap" => "buffers of malloc, without a check";
    };

    const SCENARIOS: &'static [Family] = families! {
        "find-100000" => "Find the area around a random address, among 100,000.";
        "copy-256", "copy-4096", "copy-4096-2threads" => "Check and copy messages of 256 or 4,096 bytes, on --threads threads (16) or on 2.";
        "alloc-pool", "random-size" => "Allocate and free 4 pages, or a random number of them up to 100.";
        "purge", "purge-single" => "Give pages back to the system, in areas of 16 pages or of one.";
    };

    const METRICS: &'static [Metric] = metrics! {
        "find_ns" 2 "to find the area around a random address, section or lock included";
        "find_dependent_ns" 2 "the same where each address depends on the area found before";
        "check_ns" 2 "to check that a range lies in one live area";
        "requests_per_s" 0 "messages copied into and out of rings in a second, each copy checked";
        "alloc_free_ns" 0 "to allocate an area and free it";
        "purge_ns_per_page" 0 "to give a page back to the system";
    };

    fn add_to(all: &mut Benchmarks<Self>) {
        let (rcu, mmap) = (Peer::ours("rcu"), Peer::new("mmap"));
        all.finds::<Rcu>(rcu);
        all.finds::<SectionAlone>(Peer::ours("section-alone"));
        all.finds::<StdTree>(Peer::new("std-rwlock-btreemap"));
        all.finds::<Flat>(Peer::LIMIT);
        all.copies("rcu", in_areas::<Rcu>);
        all.copies("one-section", in_areas::<OneSection>);
        all.copies("found-once", in_areas::<FoundOnce>);
        all.copies("section-alone", in_areas::<SectionAlone>);
        all.copies("unchecked", unchecked);
        all.copies("node-rwlock", in_areas::<Nodes<RwLock<Tree>>>);
        all.copies("node-spinlock", in_areas::<Nodes<spin::Mutex<Tree>>>);
        all.copies("global-lock", in_areas::<Global<spin::Mutex<Tree>>>);
        all.copies("global-mutex", in_areas::<Global<parking_lot::Mutex<Tree>>>);
        all.copies("heap", on_the_heap);
        for (scenario, shape) in allocate::SHAPES {
            all.add(rcu, scenario, move |_| allocate::areas(shape));
            all.add(mmap, scenario, move |_| allocate::mappings(shape));
        }
        all.purges(rcu, allocate::drain);
        all.purges(mmap, allocate::unmap);
        all.purges(Peer::LIMIT, allocate::one_call);
    }
}

type Serve = fn(&Work, threads: u32, message: usize) -> Result<Sample>;

impl Benchmarks<Work> {
    fn finds<I: Index>(&mut self, subject: Peer) {
        self.add(subject, "find-100000", |_| find::measure::<I>());
    }

    fn copies(&mut self, variant: &'static str, serve: Serve) {
        for (scenario, threads, message) in [
            ("copy-256", None, 256),
            ("copy-4096", None, 4096),
            ("copy-4096-2threads", Some(2), 4096),
        ] {
            let measure = move |work: &Work| serve(work, threads.unwrap_or(work.threads), message);
            self.add(Peer::ours(variant), scenario, measure);
        }
    }

    fn purges(&mut self, subject: Peer, purge: fn(usize) -> Result<Sample>) {
        for (scenario, pages) in [("purge", 16), ("purge-single", 1)] {
            self.add(subject, scenario, move |_| purge(pages));
        }
    }
}

/// The arena that every subject's areas are of.
fn arena() -> Result<Arena> {
    Ok(Arena::builder().domain(stillpoint::global()).build()?)
}
