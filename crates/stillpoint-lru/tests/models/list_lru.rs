//! LRU lists of tenants that come and go, beside lists of numbers.

use super::models::Steps;
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};
use stillpoint_lru::{Entry, Hierarchy, Isolate, ListLru, Node, Tenant};

/// A tenant that has not been deleted: its parent, its handle, and its list, oldest first.
struct Owner {
    parent: usize,
    tenant: Tenant,
    list: VecDeque<usize>,
}

const ITEMS: usize = 64;

const VERDICTS: [Isolate; 7] = [
    Isolate::Removed,
    Isolate::Rotate,
    Isolate::Skip,
    Isolate::RemovedRetry,
    Isolate::Skip,
    Isolate::Retry,
    Isolate::Stop,
];

/// Does to `list` what a walk over `budget` items does; returns the items that it has looked at, and
/// how many it has removed.
fn walk(
    list: &mut VecDeque<usize>,
    budget: usize,
    verdict: impl Fn(usize) -> Isolate,
) -> (Vec<usize>, usize) {
    let (mut seen, mut removed, mut at) = (Vec::new(), 0, 0);
    let looks = budget.min(list.len());
    while seen.len() < looks && at < list.len() {
        let verdict = verdict(seen.len());
        seen.push(list[at]);
        match verdict {
            Isolate::Removed | Isolate::RemovedRetry => {
                list.remove(at);
                removed += 1;
                if verdict == Isolate::RemovedRetry {
                    at = 0;
                }
            }
            Isolate::Rotate => {
                let item = list.remove(at).expect("it is there");
                list.push_back(item);
            }
            Isolate::Skip => at += 1,
            Isolate::Retry => at = 0,
            Isolate::Stop => break,
        }
    }
    (seen, removed)
}

/// # Panics
///
/// If the lists are not as in the model.
pub fn run(program: &[u8]) {
    // The model has no order across nodes: with several, lists are compared as sets.
    let is_ordered = Node::all().count() == 1;
    let mut steps = Steps(program);
    let hierarchy = Hierarchy::new();
    let lru = ListLru::for_tenants(&hierarchy);
    let items: Vec<_> = (0..ITEMS)
        .map(|number| Arc::new(Entry::new(number)))
        .collect();
    // By name; the root is 0.
    let root = Owner {
        parent: 0,
        tenant: hierarchy.root().clone(),
        list: VecDeque::new(),
    };
    let mut owners = BTreeMap::from([(0, root)]);
    // Deleted tenants with a handle: their parents, and the handles.
    let mut deleted: BTreeMap<usize, (usize, Tenant)> = BTreeMap::new();
    let mut names = 1..;

    while let Some(step) = steps.byte() {
        let Some(argument) = steps.byte().map(usize::from) else {
            break;
        };
        let at = *owners
            .keys()
            .nth(argument % owners.len())
            .expect("the root is there");
        let item = usize::from(step / 8) * 2 % ITEMS + argument % 2;
        let is_new = !owners.values().any(|owner| owner.list.contains(&item));
        match step % 8 {
            0 if owners.len() < 200 => {
                let tenant = owners[&at].tenant.create().expect("there is memory");
                let owner = Owner {
                    parent: at,
                    tenant,
                    list: VecDeque::new(),
                };
                owners.insert(names.next().expect("there are numbers"), owner);
            }
            1 => {
                let has_children = owners
                    .iter()
                    .any(|(&name, owner)| name != 0 && owner.parent == at);
                if at == 0 || has_children {
                    assert!(owners[&at].tenant.delete().is_err());
                    continue;
                }
                // Its items are its parent's newest, whether it is deleted or drops its last handle.
                let gone = owners.remove(&at).expect("it is there");
                let parent = owners
                    .get_mut(&gone.parent)
                    .expect("a parent outlives its children");
                parent.list.extend(&gone.list);
                if step / 8 % 2 == 0 {
                    gone.tenant.delete().expect("it has no children");
                    deleted.insert(at, (gone.parent, gone.tenant));
                } else {
                    // A handle of a deleted descendant would keep it.
                    deleted.clear();
                }
            }
            2..=4 => {
                // For a deleted tenant, the nearest ancestor that is not gets the item.
                let (mut owner, mut tenant) = (at, &owners[&at].tenant);
                if step % 8 == 4
                    && let Some((&name, (_, gone))) = deleted.iter().nth(argument % 4)
                {
                    (owner, tenant) = (name, gone);
                    while let Some((parent, _)) = deleted.get(&owner) {
                        owner = *parent;
                    }
                }
                assert_eq!(lru.add(tenant, Arc::clone(&items[item])), is_new);
                if is_new {
                    let owner = owners.get_mut(&owner).expect("an ancestor is there");
                    owner.list.push_back(item);
                }
            }
            5 => {
                assert_eq!(lru.del(&items[item]).is_none(), is_new);
                owners
                    .values_mut()
                    .for_each(|owner| owner.list.retain(|&other| other != item));
            }
            6 => {
                let verdict = |look: usize| VERDICTS[(look * 3 + argument) % VERDICTS.len()];
                let owner = owners.get_mut(&at).expect("it is there");
                let (mut seen, mut gone, mut removed) = (Vec::new(), Vec::new(), 0);
                let budget = usize::from(step / 8) * 2;
                for node in Node::all() {
                    removed += lru.walk_one(&owner.tenant, node, budget, |item| {
                        let verdict = verdict(seen.len());
                        seen.push(***item);
                        if matches!(verdict, Isolate::Removed | Isolate::RemovedRetry) {
                            gone.push(***item);
                        }
                        verdict
                    });
                }
                if is_ordered {
                    assert_eq!((seen, removed), walk(&mut owner.list, budget, verdict));
                } else {
                    assert!(seen.iter().all(|item| owner.list.contains(item)));
                    owner.list.retain(|item| !gone.contains(item));
                    assert_eq!(removed, gone.len());
                }
            }
            _ => {}
        }
    }
    let mut linked = 0;
    for Owner { tenant, list, .. } in owners.values() {
        let (mut list, mut found, mut count) = (Vec::from_iter(list.clone()), Vec::new(), 0);
        for node in Node::all() {
            lru.walk_one(tenant, node, usize::MAX, |item| {
                found.push(***item);
                Isolate::Skip
            });
            count += lru.count_one(tenant, node);
        }
        if !is_ordered {
            list.sort_unstable();
            found.sort_unstable();
        }
        assert_eq!((&found, count), (&list, list.len()));
        linked += list.len();
    }
    assert_eq!(lru.count(), linked);
    for item in &items {
        assert_eq!(Arc::strong_count(item), 1 + usize::from(item.is_linked()));
    }
    drop(lru);
    assert!(items.iter().all(|item| Arc::strong_count(item) == 1));
}
