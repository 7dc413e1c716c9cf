//! Reproduces reports by users of crossbeam-epoch and moka: memory that grows without end, and
//! values that are never dropped.

use crate::flood::{NEVER, Noted, OBJECTS, THREADS, on_two_processors};
use crate::measure::{Figures, peak_mib, together};
use crossbeam_epoch as epoch;
use moka::sync::Cache;
use std::{
    sync::{
        Arc, Barrier,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// crossbeam's issue 566: threads defer functions as fast as they can, each of which frees a box.
pub fn defer_memory() -> Figures {
    on_two_processors();
    together(THREADS, |_| drop(epoch::pin()));
    let deferred = |_| {
        for n in 0..OBJECTS {
            let one = Box::new([n; 32]);
            epoch::pin().defer(move || drop(one));
        }
    };
    vec![("peak_mib", peak_mib(|| together(THREADS, deferred)))]
}

/// moka's issue 72: threads insert into a cache with a capacity of 1 MiB.
pub fn moka_memory() -> Figures {
    const CAPACITY: u64 = 1000;
    on_two_processors();
    let cache = Cache::new(CAPACITY);
    let insert = |from: u64, count: u64| {
        for key in from..from + count {
            cache.insert(key, vec![key; 128]);
        }
    };
    insert(0, 10 * CAPACITY);
    let inserted = |thread| insert(thread as u64 * 1_000_000, 20_000);
    vec![("peak_mib", peak_mib(|| together(THREADS, inserted)))]
}

/// moka's issue 383: values are not dropped with their caches. Since then, moka flushes; so here a
/// thread has a guard when the caches are dropped, and is idle afterwards.
pub fn moka_values() -> Figures {
    const CACHES: usize = 100;
    let dropped = Arc::new(AtomicUsize::new(0));
    beside_a_guard(|| {
        for key in 0..CACHES {
            let cache = Cache::new(10);
            cache.get_with(key, || Arc::new(Noted(Arc::clone(&dropped))));
        }
    });
    let left = || CACHES - dropped.load(Ordering::Acquire);
    wait_until(|| left() == 0);
    vec![("left", left() as f64)]
}

/// moka's issue 176: memory (in KiB) is left after dropping caches whose entries had been
/// invalidated. Also with such a guard.
pub fn moka_blocks() -> Figures {
    /// Tolerance for a thread's own cache of free blocks, which count as allocated.
    const NOTHING: usize = 256;
    let use_one = || {
        let cache = Cache::new(1000);
        (0..1000_u32).for_each(|key| cache.insert(key, key));
        (0..1000_u32).for_each(|key| cache.invalidate(&key));
    };
    // The first one allocates what the libraries keep for good.
    use_one();
    thread::sleep(Duration::from_millis(300));
    let before = blocks_in_use();
    beside_a_guard(|| (0..10).for_each(|_| use_one()));
    let left = || blocks_in_use().saturating_sub(before) / 1024;
    wait_until(|| left() <= NOTHING);
    vec![("left", left() as f64)]
}

/// Does `work` while another thread is pinned.
fn beside_a_guard(work: impl FnOnce()) {
    let (pinned, over) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            let _guard = epoch::pin();
            pinned.wait();
            over.wait();
        });
        pinned.wait();
        work();
        over.wait();
    });
}

fn wait_until(done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !done() && begun.elapsed() < NEVER {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the bytes allocated in all arenas of the allocator.
fn blocks_in_use() -> usize {
    // SAFETY: it has no requirement.
    unsafe { libc::mallinfo2() }.uordblks
}
