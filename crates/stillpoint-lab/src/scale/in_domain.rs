//! Stillpoint's domains: the crate's global one; that of the variants `fences`, in which readers fence
//! and a grace period needs no membarrier; and that of the readers that sleep.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use stillpoint::{Domain, tasks_trace};

use crate::subject::{Guarded, Object, Participant, Reclaimer, Updater};

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
