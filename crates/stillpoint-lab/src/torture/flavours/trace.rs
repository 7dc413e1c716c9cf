//! Readers that sleep in their sections, and that hand their sections on to other threads.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use stillpoint::{
    lab::{Domain, Policy},
    tasks_trace::OwnedGuard,
};

use super::pipe_test::PipeTest;
use crate::torture::pipe::Visit;
use crate::torture::session::{Session, ThreadCtx};

/// Open sections, for any thread to continue.
type Exchange<'d> = Mutex<Vec<(OwnedGuard<'d>, Visit)>>;

/// So many at most.
const ROOM: usize = 64;

/// Tortures a domain with the policy `P`.
pub fn torture<P: Policy>(session: &Arc<Session>) {
    let domain = Domain::<P>::starting_at(session.first_cookie());
    let test = PipeTest::new(session, &domain);
    let exchange = Exchange::default();
    let body = |ctx: &mut ThreadCtx| read_loop(&test, &domain, &exchange, ctx);
    let mut threads = test.writers();
    threads.extend(test.readers(&body));
    // SAFETY: the child goes on with no guard of the parent's, and has one thread.
    let in_child = || unsafe { domain.abandon_owned_guards() };
    test.run(&in_child, threads);
}

fn read_loop<'d, P: Policy>(
    test: &PipeTest<P>,
    domain: &'d Domain<P>,
    exchange: &Exchange<'d>,
    ctx: &mut ThreadCtx,
) {
    let (session, pipe) = (&test.shared.session, &test.shared.pipe);
    while !session.is_over() {
        session.wait_while_paused(|| ());
        if ctx.one_in(4) {
            let guard = domain.read_lock();
            let visit = pipe.begin(domain, ctx);
            sleep(ctx);
            pipe.end(visit, domain, ctx);
            drop(guard);
            continue;
        }
        let guard = domain.read_lock_owned();
        let guard = if ctx.one_in(32) {
            guard.named("handed on")
        } else {
            guard
        };
        let mut section = (guard, pipe.begin(domain, ctx));
        ctx.delay();
        let mut waiting = exchange.lock();
        if waiting.len() < ROOM {
            // Swaps our section for another thread's, if there is one.
            let place = ctx.random.usize(0..=waiting.len());
            if place == waiting.len() {
                waiting.push(section);
                continue;
            }
            std::mem::swap(&mut waiting[place], &mut section);
        } else {
            section = waiting.swap_remove(ctx.random.usize(0..ROOM));
        }
        drop(waiting);
        sleep(ctx);
        pipe.end(section.1, domain, ctx);
        drop(section);
        if ctx.one_in(64) {
            // All that wait, so that none grows old.
            let all = std::mem::take(&mut *exchange.lock());
            for (guard, visit) in all {
                pipe.end(visit, domain, ctx);
                drop(guard);
            }
        }
    }
    // The last thread ends what is left, so no wait depends on a section that no thread holds.
    exchange.lock().clear();
}

/// Sleeps now and then, which other flavours' sections do not.
fn sleep(ctx: &mut ThreadCtx) {
    if ctx.one_in(64) {
        thread::sleep(Duration::from_micros(ctx.random.u64(50..3000)));
    } else {
        ctx.delay();
    }
}
