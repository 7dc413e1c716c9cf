//! seize: Hyaline-1 with one collector for the process. A batch of retired objects costs a heavy
//! barrier, so that the batch size, which its documentation offers as the knob between cost and
//! latency, is measured at the default and raised. Its only way to free all that waits,
//! `reclaim_all`, asks that no thread uses the collector: it cannot wait for readers.

use std::sync::OnceLock;

use anyhow::Result;
use seize::{Collector, reclaim};

use crate::subject::{Guarded, Object, Participant, Peer, Reclaimer, Registry};

const PEER: Peer = Peer::new("seize");

/// What it takes part in.
pub fn register(to: &mut impl Registry) {
    to.reads::<Seize>(PEER);
    to.reads_beside_flood::<Seize>(PEER);
    to.reclaims::<Seize>(PEER);
    to.reclaims::<Seize>(PEER.variant("batch-64").prepared_by(set_batch_size::<64>));
    to.reclaims::<Seize>(
        PEER.variant("batch-1024")
            .prepared_by(set_batch_size::<1024>),
    );
    to.reclaims::<Seize>(
        PEER.variant("batch-4096")
            .prepared_by(set_batch_size::<4096>),
    );
}

/// The collector that every thread of the process uses.
static COLLECTOR: OnceLock<Collector> = OnceLock::new();

/// Makes the collector wait for `OBJECTS` objects, instead of 32, before it reclaims.
fn set_batch_size<const OBJECTS: usize>() -> Result<()> {
    COLLECTOR.get_or_init(|| Collector::new().batch_size(OBJECTS));
    Ok(())
}

/// A thread's way to the collector.
pub struct Seize(&'static Collector);

impl Participant for Seize {
    fn register_thread() -> Self {
        Self(COLLECTOR.get_or_init(Collector::new))
    }
}

impl Reclaimer for Seize {
    fn allocate_and_retire<const N: usize>(&mut self) {
        let object = Object::<N>::allocate();
        // SAFETY: the object was never published, so no thread can reach it; it came from a Box, as
        // `boxed` expects.
        unsafe { self.0.retire(Box::into_raw(object), reclaim::boxed) };
    }
}

impl Guarded for Seize {
    #[inline(always)]
    fn enter(&self) -> impl Sized {
        self.0.enter()
    }
}
