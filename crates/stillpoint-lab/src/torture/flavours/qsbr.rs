//! Readers by quiescent states.

use std::sync::Arc;

use stillpoint::lab::{Domain, Sound};

use super::pipe_test::PipeTest;
use crate::torture::session::{Session, ThreadCtx};

/// In a domain with fences.
pub fn run(session: &Arc<Session>) {
    let domain = Domain::<Sound>::fencing_from(session.first_cookie());
    let test = PipeTest::new(session, &domain);
    let body = |ctx: &mut ThreadCtx| read_loop(&test, ctx);
    let mut threads = test.writers();
    threads.extend(test.readers(&body));
    test.run(&|| (), threads);
}

/// Sections from one quiescent state to the next, or from one time offline to the next; now and
/// then a guard's inside.
fn read_loop(test: &PipeTest<Sound>, ctx: &mut ThreadCtx) {
    let session = &test.shared.session;
    let mut reader = test.domain.qsbr_reader();
    while !session.is_over() {
        {
            let _offline = reader.offline();
            session.wait_while_paused(|| ());
        }
        for _ in 0..ctx.random.u32(1..64) {
            let visit = test.shared.pipe.begin(test.domain, ctx);
            if ctx.one_in(16) {
                test.domain.read(|_| ctx.delay());
            }
            ctx.delay();
            test.shared.pipe.end(visit, test.domain, ctx);
            match ctx.random.u32(0..16) {
                0 => reader.synchronize(),
                1..4 => {
                    let _offline = reader.offline();
                    ctx.delay();
                }
                _ => reader.quiescent_state(),
            }
        }
    }
}
