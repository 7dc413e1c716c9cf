//! A routing table that is looked up without a lock while another thread replaces it.
//!
//! `cargo run --release -p stillpoint --example routes`

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
};

use stillpoint::{Rcu, read_lock};

type Routes = BTreeMap<u32, &'static str>;

static ROUTES: Rcu<Routes> = Rcu::empty();
static DONE: AtomicBool = AtomicBool::new(false);
static LOOKUPS: AtomicU64 = AtomicU64::new(0);

fn look_up(address: u32) -> Option<&'static str> {
    let guard = read_lock();
    let routes = ROUTES.load(&guard)?;
    routes.range(..=address).next_back().map(|(_, &port)| port)
}

fn main() {
    ROUTES.store(Routes::from([(0, "eth0")]));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !DONE.load(Ordering::Relaxed) {
                    assert!(look_up(0x0a00_0001).is_some(), "there is always a route");
                    LOOKUPS.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for network in 0..10_000 {
            // Read, copy, update: look-ups go on meanwhile, and the old table is freed when the last of them has left it.
            ROUTES.update(|old| {
                let mut new = old.clone();
                new.insert(network << 8, if network % 2 == 0 { "eth1" } else { "eth2" });
                if new.len() > 64 {
                    new.retain(|&start, _| start == 0 || start > (network - 32) << 8);
                }
                new
            });
        }
        DONE.store(true, Ordering::Relaxed);
    });
    stillpoint::kvfree_barrier();
    let statistics = stillpoint::global().statistics();
    println!(
        "{} look-ups beside 10,000 updates; {} tables freed, {} waiting, {} grace periods",
        LOOKUPS.load(Ordering::Relaxed),
        statistics.objects_freed,
        statistics.objects_waiting,
        statistics.grace_periods
    );
    assert_eq!(statistics.objects_waiting, 0);
    assert_eq!(statistics.objects_freed, 10_000);
}
