//! ps-reclaim: one domain for the process, a registration for each thread (`Handle`). Retiring
//! boxes the closure and takes the domain's lock. Nothing is freed unless a thread drives the
//! domain: here, as in the crate's own benchmark, the retiring threads do, by passes that free a
//! bounded number. A pass while readers are in the way looks at all that waits, so it comes after
//! every 64th object. (A guard around a retirement is for what has just been unlinked, and these
//! objects were never published. With one, a thread that is preempted in it holds up everybody's
//! passes, and each object takes ten times as long and more.) Who waits for readers retires a mark
//! and drives the domain until the mark has been reached. A thread without a registration of its
//! own, past the 255th, would hold up the whole domain while it reads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use ps_reclaim::{Domain, Handle};

use crate::subject::{
    Guarded, Object, Participant, Peer, Reclaimer, Registry, Updater, poll_until,
};

const PEER: Peer = Peer::new("ps-reclaim");

/// What it takes part in.
pub fn register(to: &mut impl Registry) {
    to.reads::<PsReclaim>(PEER);
    to.reads_beside_flood::<PsReclaim>(PEER);
    to.reclaims::<PsReclaim>(PEER);
    to.waits::<PsReclaim>(PEER);
}

/// The domain of all threads.
static DOMAIN: LazyLock<Domain> = LazyLock::new(Domain::new);

/// Retirements of a thread between its passes.
const BETWEEN: u32 = 64;

/// Retirements that a pass frees at most, so that a retiring thread keeps up.
const AT_MOST: usize = 128;

/// A thread's registration.
pub struct PsReclaim {
    domain: &'static Domain,
    handle: Handle,
    retired: u32,
}

impl Participant for PsReclaim {
    fn register_thread() -> Self {
        Self {
            domain: &DOMAIN,
            handle: Handle::new(),
            retired: 0,
        }
    }
}

impl Reclaimer for PsReclaim {
    const DRAIN: Option<fn()> = Some(|| {
        poll_until(|| {
            DOMAIN.advance();
            DOMAIN.pending() == 0
        });
    });

    fn allocate_and_retire<const N: usize>(&mut self) {
        let object = Object::<N>::allocate();
        self.domain.retire(move || drop(object));
        self.retired = self.retired.wrapping_add(1);
        if self.retired.is_multiple_of(BETWEEN) {
            self.domain.advance_up_to(AT_MOST);
        }
    }
}

impl Guarded for PsReclaim {
    #[inline(always)]
    fn enter(&self) -> impl Sized {
        self.domain.pin_with(&self.handle)
    }
}

impl Updater for PsReclaim {
    fn synchronize(&mut self) {
        let over = Arc::new(AtomicBool::new(false));
        let mark = Arc::clone(&over);
        self.domain
            .retire(move || mark.store(true, Ordering::Release));
        poll_until(|| {
            self.domain.advance();
            over.load(Ordering::Acquire)
        });
    }
}
