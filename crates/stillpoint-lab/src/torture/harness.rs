//! What every flavour hands over: the domain and the sections that disturbances use ([`Harness`]),
//! and its threads ([`ThreadSpec`]).

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::thread::{self, Scope};

use stillpoint::lab::{Domain, Policy};

use super::session::{Session, ThreadCtx};
use super::signals;
use super::tally::Fault;
use crate::affinity;

/// What a flavour gives the disturbances to work with.
pub struct Harness<'d, P: Policy> {
    /// Whose readers and grace periods it is about.
    pub domain: &'d Domain<P>,
    /// A short section, with all of its checks, on whatever thread.
    pub visit: &'d (dyn Fn(&mut ThreadCtx) + Sync),
    /// The same in a signal handler: it may not allocate.
    pub visit_in_handler: Option<&'d (dyn Fn() + Sync)>,
    /// What the child of a fork does first.
    pub in_child: &'d (dyn Fn() + Sync),
}

/// A thread of a flavour.
pub struct ThreadSpec<'env> {
    name: String,
    handlers: bool,
    cpu: Option<usize>,
    work: Box<dyn FnOnce() + Send + 'env>,
}

impl<'env> ThreadSpec<'env> {
    /// A thread that does `work`.
    pub fn new(name: impl Into<String>, work: impl FnOnce() + Send + 'env) -> Self {
        Self {
            name: name.into(),
            handlers: false,
            cpu: None,
            work: Box::new(work),
        }
    }

    /// The same, with signal handlers that read on top of it, once it has registered by a first
    /// section of its own.
    pub fn with_signals(self) -> Self {
        Self {
            handlers: true,
            ..self
        }
    }

    /// The same pinned to a processor, as far as there are enough: number `cpu` of those that the
    /// process may use. For threads that must run at the same instant to show anything, which a
    /// busy machine would run in turn on one processor.
    pub fn pinned_to(self, cpu: usize) -> Self {
        Self {
            cpu: Some(cpu),
            ..self
        }
    }
}

/// Starts a thread that counts as live, is registered while it runs, and whose panic is a fault.
pub fn start<'scope, 'env, P: Policy>(
    scope: &'scope Scope<'scope, 'env>,
    session: &'env Arc<Session>,
    harness: &'env Harness<P>,
    spec: ThreadSpec<'env>,
) {
    let ThreadSpec {
        name,
        handlers,
        cpu,
        work,
    } = spec;
    let live = session.enter();
    let spawned = thread::Builder::new()
        .name(name.clone())
        .spawn_scoped(scope, move || {
            let _live = live;
            // A thread that has read once can read in a handler, too.
            drop(harness.domain.read_lock());
            let registered = signals::register(session, handlers);
            if let Some(cpu) = cpu
                && let Ok(allowed) = affinity::allowed()
            {
                // Where it is refused, the thread stays where it is.
                let _ = affinity::move_to(None, &[allowed[cpu % allowed.len()]]);
            }
            if let Err(payload) = panic::catch_unwind(AssertUnwindSafe(work)) {
                let what = payload.downcast_ref::<String>().cloned();
                let what = what
                    .or_else(|| payload.downcast_ref::<&str>().map(|&what| what.to_owned()))
                    .unwrap_or_default();
                session
                    .tally
                    .fault(Fault::Panic, || format!("{name} panicked: {what}"));
            }
            signals::deregister(session, registered);
        });
    if let Err(error) = spawned {
        session.tally.fault(Fault::Panic, || {
            format!("cannot start a thread ({error}); lower --readers or --writers")
        });
    }
}
