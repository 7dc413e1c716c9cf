//! Readers that sleep in their sections, and that hand their sections on to other threads.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use stillpoint::{
    tasks_trace::OwnedGuard,
    torture::{Domain, Policy, Sound},
};

use super::broken::OneDropped;
use super::common::Stage;
use crate::torture::pipe::Visit;
use crate::torture::session::{Seat, Session};

/// Nothing left out.
pub fn run(session: &Arc<Session>) {
    torture::<Sound>(session);
}

/// A holdout dropped.
pub fn busted(session: &Arc<Session>) {
    torture::<OneDropped>(session);
}

/// Sections that wait for somebody to go on with them.
type Exchange<'d> = Mutex<Vec<(OwnedGuard<'d>, Visit)>>;

/// So many at most.
const ROOM: usize = 64;

fn torture<P: Policy>(session: &Arc<Session>) {
    let domain = Domain::<P>::starting_at(session.first_cookie());
    let stage = Stage::new(session, &domain);
    let exchange = Exchange::default();
    let life = |seat: &mut Seat| live(&stage, &domain, &exchange, seat);
    let mut parts = stage.writers();
    parts.extend(stage.readers(&life));
    // SAFETY: the child goes on with no guard of the parent's, and has one thread.
    let in_child = || unsafe { domain.abandon_owned_guards() };
    stage.perform(&in_child, parts);
}

fn live<'d, P: Policy>(stage: &Stage<P>, domain: &'d Domain<P>, exchange: &Exchange<'d>, seat: &mut Seat) {
    let (session, pipe) = (&stage.shared.session, &stage.shared.pipe);
    while !session.is_over() {
        session.keep_pace(|| ());
        if seat.one_in(4) {
            let guard = domain.read_lock();
            let visit = pipe.begin(domain, seat);
            sleep(seat);
            pipe.end(visit, domain, seat);
            drop(guard);
            continue;
        }
        let guard = domain.read_lock_owned();
        let guard = if seat.one_in(32) { guard.named("handed on") } else { guard };
        let mut section = (guard, pipe.begin(domain, seat));
        seat.dwell();
        let mut waiting = exchange.lock();
        if waiting.len() < ROOM {
            // Ours for somebody else's, if there is one.
            let place = seat.random.usize(0..=waiting.len());
            if place == waiting.len() {
                waiting.push(section);
                continue;
            }
            std::mem::swap(&mut waiting[place], &mut section);
        } else {
            section = waiting.swap_remove(seat.random.usize(0..ROOM));
        }
        drop(waiting);
        sleep(seat);
        pipe.end(section.1, domain, seat);
        drop(section);
        if seat.one_in(64) {
            // All that wait, so that none grows old.
            let all = std::mem::take(&mut *exchange.lock());
            for (guard, visit) in all {
                pipe.end(visit, domain, seat);
                drop(guard);
            }
        }
    }
    // Whoever comes last finds the rest; nobody waits for a section that nobody has.
    exchange.lock().clear();
}

/// Sleeps now and then, which other flavours' sections do not.
fn sleep(seat: &mut Seat) {
    if seat.one_in(64) {
        thread::sleep(Duration::from_micros(seat.random.u64(50..3000)));
    } else {
        seat.dwell();
    }
}
