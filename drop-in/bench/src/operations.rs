//! The cost of one operation.

use crate::measure::{Figures, cpu_ns_per_op};
use crossbeam_deque::{Steal, Worker};
use crossbeam_epoch::{self as epoch, Atomic, Guard, Owned};
use crossbeam_skiplist::SkipMap;
use std::{borrow::Borrow, hint::black_box, sync::atomic::Ordering};

/// The keys of maps and caches.
const KEYS: u64 = 100_000;
const CACHE_KEYS: u64 = 10_000;

/// Number of items in a deque between the two halves of its operation.
const PUSHES: u64 = 1000;

/// How this program's own operations begin.
pub trait Pins {
    type Guard: Borrow<Guard>;

    fn pin() -> Self::Guard;
}

/// With a pin.
pub struct Pinned;

impl Pins for Pinned {
    type Guard = Guard;

    #[inline(always)]
    fn pin() -> Guard {
        epoch::pin()
    }
}

/// The limit: without a pin, so that deferred functions run at once.
pub struct Unprotected;

impl Pins for Unprotected {
    type Guard = &'static Guard;

    #[inline(always)]
    fn pin() -> &'static Guard {
        // SAFETY: each operation below uses only its own thread's objects, and none after deferring
        // it.
        unsafe { epoch::unprotected() }
    }
}

/// A pin and its end.
pub fn pin<P: Pins>(count: Option<u64>) -> Figures {
    cpu_ns_per_op(1, count, |_, count| {
        for _ in 0..count {
            drop(black_box(P::pin()));
        }
    })
}

/// The same inside another pin.
pub fn pin_nested<P: Pins>(count: Option<u64>) -> Figures {
    cpu_ns_per_op(1, count, |_, count| {
        let _outer = P::pin();
        for _ in 0..count {
            drop(black_box(P::pin()));
        }
    })
}

/// A pin, and a deferred function that captures one word.
pub fn defer<P: Pins>(count: Option<u64>) -> Figures {
    cpu_ns_per_op(1, count, |_, count| {
        for n in 0..count {
            let guard = P::pin();
            guard.borrow().defer(move || black_box(n));
        }
    })
}

/// A pin, and a box of 64 bytes that is created and deferred.
pub fn boxes<P: Pins>(threads: usize, count: Option<u64>) -> Figures {
    cpu_ns_per_op(threads, count, |_, count| {
        for n in 0..count {
            let guard = P::pin();
            let guard = guard.borrow();
            let object = black_box(Owned::new([n; 8])).into_shared(guard);
            // SAFETY: nothing else knows it.
            unsafe { guard.defer_destroy(object) };
        }
    })
}

/// A pin, and a vector behind a pointer that is replaced.
pub fn values<P: Pins>(count: Option<u64>) -> Figures {
    cpu_ns_per_op(1, count, |_, count| {
        let value = Atomic::new(vec![0_u64; 8]);
        for n in 0..count {
            let guard = P::pin();
            let guard = guard.borrow();
            let old = value.swap(Owned::new(vec![n; 8]), Ordering::AcqRel, guard);
            // SAFETY: it is not found any more.
            unsafe { guard.defer_destroy(old) };
        }
        // SAFETY: no other thread knows it.
        drop(unsafe { value.into_owned() });
    })
}

/// Measures an operation of a map that is half full: `gets` percent are look-ups, the others insert
/// or remove a key.
pub fn skiplist(gets: u64, count: Option<u64>) -> Figures {
    let map = SkipMap::new();
    for _ in 0..KEYS / 2 {
        map.insert(fastrand::u64(..KEYS), 0_u64);
    }
    cpu_ns_per_op(1, count, |_, count| {
        for n in 0..count {
            let key = fastrand::u64(..KEYS);
            if n % 100 < gets {
                black_box(map.get(&key).map(|entry| *entry.value()));
            } else if n % 2 == 0 {
                map.insert(key, n);
            } else {
                black_box(map.remove(&key).is_some());
            }
        }
    })
}

/// A push, and a steal or a pop of the item, a thousand at a time.
pub fn deque(steals: bool, count: Option<u64>) -> Figures {
    cpu_ns_per_op(1, count, |_, count| {
        for _ in 0..count / PUSHES + 1 {
            // Its buffer grows, and old ones are deferred.
            let worker = Worker::new_lifo();
            let stealer = worker.stealer();
            (0..PUSHES).for_each(|n| worker.push(n));
            for _ in 0..PUSHES {
                if steals {
                    while matches!(black_box(stealer.steal()), Steal::Retry) {}
                } else {
                    black_box(worker.pop());
                }
            }
        }
    })
}

/// Measures an operation of two threads on a cache with space for all keys; `gets` percent are
/// gets.
pub fn moka(gets: u64, seed: u64, count: Option<u64>) -> Figures {
    let cache = moka::sync::Cache::new(CACHE_KEYS);
    for key in 0..CACHE_KEYS {
        cache.insert(key, key);
    }
    cpu_ns_per_op(2, count, |thread, count| {
        let mut random = fastrand::Rng::with_seed(seed + thread as u64);
        for n in 0..count {
            let key = random.u64(..CACHE_KEYS);
            if random.u64(..100) < gets {
                black_box(cache.get(&key));
            } else {
                cache.insert(key, n);
            }
        }
    })
}
