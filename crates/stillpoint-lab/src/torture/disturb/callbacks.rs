//! Callbacks in numbers, callbacks of others, callbacks that take long.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use stillpoint::lab::Policy;

use crate::torture::harness::Harness;
use crate::torture::session::Session;
use crate::torture::tally::{Fault, add};

/// Callbacks of one flood.
const FLOOD: u64 = 10_000;

/// A flood: this many callbacks as fast as they can be queued. Then each of them has to come, by
/// itself, and once.
pub fn flood<P: Policy>(session: &Arc<Session>, harness: &Harness<P>, _round: u64) {
    let came = Arc::new(AtomicU64::new(0));
    let mut queued = 0;
    while queued < FLOOD && !session.is_over() {
        let theirs = Arc::clone(&came);
        harness.domain.call(move || add(&theirs, 1));
        queued += 1;
    }
    add(&session.tally.queued, queued);
    // Forward progress without help, while no thread waits for it.
    let mut last = 0;
    let mut looks_without_progress = 0;
    // Looks of 2 ms or more; the first is some 20 s.
    let patience =
        10_000 + (1000.0 * (session.plan.stall_reader_s + session.plan.stall_service_s)) as u64;
    loop {
        let now = came.load(Ordering::Acquire);
        looks_without_progress = if now == last {
            looks_without_progress + 1
        } else {
            0
        };
        last = now;
        if now >= queued || session.is_over() {
            break;
        }
        if looks_without_progress > patience {
            return session.tally.fault(Fault::Lost, || {
                format!("{now} of {queued} callbacks came, and then no more")
            });
        }
        thread::sleep(Duration::from_millis(2));
    }
    harness.domain.barrier();
    let came = came.load(Ordering::Acquire);
    add(&session.tally.invoked, came);
    if came != queued {
        let fault = if came < queued {
            Fault::Barrier
        } else {
            Fault::Twice
        };
        session.tally.fault(fault, || {
            format!("of {queued} callbacks {came} had come when a barrier returned")
        });
    }
}

/// Some threads queue a callback each; a barrier then has to wait for all of them.
pub fn barrier<P: Policy>(session: &Arc<Session>, harness: &Harness<P>, round: u64) {
    let threads = session.plan.barrier_callbacks as u64;
    let came = Arc::new(AtomicU64::new(0));
    let queue = || {
        let theirs = Arc::clone(&came);
        harness.domain.call(move || add(&theirs, 1));
    };
    add(&session.tally.queued, threads);
    if round.is_multiple_of(4) {
        thread::scope(|scope| (0..threads).for_each(|_| super::spawn(scope, "queuer", queue)));
    } else {
        (0..threads).for_each(|_| queue());
    }
    add(&session.tally.barriers, 1);
    harness.domain.barrier();
    add(&session.tally.barriers_done, 1);
    let came = came.load(Ordering::Acquire);
    add(&session.tally.invoked, came);
    if came != threads {
        session.tally.fault(Fault::Barrier, || {
            format!("a barrier returned after {came} of the {threads} callbacks before it")
        });
    }
    thread::sleep(Duration::from_micros(200));
}

/// A callback that takes long: it delays other callbacks, and nothing else.
pub fn stall_service<P: Policy>(session: &Arc<Session>, harness: &Harness<P>, _round: u64) {
    let theirs = Arc::clone(session);
    let (invoked, is_invoked) = channel();
    add(&session.tally.queued, 1);
    harness.domain.call(move || {
        super::sleep(&theirs, theirs.plan.stall_service_s);
        add(&theirs.tally.invoked, 1);
        // Fails once the session is over, when no thread receives.
        let _ = invoked.send(());
    });
    super::sleep(session, session.plan.stall_service_s * 3.0);
    // One at a time: a starved service thread runs them more slowly than they come, and others would queue behind all of them.
    let look = Duration::from_millis(10);
    while is_invoked.recv_timeout(look) == Err(RecvTimeoutError::Timeout) && !session.is_over() {}
}
