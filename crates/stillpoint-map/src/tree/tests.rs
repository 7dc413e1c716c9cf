//! The tree below its interface: how many nodes it has, and what becomes of them.

use super::{
    map::BTreeMap,
    node::{Kind, Node},
};

/// Nodes of a map.
#[derive(Clone, Copy, Default, Debug)]
struct Nodes {
    leaves: usize,
    /// Leaves without entries.
    empty: usize,
    inners: usize,
}

fn nodes<K, V>(map: &BTreeMap<K, V>) -> Nodes {
    fn count(node: Node, nodes: &mut Nodes) {
        // SAFETY: found from the root, in the caller's section.
        match unsafe { node.kind() } {
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
    let _section = map.guard();
    let mut nodes = Nodes::default();
    if let Some(tree) = map.store.tree() {
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
    for (number, remove) in removals.into_iter().enumerate() {
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
