//! Threads, readers and domains that come and go; a reader that stays.

use std::sync::Arc;
use std::thread;

use stillpoint::torture::{Domain, Policy};

use crate::torture::conductor::Ground;
use crate::torture::session::Session;
use crate::torture::tally::add;

/// A reader stays in its section for as long as the plan says.
pub fn stay<P: Policy>(session: &Arc<Session>, ground: &Ground<P>, _round: u64) {
    let guard = ground.domain.read_lock();
    super::sleep(session, session.plan.stall_reader_s);
    drop(guard);
    super::sleep(session, session.plan.stall_reader_s.min(1.0));
}

/// Some threads come, read and go.
pub fn read_and_exit<P: Policy>(session: &Arc<Session>, ground: &Ground<P>, round: u64) {
    thread::scope(|scope| {
        for number in 0..4 {
            super::spawn(scope, "exit", move || {
                let mut seat = session.seat("exit", round as usize * 4 + number);
                (0..8).for_each(|_| (ground.visit)(&mut seat));
            });
        }
    });
    add(&session.tally.exits, 4);
}

/// Readers by quiescent states register, read and deregister; now and then a whole domain comes and goes.
pub fn register_and_deregister<P: Policy>(session: &Arc<Session>, ground: &Ground<P>, round: u64) {
    let mut seat = session.seat("churn", round as usize);
    for _ in 0..16 {
        let mut reader = ground.domain.qsbr_reader();
        (ground.visit)(&mut seat);
        reader.quiescent_state();
        {
            let _offline = reader.offline();
            seat.dwell();
        }
    }
    if round.is_multiple_of(8) {
        let domain = Domain::<P>::starting_at(session.first_cookie());
        let theirs = Arc::clone(session);
        add(&session.tally.queued, 1);
        domain.call(move || add(&theirs.tally.invoked, 1));
        domain.read(|_| seat.dwell());
        domain.synchronize();
        // The last handle goes: the callback has to have come by then.
    }
    thread::yield_now();
}
