//! Ten million objects of 64 threads that come and go.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread::{self},
};

use stillpoint::Domain;

use crate::{
    common::{assert_counts, eventually},
    retire,
};

const THREADS: usize = 64;
const OBJECTS: usize = if cfg!(miri) { 128 } else { 10_000_000 };
const EACH: usize = OBJECTS / THREADS;

/// Sixteen threads at a time, each of which ends when it has retired its part.
fn by_short_lived_threads(work: impl Fn(usize) + Sync) {
    for wave in 0..4 {
        thread::scope(|scope| {
            for thread in 0..THREADS / 4 {
                let work = &work;
                scope.spawn(move || work(wave * (THREADS / 4) + thread));
            }
        });
    }
}

#[test]
fn ten_million_plain_objects_are_all_freed() {
    let domain = Domain::new();
    by_short_lived_threads(|_| (0..EACH).for_each(|number| retire(&domain, number)));
    eventually(|| domain.statistics().objects_pending == 0);
    domain.kvfree_barrier();
    let all = (EACH * THREADS) as u64;
    assert_counts!(domain, objects_freed: all, objects_pending: 0, bytes_pending: 0, panics: 0);
}

#[test]
fn ten_million_destructors_run_once_each() {
    /// A counter for each thread, so that they do not wait for one another's cache lines.
    #[repr(align(64))]
    struct Shard(AtomicUsize);
    static DROPS: [Shard; THREADS] = [const { Shard(AtomicUsize::new(0)) }; THREADS];
    struct Counted(usize);
    impl Drop for Counted {
        fn drop(&mut self) {
            // A second run of the destructor would find this.
            DROPS[std::mem::replace(&mut self.0, usize::MAX)]
                .0
                .fetch_add(1, Ordering::Relaxed);
        }
    }
    let domain = Domain::new();
    by_short_lived_threads(|thread| (0..EACH).for_each(|_| retire(&domain, Counted(thread))));
    eventually(|| domain.statistics().objects_pending == 0);
    domain.kvfree_barrier();
    assert!(
        DROPS
            .iter()
            .all(|shard| shard.0.load(Ordering::Relaxed) == EACH)
    );
    assert_counts!(domain, objects_freed: (EACH * THREADS) as u64, panics: 0);
}
