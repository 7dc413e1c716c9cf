//! What the interface of seize is made of: readers and batches of retired objects, which the
//! threads that leave sections free. For the drop-in package of that name; no part of the stable
//! interface.
//!
//! A collection is neither a domain nor known to one: it has no service thread, no budget and no
//! reports, nothing that a thread keeps for it, and a few kilobytes.

pub use crate::gp::batches::{Batches, Due, List};
use crate::{
    gp::{BarrierMode, Cookie, Engine, Flavour, Record, Sequence},
    platform::{
        fork::{AtForkHandle, ForkReset},
        thread as platform_thread,
    },
};
use std::{
    panic::Location,
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

pub use crate::platform::fork::{Process, process};

/// Batches, and the readers for which they wait.
#[derive(Debug)]
pub struct Collection<T: Send> {
    /// First, because fields are dropped in order: no fork finds the others half dropped.
    place: AtForkHandle,
    batches: Batches<T>,
}

impl<T: Send> ForkReset for Collection<T> {
    unsafe fn reset_in_child(&self) {
        // SAFETY: the caller's promise.
        unsafe {
            self.batches.engine.reset_in_child();
            self.batches.reset_in_child();
        }
    }
}

impl<T: Send> Collection<T> {
    /// An empty one. In the child of a fork sections of other threads are over, and batches that
    /// were being sorted at that moment are forgotten.
    pub fn new() -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let engine = Engine::new(
            // No domain's: those count from below.
            u64::MAX - NEXT.fetch_add(1, Ordering::Relaxed),
            BarrierMode::Membarrier,
            Sequence::new(Cookie::from_raw(0).seq()),
        );
        // Not a box, of which the fork's handler would have a second reference.
        let this = Arc::new(Self {
            place: AtForkHandle::reserve(),
            batches: Batches::new(engine),
        });
        // SAFETY: complete, and in its place for as long as it lives; `place` is the first of its
        // fields to be dropped.
        unsafe { this.place.occupy(&*this) };
        this
    }

    /// The batches.
    #[inline(always)]
    pub fn batches(&self) -> &Batches<T> {
        &self.batches
    }

    /// How many batches wait; for a moment it may be too high.
    pub fn pending(&self) -> usize {
        self.batches.pending().load(Ordering::Relaxed)
    }

    /// [`Batches`]' sweep by the calling thread. For a reader that has left a section (not
    /// `pushed`), and for a thread that has pushed since it swept last. `own` says that the thread
    /// has one reader here, in which it is in no section.
    pub fn sweep(&self, pushed: bool, own: bool) -> Due<T> {
        self.batches.sweep(pushed, own, platform_thread::token())
    }
}

/// A reader of one thread, with one section at a time.
#[derive(Debug)]
pub struct Reader {
    record: NonNull<Record>,
    started: NonNull<AtomicU64>,
    pending: NonNull<AtomicUsize>,
}

impl Reader {
    /// A reader of the calling thread, which has the record until [`Reader::depart`].
    pub fn new<T: Send>(collection: &Collection<T>) -> Self {
        let engine = &collection.batches.engine;
        let record = engine.register(platform_thread::token(), Flavour::Thread);
        Self {
            record: NonNull::from(record),
            started: NonNull::from(engine.started()),
            pending: NonNull::from(collection.batches.pending()),
        }
    }

    /// Enters the section. What is loaded in it is not freed before it ends.
    ///
    /// # Safety
    ///
    /// On the thread that made it, outside of the section, before [`Reader::depart`], and while the
    /// collection is there.
    #[inline(always)]
    pub unsafe fn enter(&self) {
        // SAFETY: the collection, which is there, has both where they are.
        let (record, started) = unsafe { (self.record.as_ref(), self.started.as_ref()) };
        record.lock_outermost::<false>(started);
    }

    /// Leaves the section. Returns whether the thread had better sweep now.
    ///
    /// # Safety
    ///
    /// As for [`Reader::enter`], but inside the section.
    #[inline(always)]
    pub unsafe fn leave(&self) -> bool {
        // SAFETY: as in `enter`.
        let (record, pending) = unsafe { (self.record.as_ref(), self.pending.as_ref()) };
        record.unlock_outermost();
        // Relaxed: R5 has ordered it after the section's end.
        pending.load(Ordering::Relaxed) != 0
    }

    /// Gives the reader up.
    ///
    /// # Safety
    ///
    /// Outside of the section, and while the collection is there, in the process that made it;
    /// nothing else is done with it, then or afterwards. On any thread.
    pub unsafe fn depart(self) {
        // SAFETY: as in `enter`.
        unsafe { self.record.as_ref() }.depart();
    }
}

/// A section that is no thread's, until [`OwnedReader::end`].
#[derive(Debug)]
pub struct OwnedReader(NonNull<Record>);

// SAFETY: a record is Sync, and of no thread once a guard owns it.
unsafe impl Send for OwnedReader {}
// SAFETY: as for Send.
unsafe impl Sync for OwnedReader {}

impl OwnedReader {
    /// Begins a section.
    #[track_caller]
    pub fn enter<T: Send>(collection: &Collection<T>) -> Self {
        let engine = &collection.batches.engine;
        let record = engine.register(platform_thread::token(), Flavour::Owned);
        record.lock_owned(Location::caller(), 0);
        Self(NonNull::from(record))
    }

    /// Ends the section, and begins another. No user code runs between the two: in the child of a
    /// fork a record of a guard without a section is free.
    ///
    /// # Safety
    ///
    /// The collection is there. No other call of this is under way.
    #[track_caller]
    pub unsafe fn renew(&mut self) {
        // SAFETY: the collection, which is there, has it.
        let record = unsafe { self.0.as_ref() };
        record.unlock_owned();
        record.lock_owned(Location::caller(), 0);
    }

    /// Ends the section for good.
    ///
    /// # Safety
    ///
    /// As for [`OwnedReader::renew`]; nothing is done with it afterwards.
    pub unsafe fn end(&self) {
        // SAFETY: as in `renew`.
        let record = unsafe { self.0.as_ref() };
        record.unlock_owned();
        record.vacate();
    }
}
