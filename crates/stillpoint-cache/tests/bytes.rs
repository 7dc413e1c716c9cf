//! Caches of bytes: what is evicted leaves the process, and what stays is what it was.
//!
//! Detects no compaction at all, and old places freed at once.

#[path = "../../stillpoint/tests/common/mod.rs"]
mod common;

use common::{Over, eventually};
use std::{
    cell::RefCell,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};
use stillpoint_cache::{Arena, Bytes, Cache};

type Pages = Cache<u64, Bytes>;

/// What a value has that belongs to a key.
fn content(key: u64, len: usize) -> Vec<u8> {
    let mut all = key.to_le_bytes().repeat(len / 8 + 1);
    all.truncate(len);
    all
}

fn len_of(key: u64) -> usize {
    64 + (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 53) as usize % 1937
}

fn fill(pages: &Pages, keys: std::ops::Range<u64>) {
    for key in keys {
        pages
            .insert_bytes(key, &content(key, len_of(key)))
            .expect("room");
    }
}

fn check(pages: &Pages, keys: std::ops::Range<u64>) -> usize {
    let is_right = |key: u64| {
        let page = pages.get_ref(&key);
        page.map(|page| assert!(**page == content(key, len_of(key)), "of {key}"))
    };
    keys.filter_map(is_right).count()
}

/// Entries go here and there; the arena gives back what they had, though others lie between them.
#[test]
fn scattered_values_are_moved_and_memory_goes_back() {
    let pages = Pages::with_bytes(64 << 20);
    fill(&pages, 0..40_000);
    let full = pages.arena().statistics();
    assert!(full.held_bytes > 30 << 20);
    // One is held by a clone, and one by a reference for some time.
    let clone = pages.get(&1).expect("an entry");
    pages.invalidate_entries_if(|key, _| key % 4 > 0 && *key != 1);
    eventually(|| {
        let now = pages.arena().statistics();
        now.held_bytes < now.bytes + now.bytes / 4
    });
    assert!(pages.arena().statistics().moved > 100);
    assert_eq!(check(&pages, 0..40_000), 10_001);
    assert!(*clone == content(1, len_of(1)));
    pages.invalidate_all();
    drop(clone);
    eventually(|| {
        let now = pages.arena().statistics();
        now.values == 0 && now.bytes == 0 && now.held_bytes == 0
    });
}

/// Readers, writers and shrinks at a time, while values are moved.
#[test]
fn readers_find_whole_values_while_these_are_moved() {
    let pages = Pages::with_bytes(16 << 20);
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        let _over = Over(&ends);
        for _ in 0..2 {
            scope.spawn(|| {
                while !ends.load(Ordering::Relaxed) {
                    check(&pages, 0..12_000);
                    let clones: Vec<_> = (0..100).filter_map(|key| pages.get(&key)).collect();
                    assert!(clones.iter().all(|value| !value.is_empty()));
                }
            });
        }
        for round in 0..10 {
            fill(&pages, 0..12_000);
            pages.invalidate_entries_if(|key, _| (key + round) % 3 > 0);
            stillpoint::global().kvfree_barrier();
            if round % 5 == 4 {
                pages.set_max_bytes(4 << 20);
                pages.set_max_bytes(16 << 20);
            }
        }
        eventually(|| pages.arena().statistics().moved > 0);
    });
}

#[test]
fn values_outlive_the_cache() {
    thread_local!(static KEPT: RefCell<Option<Bytes>> = const { RefCell::new(None) });
    let pages = Pages::with_bytes(1 << 20);
    let arena: Arena = pages.arena().clone();
    pages.insert_bytes(1, b"one").unwrap();
    let one = pages.get(&1).unwrap();
    let other = one.clone();
    // Dropped by the thread's end.
    thread::spawn(move || KEPT.set(Some(other))).join().unwrap();
    // Leaked.
    std::mem::forget(one.clone());
    drop(pages);
    stillpoint::global().kvfree_barrier();
    assert_eq!(&*one, b"one");
    drop(one);
    assert_eq!(arena.statistics().values, 1, "the one that was leaked");
}

#[test]
fn entries_weigh_what_they_take() {
    let pages = Pages::with_bytes(10 << 20);
    pages.insert_bytes(1, &[0; 1000]).unwrap();
    let footprint = pages.get(&1).unwrap().footprint() as u64;
    assert!((1008..1200).contains(&footprint));
    assert_eq!(pages.weighted_bytes(), 8 + 16 + 112 + footprint);
    assert_eq!(pages.arena().statistics().bytes, footprint);
    pages.insert_bytes(2, &[]).unwrap();
    assert_eq!(pages.weighted_bytes(), 2 * (8 + 16 + 112) + footprint);
    assert!(pages.insert_bytes(3, &vec![0; 11 << 20]).is_err());
    assert_eq!(pages.statistics().refused, 1);
    // Larger than a region, and large with pages.
    for len in [5 << 20, 100_000] {
        pages.insert_bytes(4, &content(4, len)).unwrap();
        assert!(*pages.get(&4).unwrap() == content(4, len));
    }
    let tenant = pages.tenant("tenant");
    tenant.insert_bytes(5, b"five").unwrap();
    stillpoint::global().kvfree_barrier();
    assert_eq!(pages.arena().statistics(), tenant.arena().statistics());
}
