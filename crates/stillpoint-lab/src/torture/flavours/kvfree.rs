//! Deferred frees. What is freed are notes, one for each replaced element, whose destructors end
//! the elements: so a free that comes too early kills an element that a section holds, and touches
//! no memory that a reader reads.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use stillpoint::{
    CallbackHead, EmbedsHead,
    lab::{Domain, Policy},
};

use super::pipe_test::PipeTest;
use crate::torture::harness::ThreadSpec;
use crate::torture::pipe::Pipe;
use crate::torture::session::{Session, ThreadCtx};
use crate::torture::tally::{Fault, add};
use crate::torture::writers::Shared;

/// Elements of a lane: some tens of pages' worth.
const ELEMENTS: usize = 16 << 10;

/// Tortures deferred frees with the policy `P`.
pub fn torture<P: Policy>(session: &Arc<Session>) {
    let domain = Domain::<P>::starting_at(session.first_cookie());
    let pipe = Arc::new(Pipe::new(session.plan.writers, ELEMENTS));
    let test = PipeTest {
        shared: Shared {
            session: Arc::clone(session),
            pipe,
        },
        ..PipeTest::new(session, &domain)
    };
    let body = |ctx: &mut ThreadCtx| {
        while !session.is_over() {
            session.wait_while_paused(|| ());
            test.visit(ctx);
        }
    };
    let mut threads: Vec<ThreadSpec> = test.fakewriters().collect();
    let retirer = |number| {
        let test = &test;
        ThreadSpec::new(format!("writer {number}"), move || retire(test, number)).with_signals()
    };
    threads.extend((0..session.plan.writers).map(retirer));
    threads.extend(test.readers(&body));
    test.run(&|| (), threads);
    domain.kvfree_barrier();
    let tally = &session.tally;
    let [retired, freed] = [&tally.retired, &tally.freed].map(|all| all.load(Ordering::Acquire));
    tally.compare(retired, freed, || {
        format!("of {retired} objects {freed} were free when the last barrier had returned")
    });
}

/// A retired object.
#[repr(C)]
struct Note {
    head: CallbackHead,
    shared: Shared,
    lane: usize,
    element: usize,
    /// Those of its writer that are free.
    freed: Arc<AtomicU64>,
}

// SAFETY: the head is the first field, and `repr(C)` keeps it there; no other thread uses it.
unsafe impl EmbedsHead for Note {
    const HEAD_OFFSET: usize = 0;
}

impl Drop for Note {
    fn drop(&mut self) {
        let Shared { session, pipe } = &self.shared;
        pipe.lanes[self.lane].free_now(self.element, session);
        add(&session.tally.freed, 1);
        self.freed.fetch_add(1, Ordering::Release);
    }
}

/// A writer's body: it replaces elements in bursts, and retires a note for each. Now and then it
/// waits for all of them.
fn retire<P: Policy>(test: &PipeTest<P>, number: usize) {
    let (session, domain) = (&test.shared.session, test.domain);
    let mut ctx = session.thread_ctx("writer", number);
    let lane = &test.shared.pipe.lanes[number];
    let freed = Arc::new(AtomicU64::new(0));
    let mut retired = 0;
    while !session.is_over() {
        session.beat(number);
        session.wait_while_paused(|| session.beat(number));
        for _ in 0..ctx.random.u32(1..600) {
            let Some(element) = lane.replace(session) else {
                session.beat(number);
                thread::sleep(Duration::from_micros(500));
                continue;
            };
            let note = Note {
                head: CallbackHead::new(),
                shared: test.shared.clone(),
                lane: number,
                element,
                freed: Arc::clone(&freed),
            };
            let note = NonNull::from(Box::leak(Box::new(note)));
            retired += 1;
            add(&session.tally.retired, 1);
            match ctx.random.u32(0..8) {
                // SAFETY: out of a box just now; no other thread knows it. The same holds for all
                // of them.
                0 => unsafe { domain.retire(note) },
                // SAFETY: as above.
                1 => unsafe { domain.retire_with_head(note) },
                // Inside its own section, which puts what is to be done off to its end.
                // SAFETY: as above.
                2 if ctx.one_in(8) => domain.read(|_| unsafe { domain.retire_inline(note) }),
                // SAFETY: as above.
                _ => unsafe { domain.retire_inline(note) },
            }
        }
        if ctx.one_in(64) {
            add(&session.tally.barriers, 1);
            domain.kvfree_barrier();
            add(&session.tally.barriers_done, 1);
            let freed = freed.load(Ordering::Acquire);
            if freed != retired {
                session.tally.fault(Fault::Barrier, || {
                    format!("kvfree_barrier returned with {freed} of {retired} objects free")
                });
            }
        }
        ctx.spin(4000);
    }
}
