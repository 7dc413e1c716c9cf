//! Without memory: a table that cannot grow is used on, what moves stays where it is until there is
//! memory, and an error comes where one was asked for. An ordered map asks again, refuses what it has no
//! node for, and removes without memory.
#![allow(
    dropping_copy_types,
    dropping_references,
    clippy::drop_non_drop,
    reason = "the call counts, and not what it returns"
)]
#![cfg(not(miri))]

#[path = "../../stillpoint/tests/common/mod.rs"]
mod common;

use common::eventually;
use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    hash::{BuildHasherDefault, Hasher},
    ptr,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};
use stillpoint_map::{
    BTreeMap, CopyMap, HashMap,
    internal::{Store, spread},
    lab::{NotInserted, Ordered},
};

struct Allocator;

/// Blocks of a cache line's alignment of at least so many bytes are refused, up to so many.
static FROM: AtomicUsize = AtomicUsize::new(usize::MAX);
static TO: AtomicUsize = AtomicUsize::new(usize::MAX);
/// How many are refused.
static TIMES: AtomicUsize = AtomicUsize::new(usize::MAX);
static REFUSED: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
    /// Blocks of at least so many bytes are refused to this thread, up to so many; and how many were.
    static HERE: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
    static REFUSED_HERE: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: all is done by the system's allocator; a null pointer is always a permitted answer.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let (from, to) = HERE.get();
        if (from..to).contains(&layout.size()) {
            REFUSED_HERE.set(REFUSED_HERE.get() + 1);
            return ptr::null_mut();
        }
        let sizes = FROM.load(Ordering::SeqCst)..TO.load(Ordering::SeqCst);
        if layout.align() == 64
            && sizes.contains(&layout.size())
            && REFUSED.fetch_add(1, Ordering::SeqCst) < TIMES.load(Ordering::SeqCst)
        {
            return ptr::null_mut();
        }
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
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

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn refusing<R>(from: usize, to: usize, work: impl FnOnce() -> R) -> R {
    REFUSED.store(0, Ordering::SeqCst);
    TO.store(to, Ordering::SeqCst);
    FROM.store(from, Ordering::SeqCst);
    let result = work();
    FROM.store(usize::MAX, Ordering::SeqCst);
    result
}

/// Refuses blocks of these sizes to this thread. Returns how many were refused, too.
fn refusing_here<R>(from: usize, to: usize, work: impl FnOnce() -> R) -> (R, usize) {
    REFUSED_HERE.set(0);
    HERE.set((from, to));
    let result = work();
    HERE.set((0, 0));
    (result, REFUSED_HERE.get())
}

#[test]
fn empty_maps_allocate_nothing() {
    // The process's first one makes the seed that all hashers share.
    drop(HashMap::<u64, u64>::new());
    let before = ALLOCATIONS.get();
    let maps: [HashMap<u64, u64>; 100] = std::array::from_fn(|_| HashMap::new());
    let ordered: [BTreeMap<u64, u64>; 100] = std::array::from_fn(|_| BTreeMap::new());
    assert_eq!(ALLOCATIONS.get(), before);
    drop((maps, ordered));
}

/// A bucket of the table, or of a chain.
const BUCKET: usize = 64;

#[test]
fn table_that_cannot_grow_is_used_on() {
    let _one = ONE_AT_A_TIME.lock().unwrap();
    let map = HashMap::new();
    map.pin().insert(0, 0);
    // Pages of the library have that alignment too, and are not larger than this.
    refusing(64 * BUCKET + 1, usize::MAX, || {
        for key in 0..3000_u64 {
            map.pin().insert(key, key);
        }
        assert!(REFUSED.load(Ordering::SeqCst) > 0);
        assert!(map.pin().capacity() < 3000);
        assert!((0..3000).all(|key| map.pin().get(&key) == Some(&key)));
        assert_eq!(map.pin().iter().count(), 3000);
        assert!(map.pin().try_reserve(1_000).is_err());
        assert!(map.pin().try_reserve(usize::MAX).is_err());
    });
    // With memory it grows again.
    (3000..3200).for_each(|key| drop(map.pin().insert(key, key)));
    eventually(|| map.pin().capacity() >= 3200);
    assert!((0..3200).all(|key| map.pin().get(&key) == Some(&key)));
    map.pin().try_reserve(10_000).unwrap();
}

/// What fails for lack of memory is tried once more, after the domain has freed what is due.
#[test]
fn refused_memory_is_asked_for_again() {
    let _one = ONE_AT_A_TIME.lock().unwrap();
    TIMES.store(1, Ordering::SeqCst);
    let refused_once = || assert_eq!(REFUSED.load(Ordering::SeqCst), 2);
    // The first table.
    let map: HashMap<u64, [u64; 8]> = HashMap::new();
    refusing(3 * BUCKET, 3 * BUCKET + 1000, || {
        map.pin().insert(1, [1; 8]);
        refused_once();
    });
    // A larger one, which is asked for a second time to be made.
    refusing(1000 * BUCKET, usize::MAX, || {
        map.pin().try_reserve(4_000).unwrap();
        assert!(REFUSED.load(Ordering::SeqCst) >= 2);
    });
    // An entry.
    #[derive(Debug, PartialEq)]
    #[repr(align(64))]
    struct Aligned([u64; 24]);
    let map = HashMap::new();
    map.pin().insert(0, Aligned([0; 24]));
    refusing(256, 257, || {
        assert!(map.pin().insert(1, Aligned([1; 24])).is_none());
        refused_once();
    });
    assert_eq!(map.pin().get(&1), Some(&Aligned([1; 24])));
    // A bucket of a chain.
    let map: HashMap<u64, u64, BuildHasherDefault<Colliding>> = HashMap::default();
    (0..7).for_each(|key| drop(map.pin().insert(8 * key, key)));
    refusing(BUCKET, BUCKET + 1, || {
        map.pin().insert(8 * 7, 7);
        refused_once();
    });
    assert_eq!(map.pin().get(&56), Some(&7));
    TIMES.store(usize::MAX, Ordering::SeqCst);
}

/// One key of eight has the same hash as the others of those.
#[derive(Default)]
struct Colliding(u64);

impl Hasher for Colliding {
    fn write(&mut self, _bytes: &[u8]) {
        unimplemented!("keys are numbers");
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = if key.is_multiple_of(8) { 1 } else { key };
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// There is memory for the larger table, and none for the chain of keys that collide: that unit is
/// left out, pass after pass, and the others are moved once.
#[test]
fn chains_without_memory_stay_where_they_are() {
    let _one = ONE_AT_A_TIME.lock().unwrap();
    let keys = 400;
    for round in 0..5 {
        let map: HashMap<u64, u64, BuildHasherDefault<Colliding>> = HashMap::default();
        (0..keys).for_each(|key| drop(map.pin().insert(key, key)));
        eventually(|| {
            map.pin().shrink_to_fit();
            map.pin().capacity() as u64 >= keys
        });
        let before = map.pin().capacity();
        refusing(BUCKET, BUCKET + 1, || {
            map.pin().try_reserve(2 * keys as usize).unwrap();
            // Each pass asks for the chain's memory. After one that has left units out, a writer
            // asks for the next.
            eventually(|| {
                map.pin().reserve(1);
                REFUSED.load(Ordering::SeqCst) >= 6
            });
            assert_eq!(map.pin().capacity(), before);
            assert!((0..keys).all(|key| map.pin().get(&key) == Some(&key)));
            assert_eq!(map.pin().iter().count() as u64, keys);
            (0..keys / 2).for_each(|key| {
                map.pin().insert(key, key + round);
            });
        });
        eventually(|| {
            map.pin().reserve(1);
            map.pin().capacity() > before
        });
        for key in 0..keys {
            let value = if key < keys / 2 { key + round } else { key };
            assert_eq!(map.pin().remove(&key), Some(&value));
        }
        assert_eq!(map.pin().iter().count(), 0);
    }
}

/// The same in a map of copies: there is memory for the larger table, and none for the array of keys
/// that collide.
#[test]
fn arrays_without_memory_stay_where_they_are() {
    let _one = ONE_AT_A_TIME.lock().unwrap();
    const KEYS: u64 = 400;
    // One of eight collides. What a move needs beside their array is smaller, or larger.
    const ARRAY: (usize, usize) = (800, 1500);
    let map: CopyMap<u64, u64, BuildHasherDefault<Colliding>> = CopyMap::default();
    let map = map.pin();
    (0..KEYS).for_each(|key| drop(map.insert(key, key)));
    // Each moves a few buckets, and none that has the keys that collide is changed.
    let change = || {
        for _ in 0..KEYS {
            assert_eq!(map.insert(KEYS + 1, 0), None);
            assert_eq!(map.remove(&(KEYS + 1)), Some(0));
        }
    };
    change();
    let before = map.capacity();
    let ((), refused) = refusing_here(ARRAY.0, ARRAY.1, || {
        map.try_reserve(2 * KEYS as usize).unwrap();
        change();
        assert_eq!(map.capacity(), before);
        assert!((0..KEYS).all(|key| map.get(&key) == Some(key)));
        assert_eq!(map.iter().count() as u64, KEYS);
    });
    assert!(refused >= 2, "there is pass after pass: {refused}");
    change();
    assert!(map.capacity() > before);
    assert!((0..KEYS).all(|key| map.remove(&key) == Some(key)));
}

/// Of all sizes of blocks one is refused, and then the next: the table of a first `try_reserve`, and
/// what the map shares with the service thread.
#[test]
fn first_reservation_without_memory_is_an_error() {
    let _one = ONE_AT_A_TIME.lock().unwrap();
    let fails_without = |size: usize| {
        let map: CopyMap<u64, u64> = CopyMap::new();
        let pinned = map.pin();
        let (reserved, refused) = refusing_here(size, size + 1, || pinned.try_reserve(10));
        assert_eq!(reserved.is_err(), refused > 0);
        pinned.try_reserve(10).unwrap();
        reserved.is_err()
    };
    assert_eq!((1..2048).filter(|size| fails_without(*size)).count(), 2);
}

/// There is no memory for the callback that frees a large table, which is never freed then.
#[test]
fn copies_move_without_memory_for_callbacks() {
    let _one = ONE_AT_A_TIME.lock().unwrap();
    let map: CopyMap<u64, u64> = CopyMap::with_capacity(10_000);
    let map = map.pin();
    // So few that none is behind a bucket.
    (0..400).for_each(|key| drop(map.insert(key, key)));
    let before = map.capacity();
    map.reserve(2 * before);
    let ((), refused) = refusing_here(1, 64, || {
        let mut keys = 0..400;
        while map.capacity() == before {
            let key = keys.next().expect("it has moved by then");
            assert_eq!(map.remove(&key), Some(key));
        }
    });
    assert!(refused > 0);
}

/// A large map whose entries cannot lie side by side has them in boxes.
#[test]
fn entries_without_memory_for_an_arena_are_boxes() {
    let _one = ONE_AT_A_TIME.lock().unwrap();
    let refused = (1..2048).filter(|size| {
        let store: Store<u64, u64> = Store::new(None);
        store.make_room(5000, true);
        let section = store.read_lock();
        let (entry, refused) = refusing_here(*size, *size + 1, || {
            store.try_new_entry(spread(1), 1, 2, &section)
        });
        assert_eq!(entry.map(|entry| (entry.key, entry.value)), Ok((1, 2)));
        refused > 0
    });
    // The arena; and its stripes, of which there are as many as processors.
    assert!(refused.count() > 0);
}

/// A leaf of the ordered map.
const LEAF: usize = 256;

/// Of each size of blocks in turn one is refused, leaves and inner nodes among them.
#[test]
fn refused_nodes_are_asked_for_again() {
    let _one = ONE_AT_A_TIME.lock().unwrap();
    TIMES.store(1, Ordering::SeqCst);
    let refused = (LEAF..16 * LEAF).step_by(64).filter(|size| {
        let map = BTreeMap::new();
        map.pin().insert(0, 0);
        refusing(*size, size + 1, || {
            (1..1000_u64).for_each(|key| drop(map.pin().insert(key, key)));
        });
        assert!((0..1000).all(|key| map.pin().get(&key) == Some(&key)));
        REFUSED.load(Ordering::SeqCst) > 0
    });
    let refused: Vec<_> = refused.collect();
    TIMES.store(usize::MAX, Ordering::SeqCst);
    assert!(refused.len() >= 2 && refused[0] == LEAF, "{refused:?}");
}

/// An insert that needs a node is refused, and gives key and value back; what is there stays, can be
/// replaced, and can be taken out, though nothing is merged then. With memory all goes on.
#[test]
fn ordered_map_without_memory_for_nodes() {
    const KEYS: u32 = 500;
    let _one = ONE_AT_A_TIME.lock().unwrap();
    let map: Ordered<u32, u32> = Ordered::new(None);
    let section = map.read_lock();
    let insert = |key: u32, value: u32| {
        let inserted = map.insert(map.new_entry(key, value), true, &section);
        match inserted {
            Ok(_) => Ok(()),
            Err(NotInserted::NoMemory(new)) => Err(new.into_pair()),
            Err(NotInserted::Occupied(..)) => unreachable!("it replaces"),
        }
    };
    let has = |key: u32| map.find(&key, &section).map(|found| *found.value());
    (0..KEYS).for_each(|key| insert(2 * key, 0).expect("there is memory"));
    let mut refused = Vec::with_capacity(KEYS as usize);
    let ((), asked) = refusing_here(LEAF, LEAF + 1, || {
        refused.extend((0..KEYS).filter_map(|key| insert(2 * key + 1, 1).err()));
        (0..KEYS).for_each(|key| insert(2 * key, 2).expect("it needs no node"));
    });
    assert!(asked > refused.len() && !refused.is_empty());
    for (key, value) in &refused {
        assert_eq!((key % 2, *value, has(*key)), (1, 1, None));
    }
    assert_eq!(map.len(), 2 * KEYS as usize - refused.len());
    assert!((0..KEYS).all(|key| has(2 * key) == Some(2)));

    let remove = |key: u32| {
        let at = map.locate(&key, &section).expect("there are entries");
        assert!(map.remove(at, &section));
    };
    let (_, asked) = refusing_here(LEAF, LEAF + 1, || (1..KEYS).for_each(|key| remove(2 * key)));
    assert!(asked > 0, "leaves are to be merged");
    for (key, value) in refused {
        insert(key, value).expect("there is memory");
    }
    let odd = (0..KEYS).all(|key| has(2 * key + 1) == Some(1));
    assert!(odd && map.len() == KEYS as usize + 1);
}
