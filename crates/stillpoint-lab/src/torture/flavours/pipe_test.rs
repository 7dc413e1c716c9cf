//! What the flavours that use the pipe have in common: writers, fake writers, the harness for
//! disturbances, and the count of callbacks at the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use stillpoint::lab::{Domain, Policy};

use crate::torture::harness::{Harness, ThreadSpec};
use crate::torture::pipe::{LENGTH, Pipe};
use crate::torture::runner;
use crate::torture::session::{Session, ThreadCtx};
use crate::torture::writers::{self, METHODS, Method, Shared};

/// Elements of a lane whose writer waits for grace periods.
pub const ELEMENTS: usize = 512;

/// What a run over the pipe is about.
pub struct PipeTest<'d, P: Policy> {
    /// The run, and the elements.
    pub shared: Shared,
    /// Whose grace periods are tortured.
    pub domain: &'d Domain<P>,
    /// How the writers wait.
    pub methods: &'static [Method],
}

impl<'d, P: Policy> PipeTest<'d, P> {
    /// With lanes of [`ELEMENTS`].
    pub fn new(session: &Arc<Session>, domain: &'d Domain<P>) -> Self {
        let pipe = Arc::new(Pipe::new(session.plan.writers, ELEMENTS));
        Self {
            shared: Shared {
                session: Arc::clone(session),
                pipe,
            },
            domain,
            methods: METHODS,
        }
    }

    /// The writers and the fake writers.
    pub fn writers(&self) -> Vec<ThreadSpec<'_>> {
        let plan = &self.shared.session.plan;
        let writer = move |number| {
            let work = move || writers::write(&self.shared, self.domain, number, self.methods);
            ThreadSpec::new(format!("writer {number}"), work).with_signals()
        };
        (0..plan.writers)
            .map(writer)
            .chain(self.fakewriters())
            .collect()
    }

    /// The fake writers.
    pub fn fakewriters(&self) -> impl Iterator<Item = ThreadSpec<'_>> {
        let fake = move |number| {
            let work = move || {
                writers::fake_write(&self.shared.session, self.domain, number, self.methods)
            };
            ThreadSpec::new(format!("fakewriter {number}"), work)
        };
        (0..self.shared.session.plan.fakewriters).map(fake)
    }

    /// So many readers, each of whose work is `body`.
    pub fn readers<'e>(
        &'e self,
        body: &'e (dyn Fn(&mut ThreadCtx) + Sync),
    ) -> impl Iterator<Item = ThreadSpec<'e>> {
        (0..self.shared.session.plan.readers).map(move |number| {
            let session = &self.shared.session;
            let work = move || body(&mut session.thread_ctx("reader", number));
            ThreadSpec::new(format!("reader {number}"), work).with_signals()
        })
    }

    /// One section by a guard of the calling thread.
    pub fn visit(&self, ctx: &mut ThreadCtx) {
        let guard = self.domain.read_lock();
        let visit = self.shared.pipe.begin(self.domain, ctx);
        ctx.delay();
        self.shared.pipe.end(visit, self.domain, ctx);
        drop(guard);
    }

    /// The same in a signal handler.
    pub fn visit_in_handler(&self) {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let pipe = &*self.shared.pipe;
        let guard = self.domain.read_lock();
        let visit = pipe.find(NEXT.fetch_add(1, Ordering::Relaxed) % pipe.lanes.len());
        (0..50).for_each(|_| std::hint::spin_loop());
        let (look, tally) = (pipe.look(&visit), &self.shared.session.tally);
        if let Some(fault) = look.fault {
            tally.fault_in_handler(fault);
        }
        drop(guard);
        tally.section_in_handler();
    }

    /// Runs the threads amid the disturbances, and checks that every callback has come.
    pub fn run(&self, in_child: &(dyn Fn() + Sync), threads: Vec<ThreadSpec>) {
        // Bound here: the oldest Rust that builds this drops a temporary inside `Some` too early.
        let visit_in_handler = || self.visit_in_handler();
        let harness = Harness {
            domain: self.domain,
            visit: &|ctx| self.visit(ctx),
            visit_in_handler: Some(&visit_in_handler),
            in_child,
        };
        runner::run(&self.shared.session, &harness, threads);
        self.check_callbacks();
    }

    /// Every callback has come when its barrier, and those of the ones that it has queued, have
    /// returned.
    fn check_callbacks(&self) {
        let tally = &self.shared.session.tally;
        (0..=LENGTH).for_each(|_| self.domain.barrier());
        let counts = [&tally.queued, &tally.invoked];
        let [queued, invoked] = counts.map(|all| all.load(Ordering::Acquire));
        // Where barriers do not wait, callbacks may come yet.
        if !tally.is_faulty() {
            tally.compare(queued, invoked, || {
                format!("{queued} callbacks were queued, and {invoked} invoked, when the last barrier had returned")
            });
        }
    }
}
