//! Readers by guards, of one thread each: rcu and rcu-fence, and most of the broken flavours.

use std::sync::Arc;

use stillpoint::torture::{Domain, Policy, Sound};

use super::broken::{NoBarriers, ShortCookies, Unfenced, Unwaiting};
use super::common::Stage;
use crate::torture::clutter::Clutter;
use crate::torture::conductor::{Ground, Part};
use crate::torture::disturb;
use crate::torture::session::{Seat, Session};
use crate::torture::writers::Method;

/// Membarrier where there is one.
pub fn rcu(session: &Arc<Session>) {
    let domain = Domain::<Sound>::starting_at(session.first_cookie());
    run(&Stage::new(session, &domain), nested);
}

/// Fences on both sides.
pub fn rcu_fence(session: &Arc<Session>) {
    let domain = Domain::<Sound>::fencing_from(session.first_cookie());
    run(&Stage::new(session, &domain), nested);
}

/// No waiting.
pub fn busted(session: &Arc<Session>) {
    let domain = Domain::<Unwaiting>::starting_at(session.first_cookie());
    run(&Stage::new(session, &domain), nested);
}

/// Cookies that are one short.
pub fn busted_cookie(session: &Arc<Session>) {
    let domain = Domain::<ShortCookies>::starting_at(session.first_cookie());
    run(&Stage::new(session, &domain), nested);
}

/// No heavy barrier. Elements are looked at as soon as they are found, in sections whose beginning is still in the store buffer.
pub fn busted_membarrier(session: &Arc<Session>) {
    let domain = Domain::<Unfenced>::starting_at(session.first_cookie());
    let stage = Stage { methods: &[Method::PollAtOnce], ..Stage::new(session, &domain) };
    let life = |seat: &mut Seat| live(&stage, seat, cluttered);
    // A reader and a writer take turns on each processor, so that there are one of each on two of them at some time soon.
    let parts = stage.writers().into_iter().enumerate().map(|(number, part)| part.on(number));
    let readers = stage.readers(&life).enumerate().map(|(number, part)| part.on(number + 1));
    stage.perform(&|| (), parts.chain(readers).collect());
}

/// Barriers that do not wait, beside those who need them.
pub fn busted_barrier(session: &Arc<Session>) {
    let domain = Domain::<NoBarriers>::starting_at(session.first_cookie());
    let stage = Stage::new(session, &domain);
    let visit = |seat: &mut Seat| stage.visit(seat);
    let ground = Ground { domain: &domain, visit: &visit, visit_in_handler: None, in_child: &|| () };
    let life = |seat: &mut Seat| live(&stage, seat, nested);
    let mut parts = stage.writers();
    parts.extend(stage.readers(&life));
    parts.push(Part::new("barrier", || {
        (0..).take_while(|_| !session.is_over()).for_each(|round| disturb::callbacks::barrier(session, &ground, round));
    }));
    stage.perform(&|| (), parts);
}

type Read<P> = fn(&Stage<P>, &mut Seat, &Clutter);

fn run<P: Policy>(stage: &Stage<P>, read: Read<P>) {
    let life = |seat: &mut Seat| live(stage, seat, read);
    let mut parts = stage.writers();
    parts.extend(stage.readers(&life));
    stage.perform(&|| (), parts);
}

fn live<P: Policy>(stage: &Stage<P>, seat: &mut Seat, read: Read<P>) {
    let clutter = Clutter::default();
    let session = &stage.shared.session;
    while !session.is_over() {
        session.keep_pace(|| ());
        read(stage, seat, &clutter);
    }
}

/// A section in which guards take turns, so that it ends with another than the one that it began with; or one that is slow to become visible.
fn nested<P: Policy>(stage: &Stage<P>, seat: &mut Seat, clutter: &Clutter) {
    if seat.one_in(4) {
        return cluttered(stage, seat, clutter);
    }
    let mut guard = stage.domain.read_lock();
    let visit = stage.shared.pipe.begin(stage.domain, seat);
    seat.dwell();
    for _ in 0..seat.random.u32(0..3) {
        let inner = stage.domain.read_lock();
        seat.dwell();
        guard = inner;
    }
    stage.shared.pipe.end(visit, stage.domain, seat);
    if seat.one_in(16) {
        clutter.delay_later_stores();
    }
    drop(guard);
}

/// A section whose beginning takes its time to become visible, and whose look is quick.
fn cluttered<P: Policy>(stage: &Stage<P>, seat: &mut Seat, clutter: &Clutter) {
    let lane = seat.random.usize(0..stage.shared.pipe.lanes.len());
    clutter.delay_later_stores();
    let guard = stage.domain.read_lock();
    let visit = stage.shared.pipe.find(lane);
    seat.spin(64);
    stage.shared.pipe.end(visit, stage.domain, seat);
    drop(guard);
}
