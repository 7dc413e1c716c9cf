//! Without memory: an insert is refused, and the cache goes on with what it has.
#![cfg(not(miri))]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    ptr, thread,
    time::Duration,
};
use stillpoint_cache::{Cache, InsertError};

struct Allocator;

thread_local! {
    /// After how many more allocations of this thread there is no memory, and for how many.
    static LEFT: Cell<Option<(usize, usize)>> = const { Cell::new(None) };
    static REFUSED: Cell<usize> = const { Cell::new(0) };
}

/// Whether this allocation is refused.
fn refuses() -> bool {
    let left = LEFT.get();
    let (next, refused) = match left {
        Some((0, 0)) | None => (None, false),
        Some((0, last)) => (Some((0, last - 1)), true),
        Some((before, last)) => (Some((before - 1, last)), false),
    };
    LEFT.set(next);
    if refused {
        REFUSED.set(REFUSED.get() + 1);
    }
    refused
}

// SAFETY: all is done by the system's allocator; a null pointer is always a permitted answer.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if refuses() {
            return ptr::null_mut();
        }
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise; the block came from `System`.
        unsafe { System.dealloc(block, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// Lets the allocations of `work` fail, from one on, so many; returns how many were refused, too.
fn refusing<R>(from: usize, count: usize, work: impl FnOnce() -> R) -> (R, usize) {
    REFUSED.set(0);
    LEFT.set(Some((from, count)));
    let result = work();
    LEFT.set(None);
    (result, REFUSED.get())
}

/// With memory, the thread has registered with its domain: what that takes cannot be refused.
fn cache() -> Cache<u64, String> {
    let first = Cache::new(1000);
    first.insert(1, String::new());
    first.invalidate_all();
    Cache::builder()
        .max_bytes(1 << 20)
        .weigher(|_, value: &String| 64 + value.len() as u64)
        .time_to_live(Duration::from_secs(1000))
        .build()
}

/// Whichever of its allocations fails, an insert is done or refused, and the rest stays.
#[test]
fn insert_without_memory_is_refused() {
    let (mut refusals, mut refused_allocations) = (0, 0);
    for entries in [0, 1, 100] {
        for count in [1, usize::MAX] {
            for from in 0..12 {
                let cache = cache();
                (0..entries).for_each(|key| cache.insert(key, key.to_string()));
                let value = "new".to_owned();
                let (done, refused) = refusing(from, count, || cache.try_insert(5000, value));
                refused_allocations += refused;
                match done {
                    Ok(()) => assert_eq!(cache.get(&5000).as_deref(), Some("new")),
                    Err(error) => {
                        assert!(matches!(error, InsertError::NoMemory { weight: 67, .. }));
                        assert_eq!(cache.get(&5000), None);
                        assert_eq!(cache.statistics().refused, 1);
                        refusals += 1;
                    }
                }
                assert!((0..entries).all(|key| cache.get(&key) == Some(key.to_string())));
                let there = entries + u64::from(cache.contains_key(&5000));
                assert_eq!(cache.entry_count(), there);
                // With memory all is well again.
                cache.try_insert(5001, String::new()).unwrap();
                assert_eq!(cache.entry_count(), there + 1);
            }
        }
    }
    assert!(refusals > 0 && refused_allocations > refusals);
}

/// Thousands of inserts without any memory for tables, ghosts, timers and pages of retired entries.
#[test]
fn cache_without_memory_goes_on() {
    let cache = cache();
    (0..500).for_each(|key| cache.insert(key, key.to_string()));
    let values: Vec<_> = (0..3000_u64).map(|key| key.to_string()).collect();
    let (mut done, mut failed) = (0, 0);
    for (key, value) in values.into_iter().enumerate() {
        let inserted = refusing(key % 3, usize::MAX, || cache.try_insert(key as u64, value)).0;
        match inserted {
            Ok(()) => done += 1,
            Err(InsertError::NoMemory { .. }) => failed += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert!(done > 0 && failed > 0, "{done} done, {failed} failed");
    assert!(cache.iter().all(|(key, value)| value == key.to_string()));
    assert_eq!(cache.entry_count(), cache.iter().count() as u64);
    for key in 0..3000 {
        let removed = refusing(key as usize % 3, usize::MAX, || cache.invalidate(&key)).0;
        assert!(!cache.contains_key(&key), "{removed}");
    }
    assert_eq!((cache.entry_count(), cache.weighted_bytes()), (0, 0));
}

/// Of the first thread, which has no counts of its own then, and of a second one, which shares them.
#[test]
fn what_is_counted_without_memory_is_there() {
    let cache = cache();
    // With so many allocations before there is no memory.
    let miss = |allocations, times| {
        let missed = || (0..times).all(|_| cache.get(&7).is_none());
        refusing(allocations, usize::MAX, missed)
    };
    let (missed, refused) = miss(0, 3);
    assert!(missed && refused >= 3, "{refused} refused");
    assert_eq!((cache.statistics().misses, cache.statistics().hits), (3, 0));
    // One is all that it takes.
    let (_, refused) = miss(1, 3);
    assert_eq!((cache.statistics().misses, refused), (6, 0));
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            // The thread's own, of the domain.
            assert!(!cache.contains_key(&7));
            miss(0, 4)
        });
        let (missed, refused) = other.join().unwrap();
        assert!(missed && refused >= 4, "{refused} refused");
    });
    assert_eq!(cache.statistics().misses, 10);
    assert_eq!(cache.get(&7), None);
    assert_eq!(cache.statistics().misses, 11);
}
