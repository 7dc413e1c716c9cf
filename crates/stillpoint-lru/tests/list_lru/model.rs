//! Random steps on LRU lists, against an exact model.

use super::*;
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Step {
    Create {
        parent: usize,
    },
    Delete {
        tenant: usize,
    },
    Drop {
        tenant: usize,
    },
    Add {
        tenant: usize,
        item: usize,
    },
    Del {
        item: usize,
    },
    Walk {
        tenant: usize,
        budget: usize,
        verdicts: Vec<Isolate>,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let verdict = prop_oneof![
        4 => Just(Isolate::Removed),
        2 => Just(Isolate::Rotate),
        4 => Just(Isolate::Skip),
        1 => Just(Isolate::RemovedRetry),
        1 => Just(Isolate::Retry),
        1 => Just(Isolate::Stop),
    ];
    let step = prop_oneof![
        2 => (0..8usize).prop_map(|parent| Step::Create { parent }),
        1 => (0..8usize).prop_map(|tenant| Step::Delete { tenant }),
        1 => (0..8usize).prop_map(|tenant| Step::Drop { tenant }),
        8 => (0..8usize, 0..40usize).prop_map(|(tenant, item)| Step::Add { tenant, item }),
        4 => (0..40usize).prop_map(|item| Step::Del { item }),
        3 => (0..8usize, 0..50usize, prop::collection::vec(verdict, 1..6))
            .prop_map(|(tenant, budget, verdicts)| Step::Walk { tenant, budget, verdicts }),
    ];
    prop::collection::vec(step, 1..120)
}

/// What the lists should be.
#[derive(Default)]
struct Model {
    /// By tenant's name: its parent, and its list. The root is 0.
    tenants: BTreeMap<usize, (usize, VecDeque<usize>)>,
}

impl Model {
    fn list_of(&self, item: usize) -> Option<usize> {
        self.tenants
            .iter()
            .find(|(_, (_, list))| list.contains(&item))
            .map(|(&tenant, _)| tenant)
    }

    fn list(&mut self, tenant: usize) -> &mut VecDeque<usize> {
        &mut self.tenants.get_mut(&tenant).unwrap().1
    }

    fn has_children(&self, tenant: usize) -> bool {
        self.tenants
            .iter()
            .any(|(&name, (parent, _))| name != 0 && *parent == tenant)
    }

    fn delete(&mut self, tenant: usize) {
        let (parent, list) = self.tenants.remove(&tenant).unwrap();
        self.list(parent).extend(list);
    }

    fn walk(&mut self, tenant: usize, budget: usize, verdicts: &[Isolate]) -> Vec<usize> {
        let list = self.list(tenant);
        let mut left = budget.min(list.len());
        let mut verdicts = verdicts.iter().cycle();
        let (mut seen, mut at) = (Vec::new(), 0);
        while left > 0 && at < list.len() {
            left -= 1;
            seen.push(list[at]);
            match verdicts.next().unwrap() {
                Isolate::Removed => drop(list.remove(at)),
                Isolate::RemovedRetry => {
                    list.remove(at);
                    at = 0;
                }
                Isolate::Rotate => {
                    let item = list.remove(at).unwrap();
                    list.push_back(item);
                }
                Isolate::Skip => at += 1,
                Isolate::Retry => at = 0,
                Isolate::Stop => break,
            }
        }
        seen
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 1 } else { 256 }, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn lists_match_the_model(steps in steps()) {
        if !one_node() {
            return Ok(());
        }
        let tally = Tally::new();
        let hierarchy = Hierarchy::new();
        let lru = ListLru::for_tenants(&hierarchy);
        let items: Vec<Item> = (0..40).map(|number| Arc::new(Entry::new(tally.value(number)))).collect();
        let mut model = Model::default();
        model.tenants.insert(0, (0, VecDeque::new()));
        let mut tenants = BTreeMap::from([(0, hierarchy.root().clone())]);
        // Deleted, but with a handle: what is added for it goes to its nearest ancestor.
        let mut deleted: BTreeMap<usize, (usize, Tenant)> = BTreeMap::new();
        let mut names = 1..;
        let pick = |model: &Model, number: usize| *model.tenants.keys().nth(number % model.tenants.len()).unwrap();

        for step in steps {
            match step {
                Step::Create { parent } => {
                    let parent = pick(&model, parent);
                    let name = names.next().unwrap();
                    tenants.insert(name, tenants[&parent].create().unwrap());
                    model.tenants.insert(name, (parent, VecDeque::new()));
                }
                Step::Delete { tenant } | Step::Drop { tenant } if pick(&model, tenant) == 0 => {
                    prop_assert!(hierarchy.root().delete().is_err());
                }
                Step::Delete { tenant } => {
                    let tenant = pick(&model, tenant);
                    prop_assert_eq!(tenants[&tenant].delete().is_err(), model.has_children(tenant));
                    if !model.has_children(tenant) {
                        let parent = model.tenants[&tenant].0;
                        model.delete(tenant);
                        let handle = tenants.remove(&tenant).unwrap();
                        prop_assert_eq!(count(&lru, &handle), 0);
                        deleted.insert(tenant, (parent, handle));
                    }
                }
                Step::Drop { tenant } => {
                    let tenant = pick(&model, tenant);
                    // The handle of a deleted descendant would keep it.
                    deleted.clear();
                    if !model.has_children(tenant) {
                        model.delete(tenant);
                        tenants.remove(&tenant);
                    }
                }
                Step::Add { tenant, item } => {
                    let expected = model.list_of(item).is_none();
                    let (owner, handle) = match deleted.iter().nth(tenant) {
                        // Deleted ones' parents may have been deleted later.
                        Some((_, (parent, handle))) => {
                            let mut owner = *parent;
                            while !model.tenants.contains_key(&owner) {
                                owner = deleted.get(&owner).map_or(usize::MAX, |(parent, _)| *parent);
                                if owner == usize::MAX { break; }
                            }
                            (owner, handle)
                        }
                        None => { let owner = pick(&model, tenant); (owner, &tenants[&owner]) }
                    };
                    prop_assert_eq!(lru.add(handle, Arc::clone(&items[item])), expected);
                    if expected {
                        model.list(owner).push_back(item);
                    }
                }
                Step::Del { item } => {
                    let owner = model.list_of(item);
                    prop_assert_eq!(items[item].is_linked(), owner.is_some());
                    prop_assert_eq!(lru.del(&items[item]).is_some(), owner.is_some());
                    if let Some(owner) = owner {
                        model.list(owner).retain(|&other| other != item);
                    }
                }
                Step::Walk { tenant, budget, verdicts } => {
                    let tenant = pick(&model, tenant);
                    let mut cycle = verdicts.iter().cycle();
                    let mut seen = Vec::new();
                    lru.walk_one(&tenants[&tenant], Node::all().next().unwrap(), budget, |item| {
                        seen.push(item.get() as usize);
                        *cycle.next().unwrap()
                    });
                    prop_assert_eq!(seen, model.walk(tenant, budget, &verdicts));
                }
            }
            for (name, (_, list)) in &model.tenants {
                let expected: Vec<u64> = list.iter().map(|&item| item as u64).collect();
                prop_assert_eq!(count(&lru, &tenants[name]), expected.len());
                prop_assert_eq!(order(&lru, &tenants[name]), expected);
            }
            prop_assert_eq!(lru.count(), model.tenants.values().map(|(_, list)| list.len()).sum::<usize>());
        }
        drop(items);
        let linked: usize = model.tenants.values().map(|(_, list)| list.len()).sum();
        prop_assert_eq!(tally.dropped(), tally.made() - linked);
        drop(lru);
        prop_assert!(tally.all_dropped());
    }
}
