//! Stillpoint's own subjects that several experiments have, and their limits. Their domains: the crate's global one;
//! that of the variants `fences`, in which readers fence and a grace period needs no membarrier; and that of the
//! readers that sleep.

use std::hint::black_box;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::thread::{MembarrierCommand, membarrier, membarrier_query};
use stillpoint::{Domain, QsbrReader, tasks_trace};

use crate::subject::{Guarded, Object, Participant, ReadSide, Reader, Reclaimer, Updater};

/// A thread in the global domain, by the functions of the crate.
#[derive(Default)]
pub struct Global;

impl Guarded for Global {
    #[inline(always)]
    fn enter(&self) -> impl Sized {
        stillpoint::read_lock()
    }
}

impl Reclaimer for Global {
    const DRAIN: Option<fn()> = Some(|| wait_until_drained(stillpoint::global()));
    const GRACE_PERIODS: Option<fn() -> u64> = Some(grace_periods);
    const MEMBARRIERS: Option<fn() -> u64> = Some(membarriers);

    fn allocate_and_retire<const N: usize>(&mut self) {
        let object = Object::<N>::allocate();
        // SAFETY: the object was never published, so no thread can reach it; it came from a Box and
        // is retired once.
        unsafe { stillpoint::retire(NonNull::from(Box::leak(object))) };
    }
}

/// Returns the grace periods of the global domain.
pub fn grace_periods() -> u64 {
    stillpoint::global().statistics().grace_periods
}

/// Returns the membarriers of the global domain.
pub fn membarriers() -> u64 {
    // Where the kernel has none they are fences.
    let barriers = stillpoint::global().statistics().heavy_barriers;
    barriers * u64::from(stillpoint::membarrier_active())
}

/// Waits until neither an object nor a callback waits, and helps in nothing: what idle threads left
/// must drain by itself.
pub fn wait_until_drained(domain: &Domain) {
    // Short against any drain, long against the look.
    const LOOK: Duration = Duration::from_micros(100);

    let waiting = || {
        let statistics = domain.statistics();
        statistics.objects_pending + statistics.callbacks_pending
    };
    while waiting() > 0 {
        thread::sleep(LOOK);
    }
}

/// Which domain.
pub trait Place: 'static {
    /// The one of the process.
    fn domain() -> &'static Domain;
}

/// See [`Fences`].
pub struct WithFences;

impl Place for WithFences {
    fn domain() -> &'static Domain {
        static DOMAIN: OnceLock<Domain> = OnceLock::new();
        DOMAIN.get_or_init(Domain::with_fences)
    }
}

/// See [`Tasks`].
pub struct OfTasks;

impl Place for OfTasks {
    fn domain() -> &'static Domain {
        tasks_trace::global()
    }
}

/// A thread in a domain with fences.
pub type Fences = InDomain<WithFences>;

/// A thread in the domain of the readers that sleep.
pub type Tasks = InDomain<OfTasks>;

/// A thread in the domain of `P`.
pub struct InDomain<P> {
    domain: &'static Domain,
    place: PhantomData<P>,
}

impl<P: Place> Participant for InDomain<P> {
    /// A thread's first section registers it.
    fn register_thread() -> Self {
        let domain = P::domain();
        drop(domain.read_lock());
        Self {
            domain,
            place: PhantomData,
        }
    }
}

impl<P: Place> Guarded for InDomain<P> {
    #[inline(always)]
    fn enter(&self) -> impl Sized {
        self.domain.read_lock()
    }
}

impl<P: Place> Reclaimer for InDomain<P> {
    const DRAIN: Option<fn()> = Some(|| wait_until_drained(P::domain()));
    const GRACE_PERIODS: Option<fn() -> u64> = Some(|| P::domain().statistics().grace_periods);

    fn allocate_and_retire<const N: usize>(&mut self) {
        let object = Object::<N>::allocate();
        // SAFETY: the object was never published, so no thread can reach it; it came from a Box and
        // is retired once.
        unsafe { self.domain.retire(NonNull::from(Box::leak(object))) };
    }
}

impl<P: Place> Updater for InDomain<P> {
    const GRACE_PERIODS: Option<fn() -> u64> = <Self as Reclaimer>::GRACE_PERIODS;

    fn synchronize(&mut self) {
        self.domain.synchronize();
    }
}

/// A [`QsbrReader`] in a domain with fences.
pub struct Qsbr(QsbrReader<'static>);

impl Place for Qsbr {
    fn domain() -> &'static Domain {
        WithFences::domain()
    }
}

impl Participant for Qsbr {
    fn register_thread() -> Self {
        Self(Self::domain().qsbr_reader())
    }
}

impl Reader for Qsbr {
    fn read(&mut self, section: impl FnOnce()) {
        section();
        self.0.quiescent_state();
    }

    fn offline<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let _offline = self.0.offline();
        work()
    }
}

impl Updater for Qsbr {
    const GRACE_PERIODS: Option<fn() -> u64> = Some(|| Self::domain().statistics().grace_periods);

    fn synchronize(&mut self) {
        self.0.synchronize();
    }
}

impl ReadSide for Qsbr {
    #[inline(never)]
    fn pairs(&mut self, count: u64) {
        for _ in 0..count {
            black_box(());
        }
        self.0.quiescent_state();
    }
}

/// `stillpoint::tasks_trace::read_lock`: a section that may sleep, of one thread.
#[derive(Default)]
pub struct Trace;

impl Guarded for Trace {
    #[inline(always)]
    fn enter(&self) -> impl Sized {
        tasks_trace::read_lock()
    }
}

/// No section: the bare loop.
#[derive(Default)]
pub struct BareLoop;

impl ReadSide for BareLoop {
    #[inline(never)]
    fn pairs(&mut self, count: u64) {
        for _ in 0..count {
            black_box(());
        }
    }
}

/// No reclamation: a loop's objects are all allocated, then all freed at once.
///
/// It is a limit for small objects, whose cost is the allocator's. Where a loop's objects outgrow
/// the caches and the allocator gives memory back to the system, a subject that frees sooner
/// touches less memory and can be faster.
#[derive(Default)]
pub struct FreeAtOnce(Vec<NonNull<()>>);

impl Reader for FreeAtOnce {
    fn read(&mut self, section: impl FnOnce()) {
        section();
    }
}

impl Reclaimer for FreeAtOnce {
    fn allocate_and_retire<const N: usize>(&mut self) {
        let object = Object::<N>::allocate();
        self.0.push(NonNull::from(Box::leak(object)).cast());
    }

    fn end_loop<const N: usize>(&mut self) {
        for object in self.0.drain(..) {
            // SAFETY: `allocate_and_retire` leaked it from a Box; one run retires objects of one
            // size, so it is an `Object<N>`.
            drop(unsafe { Box::from_raw(object.cast::<Object<N>>().as_ptr()) });
        }
    }
}

/// One membarrier, after [`prepare_limit`].
pub fn bare_membarrier() {
    membarrier(MembarrierCommand::PrivateExpedited)
        .expect("`prepare_limit` has registered the process");
}

/// Returns whether the kernel has what the limit is made of.
pub fn has_limit() -> bool {
    membarrier_query().contains_command(MembarrierCommand::PrivateExpedited)
}

/// Registers the process for the limit's membarriers.
pub fn prepare_limit() -> Result<()> {
    membarrier(MembarrierCommand::RegisterPrivateExpedited)
        .context("cannot register for membarrier")
}
