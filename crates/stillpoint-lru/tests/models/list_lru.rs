//! LRU lists of tenants that come and go, beside lists of numbers.

use super::models::Steps;
use std::{collections::VecDeque, sync::Arc};
use stillpoint_lru::{Entry, Hierarchy, Isolate, ListLru, Node, Tenant};

/// A tenant below the root, or the root itself, and what is on its list, oldest first.
struct Owner {
    tenant: Tenant,
    list: VecDeque<usize>,
}

const ITEMS: usize = 64;

/// # Panics
///
/// If the lists are not as in the model.
pub fn run(program: &[u8]) {
    // Tests that depend on the order across nodes bind to none.
    if Node::all().count() != 1 {
        return;
    }
    let mut steps = Steps(program);
    let hierarchy = Hierarchy::new();
    let lru = ListLru::for_tenants(&hierarchy);
    let items: Vec<_> = (0..ITEMS)
        .map(|number| Arc::new(Entry::new(number)))
        .collect();
    let mut owners = vec![Owner {
        tenant: hierarchy.root().clone(),
        list: VecDeque::new(),
    }];

    while let Some(step) = steps.byte() {
        let Some(argument) = steps.byte().map(usize::from) else {
            break;
        };
        let at = argument % owners.len();
        let item = usize::from(step / 8) * 2 % ITEMS + argument % 2;
        match step % 8 {
            0 if owners.len() < 200 => {
                let tenant = hierarchy.root().create().expect("there is memory");
                owners.push(Owner {
                    tenant,
                    list: VecDeque::new(),
                });
            }
            // Deleted, or its last handle dropped: its items are the root's newest.
            1 if at > 0 => {
                let gone = owners.swap_remove(at);
                if argument % 2 == 0 {
                    gone.tenant.delete().expect("it has no children");
                }
                drop(gone.tenant);
                owners[0].list.extend(gone.list);
            }
            2..=4 => {
                let is_new = !owners.iter().any(|owner| owner.list.contains(&item));
                assert_eq!(
                    lru.add(&owners[at].tenant, Arc::clone(&items[item])),
                    is_new
                );
                if is_new {
                    owners[at].list.push_back(item);
                }
            }
            5 => {
                let found = owners.iter_mut().find_map(|owner| {
                    let place = owner.list.iter().position(|&other| other == item)?;
                    owner.list.remove(place)
                });
                assert_eq!(lru.del(&items[item]).map(|item| **item), found);
            }
            6 => {
                let (mut looked, budget) = (0, usize::from(step / 8));
                let verdict = |number: usize| {
                    [Isolate::Removed, Isolate::Rotate, Isolate::Skip][(number + argument) % 3]
                };
                let removed = lru.walk_one(&owners[at].tenant, Node::current(), budget, |item| {
                    looked += 1;
                    verdict(***item)
                });
                let list = &mut owners[at].list;
                let seen: Vec<_> = list.iter().copied().take(budget.min(list.len())).collect();
                assert_eq!(looked, seen.len());
                let is = |wanted: Isolate| {
                    seen.iter()
                        .copied()
                        .filter(move |&number| verdict(number) == wanted)
                };
                list.retain(|number| !seen.contains(number) || verdict(*number) == Isolate::Skip);
                list.extend(is(Isolate::Rotate));
                assert_eq!(removed, is(Isolate::Removed).count());
            }
            _ => {}
        }
        assert_eq!(
            lru.count_one(&owners[at.min(owners.len() - 1)].tenant, Node::current()),
            owners[at.min(owners.len() - 1)].list.len()
        );
    }
    for owner in &owners {
        let mut found = Vec::new();
        lru.walk_one(&owner.tenant, Node::current(), usize::MAX, |item| {
            found.push(***item);
            Isolate::Skip
        });
        assert!(
            owner.list.iter().eq(&found),
            "{found:?}, not {:?}",
            owner.list
        );
    }
    assert_eq!(
        lru.count(),
        owners.iter().map(|owner| owner.list.len()).sum()
    );
}
