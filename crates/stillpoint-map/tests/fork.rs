//! Forking while other threads write a map: the child goes on with it.
#![cfg(all(target_os = "linux", not(miri)))]

#[path = "../../stillpoint/tests/common/mod.rs"]
mod common;

use common::{
    Over, apart, eventually,
    forking::{elsewhere, end_after, fork, fork_here},
};
use std::{
    alloc::{GlobalAlloc, Layout, System},
    collections::HashSet,
    hint::black_box,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};
use stillpoint::Domain;
use stillpoint_map::{BTreeMap, CopyMap, HashMap};

/// Sees buckets of chains that are freed twice.
struct Allocator;

const BUCKET: Layout = match Layout::from_size_align(64, 64) {
    Ok(layout) => layout,
    Err(_) => unreachable!(),
};
const FREED: u64 = 0x9e37_79b9_7f4a_7c15;
/// From then on buckets are marked when they are freed, and not given back.
static IS_KEEPING: AtomicBool = AtomicBool::new(false);
static FREED_TWICE: AtomicBool = AtomicBool::new(false);

// SAFETY: all is done by the system's allocator, but that what is kept stays allocated.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if layout == BUCKET && IS_KEEPING.load(Ordering::Relaxed) {
            let mark = block.cast::<u64>();
            // SAFETY: the block stays. Volatile: a compiler may think that it does not.
            unsafe {
                if mark.read_volatile() == FREED {
                    FREED_TWICE.store(true, Ordering::Relaxed);
                }
                mark.write_volatile(FREED);
            }
            return;
        }
        // SAFETY: the caller's promise; the block came from `System`.
        unsafe { System.dealloc(block, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

const WRITERS: u64 = 3;
const STAYING: u64 = 50;
const MANY: u64 = 1500;
/// So many more that a table moves to one of many times its size.
const SPARSE: usize = 10_000;

/// A map that threads write while others fork. Values are their keys.
trait Map: Sync {
    fn put(&self, key: u64);
    fn remove(&self, key: u64);
    fn value(&self, key: u64) -> Option<u64>;
    fn entries(&self) -> Vec<(u64, u64)>;
    fn clear(&self);
    fn len(&self) -> usize;
    /// Lets the table shrink. Returns how many entries it is for.
    fn shrink(&self) -> usize;
    /// Has the table move to a much larger one, if there is a table.
    fn reserve(&self);
}

impl Map for HashMap<u64, Box<u64>> {
    fn put(&self, key: u64) {
        self.pin().insert(key, Box::new(key));
    }

    fn remove(&self, key: u64) {
        self.pin().remove(&key);
    }

    fn value(&self, key: u64) -> Option<u64> {
        self.pin().get(&key).map(|value| **value)
    }

    fn entries(&self) -> Vec<(u64, u64)> {
        let entries = self.pin();
        entries.iter().map(|(key, value)| (*key, **value)).collect()
    }

    fn clear(&self) {
        self.pin().clear();
    }

    fn len(&self) -> usize {
        self.len()
    }

    fn shrink(&self) -> usize {
        self.pin().shrink_to_fit();
        self.pin().capacity()
    }

    fn reserve(&self) {
        self.pin().reserve(SPARSE);
    }
}

impl Map for CopyMap<u64, u64> {
    fn put(&self, key: u64) {
        self.pin().insert(key, key);
    }

    fn remove(&self, key: u64) {
        self.pin().remove(&key);
    }

    fn value(&self, key: u64) -> Option<u64> {
        self.pin().get(&key)
    }

    fn entries(&self) -> Vec<(u64, u64)> {
        self.pin().iter().collect()
    }

    fn clear(&self) {
        self.pin().clear();
    }

    fn len(&self) -> usize {
        self.len()
    }

    fn shrink(&self) -> usize {
        self.pin().shrink_to_fit();
        // Changes move it.
        self.put(0);
        self.pin().capacity()
    }

    fn reserve(&self) {
        self.pin().reserve(SPARSE);
    }
}

/// The ordered map of keys that hints tell nothing of: so there are fences.
impl Map for BTreeMap<(u64,), Box<u64>> {
    fn put(&self, key: u64) {
        self.pin().insert((key,), Box::new(key));
    }

    fn remove(&self, key: u64) {
        self.pin().remove(&(key,));
    }

    fn value(&self, key: u64) -> Option<u64> {
        self.pin().get(&(key,)).map(|value| **value)
    }

    fn entries(&self) -> Vec<(u64, u64)> {
        let map = self.pin();
        let entries: Vec<_> = map.iter().map(|(key, value)| (key.0, **value)).collect();
        assert!(entries.is_sorted());
        assert!(
            map.iter()
                .rev()
                .map(|(key, _)| key.0)
                .eq(entries.iter().rev().map(|(key, _)| *key))
        );
        entries
    }

    fn clear(&self) {
        self.pin().clear();
    }

    fn len(&self) -> usize {
        self.len()
    }

    fn shrink(&self) -> usize {
        // It has no table: nodes go with their entries.
        0
    }

    fn reserve(&self) {}
}

/// All of the map, by the child's threads: their locks, their moves, their service thread.
fn use_in_child(map: &impl Map) {
    IS_KEEPING.store(true, Ordering::Relaxed);
    let check = || {
        let mut seen = HashSet::new();
        for (key, value) in map.entries() {
            assert_eq!(key, value);
            assert!(seen.insert(key), "{key} is visited twice");
        }
        assert!((0..STAYING).all(|key| seen.contains(&key)));
        for key in &seen {
            assert_eq!(map.value(*key), Some(*key));
        }
    };
    check();
    let work = |first: u64| {
        for key in (first..MANY + 500).step_by(2) {
            map.put(key);
        }
        for key in (first..STAYING).step_by(2) {
            assert_eq!(map.value(key), Some(key));
        }
    };
    work(0);
    elsewhere(|| work(1));
    check();
    map.clear();
    assert_eq!(map.entries().len(), 0);
    (0..100).for_each(|key| map.put(key));
    assert_eq!(map.entries().len(), 100);
    // Moves end, also those that threads of the parent had begun.
    eventually(|| map.shrink() < MANY as usize / 2);
    // What the writers of the parent had not counted yet is not counted.
    assert!(map.len().abs_diff(100) <= WRITERS as usize);
    // Chains that have moved are freed once, whether this process has moved them or the parent.
    stillpoint::barrier();
    stillpoint::kvfree_barrier();
    assert!(!FREED_TWICE.load(Ordering::Relaxed), "freed twice");
}

#[test]
fn child_goes_on_with_a_map_that_was_written() {
    apart!();
    fork_while_it_is_written(&HashMap::new(), 150);
}

#[test]
fn child_goes_on_with_copies_that_were_written() {
    apart!();
    fork_while_it_is_written(&CopyMap::new(), 150);
}

/// Has an ordered map's new nodes lie in slabs, as those of one do that was large.
fn have_slabs(map: &BTreeMap<(u64,), Box<u64>>) {
    (0..20_000).for_each(|key| map.put(key));
    Map::clear(map);
}

#[test]
fn child_goes_on_with_an_ordered_map_that_was_written() {
    apart!();
    let map = BTreeMap::new();
    have_slabs(&map);
    fork_while_it_is_written(&map, 50);
}

/// The thread that forks is in the middle of a change, in user code: of its own process the child
/// finds another leaf, as a thread that was replacing it has vanished.
#[test]
fn child_goes_on_with_a_change_that_forks() {
    apart!();
    let map = BTreeMap::<(u64,), Box<u64>>::new();
    have_slabs(&map);
    (0..STAYING).for_each(|key| map.put(key));
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _over = Over(&over);
        for writer in 0..WRITERS {
            let (map, over) = (&map, &over);
            scope.spawn(move || {
                // Beside the keys that stay: their leaves are replaced all the time.
                while !over.load(Ordering::Relaxed) {
                    for key in STAYING..STAYING + 30 {
                        Map::put(map, key * WRITERS + writer);
                    }
                    for key in STAYING..STAYING + 30 {
                        Map::remove(map, key * WRITERS + writer);
                    }
                }
            });
        }
        for _ in 0..100 {
            let (last, mut forked) = (STAYING - 1, None);
            map.pin().update(&(last,), |value| {
                forked.get_or_insert_with(fork_here);
                Box::new(**value + 1)
            });
            let Some(child) = forked.expect("it forks") else {
                // The change has been made here, too, in the child's own tree.
                end_after(|| {
                    let count = map.value(last).expect("it stays");
                    let pinned = map.pin();
                    pinned.update(&(last,), |value| Box::new(**value + 1));
                    assert_eq!(map.value(last), Some(count + 1));
                    pinned.retain(|key, _| key.0 < STAYING);
                    assert!((0..last).all(|key| map.value(key) == Some(key)));
                    assert_eq!(pinned.iter().count() as u64, STAYING);
                })
            };
            child.well();
        }
        let count = map.value(STAYING - 1);
        assert_eq!(count, Some(STAYING - 1 + 100));
    });
}

fn fork_while_it_is_written(map: &impl Map, rounds: u64) {
    (0..STAYING).for_each(|key| map.put(key));
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _over = Over(&over);
        for writer in 0..WRITERS {
            let over = &over;
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    for key in (STAYING + writer..MANY).step_by(WRITERS as usize) {
                        map.put(key);
                    }
                    map.put(writer);
                    for key in (STAYING + writer..MANY).step_by(WRITERS as usize) {
                        map.remove(key);
                    }
                }
            });
        }
        for round in 0..rounds {
            // At another place of the writers' rounds each time.
            for _ in 0..round % 16 * 1000 {
                black_box(round);
            }
            // And while the table moves, now to a much larger one, and now back.
            if round % 4 != 0 {
                map.shrink();
            } else {
                map.reserve();
            }
            fork(|| use_in_child(map)).well();
        }
    });
}

/// The parent is in the middle of a move, and has freed the chains of what has moved. The child
/// counts from the beginning.
#[test]
fn chains_that_have_moved_are_freed_once() {
    apart!();
    // The service thread moves nothing.
    let domain = Domain::new();
    domain.set_callback_delay(Duration::from_secs(3600));
    let map: HashMap<u64, Box<u64>> = HashMap::new_in(&domain);
    // The table that is reserved is smaller than a huge page: so each change moves a part.
    (0..10_000).for_each(|key| map.put(key));
    // Each moves a few buckets.
    let change = || {
        Map::remove(&map, 1);
        map.put(1);
    };
    (0..1000).for_each(|_| change());
    let room = map.pin().capacity();
    IS_KEEPING.store(true, Ordering::Relaxed);
    map.pin().reserve(2 * room);
    (0..50).for_each(|_| change());
    // No barrier, which would have the callbacks run.
    let all_is_freed = || eventually(|| domain.statistics().bytes_pending == 0);
    all_is_freed();
    assert_eq!(map.pin().capacity(), room, "it moves");
    fork(|| {
        (0..1000).for_each(|_| change());
        assert!(map.pin().capacity() > room);
        all_is_freed();
        assert!(!FREED_TWICE.load(Ordering::Relaxed), "freed twice");
        assert!((0..10_000).all(|key| map.value(key) == Some(key)));
    })
    .well();
}
