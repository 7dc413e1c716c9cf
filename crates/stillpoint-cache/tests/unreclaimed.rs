//! What has left a cache, and waits for readers: it counts with what it owns, whatever the limit is in.

use std::sync::atomic::{AtomicUsize, Ordering};
use stillpoint_cache::Cache;

/// Entries dropped so far, and how many of these had been when an entry was evicted last.
static DROPPED: AtomicUsize = AtomicUsize::new(0);
static DROPPED_BEFORE: AtomicUsize = AtomicUsize::new(0);

/// The value of an entry, or its clone for the listener.
struct Value {
    bytes: Vec<u8>,
    is_clone: bool,
}

impl Clone for Value {
    fn clone(&self) -> Self {
        DROPPED_BEFORE.store(DROPPED.load(Ordering::Relaxed), Ordering::Relaxed);
        Self {
            bytes: Vec::new(),
            is_clone: true,
        }
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        DROPPED.fetch_add(usize::from(!self.is_clone), Ordering::Relaxed);
    }
}

type Values = Cache<u64, Vec<u8>>;

fn pending() -> u64 {
    stillpoint::global().statistics().bytes_pending
}

/// One test of its own process: no other thread retires.
#[test]
fn what_waits_for_readers_counts_with_what_it_owns() {
    let large = 256 << 10;
    let limits: [fn() -> Values; 4] = [
        || Cache::with_bytes(1 << 20),
        || Cache::with_entries(100),
        || Cache::builder().max_weight(100, |_, _| 1).build(),
        || {
            let builder = Cache::builder().max_entries(100);
            builder
                .weigher(|_, value: &Vec<u8>| value.len() as u64)
                .build()
        },
    ];
    limits
        .iter()
        .for_each(|limit| counts_what_it_owns(&limit(), large));
    what_has_nothing_to_drop_owns_nothing(large);
    a_large_insert_frees_what_it_evicts();
}

fn counts_what_it_owns(values: &Values, large: usize) {
    // Evicted, replaced, removed.
    let section = stillpoint::read_lock();
    values.insert(1, vec![0; large]);
    values.insert(1, vec![0; large]);
    values.insert(2, vec![0; large]);
    values.remove(&2);
    values.set_max_bytes(0);
    let (three, least) = (pending(), 3 * large as u64);
    assert!(three >= least, "{three} of {least}");
    assert!(three < least + (64 << 10), "{three}, and each counts once");
    drop(section);
    stillpoint::global().kvfree_barrier();
    assert!(pending() < large as u64);
}

/// Whatever it weighs.
fn what_has_nothing_to_drop_owns_nothing(large: usize) {
    let numbers: Cache<u64, u64> = Cache::builder()
        .max_weight(1 << 40, |_, &weight| weight)
        .build();
    let section = stillpoint::read_lock();
    numbers.insert(1, 1 << 30);
    numbers.invalidate_all();
    assert!(pending() < large as u64);
    drop(section);
}

/// While it evicts: each batch is in a section that ends with it.
fn a_large_insert_frees_what_it_evicts() {
    let values: Cache<usize, Value> = Cache::builder()
        .max_bytes(256 << 20)
        .weigher(|_, value: &Value| value.bytes.len() as u64)
        .eviction_listener(|_, _, _| ())
        .build();
    let value = |bytes: usize| Value {
        bytes: vec![0; bytes],
        is_clone: false,
    };
    (0..256).for_each(|key| values.insert(key, value(1 << 20)));
    values.insert(1000, value(200 << 20));
    assert!(values.contains_key(&1000));
    let before = DROPPED_BEFORE.load(Ordering::Relaxed);
    assert!(before > 100, "{before} of 200 before the last batch");
}
