//! The child of a fork at any moment of busy threads: the core works, look-ups work, drops end.
#![cfg(all(target_os = "linux", not(miri)))]

#[path = "../../stillpoint/tests/common/mod.rs"]
mod common;

use common::forking::{assert_works, fork, fork_muted};
use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};
use stillpoint::global;
use stillpoint_cache::{Bytes, Cache};

const FORKS: u64 = 24;
const THREADS: u64 = 8;
const KEYS: u64 = 500;

struct Subject {
    cache: Cache<u64, u64>,
    pages: Cache<u64, Bytes>,
}

impl Subject {
    fn new() -> Self {
        Self {
            cache: Cache::builder().max_entries(400).build(),
            pages: Cache::with_bytes(1 << 20),
        }
    }

    /// Changes everything that a lock guards.
    fn change(&self, number: u64) {
        let Self { cache, pages } = self;
        let (key, tenant) = (number % KEYS, cache.tenant("tenant"));
        cache.insert(key, key);
        cache.insert_with_ttl(key + 1, key + 1, Duration::from_millis(number % 16));
        tenant.insert(key + 2, key + 2);
        cache.get_with(&(key + 3), || key + 3);
        pages
            .insert_bytes(key, &key.to_le_bytes().repeat(100))
            .expect("memory");
        match number % 64 {
            0 => cache.invalidate_all(),
            1 => cache.set_max_bytes(200 + number % 200),
            2 => drop(tenant.delete()),
            3 => cache.run_pending(),
            4 => pages.invalidate_all(),
            5 => drop(cache.pin(&key) && cache.unpin(&key)),
            _ => {}
        }
    }

    fn look_up(&self) {
        for key in 0..KEYS {
            assert!(self.cache.get(&key).is_none_or(|value| value == key));
            let page = self.pages.get(&key);
            assert!(page.is_none_or(|page| page.chunks(8).all(|part| *part == key.to_le_bytes())));
        }
        self.cache
            .iter()
            .for_each(|(key, value)| assert_eq!(key, value));
    }
}

#[test]
fn a_child_of_busy_threads_reads_and_drops_caches() {
    let over = AtomicBool::new(false);
    let subject = Box::into_raw(Box::new(Subject::new()));
    // SAFETY: freed below, once no thread uses it any more.
    let shared = unsafe { &*subject };
    let change_and_look_up = || {
        (0..KEYS).for_each(|number| shared.change(number));
        shared.look_up();
    };
    thread::scope(|scope| {
        let _over = common::Over(&over);
        for first in 0..THREADS {
            let over = &over;
            scope.spawn(move || {
                let numbers = (first..).step_by(THREADS as usize);
                numbers
                    .take_while(|_| !over.load(Ordering::Relaxed))
                    .for_each(|number| shared.change(number));
            });
        }
        for _ in 0..FORKS {
            let child = fork(|| {
                shared.look_up();
                fork_muted(change_and_look_up).well_or_aborted();
                assert_works(global());
                // SAFETY: no other thread of this process uses it.
                drop(unsafe { Box::from_raw(subject) });
                global().kvfree_barrier();
            });
            child.well();
        }
    });
    // Now only the service thread may hold a lock, and seldom does.
    assert!((0..10).any(|_| fork_muted(change_and_look_up).well_or_aborted()));
    // SAFETY: the threads have ended.
    drop(unsafe { Box::from_raw(subject) });
}
