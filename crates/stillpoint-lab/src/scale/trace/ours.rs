//! Stillpoint's own variants, and the limit.

use std::hint::black_box;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::Result;
use stillpoint::Rcu;
use stillpoint::tasks_trace::{self, TraceDomain};
use tokio::time::sleep;

use super::{Work, footprint, tasks};
use crate::run::Sample;
use crate::scale::sync::{self, bare_membarrier, has_limit};
use crate::subject::{Cell, Participant, ReadSide, Value};

/// What readers do, so that a grace period can see them.
#[derive(Clone, Copy)]
pub enum Mode {
    /// Nothing, where membarrier works.
    Native,
    /// They fence.
    ReadMb,
}

impl Mode {
    /// The domain that all threads of the process have in common.
    pub fn domain(self) -> &'static TraceDomain {
        static FENCED: OnceLock<TraceDomain> = OnceLock::new();
        match self {
            Self::Native => tasks_trace::global(),
            Self::ReadMb => FENCED.get_or_init(TraceDomain::with_fences),
        }
    }

    /// A new one.
    fn another(self) -> TraceDomain {
        match self {
            Self::Native => TraceDomain::new(),
            Self::ReadMb => TraceDomain::with_fences(),
        }
    }

    /// Waits for a grace period of the common domain.
    pub fn synchronize(self) {
        self.domain().synchronize();
    }
}

/// A thread's guard in the common domain with fences. (That of the global domain is `scale
/// read`'s.)
pub struct Fenced(&'static TraceDomain);

impl Participant for Fenced {
    fn register_thread() -> Self {
        Self(Mode::ReadMb.domain())
    }
}

impl ReadSide for Fenced {
    #[inline(never)]
    fn pairs(&mut self, count: u64) {
        for _ in 0..count {
            let guard = self.0.read_lock();
            black_box(());
            drop(guard);
        }
    }
}

/// The tasks, and the memory of their guards.
pub fn measure_tasks(mode: Mode, work: &Work) -> Result<Sample> {
    // First, while the process is as it was born; in a domain of its own, which leaves the tasks'
    // as it is.
    let bytes_per_guard = footprint::bytes_per_guard(&mode.another())?;
    let domain = mode.domain();
    let cell = Traced {
        domain,
        elsewhere: mode.another(),
        cell: Rcu::new_in(domain, Value::first()),
    };
    let mut sample = tasks::measure(cell, work)?;
    sample
        .metrics
        .insert("bytes_per_guard".to_owned(), bytes_per_guard);
    Ok(sample)
}

/// A cell whose sections are owned guards.
struct Traced {
    domain: &'static TraceDomain,
    elsewhere: TraceDomain,
    cell: Rcu<Value>,
}

impl Cell for Traced {
    const REPLACE: Option<fn(&Self, Value)> = Some(|traced, value| traced.cell.store(value));
    const SYNCHRONIZE: Option<fn(&Self)> = Some(|traced| traced.domain.synchronize());

    fn synchronize_elsewhere(&self) -> Option<impl Fn() + Send> {
        Some(|| self.elsewhere.synchronize())
    }

    async fn section(&self, nap: Duration) {
        let guard = self.domain.read_lock_owned();
        let load = || self.cell.load(&guard);
        let found = load();
        found.check(found);
        sleep(nap).await;
        found.check(load());
    }
}

/// A value that is never replaced needs no section.
pub struct Static;

static VALUE: Value = Value::first();

impl Cell for Static {
    fn synchronize_elsewhere(&self) -> Option<impl Fn() + Send> {
        limit_of_waits()
    }

    async fn section(&self, nap: Duration) {
        let load = || black_box(&VALUE);
        let found = load();
        found.check(found);
        sleep(nap).await;
        found.check(load());
    }
}

/// A bare membarrier, where there is one.
pub fn limit_of_waits() -> Option<fn()> {
    has_limit().then_some(bare_membarrier)
}

/// Registers the process for the limit's membarriers, where there are any.
pub fn prepare_limit() -> Result<()> {
    if has_limit() {
        sync::prepare_limit()
    } else {
        Ok(())
    }
}
