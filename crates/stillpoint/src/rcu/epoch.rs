//! What the interface of crossbeam-epoch is made of: readers that count their guards themselves,
//! and frees on demand. For the drop-in package of that name; no part of the stable interface.

use super::{Core, Domain, thread};
pub use crate::kvfree::{Around, Destructor, Left};
use crate::{
    gp::{BarrierMode, Cookie, Flavour, Record},
    kvfree::{OnNoPage, Pushed, RetireRequest},
    platform::thread as platform_thread,
};
use std::{alloc::Layout, ptr::NonNull, sync::atomic::AtomicU64};

/// Which side of a section pays for the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fences {
    /// A section begins with a fence, and a grace period needs no system call.
    AtEntry,
    /// As [`Domain::new`].
    None,
}

/// A domain whose objects are freed on demand: by [`free_some`] and [`flush`], on the threads that
/// call these, and on the service thread, inside `around`. A retire never frees nor waits.
pub fn domain(name: &str, fences: Fences, budget: usize, around: Around) -> Domain {
    let readers = match fences {
        Fences::AtEntry => BarrierMode::EntryFence,
        Fences::None => BarrierMode::Membarrier,
    };
    let core = Core::with_readers(readers, Cookie::from_raw(0), Some(name.into()));
    core.inner.heap.set_on_demand(around);
    core.inner.heap.set_budget(budget);
    Domain::of(core)
}

/// A reader of a thread, beside that which the thread has by its guards, with one section at a
/// time.
#[derive(Debug)]
pub struct Reader {
    record: NonNull<Record>,
    started: NonNull<AtomicU64>,
}

impl Reader {
    /// A reader of the calling thread. The domain has its record until [`Reader::depart`], and so
    /// has to be kept until then.
    pub fn new(domain: &Domain) -> Self {
        let engine = domain.engine();
        let record = engine.register(platform_thread::token(), Flavour::Thread);
        Self {
            record: NonNull::from(record),
            started: NonNull::from(engine.started()),
        }
    }

    /// Enters the section. With `FENCES` this is a sequentially consistent fence.
    ///
    /// # Safety
    ///
    /// On the thread that made it, outside of the section, before [`Reader::depart`], and while
    /// a handle of the domain is kept. The thread has no guard of the domain that outlives the
    /// section: it could share the record.
    #[inline(always)]
    pub unsafe fn enter<const FENCES: bool>(&self) {
        // SAFETY: the domain, which the caller keeps, has both where they are.
        let (record, started) = unsafe { (self.record.as_ref(), self.started.as_ref()) };
        record.lock_outermost::<FENCES>(started);
    }

    /// Leaves the section.
    ///
    /// # Safety
    ///
    /// As for [`Reader::enter`], but inside the section.
    #[inline(always)]
    pub unsafe fn leave(&self) {
        // SAFETY: as in `enter`.
        unsafe { self.record.as_ref() }.unlock_outermost();
    }

    /// Gives the reader up.
    ///
    /// # Safety
    ///
    /// As for [`Reader::enter`]; nothing else is done with it afterwards.
    pub unsafe fn depart(&self) {
        // SAFETY: as in `enter`.
        unsafe { self.record.as_ref() }.depart();
    }
}

/// Calls `how` with `object` after a grace period; `size` is what that frees, in bytes. Whether the
/// calling thread had better call [`free_some`] soon.
///
/// # Safety
///
/// `domain` is one of [`domain`]; `how` may be called with `object` once, on any thread, when all
/// sections of the domain are over that have begun by now.
#[inline]
pub unsafe fn retire(
    domain: &Domain,
    object: *mut u8,
    how: &'static Destructor,
    size: usize,
) -> bool {
    // SAFETY: the caller's promise.
    unsafe { retire_request(domain, RetireRequest::with(object, how, size)) }
}

/// Frees a block of the global allocator after a grace period. Whether the calling thread had
/// better call [`free_some`] soon.
///
/// # Safety
///
/// As for [`retire`]; the block is of this layout.
#[inline]
pub unsafe fn retire_memory(domain: &Domain, block: NonNull<u8>, layout: Layout) -> bool {
    // SAFETY: the caller's promise.
    unsafe { retire_request(domain, RetireRequest::memory(block, layout)) }
}

/// # Safety
///
/// As for [`retire`].
#[inline(always)]
unsafe fn retire_request(domain: &Domain, object: RetireRequest) -> bool {
    match thread::append(domain.core(), object) {
        Some(Pushed::Ok) => false,
        // SAFETY: the caller's promise.
        pushed => unsafe { retire_slow(domain, object, pushed) },
    }
}

/// # Safety
///
/// As for [`retire`].
#[cold]
unsafe fn retire_slow(domain: &Domain, object: RetireRequest, pushed: Option<Pushed>) -> bool {
    // SAFETY: the caller's promise.
    let retired = unsafe {
        domain
            .core()
            .retire_slow(object, pushed, OnNoPage::BlockOrCall)
    };
    debug_assert!(retired.is_ok(), "a callback never gives it back");
    true
}

/// Frees a few of the objects that the calling thread has retired, if they are due; past the budget
/// more of them, and some of other threads'. Runs destructors.
pub fn free_some(domain: &Domain) -> Left {
    let inner = &domain.core().inner;
    let free = |buffer: &_| inner.heap.free_some(&inner.engine, buffer);
    thread::with(domain.core(), |own| free(own.buffer)).unwrap_or(Left::Nothing)
}

/// Tries once to end the grace period of all that the calling thread has retired, without waiting,
/// and frees what is due. Runs destructors.
pub fn flush(domain: &Domain) {
    let inner = &domain.core().inner;
    thread::with(domain.core(), |own| {
        inner.heap.flush_own(&inner.engine, own.buffer);
    });
}
