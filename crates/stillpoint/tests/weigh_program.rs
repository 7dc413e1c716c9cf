//! A large map in a cell that is weighed, and a reader that sleeps: memory stays near the budget.
//!
//! Alone in its program, whose allocator counts.
#![cfg(not(miri))]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    collections::HashMap,
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc::channel,
    },
    thread,
    time::{Duration, Instant},
};
use stillpoint::{Rcu, global, kvfree_barrier, read_lock};

struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all is done by the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(live, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise; the block came from `System`.
        unsafe { System.dealloc(block, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const BUDGET: usize = 8 << 20;

/// A reader as long as this; on a machine that leaves it no time, longer.
const READING: Duration = Duration::from_millis(1500);

#[test]
fn a_sleeping_reader_holds_up_a_budget_of_maps() {
    let without = LIVE.load(Ordering::Relaxed);
    let map: HashMap<u64, u64> = (0..50_000).map(|key| (key, key)).collect();
    let one_map = LIVE.load(Ordering::Relaxed) - without;
    assert!(one_map > 50_000 * 16);
    let routes = Rcu::weighed(map);

    let (entered, has_entered) = channel();
    let mut most_pending = 0;
    let mut read_for = Duration::ZERO;
    thread::scope(|scope| {
        let routes = &routes;
        let reader = scope.spawn(move || {
            let guard = read_lock();
            let start = Instant::now();
            let seen = routes.load(&guard);
            entered.send(()).expect("the receiver is there");
            thread::sleep(READING);
            assert_eq!(seen.get(&7), Some(&7));
            start.elapsed()
        });
        has_entered.recv().expect("the reader enters");
        for update in 0..301 {
            routes.modify(|routes| routes.insert(7, update));
            most_pending = most_pending.max(global().statistics().bytes_pending as usize);
        }
        read_for = reader.join().expect("no panic");
    });

    // Past the budget 10 ms for each 64 KiB of a map; a few more, for those at its edge.
    let wait_for_one = one_map / (64 << 10) * 10;
    let past_budget = (4 + read_for.as_millis() as usize / wait_for_one) * one_map;
    let most_live = PEAK.load(Ordering::Relaxed) - without;
    assert!(
        most_pending <= BUDGET + past_budget,
        "{most_pending} bytes were unreclaimed, maps of {one_map}, {read_for:?}"
    );
    assert!(
        most_live <= BUDGET + past_budget,
        "{most_live} bytes were allocated, maps of {one_map}, {read_for:?}"
    );
    assert!(
        most_pending > BUDGET / 2,
        "the reader held nothing up: {most_pending} bytes"
    );
    kvfree_barrier();
    let statistics = global().statistics();
    assert_eq!(
        (statistics.bytes_pending, statistics.objects_freed),
        (0, 301)
    );
}
