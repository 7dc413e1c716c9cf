//! A domain's end where its last handle is not the program's own, but kept by something that was made in it: who drops that does not wait.

mod common;

use common::{PATIENCE, Tally, Tracked, eventually, returns};
use std::{
    cell::RefCell,
    sync::mpsc::{Receiver, Sender, channel},
    thread,
};
use stillpoint::{Domain, Rcu, RcuOption, tasks_trace::TraceDomain};

/// A callback that stays until this is dropped.
struct Blocked(#[expect(dead_code, reason = "its end is what the callback waits for")] Sender<()>);

impl Blocked {
    /// Returns when the domain's service thread is in it.
    fn on(domain: &Domain) -> Self {
        let (entered, has_entered) = channel();
        let (end, may_end): (_, Receiver<()>) = channel();
        domain.call(move || {
            entered.send(()).expect("the receiver is there");
            may_end.recv().expect_err("nothing is sent");
        });
        has_entered.recv_timeout(PATIENCE).expect("the service thread runs it");
        Self(end)
    }
}

/// Something that keeps the domain.
type Keep = fn(&TraceDomain) -> Box<dyn Send>;

const KEEPS: &[Keep] = &[
    |domain| Box::new(Rcu::new_in(domain, 1)),
    |domain| Box::new(RcuOption::<u32>::empty_in(domain)),
    |domain| Box::new(RcuOption::new_in(domain, 1).take()),
    #[cfg(all(target_os = "linux", target_pointer_width = "64", not(miri)))]
    |domain| Box::new(stillpoint::vmap::Arena::builder().capacity(1 << 30).domain(domain).build().expect("addresses")),
    #[cfg(all(target_os = "linux", target_pointer_width = "64", not(miri)))]
    |domain| {
        let arena = stillpoint::vmap::Arena::builder().capacity(1 << 30).domain(domain).build().expect("addresses");
        Box::new(arena.alloc(1, 1).expect("memory"))
    },
    A_GUARD,
];

const A_GUARD: Keep = |domain| Box::new(domain.read_lock_static());

/// A domain with objects and callbacks that wait for its service thread, which is blocked; what keeps it; the counts.
fn kept_by(keep: Keep) -> (Box<dyn Send>, Blocked, Tally) {
    let (domain, tally) = (TraceDomain::new(), Tally::new());
    let blocked = Blocked::on(&domain);
    let (kept, cell) = (keep(&domain), Rcu::new_in(&domain, tally.value(1)));
    cell.store(tally.value(2));
    let value: Tracked = tally.value(3);
    domain.call(move || drop(value));
    (kept, blocked, tally)
}

#[test]
fn dropping_what_keeps_a_domain_does_not_wait_for_its_service_thread() {
    for &keep in KEEPS {
        let (kept, blocked, tally) = kept_by(keep);
        returns(move || drop(kept));
        assert_eq!(tally.dropped(), 0, "the service thread is in a callback");
        drop(blocked);
        eventually(|| tally.all_dropped());
    }
}

#[test]
fn so_it_is_in_a_thread_local_destructor() {
    thread_local!(static KEPT: RefCell<Option<Box<dyn Send>>> = const { RefCell::new(None) });
    for &keep in KEEPS {
        let (kept, blocked, tally) = kept_by(keep);
        let ending = thread::spawn(move || KEPT.set(Some(kept)));
        returns(move || ending.join().expect("no panic"));
        assert_eq!(tally.dropped(), 0, "the service thread is in a callback");
        drop(blocked);
        eventually(|| tally.all_dropped());
    }
}

#[test]
fn and_in_a_callback_of_its_own() {
    // But that of a guard, which the callback would wait for.
    for &keep in KEEPS.split_last().expect("there are some").1 {
        let (domain, tally) = (TraceDomain::new(), Tally::new());
        let (kept, value) = (keep(&domain), tally.value(1));
        domain.call(move || drop(kept));
        domain.call(move || drop(value));
        let cell = Rcu::new_in(&domain, tally.value(2));
        drop(domain);
        // The callback's or this is the last handle.
        drop(cell);
        eventually(|| tally.all_dropped());
    }
}

/// Whether it has ever had a service thread or not.
#[test]
fn a_domain_that_ends_by_itself_lets_go_of_everything() {
    struct Gone(Sender<()>);
    impl Drop for Gone {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }
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
        is_gone.recv_timeout(PATIENCE).expect("the domain has let go of its handler");
    }
}

#[test]
#[cfg_attr(miri, ignore = "starts a process")]
fn a_process_does_not_wait_for_it_either() {
    if common::is_child() {
        let (kept, blocked, _) = kept_by(KEEPS[0]);
        drop(kept);
        // Blocked for good.
        std::mem::forget(blocked);
        return;
    }
    common::child("a_process_does_not_wait_for_it_either").well();
}

/// In the child what waited is the parent's, and there is no service thread to leave anything to.
#[test]
#[cfg(all(target_os = "linux", not(miri)))]
fn in_the_child_of_a_fork_it_just_ends() {
    for &keep in KEEPS {
        let (kept, blocked, tally) = kept_by(keep);
        let mut kept = Some(kept);
        let child = common::forking::fork(|| {
            drop(kept.take());
            assert_eq!(tally.dropped(), 0, "it is the parent's");
        });
        child.well();
        drop(blocked);
        drop(kept);
        eventually(|| tally.all_dropped());
    }
}
