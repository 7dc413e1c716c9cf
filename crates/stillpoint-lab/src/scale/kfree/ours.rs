//! Stillpoint's own variants, and the limit.

use std::ptr::NonNull;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use stillpoint::{Domain, lab};

use crate::subject::{Object, Participant, Reader, Reclaimer};

/// How often a drain is looked for: short against any drain, long against the look.
const LOOK: Duration = Duration::from_micros(100);

/// All that waits is freed together after one more grace period and nothing bounds it, as in the
/// kernel before its per-page cookies.
pub fn drain_whole_batches() -> Result<()> {
    lab::free_whole_batches(stillpoint::global(), true);
    Ok(())
}

/// So many MiB may be unreclaimed, instead of 8.
pub fn set_budget<const MIB: usize>() -> Result<()> {
    stillpoint::global().set_budget(MIB << 20);
    Ok(())
}

/// `stillpoint::retire` in the global domain.
pub struct Kvfree;

impl Participant for Kvfree {
    fn register_thread() -> Self {
        Self
    }
}

impl Reader for Kvfree {
    fn read(&mut self, section: impl FnOnce()) {
        let _guard = stillpoint::read_lock();
        section();
    }
}

impl Reclaimer for Kvfree {
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

/// `stillpoint::call`, a callback for each object, in the global domain.
pub struct Call;

impl Participant for Call {
    fn register_thread() -> Self {
        Self
    }
}

impl Reader for Call {
    fn read(&mut self, section: impl FnOnce()) {
        let _guard = stillpoint::read_lock();
        section();
    }
}

impl Reclaimer for Call {
    const DRAIN: Option<fn()> = Some(|| wait_until_drained(stillpoint::global()));
    const GRACE_PERIODS: Option<fn() -> u64> = Some(grace_periods);
    const MEMBARRIERS: Option<fn() -> u64> = Some(membarriers);

    fn allocate_and_retire<const N: usize>(&mut self) {
        let object = Object::<N>::allocate();
        stillpoint::call(move || drop(object));
    }
}

/// Looks until neither an object nor a callback waits, and helps in nothing: what idle threads left
/// must drain by itself.
pub fn wait_until_drained(domain: &Domain) {
    let waiting = || {
        let statistics = domain.statistics();
        statistics.objects_pending + statistics.callbacks_pending
    };
    while waiting() > 0 {
        thread::sleep(LOOK);
    }
}

fn membarriers() -> u64 {
    // Where the kernel has none they are fences.
    let barriers = stillpoint::global().statistics().heavy_barriers;
    barriers * u64::from(stillpoint::membarrier_active())
}

fn grace_periods() -> u64 {
    stillpoint::global().statistics().grace_periods
}

/// No reclamation: a loop's objects are all allocated, then all freed at once.
///
/// It is a limit for small objects, whose cost is the allocator's. Where a loop's objects outgrow
/// the caches and the allocator gives memory back to the system, a subject that frees sooner
/// touches less memory and can be faster.
pub struct Limit(Vec<NonNull<()>>);

impl Participant for Limit {
    fn register_thread() -> Self {
        Self(Vec::new())
    }
}

impl Reader for Limit {
    fn read(&mut self, section: impl FnOnce()) {
        section();
    }
}

impl Reclaimer for Limit {
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
