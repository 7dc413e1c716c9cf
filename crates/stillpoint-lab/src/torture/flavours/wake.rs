//! One waiter and one reader, again and again: the waiter's sleep against the end of the reader's
//! section.
//!
//! A reader that goes on reading would wake the waiter at the end of its next section, so here it
//! does not: when its section has ended it waits for the waiter. A waiter whose wake-up was lost
//! then sleeps until another thread ends a grace period, and none does.
//!
//! In some rounds the waiter does not wait by itself: it asks for a promise (`start_poll`) and only
//! looks whether it has come true. Then the service thread sleeps until the section ends, and no
//! other thread ends the grace period.

use std::hint;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use stillpoint::lab::{Domain, Policy};

use super::broken::{NoFlagBarrier, NoPolledCompletion, UnboundedSleeps};
use crate::torture::harness::{Harness, ThreadSpec};
use crate::torture::runner;
use crate::torture::session::{Session, ThreadCtx};
use crate::torture::store_buffer::StoreBufferStress;
use crate::torture::tally::add;

/// Nothing left out but the safety net: no wake-up is ever lost, so none is needed.
pub fn run(session: &Arc<Session>) {
    run_pair::<UnboundedSleeps>(session, |round| round.is_multiple_of(4));
}

/// Without the second barrier.
pub fn busted(session: &Arc<Session>) {
    run_pair::<NoFlagBarrier>(session, |_| false);
}

/// Without the service thread's part in a promise.
pub fn busted_poll(session: &Arc<Session>) {
    run_pair::<NoPolledCompletion>(session, |_| true);
}

/// The rounds that each of the two has begun and ended.
#[derive(Debug, Default)]
struct Rounds {
    entered: CachePadded<AtomicU64>,
    waited: CachePadded<AtomicU64>,
}

/// Says of a round whether its wait is by a promise.
type ByStartPoll = fn(u64) -> bool;

/// One reader and one waiter, each on its own processor.
fn run_pair<P: Policy>(session: &Arc<Session>, by_start_poll: ByStartPoll) {
    let domain = Domain::<P>::starting_at(session.first_cookie());
    let rounds = Rounds::default();
    let visit = |ctx: &mut ThreadCtx| domain.read(|_| ctx.delay());
    let harness = Harness {
        domain: &domain,
        visit: &visit,
        visit_in_handler: None,
        in_child: &|| (),
    };
    let reader =
        ThreadSpec::new("reader", || read(session, &domain, &rounds, by_start_poll)).pinned_to(0);
    let waiter =
        ThreadSpec::new("waiter", || wait(session, &domain, &rounds, by_start_poll)).pinned_to(1);
    runner::run(session, &harness, vec![reader, waiter]);
}

fn read<P: Policy>(
    session: &Session,
    domain: &Domain<P>,
    rounds: &Rounds,
    by_start_poll: ByStartPoll,
) {
    let (stress, mut ctx) = (
        StoreBufferStress::default(),
        session.thread_ctx("reader", 0),
    );
    let mut round = 0;
    while !session.is_over() {
        round += 1;
        let guard = domain.read_lock();
        rounds.entered.store(round, Ordering::Release);
        // About as long as a waiter takes for its first barrier and looks before it sleeps; the
        // service thread has to wake up for that, too.
        let longest = if by_start_poll(round) {
            150_000
        } else {
            40_000
        };
        let stay = Duration::from_nanos(ctx.random.u64(1_000..longest));
        let until = Instant::now() + stay;
        while Instant::now() < until {
            hint::spin_loop();
        }
        stress.delay_later_stores();
        drop(guard);
        ctx.count();
        while rounds.waited.load(Ordering::Acquire) < round && !session.is_over() {
            hint::spin_loop();
        }
    }
}

fn wait<P: Policy>(
    session: &Session,
    domain: &Domain<P>,
    rounds: &Rounds,
    by_start_poll: ByStartPoll,
) {
    let mut round = 0;
    while !session.is_over() {
        session.beat(0);
        round += 1;
        while rounds.entered.load(Ordering::Acquire) < round {
            if session.is_over() {
                return;
            }
            hint::spin_loop();
        }
        if by_start_poll(round) {
            let promised = domain.start_poll();
            while !domain.has_ended(promised) {
                // The service thread may need the processor.
                thread::sleep(Duration::from_micros(20));
            }
        } else {
            domain.synchronize();
        }
        add(&session.tally.waits, 1);
        rounds.waited.store(round, Ordering::Release);
    }
}
