//! The tree below its interface: how many nodes it has, and what becomes of them.
//!
//! Detects nodes that never lie in slabs, and a replacement that takes the lock.

use super::{
    map::{BTreeMap, PinnedBTreeMap},
    node::{Kind, Leaf, Node},
};
use crate::section::Live;
use std::{ops::Bound, sync::mpsc, thread, time::Duration};

/// Nodes of a map.
#[derive(Clone, Copy, Default, Debug)]
struct Nodes {
    leaves: usize,
    /// Leaves without entries.
    empty: usize,
    inners: usize,
    /// Nodes in slabs.
    in_slabs: usize,
}

fn nodes<K, V>(map: &BTreeMap<K, V>) -> Nodes {
    fn count(node: Node<'_>, nodes: &mut Nodes) {
        nodes.in_slabs += usize::from(node.gate().is_in_slab());
        match node.kind() {
            Kind::Leaf(leaf) => {
                nodes.leaves += 1;
                nodes.empty += usize::from(leaf.order().len() == 0);
            }
            Kind::Inner(inner) => {
                nodes.inners += 1;
                (0..=inner.len()).for_each(|at| count(inner.child(at), nodes));
            }
        }
    }
    let map = map.pin();
    let mut nodes = Nodes::default();
    if let Some(tree) = map.store().tree() {
        count(tree.root(), &mut nodes);
    }
    nodes
}

const MANY: u32 = if cfg!(miri) { 64 } else { 50_000 };
/// How often a test counts nodes.
const COUNTS: u32 = if cfg!(miri) { 2 } else { 50 };

/// A key that hints say nothing of.
type Opaque = (u32, u32);

fn filled() -> BTreeMap<Opaque, u32> {
    (0..MANY).map(|key| ((key, key), key)).collect()
}

/// Keys that come in order fill nodes, which are then emptied one after the other: empty leaves and
/// inner nodes of one child go, too.
#[test]
fn nodes_go_with_their_entries() {
    let strides = |stride: u64| {
        move |map: &BTreeMap<Opaque, u32>, step: u32| {
            let key = (u64::from(step) * stride % u64::from(MANY)) as u32;
            map.pin().remove(&(key, key));
        }
    };
    type Removal<'a> = &'a dyn Fn(&BTreeMap<Opaque, u32>, u32);
    let removals: [Removal<'_>; 4] = [
        &|map, _| assert!(map.pin().pop_first().is_some()),
        &|map, _| assert!(map.pin().pop_last().is_some()),
        &strides(1),
        &strides(7919),
    ];
    // Under Miri the first and the last.
    let every = if cfg!(miri) { 3 } else { 1 };
    for (number, remove) in removals.into_iter().enumerate().step_by(every) {
        let map = filled();
        for step in 0..MANY {
            remove(&map, step);
            if step % (MANY / COUNTS) == 0 {
                // One at each level has a neighbour that is full.
                let nodes = nodes(&map);
                assert!(nodes.empty <= 3, "{number} at {step}: {nodes:?}");
            }
        }
        assert_eq!(map.len(), 0);
        let nodes = nodes(&map);
        assert!(
            nodes.leaves <= 2 && nodes.inners <= 2,
            "{number}: {nodes:?}"
        );
    }
}

/// A queue, whose keys move on through the tree: it has the nodes that its entries need.
#[test]
fn a_queue_keeps_no_nodes() {
    const ENTRIES: u32 = if cfg!(miri) { 32 } else { 200 };
    let map = BTreeMap::new();
    for key in 0..MANY {
        {
            let map = map.pin();
            map.insert((key, key), key);
            if key >= ENTRIES {
                let popped = map.pop_first().map(|(key, _)| key.0);
                assert_eq!(popped, Some(key - ENTRIES));
            }
        }
        if key % (MANY / COUNTS) == 0 {
            let nodes = nodes(&map);
            assert!(nodes.empty <= 3, "{key}: {nodes:?}");
            assert!(nodes.leaves <= 30 && nodes.inners <= 5, "{key}: {nodes:?}");
        }
    }
}

/// Nodes of a large map lie in slabs, and those of a small one in boxes.
#[test]
fn nodes_of_a_large_map_lie_in_slabs() {
    // Under Miri 64 entries are many.
    let many = if cfg!(miri) { 120 } else { MANY };
    let map = BTreeMap::new();
    let few = if cfg!(miri) { 32 } else { 10_000 };
    (0..few).for_each(|key| _ = map.pin().insert(key, key));
    assert_eq!(nodes(&map).in_slabs, 0);
    (0..many).for_each(|key| _ = map.pin().insert(key, key));
    let nodes = nodes(&map);
    if cfg!(miri) {
        assert!(nodes.in_slabs > 1, "{nodes:?}");
    } else {
        let all = nodes.leaves + nodes.inners;
        assert!(nodes.in_slabs * 2 > all, "{nodes:?}");
        assert!(nodes.inners > 1, "{nodes:?}");
    }
    map.pin().retain(|key, _| key % 16 == 0);
    assert!(map.into_keys().eq((0..many).step_by(16)));
}

/// The first leaf.
fn first_leaf<K, V>(map: &PinnedBTreeMap<K, V>) -> Live<'_, Leaf> {
    let mut node = map.store().tree().expect("there are entries").root();
    loop {
        match node.kind() {
            Kind::Leaf(leaf) => return leaf,
            Kind::Inner(inner) => node = inner.child(0),
        }
    }
}

/// A thread that has a leaf locked stops none that changes others, or replaces entries of that one.
#[test]
#[cfg_attr(miri, ignore = "it takes minutes there")]
fn changes_of_other_leaves_do_not_wait() {
    let map: BTreeMap<u32, u32> = (0..200).map(|key| (key * 2, key)).collect();
    let pinned = map.pin();
    let locked = first_leaf(&pinned).get().gate.lock();
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            let map = map.pin();
            assert_eq!(map.insert(0, 7), Some(&0));
            assert_eq!(map.get(&0), Some(&7));
            // Leaves are divided, and merged.
            (201..400)
                .step_by(2)
                .for_each(|key| _ = map.insert(key, key));
            (202..390).for_each(|key| assert!(map.remove(&key).is_some()));
            tell.send(()).unwrap();
        });
        // A bound for what would wait for ever.
        let is_done = told.recv_timeout(Duration::from_secs(60));
        drop(locked);
        is_done.expect("it waits for a leaf that it does not change");
    });
    assert_eq!(map.len(), 112);
}

/// A walk that begins or ends behind the entry of a key that is not there does so where the key would be.
#[test]
fn bound_at_an_absent_key_has_no_entry_to_pass() {
    let map: BTreeMap<u32, ()> = [10, 20, 30].map(|key| (key, ())).into();
    let map = map.pin();
    for (key, is_after) in [(5, 0), (15, 1), (25, 2), (35, 3)] {
        let mut from = map.store().between(Bound::Excluded(&key), Bound::Unbounded);
        let mut to = map.store().between(Bound::Unbounded, Bound::Included(&key));
        let keys = std::iter::from_fn(|| from.next()).map(|found| *found.key());
        assert!(
            keys.eq([10, 20, 30].into_iter().skip(is_after)),
            "from {key}"
        );
        let keys = std::iter::from_fn(|| to.next_back()).map(|found| *found.key());
        assert!(
            keys.eq([10, 20, 30].into_iter().take(is_after).rev()),
            "to {key}"
        );
    }
}
