//! Threads, readers and domains that come and go; a reader that stays.

use std::sync::Arc;
use std::thread;

use stillpoint::lab::{Domain, Policy};

use crate::torture::harness::Harness;
use crate::torture::session::Session;
use crate::torture::tally::add;

/// A reader stays in its section for as long as the plan says.
pub fn stall_reader<P: Policy>(session: &Arc<Session>, harness: &Harness<P>, _round: u64) {
    let guard = harness.domain.read_lock();
    super::sleep(session, session.plan.stall_reader_s);
    drop(guard);
    super::sleep(session, session.plan.stall_reader_s.min(1.0));
}

/// Some threads come, read and go.
pub fn read_and_exit<P: Policy>(session: &Arc<Session>, harness: &Harness<P>, round: u64) {
    thread::scope(|scope| {
        for number in 0..4 {
            super::spawn(scope, "exit", move || {
                let mut ctx = session.thread_ctx("exit", round as usize * 4 + number);
                (0..8).for_each(|_| (harness.visit)(&mut ctx));
            });
        }
    });
    add(&session.tally.exits, 4);
}

/// Readers by quiescent states register, read and deregister; now and then a whole domain comes and
/// goes.
pub fn register_and_deregister<P: Policy>(
    session: &Arc<Session>,
    harness: &Harness<P>,
    round: u64,
) {
    let mut ctx = session.thread_ctx("churn", round as usize);
    for _ in 0..16 {
        let mut reader = harness.domain.qsbr_reader();
        (harness.visit)(&mut ctx);
        reader.quiescent_state();
        {
            let _offline = reader.offline();
            ctx.delay();
        }
    }
    if round.is_multiple_of(8) {
        let domain = Domain::<P>::starting_at(session.first_cookie());
        let theirs = Arc::clone(session);
        add(&session.tally.queued, 1);
        domain.call(move || add(&theirs.tally.invoked, 1));
        domain.read(|_| ctx.delay());
        domain.synchronize();
        // The last handle goes: the callback has to have come by then.
    }
    thread::yield_now();
}
