//! What the drop-in package for crossbeam-epoch is built on: readers that count their guards
//! themselves, and frees on demand. Not part of the stable interface.

use super::{core::Core, domain::Domain, thread};
use crate::Destructor;
pub use crate::kvfree::{Around, Left};
use crate::{
    gp::{BarrierMode, Cookie, Flavour, Record},
    kvfree::{OnNoPage, Pushed, RetireRequest, ThreadBuffer},
    platform::{sync::Arc, thread as platform_thread},
};
use std::{alloc::Layout, cell::OnceCell, ptr::NonNull, sync::atomic::AtomicU64};

/// Which side pays for the order of sections and grace periods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fences {
    /// A section begins with a fence, and a grace period needs no system call.
    AtEntry,
    /// As [`Domain::new`].
    None,
}

/// Makes a domain whose objects are freed on demand: by [`free_some`] and [`Domain::flush`], on the threads
/// that call these, and on a service thread, inside `around`. A retire neither frees nor waits.
///
/// All such domains share their service threads: one, two while several have work, and one more for
/// each whose destructors block.
pub fn domain(name: &str, fences: Fences, budget: usize, around: Around) -> Domain {
    let readers = match fences {
        Fences::AtEntry => BarrierMode::EntryFence,
        Fences::None => BarrierMode::Membarrier,
    };
    let core = Core::with_readers(readers, Cookie::from_raw(0), Some(name.into()));
    core.inner.parts.atomics().share_service();
    core.inner.parts.settings().set_on_demand(around);
    core.inner.parts.settings().set_budget(budget);
    Domain::of(core)
}

/// A reader of a thread, with one section at a time, beside the reader that the thread's guards
/// use.
#[derive(Debug)]
pub struct Reader {
    record: NonNull<Record>,
    started: NonNull<AtomicU64>,
    /// The thread's buffer, from its first retire on. At the thread's end its pages are taken out
    /// of it, and no append finds one any more.
    buffer: OnceCell<Arc<ThreadBuffer>>,
}

impl Reader {
    /// Makes a reader of the calling thread. The domain owns its record, so the domain has to be
    /// kept until [`Reader::depart`].
    pub fn new(domain: &Domain) -> Self {
        let engine = domain.core().inner.parts.atomics();
        let record = engine.register(platform_thread::token(), Flavour::Thread);
        Self {
            record: NonNull::from(record),
            started: NonNull::from(engine.started()),
            buffer: OnceCell::new(),
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

    /// Calls `how` with `object` after a grace period. If its size `is_guess`, it counts towards the budget,
    /// and seals no page early. Returns whether the calling thread should call [`free_some`] soon.
    ///
    /// # Safety
    ///
    /// On the thread that made it, before [`Reader::depart`]; `domain` is its domain; `how` may be
    /// called with `object` once, on any thread, when all sections of the domain are over that have
    /// begun by now.
    #[inline(always)]
    pub unsafe fn retire(
        &self,
        domain: &Domain,
        object: *mut u8,
        how: &'static Destructor,
        is_guess: bool,
    ) -> bool {
        match self.append(RetireRequest::with(object, how).plain().guessed(is_guess)) {
            Some(Pushed::Ok) => false,
            // SAFETY: the caller's promise.
            pushed => unsafe { self.retire_slow(domain, object, how, is_guess, pushed) },
        }
    }

    /// Frees a block of the global allocator after a grace period. Returns whether the calling thread
    /// should call [`free_some`] soon.
    ///
    /// # Safety
    ///
    /// As for [`Reader::retire`]; the block is of this layout.
    #[inline(always)]
    pub unsafe fn retire_memory(
        &self,
        domain: &Domain,
        block: NonNull<u8>,
        layout: Layout,
    ) -> bool {
        match self.append(RetireRequest::memory(block, layout)) {
            Some(Pushed::Ok) => false,
            // SAFETY: the caller's promise.
            pushed => unsafe { self.retire_memory_slow(domain, block, layout, pushed) },
        }
    }

    #[inline(always)]
    fn append(&self, object: RetireRequest) -> Option<Pushed> {
        self.buffer.get().map(|buffer| buffer.append(object))
    }

    /// Takes its arguments in registers: a request would be passed in memory, which the fast path
    /// would have to fill.
    ///
    /// # Safety
    ///
    /// As for [`Reader::retire`].
    #[cold]
    #[inline(never)]
    unsafe fn retire_slow(
        &self,
        domain: &Domain,
        object: *mut u8,
        how: &'static Destructor,
        is_guess: bool,
        pushed: Option<Pushed>,
    ) -> bool {
        let request = RetireRequest::with(object, how).plain().guessed(is_guess);
        // SAFETY: the caller's promise.
        unsafe { self.finish(domain, request, pushed) }
    }

    /// # Safety
    ///
    /// As for [`Reader::retire_memory`].
    #[cold]
    #[inline(never)]
    unsafe fn retire_memory_slow(
        &self,
        domain: &Domain,
        block: NonNull<u8>,
        layout: Layout,
        pushed: Option<Pushed>,
    ) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.finish(domain, RetireRequest::memory(block, layout), pushed) }
    }

    /// # Safety
    ///
    /// As for [`Reader::retire`].
    unsafe fn finish(
        &self,
        domain: &Domain,
        object: RetireRequest,
        pushed: Option<Pushed>,
    ) -> bool {
        let core = domain.core();
        // SAFETY: the caller's promise.
        let retired = unsafe { thread::retire_slow(core, object, pushed, OnNoPage::BlockOrCall) };
        debug_assert!(retired.is_ok(), "a callback never gives it back");
        if self.buffer.get().is_none() {
            // At the thread's very end it has none.
            thread::with(core, |own| self.buffer.set(Arc::clone(own.buffer)));
        }
        true
    }
}

/// Frees a few of the objects that the calling thread has retired, if they are due. Past the budget
/// it frees more of them, and some of other threads'. Runs destructors.
pub fn free_some(domain: &Domain) -> Left {
    let inner = &domain.core().inner;
    let free = |buffer: &_| inner.parts.heap().free_some(inner.parts.engine(), buffer);
    thread::with(domain.core(), |own| free(own.buffer)).unwrap_or(Left::Nothing)
}

/// Counts and times a wait of the calling thread for readers that hold up what it has retired, as
/// [`Statistics::waits`](crate::Statistics::waits).
pub fn note_wait(domain: &Domain, wait: impl FnOnce()) {
    domain.core().inner.parts.heap().note_wait(0, |_| wait());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    /// A thread's second reader finds the page of the first, whose guesses are more than what seals a page.
    #[test]
    fn a_guess_seals_no_page_where_a_reader_retires_for_the_first_time() {
        static KIB: Destructor = Destructor::new(|_| (), 1 << 10);
        let domain = domain("guesses", Fences::None, 8 << 20, |free| free());
        let readers = [(); 2].map(|()| Reader::new(&domain));
        // SAFETY: this thread's; there is no object, and what is called does nothing.
        let retire =
            |reader: &Reader| unsafe { reader.retire(&domain, ptr::null_mut(), &KIB, true) };
        for _ in 0..100 {
            retire(&readers[0]);
        }
        // The pages that the thread has sealed, before the lengths of those that are open.
        let sealed = || thread::with_buffer(domain.id(), |buffer| buffer.progress() >> 32);
        let before = sealed();
        retire(&readers[1]);
        assert!(before.is_some() && sealed() == before);
        // SAFETY: this thread's, and not used any more.
        readers.iter().for_each(|reader| unsafe { reader.depart() });
    }
}
