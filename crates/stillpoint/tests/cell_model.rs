//! The cell against its model: an `Option` whose old values are dropped later.

mod common;

use common::{Tally, Tracked};
use proptest::prelude::*;
use stillpoint::{Domain, RcuOption, Retired};

#[derive(Debug, Clone)]
enum Step {
    Load,
    Store(u64),
    Swap(u64),
    Take,
    Exchange(u64),
    LoseExchange(u64),
    Update(u64),
    Wait,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        Just(Step::Load),
        any::<u64>().prop_map(Step::Store),
        any::<u64>().prop_map(Step::Swap),
        Just(Step::Take),
        any::<u64>().prop_map(Step::Exchange),
        any::<u64>().prop_map(Step::LoseExchange),
        any::<u64>().prop_map(Step::Update),
        Just(Step::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 200 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// A cell is an `Option` whose old values are dropped later.
    #[test]
    fn a_cell_behaves_as_an_option(steps in prop::collection::vec(step(), 1..60)) {
        let (domain, tally) = (Domain::new(), Tally::new());
        let cell = RcuOption::empty_in(&domain);
        let mut model: Option<u64> = None;
        let number = |old: Option<Retired<Tracked>>| old.map(|old| old.get());
        for step in steps {
            match step {
                Step::Load => {
                    prop_assert_eq!(cell.load(&domain.read_lock()).map(Tracked::get), model);
                }
                Step::Store(new) => {
                    cell.store(tally.value(new));
                    model = Some(new);
                }
                Step::Swap(new) => prop_assert_eq!(number(cell.swap(tally.value(new))), model.replace(new)),
                Step::Take => prop_assert_eq!(number(cell.take()), model.take()),
                Step::Exchange(new) => {
                    let guard = domain.read_lock();
                    let old = cell.compare_exchange(cell.load(&guard), Some(Box::new(tally.value(new))), &guard);
                    prop_assert_eq!(number(old.expect("there is no other thread")), model.replace(new));
                }
                Step::LoseExchange(new) => {
                    let guard = domain.read_lock();
                    let other = tally.value(0);
                    let lost = cell.compare_exchange(Some(&other), Some(Box::new(tally.value(new))), &guard);
                    prop_assert_eq!(lost.expect_err("the cell holds something else").map(|value| value.get()), Some(new));
                }
                Step::Update(add) => {
                    let old = cell.update(|old| Some(tally.value(old.map_or(0, Tracked::get).wrapping_add(add))));
                    prop_assert_eq!(number(old), model);
                    model = Some(model.unwrap_or(0).wrapping_add(add));
                }
                Step::Wait => {
                    domain.kvfree_barrier();
                    prop_assert_eq!(tally.made() - tally.dropped(), usize::from(model.is_some()));
                }
            }
        }
        prop_assert_eq!(cell.into_inner().map(|value| value.get()), model);
        drop(domain);
        prop_assert!(tally.all_dropped());
    }
}
