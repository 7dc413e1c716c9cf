//! The feature `rayon`.

use rayon::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use stillpoint_map::{BTreeMap, CopyMap, HashMap, HashSet};

#[test]
fn maps_and_sets_are_filled() {
    let mut map: HashMap<u32, String> = (0..10_000_u32)
        .into_par_iter()
        .map(|n| (n, n.to_string()))
        .collect();
    map.par_extend(
        (10_000..20_000_u32)
            .into_par_iter()
            .map(|n| (n, n.to_string())),
    );
    assert_eq!(map.len(), 20_000);
    assert!((0..20_000).all(|n| map.pin().get(&n).unwrap() == &n.to_string()));

    let mut set: HashSet<u32> = (0..10_000_u32).into_par_iter().map(|n| n / 2).collect();
    assert_eq!(set.len(), 5_000);
    (&set).par_extend((0..6_000_u32).into_par_iter());
    set.par_extend((0..7_000_u32).into_par_iter());
    assert_eq!(set, (0..7_000).collect());

    let mut copies: CopyMap<u32, u32> = (0..10_000_u32).into_par_iter().map(|n| (n, n)).collect();
    (&copies).par_extend((5_000..15_000_u32).into_par_iter().map(|n| (n, n)));
    copies.par_extend((15_000..20_000_u32).into_par_iter().map(|n| (n, n)));
    assert_eq!(copies, (0..20_000).map(|n| (n, n)).collect());

    let mut ordered: BTreeMap<String, u32> = (0..10_000_u32)
        .into_par_iter()
        .map(|n| (n.to_string(), n))
        .collect();
    (&ordered).par_extend(
        (5_000..15_000_u32)
            .into_par_iter()
            .map(|n| (n.to_string(), n)),
    );
    ordered.par_extend(
        (15_000..20_000_u32)
            .into_par_iter()
            .map(|n| (n.to_string(), n)),
    );
    assert_eq!(
        ordered,
        (0..20_000).map(|n: u32| (n.to_string(), n)).collect()
    );
}

/// In sizes that are not split, are split into some ranges, and into many.
#[test]
fn every_entry_is_visited_once() {
    for entries in [0, 1, 100, 5_000, 100_000_u32] {
        let map: HashMap<u32, AtomicU32> = (0..entries).map(|n| (n, AtomicU32::new(0))).collect();
        let pinned = map.pin();
        let visited = pinned
            .par_iter()
            .map(|(_, visits)| visits.fetch_add(1, Ordering::Relaxed))
            .count();
        assert_eq!(visited, entries as usize);
        assert!(
            pinned
                .values()
                .all(|visits| visits.load(Ordering::Relaxed) == 1)
        );

        let set: HashSet<u32> = (0..entries).collect();
        let sum: u64 = set.pin().par_iter().map(|value| u64::from(*value)).sum();
        assert_eq!(sum, (0..u64::from(entries)).sum());

        let copies: CopyMap<u32, u32> = (0..entries).map(|n| (n, !n)).collect();
        let mut visited: Vec<_> = copies.pin().par_iter().collect();
        visited.sort_unstable();
        assert!(visited.into_iter().eq((0..entries).map(|n| (n, !n))));

        // These are in order.
        let ordered: BTreeMap<u32, u32> = (0..entries).map(|n| (n, !n)).collect();
        let pinned = ordered.pin();
        let visited: Vec<_> = pinned.par_iter().collect();
        assert!(visited.into_iter().eq(&pinned));
        let visited: Vec<_> = pinned.range(7..).into_par_iter().collect();
        assert!(visited.into_iter().eq(pinned.range(7..)));
    }
}

const KEPT: u32 = 2_000;

/// The keys that are there throughout are visited once, whatever the table does, which grows and
/// shrinks by `changes`.
fn iterate_beside(changes: impl Fn() + Sync, keys: impl Fn() -> Vec<u32>) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                changes();
            }
        });
        for _ in 0..20 {
            let mut kept = keys();
            kept.retain(|key| *key < KEPT);
            kept.sort_unstable();
            assert!(kept.into_iter().eq(0..KEPT));
        }
        done.store(true, Ordering::Relaxed);
        writer.join().unwrap();
    });
}

#[test]
fn an_iteration_beside_a_table_that_grows_and_shrinks() {
    let map: HashMap<u32, u32> = (0..KEPT).map(|key| (key, 0)).collect();
    let changes = || {
        (&map).extend((KEPT..KEPT * 20).map(|key| (key, 0)));
        map.pin().retain(|key, _| *key < KEPT);
    };
    iterate_beside(changes, || {
        map.pin().par_iter().map(|(key, _)| *key).collect()
    });
}

#[test]
fn an_iteration_of_copies_beside_a_table_that_grows_and_shrinks() {
    let map: CopyMap<u32, u32> = (0..KEPT).map(|key| (key, 0)).collect();
    let changes = || {
        (&map).extend((KEPT..KEPT * 20).map(|key| (key, 0)));
        map.pin().retain(|key, _| *key < KEPT);
    };
    iterate_beside(changes, || {
        map.pin().par_iter().map(|(key, _)| key).collect()
    });
}

#[test]
fn an_iteration_in_order_beside_nodes_that_are_divided_and_merged() {
    let map: BTreeMap<u32, u32> = (0..KEPT).map(|key| (key << 8, 0)).collect();
    let changes = || {
        (&map).extend(
            (0..KEPT * 20)
                .filter(|key| key % 16 != 0)
                .map(|key| (key << 4, 0)),
        );
        map.pin().retain(|key, _| key % 256 == 0);
    };
    iterate_beside(changes, || {
        let map = map.pin();
        let keys: Vec<u32> = map.par_iter().map(|(key, _)| *key).collect();
        assert!(keys.is_sorted_by(|one, other| one < other));
        let kept = keys.into_iter().filter(|key| key % 256 == 0);
        kept.map(|key| key >> 8).collect()
    });
}

#[test]
fn a_search_ends_early() {
    let map: HashMap<u32, u32> = (0..100_000).map(|key| (key, key)).collect();
    assert!(map.pin().par_iter().any(|(key, _)| *key == 7));
    assert!(
        map.pin()
            .par_iter()
            .find_any(|(key, _)| **key > 100_000)
            .is_none()
    );
    let map: BTreeMap<u32, u32> = (0..100_000).map(|key| (key, key)).collect();
    let map = map.pin();
    assert!(map.par_iter().any(|(key, _)| *key == 7));
    let first = map.par_iter().find_first(|(key, _)| **key >= 70_000);
    assert_eq!(first, Some((&70_000, &70_000)));
}
