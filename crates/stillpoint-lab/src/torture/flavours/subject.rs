//! What the flavours of data structures share: threads that read, write and walk over one, until the
//! session is over.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use stillpoint::{Domain, lab::core_of};

use crate::torture::harness::{Harness, ThreadSpec};
use crate::torture::runner;
use crate::torture::session::{Session, ThreadCtx};
use crate::torture::tally::{Fault, add};

/// A structure that is tortured, and what threads do with it.
pub trait Subject: Sync {
    /// Looks at something in a section, with all checks.
    fn look(&self, ctx: &mut ThreadCtx);

    /// Does a reader's round: a look.
    fn read(&self, ctx: &mut ThreadCtx) {
        self.look(ctx);
    }

    /// Whether [`look_in_handler`](Self::look_in_handler) is there, and async-signal-safe.
    const HANDLERS: bool = false;

    /// Looks at something in a signal handler, each call with another `number`. Returns what is wrong.
    fn look_in_handler(&self, _number: usize) -> Option<Fault> {
        None
    }

    /// Does a round of a writer.
    fn write(&self, ctx: &mut ThreadCtx, writer: usize);

    /// Does a round of a fake writer, which waits for a grace period after it.
    fn walk(&self, _ctx: &mut ThreadCtx) {}
}

/// Runs readers, writers and fake writers until the session is over.
pub fn torture<S: Subject>(session: &Arc<Session>, domain: &Domain, subject: &S) {
    let reader = |number| {
        let spec = ThreadSpec::new(format!("reader {number}"), move || {
            let mut ctx = session.thread_ctx("reader", number);
            while !session.is_over() {
                session.wait_while_paused(|| ());
                subject.read(&mut ctx);
            }
        });
        handled::<S>(spec)
    };
    let writer = |number| {
        let spec = ThreadSpec::new(format!("writer {number}"), move || {
            let mut ctx = session.thread_ctx("writer", number);
            while !session.is_over() {
                session.beat(number);
                session.wait_while_paused(|| session.beat(number));
                subject.write(&mut ctx, number);
            }
        });
        handled::<S>(spec)
    };
    let walker = |number| {
        ThreadSpec::new(format!("fakewriter {number}"), move || {
            let mut ctx = session.thread_ctx("fakewriter", number);
            let who = session.plan.writers + number;
            while !session.is_over() {
                session.beat(who);
                session.wait_while_paused(|| session.beat(who));
                subject.walk(&mut ctx);
                add(&session.tally.waits, 1);
                domain.synchronize();
            }
        })
    };
    let plan = &session.plan;
    let threads = (0..plan.readers)
        .map(reader)
        .chain((0..plan.writers).map(writer))
        .chain((0..plan.fakewriters).map(walker))
        .collect();
    let look_in_handler = || {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        // Relaxed: numbers of looks, and no more.
        if let Some(fault) = subject.look_in_handler(NEXT.fetch_add(1, Ordering::Relaxed)) {
            session.tally.fault_in_handler(fault);
        }
        session.tally.section_in_handler();
    };
    let harness = Harness {
        domain: core_of(domain),
        visit: &|ctx: &mut ThreadCtx| subject.look(ctx),
        visit_in_handler: S::HANDLERS.then_some(&look_in_handler),
        in_child: &|| (),
    };
    runner::run(session, &harness, threads);
}

fn handled<S: Subject>(spec: ThreadSpec<'_>) -> ThreadSpec<'_> {
    if S::HANDLERS {
        spec.with_signals()
    } else {
        spec
    }
}
