//! The cell: what it holds, and what happens to old values.

mod common;

use common::{Reader, Tally, Tell, Tracked, eventually, until_it_waits};
use std::{
    collections::HashMap,
    sync::{
        Barrier, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc::channel,
    },
    thread,
};
use stillpoint::{Domain, Rcu, RcuOption, read_lock, synchronize};
use stillpoint_platform::thread::tid;

const THREADS: usize = if cfg!(miri) { 3 } else { 8 };
const ROUNDS: usize = if cfg!(miri) { 20 } else { 2_000 };

#[test]
fn an_empty_cell_holds_nothing() {
    let cell = RcuOption::<u64>::empty();
    assert!(cell.is_empty());
    assert_eq!(cell.load(&read_lock()), None);
    assert_eq!(cell.load_cloned(), None);
    assert!(cell.load_owned(read_lock()).is_none());
    assert!(cell.take().is_none());
    assert!(RcuOption::<u64>::default().is_empty());
    assert!(RcuOption::<u64>::from(None).is_empty());
    assert_eq!(cell.into_inner(), None);
    assert_eq!(RcuOption::<u64>::empty_in(&Domain::new()).get_mut(), None);
}

/// What is in a cell that never is empty is a `T`; the mechanical port of an `RwLock<HashMap>`
/// loses nothing.
#[test]
fn a_default_cell_holds_the_default_and_can_be_updated() {
    #[derive(Debug, Default)]
    struct Table {
        routes: Rcu<HashMap<u32, &'static str>>,
    }
    let table = Table::default();
    assert_eq!(table.routes.load(&read_lock()).len(), 0);
    table.routes.update(|old| {
        old.iter()
            .map(|(&key, &value)| (key, value))
            .chain([(1, "eth0")])
            .collect()
    });
    assert_eq!(table.routes.modify(|routes| routes.insert(2, "eth1")), None);
    assert_eq!(
        table.routes.read(|routes| (routes[&1], routes[&2])),
        ("eth0", "eth1")
    );
}

#[test]
fn what_was_stored_is_found() {
    let cell = Rcu::new(1);
    assert_eq!(cell.load(&read_lock()), &1);
    cell.store(2);
    assert_eq!(
        (
            *cell.load(&read_lock()),
            cell.load_cloned(),
            cell.read(|&value| value)
        ),
        (2, 2, 2)
    );
    assert_eq!(format!("{cell:?}"), "Rcu(2)");
    let cell = RcuOption::empty();
    cell.store(1);
    assert_eq!(
        (cell.load(&read_lock()), cell.load_cloned()),
        (Some(&1), Some(1))
    );
    assert!(!cell.is_empty());
    assert_eq!(format!("{cell:?}"), "RcuOption(Some(1))");
}

#[test]
fn cells_are_made_from_values_and_boxes() {
    let (value, boxed): (Rcu<u64>, Rcu<u64>) = (1.into(), Box::new(2).into());
    assert_eq!((value.into_inner(), boxed.into_inner()), (1, 2));
    let (value, boxed): (RcuOption<u64>, RcuOption<u64>) = (1.into(), Box::new(2).into());
    assert_eq!((value.into_inner(), boxed.into_inner()), (Some(1), Some(2)));
    assert_eq!(RcuOption::<u64>::from(Some(3)).into_inner(), Some(3));
}

#[test]
fn values_without_a_size_are_kept_in_a_box() {
    let name = Rcu::<Box<str>>::new("first".into());
    let guard = read_lock();
    let first: &str = name.load(&guard);
    name.store("second".into());
    assert_eq!((first, &**name.load(&guard)), ("first", "second"));
    let show = Rcu::<Box<dyn Fn() -> u32 + Send + Sync>>::new(Box::new(|| 7));
    assert_eq!(show.load(&guard)(), 7);
}

#[test]
fn compare_exchange_replaces_the_value_that_was_loaded_and_no_other() {
    let cell = Rcu::new(1);
    let guard = read_lock();
    let one = cell.load(&guard);
    let old = cell
        .compare_exchange(one, Box::new(3), &guard)
        .expect("no other thread was faster");
    assert_eq!(*old, 1);
    assert_eq!(
        *cell
            .compare_exchange(one, Box::new(4), &guard)
            .expect_err("the value has changed"),
        4
    );
    assert_eq!(cell.load(&guard), &3);
}

#[test]
fn compare_exchange_fills_and_empties() {
    let cell = RcuOption::empty();
    let guard = read_lock();
    assert!(
        cell.compare_exchange(None, Some(Box::new(1)), &guard)
            .expect("the cell is empty")
            .is_none()
    );
    assert_eq!(
        cell.compare_exchange(None, Some(Box::new(2)), &guard)
            .expect_err("it is not empty")
            .as_deref(),
        Some(&2)
    );
    let one = cell.load(&guard);
    let old = cell
        .compare_exchange(one, None, &guard)
        .expect("no other thread was faster");
    assert_eq!(old.as_deref(), Some(&1));
    assert!(cell.is_empty());
    assert_eq!(
        cell.compare_exchange(one, None, &guard)
            .expect_err("it is empty"),
        None
    );
}

#[test]
fn an_equal_value_elsewhere_is_another_value() {
    let cell = Rcu::new(7);
    let guard = read_lock();
    cell.compare_exchange(&7, Box::new(8), &guard)
        .expect_err("the cell compares addresses");
    assert_eq!(cell.load(&guard), &7);
}

#[test]
fn update_of_an_empty_cell_is_not_lost_and_may_empty_a_full_one() {
    let cell = RcuOption::empty();
    assert!(
        cell.update(|old| Some(old.map_or(1, |old| old + 1)))
            .is_none()
    );
    assert_eq!(
        cell.update(|old| Some(old.map_or(1, |old| old + 1)))
            .as_deref(),
        Some(&1)
    );
    assert_eq!(cell.load_cloned(), Some(2));
    assert_eq!(cell.update(|_| None).as_deref(), Some(&2));
    assert!(cell.is_empty());
    assert_eq!(cell.modify(|value| value.replace(5)), None);
    assert_eq!(cell.modify(Option::take), Some(5));
    assert!(cell.is_empty());
}

#[test]
fn an_update_that_refuses_changes_nothing() {
    let cell = Rcu::new(7_u32);
    let guard = read_lock();
    let before = cell.load(&guard);
    assert_eq!(cell.try_update(|_| Err("no")).expect_err("refused"), "no");
    assert!(
        std::ptr::eq(before, cell.load(&guard)),
        "nothing is published"
    );
    assert_eq!(
        *cell
            .try_update(|old| old.checked_add(1).ok_or("full"))
            .expect("there is room"),
        7
    );
    assert_eq!(cell.load(&guard), &8);
    let cell = RcuOption::<u32>::empty();
    assert_eq!(
        cell.try_update(|old| old.map(|old| Some(old + 1)).ok_or("empty"))
            .map(drop),
        Err("empty")
    );
    assert!(cell.is_empty());
}

#[test]
fn modify_changes_a_copy_and_returns_what_the_closure_does() {
    let cell = Rcu::new(vec![1, 2, 3]);
    let guard = read_lock();
    let before = cell.load(&guard);
    assert_eq!(cell.modify(Vec::pop), Some(3));
    assert_eq!(
        (before.as_slice(), cell.load(&guard).as_slice()),
        (&[1, 2, 3][..], &[1, 2][..])
    );
}

#[test]
fn get_mut_changes_the_value_in_its_place() {
    let mut cell = Rcu::new(1);
    let address = std::ptr::from_ref(cell.load(&read_lock()));
    *cell.get_mut() += 1;
    assert_eq!(cell.load(&read_lock()), &2);
    assert_eq!(std::ptr::from_ref(cell.load(&read_lock())), address);
}

/// A reader's reference does not borrow from the cell, so `&mut` alone does not say that there is
/// none.
#[test]
fn get_mut_waits_for_those_who_found_the_value() {
    let domain = Domain::new();
    let mut cell = Rcu::new_in(&domain, 1);
    let entered = AtomicUsize::new(0);
    thread::scope(|scope| {
        let (tell, told) = channel();
        let lent = &domain;
        let (give, given) = channel::<&Rcu<u32>>();
        let (entered, updater) = (&entered, tid());
        let reader = scope.spawn(move || {
            let guard = lent.read_lock();
            let cell: &Rcu<u32> = given.recv().expect("a cell");
            let value = cell.load(&guard);
            tell.tell(());
            until_it_waits(updater, || entered.load(Ordering::SeqCst) > 0);
            assert_eq!((*value, entered.load(Ordering::SeqCst)), (1, 0));
        });
        // SAFETY: the reader does not use the cell after it has told.
        give.tell(unsafe { &*std::ptr::from_ref(&cell) });
        told.recv().expect("it has found the value");
        *cell.get_mut() = 2;
        entered.store(1, Ordering::SeqCst);
        reader.join().expect("no panic");
    });
    let guard = domain.read_lock();
    assert!(common::panic_message(|| *cell.get_mut()).contains("waiting for a grace period"));
    drop(guard);
    assert_eq!(cell.into_inner(), 2);
}

/// `THREADS` threads each call `change` `ROUNDS` times, at the same time.
fn all_at_once(change: impl Fn() + Sync) {
    let start = Barrier::new(THREADS);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                start.wait();
                (0..ROUNDS).for_each(|_| change());
            });
        }
    });
}

#[test]
fn no_update_is_lost() {
    let (cell, option) = (Rcu::new(0), RcuOption::empty());
    let seen = Mutex::new(Vec::new());
    all_at_once(|| {
        cell.update(|old| old + 1);
        drop(
            cell.try_update(|old| Ok::<_, ()>(old + 1))
                .expect("it never refuses"),
        );
        let number = cell.modify(|value| {
            *value += 1;
            *value
        });
        seen.lock().expect("no panic").push(number);
        option.update(|old| Some(old.map_or(1, |old| old + 1)));
        option.modify(|value| *value.get_or_insert(0) += 1);
    });
    assert_eq!(cell.into_inner(), 3 * THREADS * ROUNDS);
    assert_eq!(option.into_inner(), Some(2 * THREADS * ROUNDS));
    // `modify` returns the result of the attempt that was published, and of no other.
    let mut seen = seen.into_inner().expect("no panic");
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), THREADS * ROUNDS);
}

/// Two threads that meet in every update: the slower attempt is made again, and its value dropped.
#[test]
fn an_attempt_that_lost_is_made_again_and_its_value_dropped() {
    let (domain, tally) = (Domain::new(), Tally::new());
    let cell = Rcu::new_in(&domain, tally.value(0));
    let attempts = AtomicUsize::new(0);
    let both = Barrier::new(2);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..20 {
                    both.wait();
                    let mut first = true;
                    cell.update(|old| {
                        attempts.fetch_add(1, Ordering::Relaxed);
                        let new = tally.value(old.get() + 1);
                        if std::mem::take(&mut first) {
                            // Both have read the old value before one is replaced.
                            both.wait();
                        }
                        new
                    });
                }
            });
        }
    });
    assert_eq!(
        attempts.into_inner(),
        20 * 3,
        "of each two, one is made again"
    );
    assert_eq!(cell.into_inner().get(), 40);
    domain.kvfree_barrier();
    assert!(tally.all_dropped());
    assert_eq!(tally.made(), 1 + 20 * 3);
}

#[test]
fn each_stored_value_comes_out_once_when_many_swap() {
    let (domain, tally) = (Domain::new(), Tally::new());
    let cell = Rcu::new_in(&domain, tally.value(0));
    let sum = AtomicUsize::new(0);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (cell, tally, sum) = (&cell, &tally, &sum);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let old = cell.swap(tally.value((thread * ROUNDS + round + 1) as u64));
                    sum.fetch_add(old.get() as usize, Ordering::Relaxed);
                }
            });
        }
    });
    let last = cell.into_inner();
    let all = THREADS * ROUNDS;
    assert_eq!(sum.into_inner() + last.get() as usize, all * (all + 1) / 2);
    drop(last);
    eventually(|| tally.all_dropped());
    drop(domain);
    assert_eq!(tally.dropped(), all + 1);
}

#[test]
fn old_values_live_as_long_as_the_guard_and_are_dropped_once_after() {
    let (domain, tally) = (Domain::new(), Tally::new());
    let cell = Rcu::new_in(&domain, tally.value(0));
    let guard = domain.read_lock();
    let mut seen: Vec<&Tracked> = Vec::new();
    for round in 1..=ROUNDS as u64 {
        seen.push(cell.load(&guard));
        cell.store(tally.value(round));
        assert!(!domain.poll(domain.start_poll()), "the guard is alive");
    }
    assert!(
        seen.iter()
            .enumerate()
            .all(|(round, value)| value.get() == round as u64)
    );
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
    let (domain, tally) = (Domain::new(), Tally::new());
    let cell = Rcu::new_in(&domain, tally.value(9));
    let guard = domain.read_lock();
    let value = cell.load(&guard);
    drop(cell);
    assert!(!domain.poll(domain.start_poll()), "the guard is alive");
    assert_eq!((value.get(), tally.dropped()), (9, 0));
    drop(guard);
    domain.kvfree_barrier();
    assert_eq!(tally.dropped(), 1);
}

#[test]
fn values_of_any_size_and_alignment_are_kept() {
    #[repr(align(256))]
    #[derive(Debug)]
    struct Wide([u8; 300]);
    let cell = Rcu::new(Wide([7; 300]));
    for round in 0..10 {
        let guard = read_lock();
        let value = cell.load(&guard);
        assert!(std::ptr::from_ref(value).is_aligned());
        assert!(value.0.iter().all(|&byte| byte == 7 + round));
        cell.store(Wide([8 + round; 300]));
    }
    let nothing = Rcu::new(());
    nothing.store(());
    let () = nothing.into_inner();
}

#[test]
fn a_retired_value_comes_back_as_a_box_only_after_its_readers() {
    let domain = Domain::new();
    let cell = RcuOption::new_in(&domain, String::from("mine"));
    let reader = Reader::enter(&domain);
    let mut retired = cell.take().expect("the cell was not empty");
    for _ in 0..10 {
        retired = retired.try_into_box().expect_err("a reader is there");
        assert_eq!(*retired, "mine");
    }
    assert!(!domain.poll(retired.cookie()));
    reader.leave();
    assert_eq!(
        *retired.try_into_box().expect("no readers are left"),
        "mine"
    );
}

#[test]
fn a_retired_value_that_is_dropped_is_freed_after_its_readers() {
    let (domain, tally) = (Domain::new(), Tally::new());
    let reader = Reader::enter(&domain);
    let retired = RcuOption::new_in(&domain, tally.value(3))
        .take()
        .expect("just made");
    assert_eq!(format!("{:?}", retired.number), "3");
    drop(retired);
    assert!(!domain.poll(domain.get_state()));
    assert_eq!(tally.dropped(), 0);
    reader.leave();
    domain.kvfree_barrier();
    assert_eq!(tally.dropped(), 1);
}

#[test]
fn readers_see_whole_values_while_they_are_replaced() {
    static CELL: Rcu<[u64; 8]> = Rcu::from_static(&[0; 8]);
    thread::scope(|scope| {
        for _ in 1..THREADS {
            scope.spawn(|| {
                let mut last = 0;
                while last < ROUNDS as u64 {
                    let guard = read_lock();
                    let value = CELL.load(&guard);
                    assert!(
                        value.iter().all(|&part| part == value[0]),
                        "half of one value and half of another"
                    );
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
