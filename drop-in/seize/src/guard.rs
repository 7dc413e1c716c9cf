//! Guards: of a thread, and of none.

use crate::{
    Collector,
    collector::Use,
    slot::{Retired, Slot},
    thread,
};
use std::{
    fmt, mem,
    sync::atomic::{AtomicPtr, Ordering},
};
use stillpoint::internal::batches::OwnedReader;

/// What a guard does.
pub trait Guard {
    /// Ends the guard and begins it anew: what was found through it may be freed. Nothing, where
    /// the thread has another guard of the collector.
    fn refresh(&mut self);

    /// Hands what the calling thread has retired over, as a batch, however small it is: it is freed
    /// when the guards that are open now have ended.
    fn flush(&self);

    /// The collector.
    fn collector(&self) -> &Collector;

    /// A number of the calling thread, which no other thread has at the time. Small numbers are
    /// used first, and those of threads that have ended are used again.
    fn thread_id(&self) -> usize;

    /// Loads a pointer. What it points to is not freed before the guard ends, unless this thread
    /// retires it by [`Collector::retire`].
    ///
    /// The load is sequentially consistent, whatever `order` says, as the original's.
    #[inline]
    fn protect<T>(&self, ptr: &AtomicPtr<T>, order: Ordering) -> *mut T {
        ptr.load(protecting(order))
    }

    /// Stores a pointer, and returns the one before, which is protected as by [`Guard::protect`].
    #[inline]
    fn swap<T>(&self, ptr: &AtomicPtr<T>, value: *mut T, order: Ordering) -> *mut T {
        ptr.swap(value, protecting(order))
    }

    /// Stores a pointer if that there is `current`, and returns the one that there was, protected as
    /// by [`Guard::protect`].
    ///
    /// # Errors
    ///
    /// If it was another.
    #[inline]
    fn compare_exchange<T>(
        &self,
        ptr: &AtomicPtr<T>,
        current: *mut T,
        new: *mut T,
        success: Ordering,
        failure: Ordering,
    ) -> Result<*mut T, *mut T> {
        ptr.compare_exchange(current, new, protecting(success), protecting(failure))
    }

    /// Like [`Guard::compare_exchange`], but may fail for no reason.
    ///
    /// # Errors
    ///
    /// If it was another, or for no reason.
    #[inline]
    fn compare_exchange_weak<T>(
        &self,
        ptr: &AtomicPtr<T>,
        current: *mut T,
        new: *mut T,
        success: Ordering,
        failure: Ordering,
    ) -> Result<*mut T, *mut T> {
        ptr.compare_exchange_weak(current, new, protecting(success), protecting(failure))
    }

    /// Has `reclaim` called with `ptr` when no guard is open any more that is open now, this one
    /// included. Of what reclaimers may do, see [`Collector::retire`].
    ///
    /// # Safety
    ///
    /// A thread that enters from now on does not find the object. `reclaim` may be called with it
    /// when it is found by no thread any more: once, on any thread that uses the collector.
    unsafe fn defer_retire<T>(&self, ptr: *mut T, reclaim: unsafe fn(*mut T, &Collector));
}

/// The order of a protected access: the strongest, which costs a load nothing on x86, and which
/// users of the original have come to rely on.
const fn protecting(_: Ordering) -> Ordering {
    Ordering::SeqCst // Needs no partner: what users order by it is theirs.
}

/// A guard of the thread that made it.
///
/// What [`Collector::enter`] returns. Leaked, it holds up all that is retired into the collector
/// from then on, until [`Collector::reclaim_all`] or the collector's drop, and nothing else.
pub struct LocalGuard<'a> {
    collector: &'a Collector,
    /// The thread's, so that the guard is neither `Send` nor `Sync`.
    slot: *const Slot,
}

impl LocalGuard<'_> {
    #[inline(always)]
    pub(crate) fn enter(collector: &Collector) -> LocalGuard<'_> {
        let this = Use::begin();
        let slot = collector.slot(&this);
        let guards = slot.guards.get();
        slot.guards.set(guards + 1);
        if guards == 0 {
            // SAFETY: the thread's, in the collector that is borrowed, and outside of its section.
            unsafe { slot.reader().enter() };
        }
        let slot = std::ptr::from_ref(slot);
        // The guard has it.
        mem::forget(this);
        LocalGuard { collector, slot }
    }

    #[inline(always)]
    fn slot(&self) -> &Slot {
        // SAFETY: the collector, which is borrowed, has it.
        unsafe { &*self.slot }
    }
}

impl Guard for LocalGuard<'_> {
    #[inline]
    fn refresh(&mut self) {
        let slot = self.slot();
        if slot.guards.get() == 1 {
            // SAFETY: the thread's, in its section, of which this is the only guard.
            let is_any_pending = unsafe {
                let is_any_pending = slot.reader().leave();
                slot.reader().enter();
                is_any_pending
            };
            if is_any_pending {
                self.collector.free_due(slot);
            }
        }
    }

    #[inline]
    fn flush(&self) {
        let slot = self.slot();
        // SAFETY: the slot is the calling thread's.
        if unsafe { slot.has_retired() } {
            // SAFETY: as above. It is freed where the last guard ends.
            unsafe { self.collector.seal(slot) };
        }
    }

    #[inline]
    fn collector(&self) -> &Collector {
        self.collector
    }

    #[inline]
    fn thread_id(&self) -> usize {
        self.slot().id
    }

    #[inline]
    unsafe fn defer_retire<T>(&self, ptr: *mut T, reclaim: unsafe fn(*mut T, &Collector)) {
        debug_assert!(!ptr.is_null(), "a null pointer is retired");
        let this = Use::begin();
        this.retire(self.slot(), Retired::new(ptr, reclaim), self.collector);
    }
}

impl Drop for LocalGuard<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        let slot = self.slot();
        let guards = slot.guards.get() - 1;
        slot.guards.set(guards);
        // SAFETY: the thread's, in its section.
        if guards == 0 && unsafe { slot.reader().leave() } {
            // Nothing that unwinds is called here: so that guards end inline.
            end_slowly(self.collector, slot);
        } else {
            thread::finish();
        }
    }
}

/// Frees what is due, behind a guard's section, and ends what its `enter` began.
#[cold]
#[inline(never)]
fn end_slowly(collector: &Collector, slot: &Slot) {
    // Also if a reclaimer panics.
    let _finish = Use::of_guard();
    collector.free_due(slot);
}

impl fmt::Debug for LocalGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LocalGuard").finish()
    }
}

/// A guard that is no thread's: it may be sent, shared, and dropped on another thread.
///
/// What [`Collector::enter_owned`] returns. What is retired through it joins what the calling
/// thread has retired, and [`Guard::flush`] is about that.
#[expect(missing_debug_implementations, reason = "the original has none")]
pub struct OwnedGuard<'a> {
    collector: &'a Collector,
    reader: OwnedReader,
}

impl OwnedGuard<'_> {
    pub(crate) fn enter(collector: &Collector) -> OwnedGuard<'_> {
        OwnedGuard {
            collector,
            reader: OwnedReader::enter(collector.collection()),
        }
    }

    /// Frees what is due, on the calling thread.
    fn free_due(&self) {
        if self.collector.inner().batches().is_any_pending() {
            let this = Use::begin();
            self.collector.free_due(self.collector.slot(&this));
        }
    }
}

impl Guard for OwnedGuard<'_> {
    #[inline]
    fn refresh(&mut self) {
        // SAFETY: the collector is borrowed, and this guard mutably.
        unsafe { self.reader.renew() };
        self.free_due();
    }

    #[inline]
    fn flush(&self) {
        let this = Use::begin();
        let slot = self.collector.slot(&this);
        // SAFETY: the slot is the calling thread's.
        if unsafe { slot.has_retired() } {
            this.seal_and_free(slot, self.collector);
        }
    }

    #[inline]
    fn collector(&self) -> &Collector {
        self.collector
    }

    #[inline]
    fn thread_id(&self) -> usize {
        let _use = Use::begin();
        thread::identity().0
    }

    #[inline]
    unsafe fn defer_retire<T>(&self, ptr: *mut T, reclaim: unsafe fn(*mut T, &Collector)) {
        // SAFETY: the caller's promise; this guard's section holds it up.
        unsafe { self.collector.retire(ptr, reclaim) };
    }
}

impl Drop for OwnedGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the collector is borrowed, and the guard is not used afterwards.
        unsafe { self.reader.end() };
        self.free_due();
    }
}
