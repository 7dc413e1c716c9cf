//! The cell: what it holds, what becomes of what it held.

mod common;

use common::{Reader, Tally, Tracked, eventually};
use proptest::prelude::*;
use std::{
    sync::{
        Barrier,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};
use stillpoint::{Domain, Rcu, Retired, read_lock, synchronize};

const THREADS: usize = if cfg!(miri) { 3 } else { 8 };
const ROUNDS: usize = if cfg!(miri) { 20 } else { 2_000 };

#[test]
fn an_empty_cell_holds_nothing() {
    let cell = Rcu::<u64>::empty();
    assert!(cell.is_empty());
    assert_eq!(cell.load(&read_lock()), None);
    assert!(cell.take().is_none());
    assert!(Rcu::<u64>::default().is_empty());
    assert_eq!(cell.into_inner(), None);
}

#[test]
fn what_was_stored_is_found() {
    let cell = Rcu::empty();
    cell.store(1);
    assert_eq!(cell.load(&read_lock()), Some(&1));
    assert!(!cell.is_empty());
    cell.store(2);
    assert_eq!(cell.load(&read_lock()), Some(&2));
    assert_eq!(Rcu::from(Box::new(3)).load(&read_lock()), Some(&3));
    assert_eq!(format!("{cell:?}"), "Rcu(Some(2))");
}

#[test]
fn swap_and_take_give_the_old_value() {
    let cell = Rcu::new(String::from("first"));
    assert_eq!(cell.swap("second".into()).as_deref().map(String::as_str), Some("first"));
    assert_eq!(cell.take().as_deref().map(String::as_str), Some("second"));
    assert!(cell.is_empty());
    assert!(cell.swap("third".into()).is_none());
}

#[test]
fn compare_exchange_replaces_the_value_that_was_loaded_and_no_other() {
    let cell = Rcu::empty();
    let guard = read_lock();
    assert!(cell.compare_exchange(None, Box::new(1), &guard).expect("the cell is empty").is_none());
    assert_eq!(*cell.compare_exchange(None, Box::new(2), &guard).expect_err("the cell is not empty"), 2);
    let one = cell.load(&guard);
    let old = cell.compare_exchange(one, Box::new(3), &guard).expect("nobody was faster");
    assert_eq!(old.as_deref(), Some(&1));
    assert_eq!(*cell.compare_exchange(one, Box::new(4), &guard).expect_err("the value has changed"), 4);
    assert_eq!(cell.load(&guard), Some(&3));
}

#[test]
fn an_equal_value_elsewhere_is_another_value() {
    let cell = Rcu::new(7);
    let guard = read_lock();
    cell.compare_exchange(Some(&7), Box::new(8), &guard).expect_err("the cell compares addresses");
    assert_eq!(cell.load(&guard), Some(&7));
}

#[test]
fn a_lost_exchange_gives_back_the_box_and_drops_nothing() {
    let tally = Tally::new();
    let cell = Rcu::new(tally.value(1));
    let guard = read_lock();
    let back = cell.compare_exchange(None, Box::new(tally.value(2)), &guard).expect_err("the cell is not empty");
    assert_eq!((back.get(), tally.dropped()), (2, 0));
    drop(back);
    assert_eq!(tally.dropped(), 1);
}

#[test]
fn update_makes_the_new_value_from_the_old_one() {
    let cell = Rcu::new(vec![1]);
    let old = cell.update(|old| [old.as_slice(), &[2]].concat()).expect("the cell is not empty");
    assert_eq!(*old, [1]);
    assert_eq!(cell.load(&read_lock()), Some(&vec![1, 2]));
}

#[test]
fn update_leaves_an_empty_cell_alone() {
    assert!(Rcu::<u64>::empty().update(|_| panic!("there is nothing to update")).is_none());
}

#[test]
fn no_update_is_lost() {
    let cell = Rcu::new(0);
    let start = Barrier::new(THREADS);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                start.wait();
                for _ in 0..ROUNDS {
                    drop(cell.update(|old| old + 1));
                }
            });
        }
    });
    assert_eq!(cell.into_inner(), Some(THREADS * ROUNDS));
}

#[test]
fn each_stored_value_comes_out_once_when_many_swap() {
    let domain = Domain::new();
    let tally = Tally::new();
    let cell = Rcu::new_in(&domain, tally.value(0));
    let sum = AtomicUsize::new(0);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (cell, tally, sum) = (&cell, &tally, &sum);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let old = cell.swap(tally.value((thread * ROUNDS + round + 1) as u64)).expect("never empty");
                    sum.fetch_add(old.get() as usize, Ordering::Relaxed);
                }
            });
        }
    });
    let last = cell.into_inner().expect("never empty");
    let all = THREADS * ROUNDS;
    assert_eq!(sum.into_inner() + last.get() as usize, all * (all + 1) / 2);
    drop(last);
    eventually(|| tally.all_dropped());
    drop(domain);
    assert_eq!(tally.dropped(), all + 1);
}

#[test]
fn into_inner_gives_the_value_itself() {
    let tally = Tally::new();
    let value = Rcu::new(tally.value(5)).into_inner().expect("the cell was not empty");
    assert_eq!((value.get(), tally.dropped()), (5, 0));
    drop(value);
    assert_eq!(tally.dropped(), 1);
}

#[test]
fn old_values_live_as_long_as_the_guard_and_are_dropped_once_after() {
    let domain = Domain::new();
    let tally = Tally::new();
    let cell = Rcu::new_in(&domain, tally.value(0));
    let guard = domain.read_lock();
    let mut seen: Vec<&Tracked> = Vec::new();
    for round in 1..=ROUNDS as u64 {
        seen.push(cell.load(&guard).expect("never empty"));
        cell.store(tally.value(round));
        assert!(!domain.poll(domain.start_poll()), "the guard is alive");
    }
    assert!(seen.iter().enumerate().all(|(round, value)| value.get() == round as u64));
    assert_eq!(tally.dropped(), 0);
    drop(guard);
    domain.kvfree_barrier();
    assert_eq!(tally.dropped(), ROUNDS);
    drop(cell);
    domain.kvfree_barrier();
    assert_eq!(tally.dropped(), ROUNDS + 1);
}

#[test]
fn a_reference_outlives_its_cell_while_the_guard_lives() {
    let domain = Domain::new();
    let tally = Tally::new();
    let cell = Rcu::new_in(&domain, tally.value(9));
    let guard = domain.read_lock();
    let value = cell.load(&guard).expect("just made");
    drop(cell);
    assert!(!domain.poll(domain.start_poll()), "the guard is alive");
    assert_eq!((value.get(), tally.dropped()), (9, 0));
    drop(guard);
    domain.kvfree_barrier();
    assert_eq!(tally.dropped(), 1);
}

#[test]
fn a_cell_keeps_its_domain_alive() {
    let tally = Tally::new();
    let cell = Rcu::new_in(&Domain::new(), tally.value(1));
    cell.store(tally.value(2));
    drop(cell);
    // The cell held the last handle, and a domain's end frees everything.
    eventually(|| tally.dropped() == 2);
}

#[test]
fn a_static_cell_needs_no_set_up() {
    static CELL: Rcu<Vec<u32>> = Rcu::empty();
    static READERS: AtomicUsize = AtomicUsize::new(0);
    assert!(CELL.is_empty());
    CELL.store(vec![1, 2, 3]);
    let reader = thread::spawn(|| {
        READERS.fetch_add(1, Ordering::Relaxed);
        CELL.load(&read_lock()).map(|value| value.iter().sum())
    });
    assert_eq!(reader.join().expect("no panic"), Some(6_u32));
    assert_eq!(READERS.load(Ordering::Relaxed), 1);
    assert_eq!(CELL.take().as_deref(), Some(&vec![1, 2, 3]));
}

#[test]
fn values_of_any_size_and_alignment_are_kept() {
    #[repr(align(256))]
    #[derive(Debug)]
    struct Wide([u8; 300]);
    let cell = Rcu::new(Wide([7; 300]));
    for round in 0..10 {
        let guard = read_lock();
        let value = cell.load(&guard).expect("never empty");
        assert!(std::ptr::from_ref(value).is_aligned());
        assert!(value.0.iter().all(|&byte| byte == 7 + round));
        cell.store(Wide([8 + round; 300]));
    }
    let nothing = Rcu::new(());
    nothing.store(());
    assert_eq!(nothing.into_inner(), Some(()));
}

#[test]
fn waiting_gives_the_box_back() {
    let tally = Tally::new();
    let cell = Rcu::new(tally.value(1));
    let mut back = cell.take().expect("the cell was not empty").wait();
    back.number = 2;
    assert_eq!((back.get(), tally.dropped()), (2, 0));
    drop(back);
    assert_eq!(tally.dropped(), 1);
}

#[test]
fn a_retired_value_comes_back_as_a_box_only_after_its_readers() {
    let domain = Domain::new();
    let cell = Rcu::new_in(&domain, String::from("mine"));
    let reader = Reader::enter(&domain);
    let mut retired = cell.take().expect("the cell was not empty");
    for _ in 0..10 {
        retired = retired.try_into_box().expect_err("a reader is there");
        assert_eq!(*retired, "mine");
    }
    assert!(!domain.poll(retired.cookie()));
    reader.leave();
    assert_eq!(*retired.try_into_box().expect("nobody reads any more"), "mine");
}

#[test]
fn a_retired_value_that_is_dropped_is_freed_after_its_readers() {
    let domain = Domain::new();
    let tally = Tally::new();
    let reader = Reader::enter(&domain);
    let retired = Rcu::new_in(&domain, tally.value(3)).take().expect("just made");
    assert_eq!(format!("{:?}", retired.number), "3");
    drop(retired);
    assert!(!domain.poll(domain.get_state()));
    assert_eq!(tally.dropped(), 0);
    reader.leave();
    domain.kvfree_barrier();
    assert_eq!(tally.dropped(), 1);
}

#[test]
fn a_retired_value_can_be_dropped_by_another_thread_and_without_its_domain() {
    let tally = Tally::new();
    let domain = Domain::new();
    let retired = Rcu::new_in(&domain, tally.value(3)).take().expect("just made");
    drop(domain);
    thread::spawn(move || drop::<Retired<Tracked>>(retired)).join().expect("no panic");
    // It held the last handle.
    eventually(|| tally.all_dropped());
}

#[test]
fn readers_see_whole_values_while_they_are_replaced() {
    static CELL: Rcu<[u64; 8]> = Rcu::empty();
    CELL.store([0; 8]);
    thread::scope(|scope| {
        for _ in 1..THREADS {
            scope.spawn(|| {
                let mut last = 0;
                while last < ROUNDS as u64 {
                    let guard = read_lock();
                    let value = CELL.load(&guard).expect("never empty");
                    assert!(value.iter().all(|&part| part == value[0]), "half of one value and half of another");
                    assert!(value[0] >= last, "values do not go back");
                    last = value[0];
                    drop(guard);
                    thread::yield_now();
                }
            });
        }
        for round in 1..=ROUNDS as u64 {
            CELL.store([round; 8]);
            if round % 64 == 0 {
                synchronize();
            }
        }
    });
}

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
        let domain = Domain::new();
        let tally = Tally::new();
        let cell = Rcu::empty_in(&domain);
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
                    let old = cell.compare_exchange(cell.load(&guard), Box::new(tally.value(new)), &guard);
                    prop_assert_eq!(number(old.expect("nobody else is here")), model.replace(new));
                }
                Step::LoseExchange(new) => {
                    let guard = domain.read_lock();
                    let other = tally.value(0);
                    let lost = cell.compare_exchange(Some(&other), Box::new(tally.value(new)), &guard);
                    prop_assert_eq!(lost.expect_err("the cell holds something else").get(), new);
                }
                Step::Update(add) => {
                    let old = cell.update(|old| tally.value(old.get().wrapping_add(add)));
                    prop_assert_eq!(number(old), model);
                    model = model.map(|old| old.wrapping_add(add));
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
