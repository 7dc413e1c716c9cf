//! User code inside a cell's calls panics, uses the same cell, blocks and leaks. No value is lost
//! or freed twice, and other threads go on.

mod common;

use common::{Tally, Tell, Tracked, expected_panic, panic_message, quietly};
use std::{
    cell::Cell,
    collections::HashMap,
    hash::{Hash, Hasher},
    mem,
    panic::catch_unwind,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc::channel,
    },
    thread,
};
use stillpoint::{Domain, Rcu, RcuOption, read_lock, tasks_trace::TraceDomain};

/// No section is left open behind a panic: a grace period ends.
#[track_caller]
fn assert_at_rest(domain: &Domain) {
    assert!(domain.poll(domain.start_poll()), "a section is left open");
    domain.kvfree_barrier();
}

#[track_caller]
fn assert_panics<R>(message: &str, work: impl FnOnce() -> R) {
    assert_eq!(panic_message(work), message);
}

#[test]
fn closures_that_panic_leave_the_cell_as_it_was() {
    let (domain, tally) = (Domain::new(), Tally::new());
    let cell = Rcu::new_in(&domain, Arc::new(tally.value(1)));
    quietly(|| {
        assert_panics("in update", || cell.update(|_| panic!("in update")));
        assert_panics("in try_update", || {
            cell.try_update::<()>(|_| panic!("in try_update"))
        });
        assert_panics("in modify", || {
            cell.modify(|_| -> () { panic!("in modify") })
        });
        assert_panics("in read", || cell.read(|_| -> () { panic!("in read") }));
    });
    assert_at_rest(&domain);
    assert_eq!((cell.read(|value| value.get()), tally.dropped()), (1, 0));
    assert_eq!(
        Arc::strong_count(&cell.load_cloned()),
        2,
        "no clone is lost"
    );
}

/// The panics are caught without `AssertUnwindSafe`: the compiler knows that a cell can be used
/// after a panic.
#[test]
fn cells_guards_and_domains_may_be_used_after_a_panic() {
    let domain = Domain::new();
    let traced = TraceDomain::new();
    let cell = Rcu::new_in(&domain, 1);
    let option = RcuOption::new_in(&traced, 2);
    let guard = domain.read_lock();
    let owned = traced.read_lock_owned();
    let sleeps = traced.read_lock();
    let snapshot = cell.load_owned(domain.read_lock());
    quietly(|| {
        let unwound = catch_unwind(|| {
            cell.store(*cell.load(&guard) + *snapshot);
            option.store(option.load(&owned).map_or(0, |value| value + 1));
            assert_eq!(option.load(&sleeps), Some(&3));
            let _ = (domain.statistics(), traced.statistics());
            panic!("and out");
        });
        assert!(unwound.is_err());
    });
    assert_eq!((cell.load(&guard), option.load(&owned)), (&2, Some(&3)));
    let reader = domain.qsbr_reader();
    assert_eq!(catch_unwind(|| *cell.load(&reader)).expect("no panic"), 2);
}

#[test]
fn clone_and_hash_that_panic_leave_the_cell_as_it_was() {
    #[derive(Debug, PartialEq, Eq, Clone)]
    struct Key(u32);
    impl Hash for Key {
        fn hash<H: Hasher>(&self, state: &mut H) {
            assert!(self.0 < 10, "in hash");
            self.0.hash(state);
        }
    }
    let domain = Domain::new();
    let map = Rcu::new_in(&domain, HashMap::from([(Key(1), 1)]));
    let mut unclonable = Rcu::new_in(&domain, Unclonable(0));
    quietly(|| {
        assert_panics("in hash", || map.modify(|map| map.insert(Key(20), 2)));
        assert_panics("in hash", || map.read(|map| map.get(&Key(20)).copied()));
        assert_panics("in clone", || unclonable.load_cloned());
        assert_panics("in clone", || unclonable.modify(|_| ()));
        static FIRST: Unclonable = Unclonable(0);
        let mut of_static = Rcu::from_static(&FIRST);
        assert_panics("in clone", || of_static.swap(Unclonable(1)).wait());
        of_static.get_mut().0 += 1;
        assert_panics("in clone", || Rcu::from_static(&FIRST).into_inner());
        assert_panics("in clone", || Rcu::from_static(&FIRST).get_mut().0);
        assert_eq!((of_static.into_inner().0, FIRST.0), (2, 0));
    });
    assert_at_rest(&domain);
    assert_eq!(map.into_inner(), HashMap::from([(Key(1), 1)]));
    assert_eq!(unclonable.get_mut().0, 0);
}

#[derive(Debug)]
struct Unclonable(u32);

impl Clone for Unclonable {
    fn clone(&self) -> Self {
        panic!("in clone")
    }
}

/// A value that was made for an attempt which lost is dropped here and now, on the caller's thread.
#[test]
fn a_destructor_that_panics_in_a_lost_attempt_comes_out_of_the_call() {
    struct Bomb(u32, bool);
    impl Drop for Bomb {
        fn drop(&mut self) {
            if self.1 {
                expected_panic();
            }
        }
    }
    let domain = Domain::new();
    let cell = Rcu::new_in(&domain, Bomb(0, false));
    let message = panic_message(|| {
        cell.update(|_| {
            cell.store(Bomb(1, false));
            Bomb(2, true)
        })
    });
    assert_eq!(message, "expected");
    assert_at_rest(&domain);
    assert_eq!(cell.read(|value| value.0), 1);
    // One that is retired panics on the service thread, and is counted.
    cell.store(Bomb(3, true));
    cell.store(Bomb(4, false));
    domain.kvfree_barrier();
    assert_eq!(
        (domain.statistics().panics, cell.read(|value| value.0)),
        (1, 4)
    );
}

/// A value that another writer has made obsolete is dropped outside of any section of the cell's: its
/// destructor may wait for readers.
#[test]
fn the_value_of_a_lost_attempt_is_dropped_after_its_section() {
    struct Waits(Option<Domain>);
    impl Drop for Waits {
        fn drop(&mut self) {
            if let Some(domain) = &self.0 {
                domain.synchronize(); // panics inside a section
            }
        }
    }
    impl Clone for Waits {
        fn clone(&self) -> Self {
            Self(None)
        }
    }
    let domain = Domain::new();
    let cell = Rcu::new_in(&domain, Waits(None));
    let mut attempts = 0;
    let old = cell.update(|_| {
        attempts += 1;
        if attempts == 1 {
            cell.store(Waits(None));
        }
        Waits((attempts == 1).then(|| domain.clone()))
    });
    drop(old);
    // What the closure returns is dropped with the value.
    let result = cell.modify(|value| {
        attempts += 1;
        if attempts == 3 {
            cell.store(Waits(None));
            value.0 = Some(domain.clone());
            return Waits(Some(domain.clone()));
        }
        Waits(None)
    });
    assert_eq!((attempts, result.0.is_none()), (4, true));
    assert_at_rest(&domain);
}

#[test]
fn closures_may_use_the_same_cell() {
    let (domain, tally) = (Domain::new(), Tally::new());
    let cell = Rcu::new_in(&domain, tally.value(1));
    let calls = Cell::new(0);
    cell.update(|old| {
        calls.set(calls.get() + 1);
        if calls.get() == 1 {
            cell.store(tally.value(10));
            cell.update(|inner| tally.value(inner.get() + 1));
            assert_eq!(
                old.get(),
                1,
                "the value that was read stays, replaced or not"
            );
        }
        assert!(cell.read(Tracked::get) >= old.get());
        tally.value(old.get() + 100)
    });
    assert_eq!(
        (calls.get(), cell.read(Tracked::get)),
        (2, 111),
        "the attempt that lost to itself is made again"
    );
    // A destructor that uses the cell which it is in.
    struct Replaces(Arc<RcuOption<Replaces>>, u32);
    impl Drop for Replaces {
        fn drop(&mut self) {
            if self.1 > 0 {
                self.0.store(Replaces(Arc::clone(&self.0), self.1 - 1));
            }
        }
    }
    let cell = Arc::new(RcuOption::empty_in(&domain));
    cell.store(Replaces(Arc::clone(&cell), 3));
    drop(cell.take());
    common::eventually(|| {
        domain.kvfree_barrier();
        cell.read(|value| value.is_some_and(|value| value.1 == 2))
    });
    // Break the circle.
    mem::forget(cell.take());
    drop(cell);
    assert_at_rest(&domain);
}

#[test]
fn a_closure_that_would_wait_for_its_own_section_is_refused() {
    let domain = Domain::new();
    let cell = Rcu::new_in(&domain, 1);
    quietly(|| {
        let refused = panic_message(|| {
            cell.update(|_| {
                domain.synchronize();
                2
            })
        });
        assert!(refused.contains("waiting for a grace period"), "{refused}");
    });
    assert_at_rest(&domain);
    assert_eq!(cell.into_inner(), 1);
}

#[test]
fn a_closure_that_blocks_holds_up_no_other_writer_and_no_reader() {
    let cell = Rcu::new(vec![0]);
    let (tell, told) = channel();
    let (release, released) = channel();
    let calls = AtomicUsize::new(0);
    thread::scope(|scope| {
        let (cell, calls) = (&cell, &calls);
        let blocked = scope.spawn(move || {
            cell.modify(|value| {
                if calls.fetch_add(1, Ordering::SeqCst) == 0 {
                    tell.tell(());
                    released.recv().expect("a release");
                }
                value.push(1);
            });
        });
        told.recv().expect("it has begun");
        cell.modify(|value| value.push(2));
        assert_eq!(cell.load(&read_lock()), &[0, 2]);
        release.tell(());
        blocked.join().expect("no panic");
    });
    assert_eq!((cell.into_inner(), calls.into_inner()), (vec![0, 2, 1], 2));
}

#[test]
fn what_is_leaked_is_never_freed_and_nothing_else_suffers() {
    let (domain, tally) = (TraceDomain::new(), Tally::new());
    let cell = Rcu::new_in(&domain, tally.value(1));
    mem::forget(cell.swap(tally.value(2)));
    cell.store(tally.value(3));
    domain.kvfree_barrier();
    assert_eq!(tally.dropped(), 1);
    // A snapshot is a section.
    mem::forget(cell.load_owned(domain.read_lock_static()));
    cell.store(tally.value(4));
    assert!(!domain.poll(domain.start_poll()));
    // SAFETY: the guard is forgotten, and what it has found is not used any more.
    unsafe { domain.abandon_owned_guards() };
    domain.kvfree_barrier();
    assert_eq!(tally.dropped(), 2);
}

#[test]
fn a_cell_may_be_shown_and_dropped_by_its_own_value() {
    struct Shy(AtomicBool);
    impl std::fmt::Debug for Shy {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            assert!(self.0.load(Ordering::SeqCst), "in fmt");
            f.write_str("Shy")
        }
    }
    let domain = Domain::new();
    let cell = Rcu::new_in(&domain, Shy(AtomicBool::new(false)));
    quietly(|| assert_eq!(panic_message(|| format!("{cell:?}")), "in fmt"));
    cell.read(|shy| shy.0.store(true, Ordering::SeqCst));
    assert_eq!(format!("{cell:?}"), "Rcu(Shy)");
    assert_at_rest(&domain);
    // The last reference to a cell is in a value of another.
    let tally = Tally::new();
    drop(Rcu::new_in(&domain, Rcu::new_in(&domain, tally.value(1))));
    common::eventually(|| {
        domain.kvfree_barrier();
        tally.all_dropped()
    });
}
