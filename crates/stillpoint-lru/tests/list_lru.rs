//! LRU lists under threads, and with callbacks and destructors that panic, add and delete.

mod setup;

use setup::{
    children,
    common::{Over, Tally, Tracked, eventually, panic_message, told},
};
use std::{
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};
use stillpoint_lru::{Entry, Hierarchy, Isolate, ListLru, Node, Tenant};

type Item = Arc<Entry<Tracked>>;

/// Returns all items of a tenant, oldest first, whatever the node.
fn order(lru: &ListLru<Tracked>, tenant: &Tenant) -> Vec<u64> {
    let mut seen = Vec::new();
    for node in Node::all() {
        lru.walk_one(tenant, node, usize::MAX, |item| {
            seen.push(item.get());
            Isolate::Skip
        });
    }
    seen
}

fn fill(lru: &ListLru<Tracked>, tenant: &Tenant, tally: &Tally, items: u64) -> Vec<Item> {
    let items: Vec<Item> = (0..items)
        .map(|number| Arc::new(Entry::new(tally.value(number))))
        .collect();
    items
        .iter()
        .for_each(|item| assert!(lru.add(tenant, Arc::clone(item))));
    items
}

#[test]
fn item_is_on_one_list() {
    let (tally, hierarchy) = (Tally::new(), Hierarchy::new());
    let (one, other) = (ListLru::for_tenants(&hierarchy), ListLru::new());
    let item = Arc::new(Entry::new(tally.value(1)));
    assert!(one.add(hierarchy.root(), Arc::clone(&item)));
    assert!(!other.add(None, Arc::clone(&item)));
    assert!(other.del(&item).is_none(), "it is not on that lru's list");
    assert_eq!(
        (one.count(), other.count(), Arc::strong_count(&item)),
        (1, 0, 2)
    );
    drop(one);
    assert_eq!(Arc::strong_count(&item), 1);
    assert!(
        other.add(hierarchy.root(), item),
        "an lru without tenants takes no notice of them"
    );
    assert_eq!(
        other.count_one(hierarchy.root(), Node::current()),
        other.count_one(None, Node::current())
    );
    drop(other);
    assert!(tally.all_dropped());
}

#[test]
fn walk_node_visits_all_tenants() {
    let hierarchy = Hierarchy::new();
    let lru = ListLru::for_tenants(&hierarchy);
    let tally = Tally::new();
    let tenants = children::<3>(hierarchy.root());
    for tenant in &tenants {
        drop(fill(&lru, tenant, &tally, 10));
    }
    let on_nodes: Vec<_> = Node::all().map(|node| lru.count_node(node)).collect();
    assert_eq!(on_nodes.iter().sum::<usize>(), 30);
    for (number, (node, items)) in Node::all().zip(on_nodes).enumerate() {
        assert_eq!(node.index(), number);
        assert_eq!(
            lru.walk_node(node, items / 2, |_| Isolate::Removed),
            items / 2,
            "no more than the budget"
        );
        assert_eq!(
            lru.walk_node(node, usize::MAX, |_| Isolate::Removed),
            items - items / 2
        );
        assert_eq!(lru.count_node(node), 0);
    }
    assert_eq!(tally.dropped(), 30);
}

#[test]
fn misuse_is_told_of_with_the_line_of_the_caller() {
    let (mine, other) = (Hierarchy::new(), Hierarchy::new());
    let lru = ListLru::<u32>::for_tenants(&mine);
    let (root, node) = (other.root(), Node::current());
    for message in [
        told(|| lru.add(root, Arc::new(Entry::new(1)))),
        told(|| lru.count_one(root, node)),
        told(|| lru.walk_one(root, node, 1, |_| Isolate::Skip)),
    ] {
        assert!(message.contains("another hierarchy"), "{message}");
    }
    let domain = stillpoint::Domain::new();
    let wrong = domain.read_lock();
    let message = told(|| lru.count_one_in(None, node, &wrong));
    assert!(message.contains("global domain"), "{message}");
    let right = stillpoint::read_lock();
    assert_eq!(lru.count_one_in(None, node, &right), 0);
}

#[test]
fn callback_adds_and_deletes() {
    let (tally, hierarchy) = (Tally::new(), Hierarchy::new());
    let lru = ListLru::for_tenants(&hierarchy);
    let tenant = hierarchy.root().create().unwrap();
    let items = fill(&lru, &tenant, &tally, 100);
    // Each call deletes its item and the neighbor, and adds the neighbor again; some items count as
    // removed although they are on the list again.
    let mut calls = 0;
    let removed = lru.walk(usize::MAX, |item| {
        calls += 1;
        let neighbor = &items[(item.get() as usize + 1) % items.len()];
        drop(lru.del(neighbor));
        assert!(lru.del(item).is_some());
        assert!(lru.add(&tenant, Arc::clone(neighbor)));
        assert_eq!(lru.walk(3, |_| Isolate::Skip), 0, "a walk within the walk");
        Isolate::Removed
    });
    assert!(calls <= 100 && removed == calls);
    assert_eq!(
        lru.count(),
        items.iter().filter(|item| item.is_linked()).count()
    );
    // A callback that adds an item at each call.
    let before = lru.count();
    let mut calls = 0;
    lru.walk(usize::MAX, |_| {
        calls += 1;
        assert!(lru.add(&tenant, Arc::new(Entry::new(tally.value(1000)))));
        Isolate::Retry
    });
    assert_eq!((calls, lru.count()), (before, 2 * before));
    drop((items, lru));
    assert!(tally.all_dropped());
}

#[test]
fn panicking_callback_leaves_the_list_whole() {
    let (tally, hierarchy) = (Tally::new(), Hierarchy::new());
    let lru = ListLru::for_tenants(&hierarchy);
    let items = fill(&lru, hierarchy.root(), &tally, 100);
    for panics_at in [0, 1, 31, 32, 33, 50] {
        let (before, mut calls) = (lru.count(), 0);
        let walk = || {
            lru.walk(usize::MAX, |_| {
                assert!(calls < panics_at, "expected");
                calls += 1;
                if calls % 2 == 0 {
                    Isolate::Removed
                } else {
                    Isolate::Rotate
                }
            })
        };
        assert!(panic_message(walk).contains("expected"));
        assert_eq!(lru.count(), before - panics_at / 2);
        assert_eq!(order(&lru, hierarchy.root()).len(), lru.count());
    }
    assert!(
        items
            .iter()
            .all(|item| Arc::strong_count(item) == 1 + usize::from(item.is_linked()))
    );
}

#[test]
fn items_whose_drop_panics_or_adds() {
    struct Rude(Arc<ListLru<u32>>);
    impl Drop for Rude {
        fn drop(&mut self) {
            self.0.add(None, Arc::new(Entry::new(1)));
            if !thread::panicking() {
                panic!("expected");
            }
        }
    }
    let (lru, others) = (ListLru::new(), Arc::new(ListLru::new()));
    for _ in 0..3 {
        assert!(lru.add(None, Arc::new(Entry::new(Rude(Arc::clone(&others))))));
    }
    assert_eq!(
        panic_message(|| lru.walk(1, |_| Isolate::Removed)),
        "expected"
    );
    assert_eq!((lru.count(), others.count()), (2, 1));
    assert!(panic::catch_unwind(AssertUnwindSafe(|| drop(lru))).is_err());
}

/// Tenants come and go while items are added, deleted and walked: no item is lost, counted twice, or
/// dropped too early.
#[test]
fn tenant_churn_under_load() {
    let tenants = if cfg!(miri) { 20 } else { 4000 };
    let (tally, hierarchy) = (Tally::new(), Hierarchy::new());
    let lru = ListLru::for_tenants(&hierarchy);
    let current: Mutex<Vec<Tenant>> =
        Mutex::new((0..8).map(|_| hierarchy.root().create().unwrap()).collect());
    let over = AtomicBool::new(false);
    let removed = AtomicUsize::new(0);
    let pick = |random: usize| current.lock().unwrap()[random % 8].clone();
    let items: Vec<Vec<Item>> = thread::scope(|scope| {
        let _over = Over(&over);
        let mutators: Vec<_> = (0..2)
            .map(|mutator| {
                let (lru, tally, pick, over) = (&lru, &tally, &pick, &over);
                scope.spawn(move || {
                    let items: Vec<Item> = (0..200)
                        .map(|number| Arc::new(Entry::new(tally.value(number))))
                        .collect();
                    let mut random = mutator;
                    while !over.load(Ordering::Relaxed) {
                        random = random * 5 + 7;
                        let (item, tenant) = (&items[random / 8 % items.len()], pick(random));
                        if !lru.add(&tenant, Arc::clone(item)) {
                            drop(lru.del(item));
                        }
                        random %= 1 << 40;
                    }
                    items
                })
            })
            .collect();
        scope.spawn(|| {
            let mut turn = 0;
            while !over.load(Ordering::Relaxed) {
                turn += 1;
                let tenant = pick(turn);
                for node in Node::all() {
                    assert!(lru.count_one(&tenant, node) <= 400);
                    let walked = lru.walk_one(&tenant, node, 50, |item| {
                        item.get();
                        [
                            Isolate::Skip,
                            Isolate::Rotate,
                            Isolate::Removed,
                            Isolate::Retry,
                        ][(item.get() as usize + turn) % 4]
                    });
                    removed.fetch_add(walked, Ordering::Relaxed);
                }
            }
        });
        for number in 0..tenants {
            let parent = pick(number + 3);
            let new = if number % 3 == 0 {
                parent.create()
            } else {
                hierarchy.root().create()
            }
            .unwrap();
            let old = std::mem::replace(&mut current.lock().unwrap()[number % 8], new);
            if number % 2 == 0 {
                // Refused if it has a child; then it goes with its last handle.
                let _ = old.delete();
            }
        }
        over.store(true, Ordering::Relaxed);
        mutators
            .into_iter()
            .map(|mutator| mutator.join().unwrap())
            .collect()
    });
    let linked = items
        .iter()
        .flatten()
        .filter(|item| item.is_linked())
        .count();
    assert_eq!(lru.count(), linked);
    let mut met = Vec::new();
    lru.walk(usize::MAX, |item| {
        met.push(Arc::as_ptr(item));
        Isolate::Skip
    });
    assert_eq!(met.len(), linked);
    met.sort();
    met.dedup();
    assert_eq!(met.len(), linked, "an item is on two lists");
    for item in items.iter().flatten() {
        assert_eq!(Arc::strong_count(item), 1 + usize::from(item.is_linked()));
    }
    drop(current.into_inner());
    assert_eq!(lru.count(), linked, "all are the root's now");
    assert_eq!(hierarchy.tenants(), 1);
    drop((items, lru));
    assert!(tally.all_dropped());
}

#[test]
fn hierarchy_leaks_nothing() {
    let tally = Tally::new();
    let hierarchy = Hierarchy::new();
    let lru = Arc::new(ListLru::for_tenants(&hierarchy));
    let tenants = children::<100>(hierarchy.root());
    tenants
        .iter()
        .for_each(|tenant| drop(fill(&lru, tenant, &tally, 3)));
    drop(hierarchy);
    assert_eq!(
        tenants[0].parent().map(|root| root.delete().is_err()),
        Some(true)
    );
    drop(tenants);
    assert_eq!(lru.count(), 300);
    drop(lru);
    eventually(|| tally.all_dropped());
}

/// A value whose destructor panics if the field is true.
struct Bomb(bool);

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(!self.0, "expected");
    }
}

#[test]
fn panicking_destructor_while_an_lru_is_dropped() {
    let (ending, other) = (ListLru::new(), ListLru::new());
    ending.add(None, Arc::new(Entry::new(Bomb(true))));
    for _ in 0..63 {
        ending.add(None, Arc::new(Entry::new(Bomb(false))));
    }
    let kept = Arc::new(Entry::new(Bomb(false)));
    ending.add(None, Arc::clone(&kept));
    assert!(panic::catch_unwind(AssertUnwindSafe(|| drop(ending))).is_err());
    assert!(!kept.is_linked());
    assert!(other.del(&kept).is_none());
    assert!(other.add(None, Arc::clone(&kept)));
    assert!(other.del(&kept).is_some());
}
