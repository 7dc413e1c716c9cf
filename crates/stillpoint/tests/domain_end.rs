//! A domain's end if the last handle is not the program's own, but kept by an object that was made
//! in it: the thread that drops the object does not wait.

mod common;

use common::{
    Hear,
    keeps::{self, Keep, kept_by},
    retire,
};
use std::{
    cell::Cell,
    sync::mpsc::{Sender, channel},
};
use stillpoint::{Domain, Rcu, RcuOption, StaticGuard};

const KEEPS: &[Keep] = &[
    |domain| Box::new(Rcu::new_in(domain, 1)),
    |domain| Box::new(RcuOption::<u32>::empty_in(domain)),
    |domain| Box::new(RcuOption::new_in(domain, 1).take()),
    A_GUARD,
];

const A_GUARD: Keep = |domain| Box::new(domain.read_lock_static());

#[test]
fn dropping_what_keeps_a_domain_does_not_wait_for_its_service_thread() {
    keeps::drop_does_not_wait(KEEPS);
}

#[test]
fn nor_does_dropping_it_in_a_thread_local_destructor() {
    keeps::nor_in_a_thread_local_destructor(KEEPS);
}

#[test]
fn nor_does_dropping_it_in_a_callback_of_the_domain() {
    // Except the guard, for which the callback would wait.
    keeps::nor_in_a_callback_of_its_own(KEEPS.split_last().expect("there are some").1);
}

/// In the child what waited is the parent's, and there is no service thread to leave anything to.
#[test]
#[cfg(all(target_os = "linux", not(miri)))]
fn in_the_child_of_a_fork_it_just_ends() {
    keeps::in_the_child_of_a_fork_it_just_ends(KEEPS);
}

struct Gone(Sender<()>);

impl Drop for Gone {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

/// A guard that is one thread's cannot be among those above.
#[test]
fn a_guard_without_a_lifetime_keeps_its_domain() {
    thread_local!(static KEPT: Cell<Option<StaticGuard>> = const { Cell::new(None) });
    for at_threads_end in [false, true] {
        let (gone, is_gone) = channel();
        let held = move || {
            let domain = Domain::new();
            let (one, other) = (domain.read_lock_static(), domain.read_lock_static());
            retire(&domain, Gone(gone));
            drop(domain);
            drop(one);
            other
        };
        if at_threads_end {
            let work = || KEPT.set(Some(held()));
            std::thread::spawn(work).join().expect("no panic");
        } else {
            let guard = held();
            std::thread::yield_now();
            assert!(is_gone.try_recv().is_err(), "the guard keeps it");
            drop(guard);
        }
        is_gone.hear("nothing is in the way any more");
    }
}

/// Whether or not it has ever had a service thread.
#[test]
fn a_domain_that_ends_by_itself_lets_go_of_everything() {
    for had_one in [false, true] {
        let (gone, is_gone) = channel();
        let domain = Domain::new();
        let handler = Gone(gone);
        domain.on_stall(move |_| {
            let _ = &handler;
        });
        let cell = RcuOption::<u32>::empty_in(&domain);
        if had_one {
            domain.call(|| ());
            domain.barrier();
        }
        drop(domain);
        drop(cell);
        is_gone.hear("the domain has let go of its handler");
    }
}

#[test]
#[cfg_attr(miri, ignore = "starts a process")]
fn a_process_does_not_wait_for_a_domain_that_ends_by_itself() {
    common::apart!();
    let (kept, blocked, _) = kept_by(KEEPS[0]);
    drop(kept);
    // Blocked for good.
    std::mem::forget(blocked);
}
