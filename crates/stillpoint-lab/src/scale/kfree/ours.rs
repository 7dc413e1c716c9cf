//! Stillpoint's own variants, and the limit.

use anyhow::Result;
use stillpoint::lab;

use crate::scale::subjects::{Global, grace_periods, membarriers};
use crate::subject::{Guarded, Object, Reclaimer};

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
