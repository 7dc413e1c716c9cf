//! haphazard: hazard pointers in the crate's global domain. A read section is one protected
//! pointer, so that a reader holds up one object and no others.

use std::hint::black_box;
use std::sync::atomic::AtomicPtr;

use haphazard::HazardPointer;
use haphazard::raw::Domain;

use crate::subject::{Object, Participant, Peer, ReadSide, Reader, Reclaimer, Registry};

const PEER: Peer = Peer::new("haphazard");

/// What it takes part in.
pub fn register(to: &mut impl Registry) {
    to.reads::<Haphazard>(PEER);
    to.reads_beside_flood::<Haphazard>(PEER);
    to.reclaims::<Haphazard>(PEER);
}

/// What readers protect: it is never retired, so that it may be read at any time.
static VALUE: u64 = 1;
static CELL: AtomicPtr<u64> = AtomicPtr::new((&raw const VALUE).cast_mut());

/// A thread's hazard pointer, made once and used again, as the documentation advises.
pub struct Haphazard(HazardPointer<'static>);

impl Participant for Haphazard {
    fn register_thread() -> Self {
        Self(HazardPointer::new())
    }
}

impl Reader for Haphazard {
    fn read(&mut self, section: impl FnOnce()) {
        protect(&mut self.0);
        section();
        self.0.reset_protection();
    }
}

impl Reclaimer for Haphazard {
    const DRAIN: Option<fn()> = Some(|| {
        Domain::global().eager_reclaim();
    });

    fn allocate_and_retire<const N: usize>(&mut self) {
        let object = Object::<N>::allocate();
        // SAFETY: the object was never published, so no hazard pointer guards it; it is retired
        // once, and the global domain lives as long as the process.
        unsafe { Domain::global().retire_ptr::<_, Box<Object<N>>>(Box::into_raw(object)) };
    }
}

impl ReadSide for Haphazard {
    #[inline(never)]
    fn pairs(&mut self, count: u64) {
        for _ in 0..count {
            protect(&mut self.0);
            black_box(());
            self.0.reset_protection();
        }
    }
}

#[inline]
fn protect(pointer: &mut HazardPointer<'static>) {
    // SAFETY: the cell always holds the address of `VALUE`, which is never freed.
    let value = unsafe { pointer.protect(&CELL) };
    black_box(value);
}
