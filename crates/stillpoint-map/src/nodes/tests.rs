use super::*;
use crate::{table::Header, word::SLOTS};
use std::cell::{Cell, RefCell};
use stillpoint::{read_lock, synchronize};

#[repr(C)]
struct Item {
    node: Node,
    key: u64,
}

fn item(key: u64) -> NonNull<Node> {
    let item = Item {
        node: Node(Head::new(!0)),
        key,
    };
    NonNull::from(Box::leak(Box::new(item))).cast()
}

fn key(node: NonNull<Node>) -> u64 {
    // SAFETY: an item, which is freed at the test's end, or after a grace period.
    unsafe { node.cast::<Item>().as_ref() }.key
}

fn free(node: NonNull<Node>) {
    // SAFETY: from `item`, and freed once.
    drop(unsafe { Box::from_raw(node.cast::<Item>().as_ptr()) });
}

fn map() -> Nodes {
    Nodes::new(None, 0, false).unwrap()
}

/// Ends the map, and frees each node when it is handed over. How many there were.
fn end(map: Nodes) -> usize {
    let mut count = 0;
    map.end(|node| {
        free(node);
        count += 1;
    });
    count
}

/// Of one hash many more than a bucket has slots for, among others that make the table grow.
#[test]
fn duplicates_are_found_once_each_also_while_the_table_moves() {
    let (map, copies) = (map(), if cfg!(miri) { 20 } else { 300 });
    let mut taken = Vec::new();
    let guard = read_lock();
    // SAFETY: inside a section; nodes of this test alone.
    unsafe {
        let pinned = map.pinned();
        for n in 0..copies {
            pinned.add(7, item(n));
            pinned.add(100 + n, item(100 + n));
        }
        let mut found: Vec<u64> = pinned.with_hash(7).map(key).collect();
        found.sort_unstable();
        assert_eq!(found, (0..copies).collect::<Vec<_>>());
        let mut visited = 0;
        // One that is taken out while it is visited, and others that come and move the table.
        for node in pinned.with_hash(7) {
            visited += 1;
            if key(node).is_multiple_of(2) {
                assert!(pinned.remove(node) && !pinned.remove(node) && !pinned.has(node));
                taken.push(node);
            }
            pinned.add(10_000 + visited, item(visited));
        }
        assert_eq!(visited, copies);
        assert_eq!(pinned.with_hash(7).count() as u64, copies / 2);
        assert!(pinned.with_hash(7).all(|node| key(node) % 2 == 1));
        assert_eq!(pinned.iter().count(), map.len());
    }
    drop(guard);
    synchronize();
    taken.into_iter().for_each(free);
    assert_eq!(end(map) as u64, copies / 2 + 2 * copies);
}

/// The last slot of a full bucket becomes a link while its nodes are visited.
#[test]
fn a_node_that_moves_behind_a_link_is_found() {
    let map = map();
    let guard = read_lock();
    // SAFETY: inside a section; nodes of this test alone.
    unsafe {
        let pinned = map.pinned();
        for n in 0..SLOTS as u64 {
            pinned.add(7, item(n));
        }
        let mut at = pinned.with_hash(7);
        let mut found = vec![key(at.next().unwrap())];
        pinned.add(7, item(100));
        found.extend(at.map(key).filter(|key| *key < 100));
        found.sort_unstable();
        assert_eq!(found, (0..SLOTS as u64).collect::<Vec<_>>());
    }
    drop(guard);
    assert_eq!(end(map), SLOTS + 1);
}

/// Where the table is, while it does not move.
fn table(map: &PinnedNodes) -> Option<*mut Header> {
    let table = map.core().table();
    table.next().is_none().then(|| table.into_word())
}

/// A chain becomes longer and shorter again and again: each of its buckets is retired, and they are
/// not taken for a chain that has become long.
#[test]
fn a_bucket_that_comes_and_goes_is_retired_and_has_no_table_move() {
    let rounds = if cfg!(miri) { 30 } else { 300 };
    let domain = Domain::new();
    let map = Nodes::new(Some(&domain), 0, false).unwrap();
    let guard = domain.read_lock();
    let mut taken = Vec::new();
    // SAFETY: inside a section; nodes of this test alone.
    unsafe {
        let pinned = map.pinned();
        for n in 0..SLOTS as u64 {
            pinned.add(7, item(n));
        }
        let before = table(pinned);
        for n in 0..rounds {
            // The home's last moves to the new bucket, and both go.
            pinned.add(7, item(100 + n));
            for node in pinned.with_hash(7).skip(SLOTS - 1) {
                assert!(pinned.remove(node));
                taken.push(node);
            }
            assert_eq!(domain.statistics().objects_pending, n + 1);
            pinned.add(7, item(n));
            assert!(before.is_some() && table(pinned) == before);
        }
    }
    drop(guard);
    domain.synchronize();
    taken.into_iter().for_each(free);
    assert_eq!(end(map), SLOTS);
}

/// Of a chain that a move has made, more buckets leave than have been added since: all at once, and
/// each is retired.
#[test]
fn a_chain_that_has_moved_may_become_shorter() {
    let domain = Domain::new();
    let map = Nodes::new(Some(&domain), 0, false).unwrap();
    let guard = domain.read_lock();
    let mut taken = Vec::new();
    // SAFETY: inside a section; nodes of this test alone.
    unsafe {
        let pinned = map.pinned();
        for n in 0..60 {
            pinned.add(7, item(n));
        }
        while table(pinned).is_none() {
            pinned.writer().help();
        }
        let before = table(pinned);
        let behind = pinned.core().table().home_of(spread(7)).chain().count() as u64 - 1;
        let retired = domain.statistics().objects_pending;
        // The last one in the end.
        for node in pinned.with_hash(7).skip(SLOTS - 1) {
            assert!(pinned.remove(node));
            taken.push(node);
        }
        assert!(behind > 1);
        assert_eq!(domain.statistics().objects_pending, retired + behind);
        for n in 0..2 {
            pinned.add(7, item(n));
        }
        assert!(before.is_some() && table(pinned) == before);
    }
    drop(guard);
    domain.synchronize();
    taken.into_iter().for_each(free);
    assert_eq!(end(map), SLOTS + 1);
}

/// A function that changes the very bucket which it is asked about: nothing is put in beside a node
/// that it has not been asked about.
#[test]
fn a_comparison_may_change_the_map() {
    let map = map();
    let guard = read_lock();
    let asked = RefCell::new(Vec::new());
    // SAFETY: inside a section; nodes of this test alone.
    let found = unsafe {
        let pinned = map.pinned();
        pinned.add(7, item(1));
        pinned.add_unique(7, item(9), |other| {
            asked.borrow_mut().push(key(other));
            if asked.borrow().len() <= 3 {
                pinned.add(7, item(1 + asked.borrow().len() as u64));
            }
            key(other) == 4
        })
    };
    assert_eq!(found.map(key), Some(4));
    assert!((1..=4).all(|key| asked.borrow().contains(&key)));
    assert_eq!(map.len(), 4);
    drop(guard);
    assert_eq!(end(map), 4);
}

/// A function that says now this and now that: nodes are lost to the caller that believes it, and the
/// map stays whole.
#[test]
fn a_comparison_that_lies_breaks_nothing() {
    let map = map();
    let turn = Cell::new(0_u32);
    let lies = |_: NonNull<Node>| {
        turn.set(
            turn.get()
                .wrapping_mul(1_664_525)
                .wrapping_add(1_013_904_223),
        );
        turn.get() >> 31 == 1
    };
    let mut taken = Vec::new();
    for n in 0..if cfg!(miri) { 30 } else { 2000 } {
        let _guard = read_lock();
        let new = item(n);
        // SAFETY: inside a section; nodes of this test alone, each put in once.
        unsafe {
            let pinned = map.pinned();
            let is_in = match n % 3 {
                0 => pinned.add_unique(n % 5, new, lies).is_none(),
                1 => {
                    taken.extend(pinned.add_or_replace(n % 5, new, lies));
                    true
                }
                _ => match pinned.find(n % 5, lies) {
                    Some(old) if pinned.replace(old, new) => {
                        taken.push(old);
                        true
                    }
                    _ => false,
                },
            };
            if !is_in {
                // No reader has found it.
                free(new);
            }
            assert_eq!(pinned.iter().count(), map.len());
        }
    }
    synchronize();
    taken.into_iter().for_each(free);
    let left = map.len();
    assert_eq!(end(map), left);
}

/// The end frees each node as it visits it, in a table that grows or shrinks at that moment.
#[test]
fn nodes_may_be_freed_where_a_map_ends() {
    let most = if cfg!(miri) { 60 } else { 1500 };
    for (count, stay) in (1..most)
        .step_by(if cfg!(miri) { 17 } else { 7 })
        .zip((0..3).cycle())
    {
        let map = map();
        let guard = read_lock();
        let mut taken = Vec::new();
        // SAFETY: inside a section; nodes of this test alone.
        unsafe {
            let pinned = map.pinned();
            for n in 0..count {
                pinned.add(n, item(n));
            }
            // All stay, or two thirds or a third go.
            for n in (0..count).filter(|n| n % 3 < stay) {
                let node = pinned.find(n, |node| key(node) == n).unwrap();
                assert!(pinned.remove(node));
                taken.push(node);
            }
            // To a table of which little is used.
            if stay == 0 && !cfg!(miri) {
                pinned.reserve(200_000).unwrap();
            }
        }
        drop(guard);
        let left = count as usize - taken.len();
        assert_eq!(end(map), left);
        synchronize();
        taken.into_iter().for_each(free);
    }
}
