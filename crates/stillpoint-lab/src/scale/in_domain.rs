//! Stillpoint in a domain that is not the crate's global one: that of the variants `fences`, in
//! which readers fence and a grace period needs no membarrier, and that of the readers that sleep.

use std::hint::black_box;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::OnceLock;

use stillpoint::{Domain, tasks_trace};

use super::kfree;
use crate::subject::{Object, Participant, ReadSide, Reader, Reclaimer, Updater};

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

impl<P: Place> Reader for InDomain<P> {
    fn read(&mut self, section: impl FnOnce()) {
        let _guard = self.domain.read_lock();
        section();
    }
}

impl<P: Place> ReadSide for InDomain<P> {
    #[inline(never)]
    fn pairs(&mut self, count: u64) {
        let domain = self.domain;
        for _ in 0..count {
            let guard = domain.read_lock();
            black_box(());
            drop(guard);
        }
    }
}

impl<P: Place> Reclaimer for InDomain<P> {
    const DRAIN: Option<fn()> = Some(|| kfree::wait_until_drained(P::domain()));
    const GRACE_PERIODS: Option<fn() -> u64> = Some(|| P::domain().statistics().grace_periods);

    fn allocate_and_retire<const N: usize>(&mut self) {
        let object = Object::<N>::allocate();
        // SAFETY: the object was never published, so no thread can reach it; it came from a Box and
        // is retired once.
        unsafe { self.domain.retire(NonNull::from(Box::leak(object))) };
    }
}

impl<P: Place> Updater for InDomain<P> {
    const GRACE_PERIODS: Option<fn() -> u64> = Some(|| P::domain().statistics().grace_periods);

    fn synchronize(&mut self) {
        self.domain.synchronize();
    }
}
