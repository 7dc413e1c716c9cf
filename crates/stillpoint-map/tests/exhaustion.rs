//! Maps that are empty allocate nothing, `try_reserve` returns an error without memory, and what a map
//! takes is linear in its entries.
#![cfg(not(miri))]

#[path = "../../stillpoint/tests/common/mod.rs"]
mod common;

use common::{
    panic_message,
    refusing::{Refusing, with_memory},
};
use std::{
    alloc::{GlobalAlloc, Layout},
    cell::Cell,
    hash::{BuildHasherDefault, Hasher},
    ptr,
};
use stillpoint_map::{BTreeMap, CopyMap, HashMap, HashSet};

struct Allocator;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
    /// What this thread has allocated, in bytes.
    static BYTES: Cell<usize> = const { Cell::new(0) };
    /// Number of blocks that this thread has freed.
    static FREED: Cell<usize> = const { Cell::new(0) };
    /// Blocks of at least so many bytes are refused to this thread, up to so many; and how many were.
    static SIZES: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
    static REFUSED: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: all is done by `Refusing`; a null pointer is always a permitted answer.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let (from, to) = SIZES.get();
        if (from..to).contains(&layout.size()) {
            REFUSED.set(REFUSED.get() + 1);
            return ptr::null_mut();
        }
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        BYTES.set(BYTES.get() + layout.size());
        // SAFETY: the caller's promise.
        unsafe { Refusing.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        FREED.set(FREED.get() + 1);
        // SAFETY: the caller's promise; the block came from `Refusing`.
        unsafe { Refusing.dealloc(block, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// Refuses blocks of these sizes to this thread. Returns how many were refused, too.
fn refusing<R>(from: usize, to: usize, work: impl FnOnce() -> R) -> (R, usize) {
    REFUSED.set(0);
    SIZES.set((from, to));
    let result = work();
    SIZES.set((0, 0));
    (result, REFUSED.get())
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

#[test]
fn reservation_without_memory_is_an_error_and_changes_nothing() {
    let map = HashMap::new();
    let pinned = map.pin();
    for key in 0..100_u64 {
        pinned.insert(key, key);
    }
    let before = pinned.capacity();
    let (reserved, refused) = refusing(8 << 10, usize::MAX, || pinned.try_reserve(2_000));
    assert!(reserved.is_err() && refused > 0);
    assert!(pinned.try_reserve(usize::MAX).is_err());
    assert_eq!((pinned.capacity(), pinned.len()), (before, 100));
    assert!((0..100).all(|key| pinned.get(&key) == Some(&key)));
    pinned.try_reserve(2_000).unwrap();
}

/// Of all sizes of blocks one is refused, and then the next: the table of a first `try_reserve`, and
/// what the map shares with the service thread.
#[test]
fn first_reservation_without_memory_is_an_error() {
    let fails_without = |size: usize| {
        let map: CopyMap<u64, u64> = CopyMap::new();
        let pinned = map.pin();
        let (reserved, refused) = refusing(size, size + 1, || pinned.try_reserve(10));
        assert_eq!(reserved.is_err(), refused > 0);
        pinned.try_reserve(10).unwrap();
        reserved.is_err()
    };
    assert_eq!((1..2048).filter(|size| fails_without(*size)).count(), 2);
}

/// A refused allocation that cannot report failure would end the process.
#[test]
fn first_reservation_ends_well_with_any_amount_of_memory() {
    for bytes in (0..2048).step_by(8) {
        let (hashed, copies) = (HashMap::<u64, u64>::new(), CopyMap::<u64, u64>::new());
        let (hashed, copies) = (hashed.pin(), copies.pin());
        for _ in 0..2 {
            let _ = with_memory(bytes, || hashed.try_reserve(10));
            let _ = with_memory(bytes, || copies.try_reserve(10));
        }
        hashed.try_reserve(10).unwrap();
        copies.try_reserve(10).unwrap();
    }
}

/// The system refuses the table, which is larger than all of its memory, and nothing is touched.
#[test]
#[cfg(target_os = "linux")]
fn reservation_of_more_than_there_is_is_an_error() {
    let overcommits = std::fs::read_to_string("/proc/sys/vm/overcommit_memory").unwrap();
    if overcommits.trim() == "1" {
        return;
    }
    // SAFETY: zeros are one.
    let mut info = unsafe { std::mem::zeroed::<libc::sysinfo>() };
    // SAFETY: it writes one.
    assert_eq!(unsafe { libc::sysinfo(&raw mut info) }, 0);
    let all = (info.totalram + info.totalswap) as usize * info.mem_unit as usize;
    // More than 8 bytes an entry, whatever the map is.
    let entries = all / 8;
    let (hashed, copies) = (HashMap::<u64, u64>::new(), CopyMap::<u64, u64>::new());
    for has_a_table in [false, true] {
        if has_a_table {
            hashed.pin().insert(1, 1);
            copies.pin().insert(1, 1);
        }
        let before = (hashed.pin().capacity(), copies.pin().capacity());
        assert!(hashed.pin().try_reserve(entries).is_err());
        assert!(copies.pin().try_reserve(entries).is_err());
        assert_eq!((hashed.pin().capacity(), copies.pin().capacity()), before);
    }
}

/// Says of the values that are left that there are very many.
struct Liar(u64);

impl Iterator for Liar {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.0 = self.0.checked_sub(1)?;
        Some(self.0)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::MAX, None)
    }
}

/// As std's do.
#[test]
fn capacity_that_no_table_can_have_is_a_panic() {
    type Try = fn();
    let tries: [Try; 9] = [
        || drop(HashMap::<u64, u64>::with_capacity(usize::MAX)),
        || drop(HashSet::<u64>::with_capacity(usize::MAX / 2)),
        || drop(CopyMap::<u64, u64>::with_capacity(usize::MAX)),
        || HashMap::<u64, u64>::new().pin().reserve(usize::MAX),
        || CopyMap::<u64, u64>::new().pin().reserve(usize::MAX),
        || HashMap::from([(1, 1)]).pin().reserve(usize::MAX),
        || drop(Liar(3).map(|key| (key, key)).collect::<HashMap<_, _>>()),
        || drop(Liar(3).collect::<HashSet<_>>()),
        || drop(Liar(3).map(|key| (key, key)).collect::<CopyMap<_, _>>()),
    ];
    for (number, attempt) in tries.into_iter().enumerate() {
        assert_eq!(panic_message(attempt), "capacity overflow", "{number}");
    }
}

/// All keys have one hash.
#[derive(Default)]
struct Zero;

impl Hasher for Zero {
    fn write(&mut self, _: &[u8]) {}

    fn finish(&self) -> u64 {
        0
    }
}

/// Nothing is freed in a section: what changes have allocated is what they take.
#[test]
fn changes_of_keys_with_one_hash_take_memory_for_each_change() {
    const KEYS: u64 = 2000;
    let map = CopyMap::<u64, u64, BuildHasherDefault<Zero>>::default();
    let map = map.pin();
    let bytes = |work: &dyn Fn(u64)| {
        let before = BYTES.get();
        (0..KEYS).for_each(work);
        (BYTES.get() - before) / KEYS as usize
    };
    // A node of 32 bytes, or two, and the lists of what was retired.
    let inserted = bytes(&|key| assert_eq!(map.insert(key, 0), None));
    let updated = bytes(&|key| assert_eq!(map.insert(key, 1), Some(0)));
    let removed = bytes(&|key| assert_eq!(map.remove(&key), Some(1)));
    assert!(
        [inserted, updated, removed]
            .into_iter()
            .all(|bytes| bytes < 300),
        "{inserted}, {updated} and {removed} bytes a change"
    );
    assert_eq!(map.len(), 0);
}

/// A node that is allocated for a copy, and not needed, would be freed under the bucket's lock.
#[test]
fn removals_of_keys_with_one_hash_free_nothing_in_a_section() {
    let map = CopyMap::<u64, u64, BuildHasherDefault<Zero>>::default();
    let map = map.pin();
    (0..7_u64).for_each(|key| assert_eq!(map.insert(key, 0), None));
    // There is no slot for one more. The first time the thread makes its lists of what was retired.
    let freed = [(); 2].map(|()| {
        assert_eq!(map.insert(7, 0), None);
        let before = FREED.get();
        assert_eq!(map.remove(&7), Some(0));
        FREED.get() - before
    });
    assert_eq!(freed[1], 0);
}
