//! Cells in statics: those that start full, and those that fill themselves.

mod common;

use common::{Reader, Tally, Tracked, panic_message};
use std::{
    cell::Cell,
    collections::BTreeMap,
    sync::{
        Barrier,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};
use stillpoint::{Domain, Rcu, RcuOption, kvfree_barrier, read_lock};

/// How many `Counted`s have been cloned and dropped, each test's own.
#[derive(Debug)]
struct Counts {
    cloned: AtomicUsize,
    dropped: AtomicUsize,
}

impl Counts {
    const fn new() -> Self {
        Self {
            cloned: AtomicUsize::new(0),
            dropped: AtomicUsize::new(0),
        }
    }

    fn get(&self) -> (usize, usize) {
        (
            self.cloned.load(Ordering::SeqCst),
            self.dropped.load(Ordering::SeqCst),
        )
    }
}

#[derive(Debug)]
struct Counted(u32, &'static Counts);

impl Clone for Counted {
    fn clone(&self) -> Self {
        self.1.cloned.fetch_add(1, Ordering::SeqCst);
        Self(self.0, self.1)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_static_cell_starts_full() {
    static NAMES: Rcu<BTreeMap<u32, &str>> = Rcu::from_static(const { &BTreeMap::new() });
    static LIMIT: Rcu<u32> = Rcu::from_static(&7);
    assert_eq!(
        (LIMIT.load(&read_lock()), NAMES.load(&read_lock()).len()),
        (&7, 0)
    );
    LIMIT.store(8);
    NAMES.modify(|names| names.insert(1, "one"));
    assert_eq!(
        (LIMIT.load_cloned(), NAMES.load_cloned()),
        (8, BTreeMap::from([(1, "one")]))
    );
}

#[test]
fn the_first_value_is_never_freed_and_all_others_are() {
    static COUNTS: Counts = Counts::new();
    static FIRST: Counted = Counted(1, &COUNTS);
    static CELL: Rcu<Counted> = Rcu::from_static(&FIRST);
    let guard = read_lock();
    let first = CELL.load(&guard);
    assert!(std::ptr::eq(first, &FIRST));
    CELL.store(Counted(2, &COUNTS));
    CELL.store(Counted(3, &COUNTS));
    drop(guard);
    kvfree_barrier();
    assert_eq!(
        (FIRST.0, COUNTS.get()),
        (1, (0, 1)),
        "the second is dropped, and nothing is cloned"
    );
}

#[test]
fn the_first_value_is_given_away_as_a_clone() {
    static COUNTS: Counts = Counts::new();
    static FIRST: Counted = Counted(1, &COUNTS);
    let cell = Rcu::from_static(&FIRST);
    let old = cell.swap(Counted(2, &COUNTS));
    assert_eq!((old.0, COUNTS.get()), (1, (0, 0)));
    let mut boxed = old.wait();
    boxed.0 = 10;
    assert_eq!((FIRST.0, COUNTS.get()), (1, (1, 0)));
    drop((boxed, cell));
    kvfree_barrier();
    assert_eq!(COUNTS.get(), (1, 2));

    let guard = read_lock();
    let mut retired = Rcu::from_static(&FIRST).swap(Counted(3, &COUNTS));
    retired = retired.try_into_box().expect_err("a reader is there");
    drop(guard);
    common::eventually(|| stillpoint::global().poll(retired.cookie()));
    assert_eq!(retired.try_into_box().expect("no reader is there").0, 1);

    assert_eq!(Rcu::from_static(&FIRST).into_inner().0, 1);
    let mut cell = Rcu::from_static(&FIRST);
    cell.get_mut().0 = 5;
    assert_eq!((FIRST.0, cell.load(&read_lock()).0), (1, 5));
    cell.get_mut().0 = 6;
    assert_eq!(cell.into_inner().0, 6);
    kvfree_barrier();
    let before = COUNTS.get();
    drop(Rcu::from_static(&FIRST));
    kvfree_barrier();
    assert_eq!(COUNTS.get(), before);
}

#[test]
fn a_value_without_a_size_is_refused_where_the_cell_is_made() {
    assert!(panic_message(|| Rcu::from_static(&())).contains("without size"));
}

#[test]
fn a_cell_fills_itself_once_for_all() {
    const THREADS: usize = 4;
    let tally = Tally::new();
    for number in 0..if cfg!(miri) { 3 } else { 100 } {
        let cell = RcuOption::empty();
        let start = Barrier::new(THREADS);
        thread::scope(|scope| {
            let found: Vec<_> = (0..THREADS)
                .map(|_| {
                    scope.spawn(|| {
                        start.wait();
                        let guard = read_lock();
                        let value = cell.load_or_init(&guard, || tally.value(number));
                        assert_eq!(value.get(), number);
                        std::ptr::from_ref(value).addr()
                    })
                })
                .collect();
            let mut found: Vec<_> = found
                .into_iter()
                .map(|thread| thread.join().expect("no panic"))
                .collect();
            found.dedup();
            assert_eq!(found.len(), 1, "all have found one value");
        });
        assert_eq!(tally.made() - tally.dropped(), 1);
        drop(cell.into_inner());
    }
}

#[test]
fn an_initialiser_that_panics_leaves_the_cell_for_the_next() {
    let cell = RcuOption::empty();
    let guard = read_lock();
    assert_eq!(
        panic_message(|| cell.load_or_init(&guard, || panic!("not now"))),
        "not now"
    );
    assert!(cell.is_empty());
    assert_eq!(cell.load_or_init(&guard, || 1), &1);
    assert_eq!(cell.load_or_init(&guard, || panic!("it is full")), &1);
}

#[test]
fn an_initialiser_may_use_the_cell() {
    let tally = Tally::new();
    let cell = RcuOption::empty();
    let guard = read_lock();
    let inner = Cell::new(0);
    let value = cell.load_or_init(&guard, || {
        inner.set(cell.load_or_init(&guard, || tally.value(1)).get());
        tally.value(2)
    });
    assert_eq!((inner.get(), value.get(), tally.dropped()), (1, 1, 1));
}

/// Where others empty the cell, one still gets the value that one has put there.
#[test]
fn a_cell_that_is_emptied_again_and_again_still_gives_a_value() {
    const ROUNDS: u64 = if cfg!(miri) { 20 } else { 2000 };
    let (domain, tally) = (Domain::new(), Tally::new());
    let cell = RcuOption::<Tracked>::empty_in(&domain);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for number in 0..ROUNDS {
                    let guard = domain.read_lock();
                    cell.load_or_init(&guard, || tally.value(number)).get();
                    drop(cell.take());
                }
            });
        }
    });
    drop(cell);
    domain.kvfree_barrier();
    assert!(tally.all_dropped());
}

#[test]
fn a_value_of_an_initialiser_stays_for_its_reader_when_it_is_taken_at_once() {
    let (domain, tally) = (Domain::new(), Tally::new());
    let cell = RcuOption::empty_in(&domain);
    let other = Reader::enter(&domain);
    let guard = domain.read_lock();
    let value = cell.load_or_init(&guard, || tally.value(4));
    drop(cell.take());
    other.leave();
    assert!(!domain.poll(domain.start_poll()));
    assert_eq!(value.get(), 4);
}
