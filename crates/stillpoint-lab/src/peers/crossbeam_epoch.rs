//! crossbeam-epoch: epoch-based reclamation with the crate's default collector; a pinned guard is
//! the read section, and a thread pins to defer as well. It cannot wait until nothing is deferred.

use crossbeam_epoch::{Owned, pin};

use crate::subject::{Guarded, Object, Peer, Reclaimer, Registry};

const PEER: Peer = Peer::new("crossbeam-epoch");

/// The experiments that the peer takes part in.
pub fn register(to: &mut impl Registry) {
    to.reads::<CrossbeamEpoch>(PEER);
    to.reads_beside_flood::<CrossbeamEpoch>(PEER);
    to.reclaims::<CrossbeamEpoch>(PEER);
}

/// The default collector registers a thread by itself.
#[derive(Default)]
pub struct CrossbeamEpoch;

impl Guarded for CrossbeamEpoch {
    #[inline(always)]
    fn enter(&self) -> impl Sized {
        pin()
    }
}

impl Reclaimer for CrossbeamEpoch {
    fn allocate_and_retire<const N: usize>(&mut self) {
        let object = Object::<N>::allocate();
        let guard = pin();
        let object = Owned::<Object<N>>::from(object).into_shared(&guard);
        // SAFETY: the object was never published, so no thread can reach it; it is retired once,
        // here.
        unsafe { guard.defer_destroy(object) };
    }
}
