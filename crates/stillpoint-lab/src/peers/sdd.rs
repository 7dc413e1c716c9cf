//! sdd: epoch-based reclamation with a collector a thread. An object is made as an `Owned`, which
//! keeps the collector's two words behind it: 16 bytes that come on top of the object's; dropped, it is
//! retired into its thread's bag. Guards alone move the epoch on and free: every 128th that ends in
//! a thread with garbage tries to advance, and the first in a new epoch frees what is old enough.
//! So a thread retires inside a guard, as one does that has just unlinked an object (a drop without
//! any guard would never be freed while the thread lives), and there is no call that waits until
//! nothing is left. A thread that waits for readers compares epochs, as the documentation of
//! `Guard::epoch` does, and asks its guards to advance them (`accelerate`).

use sdd::{Epoch, Guard, Owned};

use crate::subject::{Guarded, Object, Peer, Polled, Reclaimer, Registry, Updater, poll_until};

const PEER: Peer = Peer::new("sdd");

/// What it takes part in.
pub fn register(to: &mut impl Registry) {
    to.reads::<Sdd>(PEER);
    to.reads_beside_flood::<Sdd>(PEER);
    to.reclaims::<Sdd>(PEER);
    to.waits::<Sdd>(PEER);
    to.polls::<Sdd>(PEER);
}

/// The collector registers a thread by itself.
#[derive(Default)]
pub struct Sdd;

impl Reclaimer for Sdd {
    fn allocate_and_retire<const N: usize>(&mut self) {
        let _guard = Guard::new();
        drop(Owned::new_with(Object::<N>::new));
    }
}

impl Guarded for Sdd {
    #[inline(always)]
    fn enter(&self) -> impl Sized {
        Guard::new()
    }
}

impl Updater for Sdd {
    fn synchronize(&mut self) {
        let begun = self.start_poll();
        poll_until(|| Self::poll(begun));
    }
}

impl Polled for Sdd {
    /// Epochs come round again after 64. Who looks as seldom as that may wait longer, and never too
    /// short.
    type Cookie = Epoch;

    fn start_poll(&mut self) -> Epoch {
        let guard = Guard::new();
        guard.accelerate();
        guard.epoch()
    }

    fn poll(begun: Epoch) -> bool {
        let guard = Guard::new();
        guard.accelerate();
        !begun.in_same_generation(guard.epoch())
    }
}
