//! Many threads at a time: entries are what was inserted, limits hold, and each value is dropped
//! once.

#[path = "../../stillpoint/tests/common/mod.rs"]
mod common;

use common::eventually;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};
use stillpoint_cache::{Cache, Cause, Op};

const MAX: u64 = 200;

/// A value that knows its key, and is counted.
struct Value {
    key: u64,
    there: Arc<AtomicU64>,
}

impl Value {
    fn new(key: u64, there: &Arc<AtomicU64>) -> Self {
        there.fetch_add(1, Ordering::Relaxed);
        let there = Arc::clone(there);
        Self { key, there }
    }
}

impl Clone for Value {
    fn clone(&self) -> Self {
        Self::new(self.key, &self.there)
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.key = u64::MAX;
        self.there.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn all_operations_at_a_time() {
    let there = Arc::new(AtomicU64::new(0));
    let told = Arc::new(AtomicU64::new(0));
    let tell = Arc::clone(&told);
    let cache: Cache<u64, Value> = Cache::builder()
        .max_weight(MAX, |key, _| key % 3 + 1)
        .time_to_idle(Duration::from_millis(20))
        .eviction_listener(move |&key: &u64, value: &Value, _: Cause| {
            assert_eq!(value.key, key);
            tell.fetch_add(1, Ordering::Relaxed);
        })
        .build();
    let rounds = if cfg!(miri) { 60 } else { 6000 };
    thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (cache, there) = (&cache, &there);
            scope.spawn(move || {
                let mut random = thread + 1;
                for round in 0..rounds {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    let key = random % 300;
                    let view = cache.tenant(["a", "b", "c"][random as usize / 300 % 3]);
                    match random / 900 % 14 {
                        0..3 => view.insert(key, Value::new(key, there)),
                        3..6 => drop(cache.get(&key).inspect(|value| assert_eq!(value.key, key))),
                        6 => drop(cache.get_ref(&key).inspect(|value| {
                            thread::yield_now();
                            assert_eq!((value.key, *value.key()), (key, key));
                        })),
                        7 => drop(cache.take(&key)),
                        8 => drop(view.get_with(&key, || Value::new(key, there))),
                        9 if round % 64 == 0 => view.invalidate_all(),
                        10 if round % 32 == 0 => view.set_max(random / 7 % 100 + 50),
                        11 if round % 128 == 0 => drop(view.delete()),
                        12 => drop(view.entry(&key).and_upsert_with(|_| Value::new(key, there))),
                        13 => drop(view.entry(&key).and_compute_with(|_| Op::Remove)),
                        _ => view.insert_with_ttl(
                            key,
                            Value::new(key, there),
                            Duration::from_micros(random % 3000),
                        ),
                    }
                    assert!(cache.weighted_bytes() <= MAX);
                }
            });
        }
    });
    let statistics = cache.statistics();
    let weight: u64 = cache.iter().map(|(key, _)| key % 3 + 1).sum();
    assert!(weight <= statistics.bytes, "but for what expires");
    cache.invalidate_all();
    assert_eq!((cache.entry_count(), cache.weighted_bytes()), (0, 0));
    assert_eq!(cache.iter().count(), 0);
    // What the service thread has taken out it counts first, and tells then.
    eventually(|| {
        let now = cache.statistics();
        let left = now.evicted + now.expired + now.replaced + now.removed;
        told.load(Ordering::Relaxed) == left
    });
    drop(cache);
    // The service thread may have it still, for the rest of a visit.
    eventually(|| {
        stillpoint::barrier();
        stillpoint::global().kvfree_barrier();
        there.load(Ordering::Relaxed) == 0
    });
}
