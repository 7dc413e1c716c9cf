//! Maps that are empty allocate nothing, and `try_reserve` returns an error without memory.
#![cfg(not(miri))]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    ptr,
};
use stillpoint_map::{BTreeMap, CopyMap, HashMap};

struct Allocator;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
    /// Blocks of at least so many bytes are refused to this thread, up to so many; and how many were.
    static SIZES: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
    static REFUSED: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: all is done by the system's allocator; a null pointer is always a permitted answer.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let (from, to) = SIZES.get();
        if (from..to).contains(&layout.size()) {
            REFUSED.set(REFUSED.get() + 1);
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
