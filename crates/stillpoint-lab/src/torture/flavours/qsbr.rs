//! Readers by quiescent states.

use std::sync::Arc;

use stillpoint::torture::{Domain, Sound};

use super::common::Stage;
use crate::torture::session::{Seat, Session};

/// In a domain with fences.
pub fn run(session: &Arc<Session>) {
    let domain = Domain::<Sound>::fencing_from(session.first_cookie());
    let stage = Stage::new(session, &domain);
    let life = |seat: &mut Seat| live(&stage, seat);
    let mut parts = stage.writers();
    parts.extend(stage.readers(&life));
    stage.perform(&|| (), parts);
}

/// Sections from one quiescent state to the next, or from one time offline to the next; now and then a guard's inside.
fn live(stage: &Stage<Sound>, seat: &mut Seat) {
    let session = &stage.shared.session;
    let mut reader = stage.domain.qsbr_reader();
    while !session.is_over() {
        {
            let _offline = reader.offline();
            session.keep_pace(|| ());
        }
        for _ in 0..seat.random.u32(1..64) {
            let visit = stage.shared.pipe.begin(stage.domain, seat);
            if seat.one_in(16) {
                stage.domain.read(|_| seat.dwell());
            }
            seat.dwell();
            stage.shared.pipe.end(visit, stage.domain, seat);
            match seat.random.u32(0..16) {
                0 => reader.synchronize(),
                1..4 => {
                    let _offline = reader.offline();
                    seat.dwell();
                }
                _ => reader.quiescent_state(),
            }
        }
    }
}
