//! The ends of threads: destructors of thread-local objects read, retire and wait; guards outlive
//! the thread that made them.

mod common;

use common::{
    Hear, Reader, Tally, Tell, Tracked, elsewhere, eventually, panic_message, retire, retire_inline,
};
use std::{
    cell::RefCell,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc::{Sender, channel},
    },
    thread,
};
use stillpoint::{Domain, Guard, Rcu, RcuOption};

/// A domain that lives for ever, so that thread-local objects may borrow from it.
fn eternal() -> &'static Domain {
    Box::leak(Box::new(Domain::new()))
}

/// Runs its function when the thread ends.
struct AtExit(Box<dyn FnMut()>);

impl Drop for AtExit {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Runs `at_exit` in destructors of thread-local objects on both sides of the library's own: a
/// thread's destructors run in some order of their registration, so one object is registered before
/// `first_use`, the thread's first use of the library, and one after it. Returns when both have
/// run.
fn on_both_sides(
    first_use: impl FnOnce() + Send + 'static,
    at_exit: impl FnMut() + Clone + Send + 'static,
) {
    thread_local! {
        static BEFORE: RefCell<Option<AtExit>> = const { RefCell::new(None) };
        static AFTER: RefCell<Option<AtExit>> = const { RefCell::new(None) };
    }
    let ran = Arc::new(AtomicUsize::new(0));
    let counted = {
        let ran = Arc::clone(&ran);
        move || {
            let (mut at_exit, ran) = (at_exit.clone(), Arc::clone(&ran));
            AtExit(Box::new(move || {
                at_exit();
                ran.fetch_add(1, Ordering::SeqCst);
            }))
        }
    };
    let thread = thread::spawn(move || {
        BEFORE.set(Some(counted()));
        first_use();
        AFTER.set(Some(counted()));
    });
    thread.join().expect("no panic");
    assert_eq!(ran.load(Ordering::SeqCst), 2);
}

#[test]
fn destructors_of_thread_local_objects_read_retire_and_wait_in_the_global_domain() {
    static CELL: RcuOption<Tracked> = RcuOption::empty();
    let tally = Tally::new();
    CELL.store(tally.value(1));
    for round in 0..20 {
        let counted = tally.clone();
        on_both_sides(
            || drop(stillpoint::read_lock()),
            move || {
                let guard = stillpoint::read_lock();
                let nested = stillpoint::read_lock();
                let value = CELL.load(&guard).expect("never empty");
                CELL.store(counted.value(round));
                drop(nested);
                value.get();
                drop(guard);
                retire(stillpoint::global(), counted.value(round));
                stillpoint::synchronize();
            },
        );
    }
    drop(CELL.take());
    eventually(|| tally.all_dropped());
    assert_eq!(tally.made(), 1 + 20 * 2 * 2);
}

#[test]
fn destructors_of_thread_local_objects_read_retire_and_wait_in_a_domain() {
    let domain = eternal();
    let tally = Tally::new();
    let cell: &'static _ = Box::leak(Box::new(Rcu::new_in(domain, tally.value(0))));
    for round in 0..if cfg!(miri) { 3 } else { 20 } {
        let counted = tally.clone();
        on_both_sides(
            || retire(domain, 1),
            move || {
                for _ in 0..if cfg!(miri) { 10 } else { 300 } {
                    domain.read(|guard| assert!(cell.load(guard).get() <= round));
                    cell.store(counted.value(round));
                    retire(domain, round);
                    retire_inline(domain, counted.value(round));
                }
                let count = counted.value(round);
                domain.call(move || drop(count));
                domain.synchronize();
                domain.kvfree_barrier();
                domain.barrier();
            },
        );
    }
    assert_eq!(
        tally.made(),
        tally.dropped() + 1,
        "the barriers in the destructors waited for all of this"
    );
    assert_eq!(domain.statistics().panics, 0);
}

/// One destructor after the other retires, so that the service thread never finds their common
/// share idle.
#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn what_destructors_retire_all_the_time_is_freed_meanwhile() {
    let domain = eternal();
    // Of 201 objects a thread, 101 are retired while it still has a separate share.
    let mut threads = 0;
    eventually(|| {
        on_both_sides(
            || retire(domain, 1),
            move || (0..100).for_each(|number| retire(domain, number)),
        );
        threads += 1;
        threads >= 20 && domain.statistics().objects_freed >= 150 * threads
    });
}

#[test]
fn a_thread_may_use_the_library_for_the_first_time_in_a_destructor() {
    let domain = eternal();
    let tally = Tally::new();
    let cell: &'static _ = Box::leak(Box::new(Rcu::new_in(domain, tally.value(0))));
    let counted = tally.clone();
    on_both_sides(
        || (),
        move || {
            assert_eq!(cell.load(&domain.read_lock()).get(), 0);
            retire(domain, counted.value(1));
            domain.synchronize();
        },
    );
    eventually(|| tally.dropped() == 2);
}

#[test]
fn late_sections_are_waited_for() {
    let domain = eternal();
    let tally = Tally::new();
    let cell: &'static RcuOption<Tracked> = Box::leak(Box::new(RcuOption::empty_in(domain)));
    let counted = tally.clone();
    on_both_sides(
        || drop(domain.read_lock()),
        move || {
            cell.store(counted.value(7));
            let guard = domain.read_lock();
            let value = cell.load(&guard).expect("just stored");
            cell.store(counted.value(8));
            assert!(!domain.poll(domain.start_poll()), "this section is open");
            let cookie = domain.get_state();
            assert!(!elsewhere(|| domain.poll(cookie)), "and others see it");
            assert_eq!(value.get(), 7);
            drop(guard);
            assert!(domain.poll(cookie));
        },
    );
    drop(cell.take());
    domain.kvfree_barrier();
    assert!(tally.all_dropped());
}

#[test]
fn waiting_inside_a_late_section_is_refused_too() {
    let domain = eternal();
    let (tell, told): (Sender<[String; 3]>, _) = channel();
    let waits: Arc<[fn(&Domain); 3]> =
        Arc::new([Domain::synchronize, Domain::barrier, Domain::kvfree_barrier]);
    // Not joined: a call that is not refused waits for itself.
    thread::spawn(move || {
        on_both_sides(
            || drop(domain.read_lock()),
            move || {
                let guard = domain.read_lock();
                domain.call(|| ());
                retire(domain, 1);
                let refusals = waits.map(|wait| panic_message(|| wait(domain)));
                drop(guard);
                tell.tell(refusals);
            },
        );
    });
    for _ in 0..2 {
        let refusals = told.hear("refused, not hung");
        assert!(
            refusals
                .iter()
                .all(|refusal| refusal.contains("Drop the guard first")),
            "{refusals:?}"
        );
    }
}

/// A section, and what was found in it, to be dropped by the thread's end.
struct Held {
    value: &'static Tracked,
    guard: Option<Guard<'static>>,
    domain: &'static Domain,
}

impl Drop for Held {
    fn drop(&mut self) {
        assert_eq!(self.value.get(), 5);
        assert!(
            !self.domain.poll(self.domain.start_poll()),
            "the guard lives"
        );
        drop(self.guard.take());
        self.domain.synchronize();
    }
}

thread_local! {
    static HELD_FROM_BEFORE: RefCell<Option<Held>> = const { RefCell::new(None) };
    static HELD_FROM_AFTER: RefCell<Option<Held>> = const { RefCell::new(None) };
}

fn hold(domain: &'static Domain, cell: &'static Rcu<Tracked>) -> Held {
    let guard = domain.read_lock();
    // SAFETY: the reference is dropped with the guard, in `Held`, and is used there only before.
    let value = unsafe { &*std::ptr::from_ref(cell.load(&guard)) };
    Held {
        value,
        guard: Some(guard),
        domain,
    }
}

#[test]
fn a_guard_in_a_thread_local_object_is_dropped_by_its_destructor() {
    for (before, held) in [(true, &HELD_FROM_BEFORE), (false, &HELD_FROM_AFTER)] {
        let domain = eternal();
        let tally = Tally::new();
        let cell: &'static _ = Box::leak(Box::new(Rcu::new_in(domain, tally.value(5))));
        let thread = Reader::inside("holds", move |stay| {
            if before {
                // Registers the object's destructor before the library's.
                held.set(None);
            } else {
                drop(domain.read_lock());
            }
            held.set(Some(hold(domain, cell)));
            stay();
        });
        cell.store(tally.value(6));
        let cookie = domain.start_poll();
        assert!(!domain.poll(cookie) && tally.dropped() == 0);
        thread.leave();
        assert!(domain.poll(cookie), "the destructor has ended the section");
        domain.kvfree_barrier();
        assert_eq!(tally.dropped(), 1);
    }
}

#[test]
fn a_leaked_guard_keeps_its_section_after_the_end_of_its_thread() {
    let domain = eternal();
    let tally = Tally::new();
    let cell = Arc::new(Rcu::new_in(domain, tally.value(42)));
    let theirs = Arc::clone(&cell);
    let lent: &'static Tracked = elsewhere(move || {
        let guard: &'static Guard<'static> = Box::leak(Box::new(domain.read_lock()));
        theirs.load(guard)
    });
    let cookie = domain.start_poll();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _over = common::Over(&over);
        scope.spawn(|| {
            loop {
                assert_eq!(lent.get(), 42);
                if over.load(Ordering::Relaxed) {
                    break;
                }
                thread::yield_now();
            }
        });
        for round in 0..if cfg!(miri) { 50 } else { 20_000 } {
            cell.store(tally.value(round));
            if round % 1_000 == 0 {
                // New threads may get the records of old ones, but not this one.
                scope.spawn(|| drop(domain.read_lock()));
                assert!(!domain.poll(cookie), "the leaked section is open");
            }
        }
    });
    assert!(!domain.poll(cookie));
    assert_eq!(tally.dropped(), 0, "nothing is freed under it");
    assert_eq!(lent.get(), 42);
}

#[test]
fn a_forgotten_guard_does_not_outlive_its_domain() {
    let (tally, domain) = (Tally::new(), Domain::new());
    std::mem::forget(domain.read_lock());
    (0..1_000).for_each(|round| retire(&domain, tally.value(round)));
    drop(domain);
    assert!(tally.all_dropped(), "the guard cannot be used any more");
    // Lets go of what the thread still has of that domain.
    drop(Domain::new().read_lock());
}

#[test]
fn the_last_handle_may_be_dropped_by_the_end_of_a_thread() {
    for _ in 0..50 {
        let tally = Tally::new();
        let counted = tally.clone();
        let domain = Domain::new();
        let handles = Arc::new(std::sync::Mutex::new(vec![domain.clone(), domain]));
        on_both_sides(
            || (),
            move || {
                let domain = handles
                    .lock()
                    .expect("not poisoned")
                    .pop()
                    .expect("one for each");
                drop(domain.read_lock());
                retire(&domain, counted.value(1));
                let count = counted.value(2);
                domain.call(move || drop(count));
                drop(domain);
            },
        );
        assert!(tally.all_dropped());
        assert_eq!(tally.made(), 4);
    }
}
