//! User code that the library calls forks: callbacks, destructors, stall handlers. The child is still
//! inside the call, and what follows it is the parent's alone.
//!
//! Every test forks in a separate process.
#![cfg(all(target_os = "linux", not(miri)))]

mod common;

use common::forking::{
    Bare, Forked, SOME, assert_works, assert_works_here, end_after, fork, fork_here, waiting,
};
use common::{
    Count, Reader, Tally, Tell, apart, eventually, panic_message, retire, retire_inline,
    threads_with, until_it_waits,
};
use std::{
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc::{Sender, channel},
    },
    thread,
    time::Duration,
};
use stillpoint::Domain;
use stillpoint_platform::thread::tid;

/// Returns how many of them this process has.
fn service_threads() -> usize {
    threads_with(|name| name.starts_with("stillpoint/"))
}

#[test]
fn a_callback_may_fork_and_those_behind_it_run_in_the_parent_alone() {
    apart!();
    let domain = Domain::new();
    let calls = Count::default();
    let reader = Reader::enter(&domain);
    let (tell, told) = channel();
    let (theirs, behind) = (domain.clone(), calls.clone());
    domain.call(move || {
        if let Some(child) = fork_here() {
            return tell.tell(child);
        }
        // Still inside the callback.
        let checked = panic::catch_unwind(AssertUnwindSafe(|| {
            assert_eq!(waiting(theirs.statistics()), [0; 4]);
            assert!(panic_message(|| theirs.barrier()).contains("barrier()"));
            theirs.synchronize();
            retire(&theirs, 1);
        }));
        let _ = Bare::spawn(move || {
            end_after(|| {
                assert!(checked.is_ok());
                // Goes through once the callback has returned, and the thread that forked serves
                // the child.
                assert_works_here(&theirs);
                assert_works(&theirs);
                assert_eq!(behind.get(), 0);
                assert_eq!(service_threads(), 1);
                drop(theirs);
            })
        });
    });
    (0..10).for_each(|_| domain.call(calls.raise()));
    reader.leave();
    domain.barrier();
    assert_eq!(calls.get(), 10);
    told.recv().expect("it has forked").well();
    assert_works(&domain);
}

#[test]
fn a_callback_that_forks_may_go_on_as_the_main_thread_of_the_child() {
    apart!();
    let domain = Domain::new();
    let (tell, told) = channel();
    let theirs = domain.clone();
    domain.call(move || {
        let child = fork(|| {
            theirs.synchronize();
            retire(&theirs, 1);
            assert_works(&Domain::new());
            assert_works(stillpoint::global());
        });
        tell.tell(child);
    });
    told.recv().expect("it has forked").well();
    assert_works(&domain);
}

#[test]
fn a_domain_whose_service_thread_forked_ends_in_the_child() {
    apart!();
    let tally = Tally::new();
    let only_handle = Arc::new(Mutex::new(Some(Domain::new())));
    let take = |handle: &Mutex<Option<Domain>>| {
        handle
            .lock()
            .expect("no panic")
            .take()
            .expect("taken once a process")
    };
    let (tell, told) = channel();
    let (theirs, counted) = (Arc::clone(&only_handle), tally.clone());
    only_handle
        .lock()
        .expect("no panic")
        .as_ref()
        .expect("just made")
        .call(move || {
            // The thread that queued this has released the lock.
            drop(theirs.lock());
            if let Some(child) = fork_here() {
                return tell.tell(child);
            }
            let _ = Bare::spawn(move || {
                end_after(|| {
                    let domain = take(&theirs);
                    for number in 0..SOME {
                        retire(&domain, counted.value(number));
                        retire_inline(&domain, counted.value(number));
                        let value = counted.value(number);
                        domain.call(move || drop(value));
                    }
                    drop(domain);
                    eventually(|| counted.all_dropped());
                })
            });
        });
    told.recv().expect("it has forked").well();
    let domain = take(&only_handle);
    assert_works(&domain);
    assert_eq!(tally.made(), 0);
}

/// An object whose destructor forks once, in the parent, and hands the child over. In the child it
/// goes on.
struct Forking {
    tell: Option<Sender<Forked>>,
    reset_in_child: Option<Box<dyn FnOnce() + Send>>,
}

impl Forking {
    fn new(tell: &Sender<Forked>, reset_in_child: impl FnOnce() + Send + 'static) -> Self {
        Self {
            tell: Some(tell.clone()),
            reset_in_child: Some(Box::new(reset_in_child)),
        }
    }
}

impl Drop for Forking {
    fn drop(&mut self) {
        match fork_here() {
            Some(child) => self.tell.take().expect("dropped once").tell(child),
            None => (self.reset_in_child.take().expect("dropped once"))(),
        }
    }
}

/// Checks that a flush of one page waits until that has been freed.
fn a_flush_waits_for_a_reader(domain: &Domain) {
    let tally = Tally::new();
    let (entered, has_entered) = channel();
    let (theirs, waiter) = (domain.clone(), tid());
    let has_retired = Arc::new(AtomicBool::new(false));
    let retired = Arc::clone(&has_retired);
    let reader = Bare::spawn(move || {
        let guard = theirs.read_lock();
        entered.tell(());
        eventually(|| retired.load(Ordering::SeqCst));
        until_it_waits(waiter, || false);
        drop(guard);
    });
    has_entered.recv().expect("a reader never waits");
    retire(domain, tally.value(1));
    has_retired.store(true, Ordering::SeqCst);
    domain.kvfree_barrier();
    assert!(tally.all_dropped());
    reader.join();
}

#[test]
fn a_deferred_destructor_may_fork_and_the_rest_is_freed_in_the_parent_alone() {
    apart!();
    let (domain, tally) = (Domain::new(), Tally::new());
    let (tell, told) = channel();
    let (theirs, counted) = (domain.clone(), tally.clone());
    let reader = Reader::enter(&domain);
    (0..SOME).for_each(|number| retire(&domain, tally.value(number)));
    retire(
        &domain,
        Forking::new(&tell, move || {
            let so_far = counted.dropped();
            let _ = Bare::spawn(move || {
                end_after(|| {
                    assert!(so_far < counted.made());
                    a_flush_waits_for_a_reader(&theirs);
                    assert_works_here(&theirs);
                    assert_works(&theirs);
                    assert_eq!(
                        counted.dropped(),
                        so_far,
                        "the rest of the page, and the pages behind it"
                    );
                })
            });
        }),
    );
    (0..SOME).for_each(|number| retire(&domain, tally.value(number)));
    reader.leave();
    domain.kvfree_barrier();
    assert!(tally.all_dropped());
    told.recv().expect("it has forked").well();
    assert_works(&domain);
}

#[test]
fn a_plain_destructor_may_fork_on_the_thread_that_retires() {
    apart!();
    let (domain, tally) = (Domain::new(), Tally::new());
    let (tell, told) = channel();
    let dropped_at_fork = Arc::new(AtomicUsize::new(usize::MAX));
    let (counted, at_fork, me) = (
        tally.clone(),
        Arc::clone(&dropped_at_fork),
        thread::current().id(),
    );
    let forking = Forking::new(&tell, move || {
        if thread::current().id() != me {
            // This thread was so slow that the service thread has taken over: nothing to see.
            end_after(|| ());
        }
        at_fork.store(counted.dropped(), Ordering::SeqCst);
    });
    retire_inline(&domain, forking);
    let child = loop {
        retire_inline(&domain, tally.value(0));
        if let Ok(child) = told.try_recv() {
            break child;
        }
        let at_fork = dropped_at_fork.load(Ordering::SeqCst);
        if at_fork != usize::MAX {
            // The child, in the middle of its parent's loop.
            end_after(|| {
                assert_eq!(waiting(domain.statistics()), [0; 4]);
                assert_works(&domain);
                assert_eq!(
                    tally.dropped(),
                    at_fork,
                    "what was retired in the parent stays"
                );
                retire_inline(&domain, tally.value(0));
                domain.kvfree_barrier();
                assert_eq!(tally.dropped(), at_fork + 1);
            });
        }
    };
    child.well();
    domain.kvfree_barrier();
    assert!(tally.all_dropped());
    assert_works(&domain);
}

/// Undoes [`common::without_new_threads`].
fn allow_new_threads() {
    common::limit(libc::RLIMIT_AS, libc::RLIM_INFINITY);
}

#[test]
fn a_thread_that_makes_passes_without_a_service_thread_may_fork_in_one() {
    apart!();
    let domain = Domain::new();
    let calls = Count::default();
    let (tell, told) = channel();
    common::without_new_threads(|| {
        let theirs = domain.clone();
        domain.call(move || {
            let child = fork_here();
            if child.is_none() {
                // The child can have a service thread, which must not run callbacks as long as this
                // one has not returned.
                allow_new_threads();
                let inside = Arc::new(AtomicBool::new(true));
                let seen = Arc::clone(&inside);
                theirs.call(move || {
                    if seen.load(Ordering::SeqCst) {
                        std::process::abort();
                    }
                });
                eventually(|| service_threads() == 1);
                // Time for the callback to run where it must not: no event tells that it does not.
                thread::sleep(Duration::from_millis(50));
                inside.store(false, Ordering::SeqCst);
            }
            tell.tell(child);
        });
        domain.call(calls.raise());
        domain.barrier();
    });
    match told.recv().expect("it has forked") {
        Some(child) => {
            assert_eq!(calls.get(), 1);
            child.well();
        }
        None => end_after(|| {
            allow_new_threads();
            assert_works(&domain);
            assert_eq!(calls.get(), 0);
        }),
    }
}

#[test]
fn a_stall_handler_may_fork() {
    apart!();
    let domain = Domain::new();
    domain.set_stall_timeout(Duration::from_millis(1));
    let (tell, told) = channel();
    let reports = Arc::new(AtomicUsize::new(0));
    let has_forked = Arc::new(AtomicBool::new(false));
    let (counted, forked) = (Arc::clone(&reports), Arc::clone(&has_forked));
    domain.on_stall(move |_| {
        if counted.fetch_add(1, Ordering::SeqCst) == 0 {
            tell.tell(fork_here());
            forked.store(true, Ordering::SeqCst);
        }
    });
    let mut reader = Reader::enter(&domain);
    thread::scope(|scope| {
        scope.spawn(|| {
            eventually(|| has_forked.load(Ordering::SeqCst));
            reader.tell_to_leave();
        });
        // In the child no thread is left to tell it.
        domain.synchronize();
        match told.recv().expect("it has forked") {
            Some(child) => child.well(),
            None => end_after(|| {
                assert_works(&domain);
                let before = reports.load(Ordering::SeqCst);
                let guard = domain.read_lock();
                let cookie = domain.start_poll();
                eventually(|| reports.load(Ordering::SeqCst) > before);
                drop(guard);
                domain.cond_synchronize(cookie);
            }),
        }
    });
    reader.leave();
}

#[test]
fn all_of_this_holds_without_membarrier_too() {
    common::assert_holds_without_membarrier();
}
