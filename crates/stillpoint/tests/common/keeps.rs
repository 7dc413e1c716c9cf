//! A domain's end if the last handle is kept by an object that was made in it: the thread that
//! drops the object does not wait.

use super::{Hear, Tally, Tell, Tracked, eventually, returns};
use std::{
    cell::RefCell,
    sync::mpsc::{Receiver, Sender, channel},
    thread,
};
use stillpoint::{Domain, Rcu, tasks_trace::TraceDomain};

/// A callback that stays until this is dropped.
pub struct Blocked(
    #[expect(dead_code, reason = "its end is what the callback waits for")] Sender<()>,
);

impl Blocked {
    /// Queues it, and returns when the domain's service thread is in it.
    pub fn on(domain: &Domain) -> Self {
        let (entered, has_entered) = channel();
        let (end, may_end): (_, Receiver<()>) = channel();
        domain.call(move || {
            entered.tell(());
            may_end.recv().expect_err("nothing is sent");
        });
        has_entered.hear("the service thread runs it");
        Self(end)
    }
}

/// Makes something that keeps the domain.
pub type Keep = fn(&TraceDomain) -> Box<dyn Send>;

/// Makes a domain with objects and callbacks that wait for its service thread, which is blocked.
/// Returns what keeps the domain, and the counts.
pub fn kept_by(keep: Keep) -> (Box<dyn Send>, Blocked, Tally) {
    let (domain, tally) = (TraceDomain::new(), Tally::new());
    let blocked = Blocked::on(&domain);
    let (kept, cell) = (keep(&domain), Rcu::new_in(&domain, tally.value(1)));
    cell.store(tally.value(2));
    let value: Tracked = tally.value(3);
    domain.call(move || drop(value));
    (kept, blocked, tally)
}

/// The service thread is in a callback meanwhile.
pub fn drop_does_not_wait(keeps: &[Keep]) {
    for &keep in keeps {
        let (kept, blocked, tally) = kept_by(keep);
        returns(move || drop(kept));
        assert_eq!(tally.dropped(), 0, "the service thread is in a callback");
        drop(blocked);
        eventually(|| tally.all_dropped());
    }
}

/// As above, where a thread ends.
pub fn nor_in_a_thread_local_destructor(keeps: &[Keep]) {
    thread_local!(static KEPT: RefCell<Option<Box<dyn Send>>> = const { RefCell::new(None) });
    for &keep in keeps {
        let (kept, blocked, tally) = kept_by(keep);
        let ending = thread::spawn(move || KEPT.set(Some(kept)));
        returns(move || ending.join().expect("no panic"));
        assert_eq!(tally.dropped(), 0, "the service thread is in a callback");
        drop(blocked);
        eventually(|| tally.all_dropped());
    }
}

/// As above, in a callback of the domain.
pub fn nor_in_a_callback_of_its_own(keeps: &[Keep]) {
    for &keep in keeps {
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

/// In the child what waited is the parent's, and there is no service thread to leave anything to.
#[cfg(all(target_os = "linux", not(miri)))]
pub fn in_the_child_of_a_fork_it_just_ends(keeps: &[Keep]) {
    for &keep in keeps {
        let (kept, blocked, tally) = kept_by(keep);
        let mut kept = Some(kept);
        let child = super::forking::fork(|| {
            drop(kept.take());
            assert_eq!(tally.dropped(), 0, "it is the parent's");
        });
        child.well();
        drop(blocked);
        drop(kept);
        eventually(|| tally.all_dropped());
    }
}
