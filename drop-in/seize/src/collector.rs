//! A collector: when what was retired into it is freed, and by which thread.

use crate::{
    LocalGuard, OwnedGuard,
    slot::{Retired, Slot, Slots, found_or_made},
    thread::{self, Running},
};
use std::{
    any::Any,
    fmt, mem,
    panic::{self, AssertUnwindSafe},
    ptr,
    sync::{
        Arc,
        atomic::{AtomicPtr, AtomicU64, Ordering},
    },
    thread as std_thread,
    vec::IntoIter,
};
use stillpoint::internal::batches;

/// Batches of retired objects, and the readers for which they wait.
pub(crate) type Collection = batches::Collection<Vec<Retired>>;

/// Where more batches wait, threads that retire yield. What holds the others up may be a thread that has
/// a guard, or frees, and does not get a processor.
const MANY: usize = 1024;

/// What a panic has thrown.
type Payload = Box<dyn Any + Send>;

/// What a collector has from its first guard or retired object on.
struct Inner {
    slots: Slots,
    collection: Arc<Collection>,
}

/// Frees objects when no guard is open any more that may have found them.
///
/// A data structure has one of its own, or shares one. It costs 24 bytes until it is first used, and a
/// few kilobytes then. Guards of one collector hold up nothing of another.
///
/// What is retired is freed on the threads that use the collector, in [`Collector::retire`], where
/// guards end, and in [`Collector::reclaim_all`]; and, all of it, before the collector's drop
/// returns. So it may borrow what outlives the collector.
pub struct Collector {
    /// No two in a process have the same. Never 0.
    id: u64,
    batch_size: usize,
    inner: AtomicPtr<Inner>,
}

impl Default for Collector {
    fn default() -> Self {
        Self::new()
    }
}

impl Collector {
    const DEFAULT_BATCH_SIZE: usize = 32;

    /// A new collector. Allocates nothing.
    ///
    /// ```
    /// let collector = seize::Collector::new();
    /// assert_ne!(collector, seize::Collector::new());
    /// ```
    pub fn new() -> Self {
        static IDS: AtomicU64 = AtomicU64::new(1);
        Self {
            id: IDS.fetch_add(1, Ordering::Relaxed),
            batch_size: Self::DEFAULT_BATCH_SIZE,
            inner: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// How many objects a thread retires before it tries to free them, as one batch: 32 by default.
    /// Larger batches cost less time an object, and keep more memory.
    pub fn batch_size(mut self, batch_size: usize) -> Self {
        self.batch_size = batch_size;
        self
    }

    /// Marks the calling thread as active. What it finds by [`Guard::protect`](crate::Guard::protect)
    /// is not freed before the guard is dropped. Guards may be nested.
    ///
    /// Costs a few loads and stores, no fence and no read-modify-write. A thread's first guard in a
    /// collector allocates. Does not block.
    ///
    /// ```
    /// use seize::{Collector, Guard};
    /// use std::sync::atomic::{AtomicPtr, Ordering};
    ///
    /// let collector = Collector::new();
    /// let mut value = 1;
    /// let shared = AtomicPtr::new(&raw mut value);
    /// let guard = collector.enter();
    /// let found = guard.protect(&shared, Ordering::Acquire);
    /// // SAFETY: no thread retires it.
    /// assert_eq!(unsafe { *found }, 1);
    /// ```
    #[inline]
    pub fn enter(&self) -> LocalGuard<'_> {
        LocalGuard::enter(self)
    }

    /// Like [`Collector::enter`], but for a guard that is no thread's: it may be sent, shared, and
    /// held over an `.await`. Takes a lock for a moment, and may allocate.
    #[inline]
    pub fn enter_owned(&self) -> OwnedGuard<'_> {
        OwnedGuard::enter(self)
    }

    /// Has `reclaim` called with `ptr` when no guard is open any more that is open now. That may be
    /// at once; an open guard of the calling thread puts it off, but the original does not promise
    /// that. ([`Guard::defer_retire`](crate::Guard::defer_retire) does.)
    ///
    /// May free what this thread and others have retired before. Of what reclaimers do:
    ///
    /// * They may use the collector, also retire into it. What they retire is freed after they have
    ///   returned, by the loop that called them: chains of any length need no stack.
    /// * Those that panic have the others of their batches called first. Then the first panic goes
    ///   on in this call, or at the end of the guard that called them; it is dropped if the thread
    ///   is panicking already.
    ///
    /// # Safety
    ///
    /// A thread that enters from now on does not find the object, and this thread uses it no more.
    /// `reclaim` may be called with it when it is found by no other thread any more: once, on any
    /// thread that uses the collector.
    ///
    /// ```
    /// use seize::{Collector, reclaim};
    ///
    /// let collector = Collector::new();
    /// let value = Box::into_raw(Box::new(1));
    /// // SAFETY: it came out of a box, and no thread knows it.
    /// unsafe { collector.retire(value, reclaim::boxed) };
    /// ```
    #[inline]
    pub unsafe fn retire<T>(&self, ptr: *mut T, reclaim: unsafe fn(*mut T, &Collector)) {
        debug_assert!(!ptr.is_null(), "a null pointer is retired");
        let this = Use::begin();
        this.retire(self.slot(&this), Retired::new(ptr, reclaim), self);
    }

    /// Frees all that has been retired, what reclaimers retire meanwhile included, before it
    /// returns. Waits for no guard, and touches nothing of other collectors.
    ///
    /// # Safety
    ///
    /// No other thread uses the collector, there is no guard of it through which anything is used,
    /// and what is retired is used by no thread any more.
    ///
    /// ```
    /// use seize::{Collector, reclaim};
    ///
    /// let collector = Collector::new();
    /// let mut text = String::from("borrowed");
    /// // SAFETY: no thread knows it, and its memory stays.
    /// unsafe {
    ///     collector.retire(&raw mut text, reclaim::in_place);
    ///     collector.reclaim_all();
    /// }
    /// std::mem::forget(text);
    /// ```
    pub unsafe fn reclaim_all(&self) {
        resume(self.free_everything());
    }

    pub(crate) fn inner(&self) -> &Collection {
        // SAFETY: a slot or a guard of this collector has been made, and so has this; it is freed
        // when the collector is dropped.
        unsafe { &(*self.inner.load(Ordering::Relaxed)).collection }
    }

    fn made(&self) -> &Inner {
        let inner = found_or_made(
            &self.inner,
            || {
                Box::into_raw(Box::new(Inner {
                    slots: Slots::new(),
                    collection: Collection::new(),
                }))
            },
            // SAFETY: out of a box just now, and nothing else knows it.
            |made| drop(unsafe { Box::from_raw(made) }),
        );
        // SAFETY: it is freed when the collector is dropped.
        unsafe { &*inner }
    }

    /// The collection, made if there is none.
    pub(crate) fn collection(&self) -> &Collection {
        &self.made().collection
    }

    /// The calling thread's slot.
    #[inline(always)]
    pub(crate) fn slot<'a>(&'a self, _: &'a Use) -> &'a Slot {
        let slot = thread::recent(self.id);
        if slot.is_null() {
            return self.find_slot();
        }
        // SAFETY: it was noted for a collector of this number, which is this one; and for the
        // number that the thread has still.
        unsafe { &*slot }
    }

    #[cold]
    #[inline(never)]
    fn find_slot(&self) -> &Slot {
        let (id, life) = thread::identity();
        let inner = self.made();
        let slot = inner.slots.get(id);
        // SAFETY: the calling thread has the number.
        unsafe { slot.adopt(life, &inner.collection) };
        thread::note_recent(self.id, slot);
        slot
    }

    /// Hands the slot's objects over to the collection, as a batch.
    ///
    /// # Safety
    ///
    /// The slot is the calling thread's.
    pub(crate) unsafe fn seal(&self, slot: &Slot) {
        // SAFETY: the caller's promise.
        let batch = unsafe { slot.take() };
        self.inner().batches().push(batch);
        slot.pushed.set(true);
    }

    /// Frees what is due. The slot is the calling thread's.
    #[cold]
    #[inline(never)]
    pub(crate) fn free_due(&self, slot: &Slot) {
        if Running::ask(self.id) {
            return;
        }
        let panicked = Running::with(self.id, |running| {
            let mut panicked = None;
            loop {
                let pushed = slot.pushed.take();
                // Where it has a guard, it is a reader like others.
                let due = self.inner().sweep(pushed, slot.guards.get() == 0);
                slot.pushed.set(slot.pushed.get() || due.again);
                for batch in due.batches {
                    self.free(batch, &mut panicked);
                }
                if !running.take_asked() && !due.again {
                    return panicked;
                }
            }
        });
        if self.inner().pending() > MANY {
            std_thread::yield_now();
        }
        resume(panicked);
    }

    /// Frees all that there is, and what that retires.
    fn free_everything(&self) -> Option<Payload> {
        // Acquire, pairs with `found_or_made`: what is found is complete.
        // SAFETY: null, or what `made` has made.
        let inner = unsafe { self.inner.load(Ordering::Acquire).as_ref() }?;
        Running::with(self.id, |running| {
            let mut panicked = None;
            loop {
                let mut any = false;
                inner.slots.for_each(|slot| {
                    // SAFETY: no other thread uses the collector.
                    let batch = unsafe { slot.take_all() };
                    any |= !batch.is_empty();
                    self.free(batch, &mut panicked);
                });
                // SAFETY: as above, and no guard is in use.
                for batch in unsafe { inner.collection.batches().take_all() } {
                    any = true;
                    self.free(batch, &mut panicked);
                }
                running.take_asked();
                if !any {
                    return panicked;
                }
            }
        })
    }

    /// Frees a batch that is due, all of it, whatever panics.
    fn free(&self, batch: Vec<Retired>, panicked: &mut Option<Payload>) {
        let mut left: IntoIter<Retired> = batch.into_iter();
        while !left.as_slice().is_empty() {
            let all = AssertUnwindSafe(|| {
                for object in left.by_ref() {
                    // SAFETY: it is due, or there is no reader by `reclaim_all`'s contract.
                    unsafe { object.free(self) };
                }
            });
            if let Err(payload) = panic::catch_unwind(all) {
                match panicked {
                    None => *panicked = Some(payload),
                    // Its own drop could panic.
                    Some(_) => mem::forget(payload),
                }
            }
        }
    }
}

/// Goes on with a panic of a reclaimer, unless the thread has one already.
fn resume(panicked: Option<Payload>) {
    if let Some(payload) = panicked {
        if std_thread::panicking() {
            mem::forget(payload);
        } else {
            panic::resume_unwind(payload);
        }
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        // No other reference is left, and so no guard that could be used.
        let panicked = self.free_everything();
        let inner = *self.inner.get_mut();
        if !inner.is_null() {
            // SAFETY: out of a box in `made`.
            drop(unsafe { Box::from_raw(inner) });
        }
        resume(panicked);
    }
}

impl Eq for Collector {}

impl PartialEq for Collector {
    /// Whether both are the same collector.
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collector")
            .field("batch_size", &self.batch_size)
            .finish()
    }
}

/// A use that the calling thread has for its number, until this is dropped.
pub(crate) struct Use(());

impl Use {
    #[inline(always)]
    pub(crate) fn begin() -> Self {
        thread::begin();
        Self(())
    }

    /// The use that a guard has begun, which the guard gives up.
    pub(crate) fn of_guard() -> Self {
        Self(())
    }

    /// Adds an object to the calling thread's slot, which frees what is due with every batch.
    #[inline(always)]
    pub(crate) fn retire(&self, slot: &Slot, object: Retired, collector: &Collector) {
        // SAFETY: `slot` gives threads their own ones alone.
        if unsafe { slot.retire(object) } >= collector.batch_size {
            self.seal_and_free(slot, collector);
        }
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn seal_and_free(&self, slot: &Slot, collector: &Collector) {
        // SAFETY: as in `retire`.
        unsafe { collector.seal(slot) };
        // Else where the last guard ends, which is in the way now.
        if slot.guards.get() == 0 {
            collector.free_due(slot);
        }
    }
}

impl Drop for Use {
    #[inline(always)]
    fn drop(&mut self) {
        thread::finish();
    }
}
