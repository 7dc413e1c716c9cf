//! Stillpoint's own variants, and the limit.

use std::ptr::NonNull;

use anyhow::Result;
use stillpoint::lab;

use crate::scale::in_domain::{Global, grace_periods, membarriers};
use crate::subject::{Guarded, Object, Reader, Reclaimer};

/// All that waits is freed together after one more grace period and nothing bounds it, as in the
/// kernel before its per-page cookies.
pub fn drain_whole_batches() -> Result<()> {
    lab::free_whole_batches(stillpoint::global(), true);
    Ok(())
}

/// Sets a budget of `MIB` MiB, instead of 8.
pub fn set_budget<const MIB: usize>() -> Result<()> {
    stillpoint::global().set_budget(MIB << 20);
    Ok(())
}

/// `stillpoint::call`, a callback for each object, in the global domain.
#[derive(Default)]
pub struct Call;

impl Guarded for Call {
    #[inline(always)]
    fn enter(&self) -> impl Sized {
        stillpoint::read_lock()
    }
}

impl Reclaimer for Call {
    const DRAIN: Option<fn()> = Global::DRAIN;
    const GRACE_PERIODS: Option<fn() -> u64> = Some(grace_periods);
    const MEMBARRIERS: Option<fn() -> u64> = Some(membarriers);

    fn allocate_and_retire<const N: usize>(&mut self) {
        let object = Object::<N>::allocate();
        stillpoint::call(move || drop(object));
    }
}

/// No reclamation: a loop's objects are all allocated, then all freed at once.
///
/// It is a limit for small objects, whose cost is the allocator's. Where a loop's objects outgrow
/// the caches and the allocator gives memory back to the system, a subject that frees sooner
/// touches less memory and can be faster.
#[derive(Default)]
pub struct Limit(Vec<NonNull<()>>);

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
