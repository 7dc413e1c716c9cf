//! Flushes: a flush that is due starts a new key space, once. Readers see whether a key space was
//! flushed.

use stillpoint_platform::sync::{AtomicBool, AtomicU32, Mutex, MutexGuard, Ordering, lock};

/// When a tenant's key space is to be flushed.
#[derive(Debug)]
pub struct Flush {
    /// The second of the flush; 0 if none is due.
    at: AtomicU32,
    /// Held while it is flushed, and while `at` is changed.
    flushing: Mutex<()>,
}

impl Flush {
    pub fn new() -> Self {
        Self {
            at: AtomicU32::new(0),
            flushing: Mutex::new(()),
        }
    }

    /// Schedules a flush in that second. If an earlier one is due now, it is done first, by `begin`.
    pub fn later(&self, at: u32, now: u32, begin: impl FnOnce()) {
        let flushing = lock(&self.flushing);
        if is_due(self.at.load(Ordering::Relaxed), now) {
            self.run(begin, &flushing);
        }
        // Release, pairs with `if_due`, as in `run`: what that has stored may not be seen any more.
        self.at.store(at, Ordering::Release);
    }

    /// Flushes it now by `begin`, which starts a new key space. A scheduled flush is dropped.
    pub fn at_once(&self, begin: impl FnOnce()) {
        self.run(begin, &lock(&self.flushing));
    }

    /// Flushes it by `begin` if a flush is due.
    #[inline]
    pub fn if_due(&self, now: u32, begin: impl FnOnce()) {
        // Acquire, pairs with `run` and `later`: after a flush the new key space is seen.
        let at = self.at.load(Ordering::Acquire);
        if is_due(at, now) {
            self.due(at, begin);
        }
    }

    #[cold]
    fn due(&self, at: u32, begin: impl FnOnce()) {
        // One thread flushes; the others wait, so that none finds an item from before.
        let flushing = lock(&self.flushing);
        if self.at.load(Ordering::Relaxed) == at {
            self.run(begin, &flushing);
        }
    }

    fn run(&self, begin: impl FnOnce(), _flushing: &MutexGuard<'_, ()>) {
        begin();
        // Release, pairs with `if_due`. Behind it: a thread for which it was due either waits, or
        // sees the new key space.
        self.at.store(0, Ordering::Release);
    }
}

fn is_due(at: u32, now: u32) -> bool {
    at != 0 && at <= now
}

/// Whether a key space was replaced: no reader that begins now comes to it.
#[derive(Debug)]
pub struct Flushed(AtomicBool);

impl Flushed {
    pub fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Marks it as replaced, after the key spaces were exchanged.
    pub fn set(&self) {
        // Release, pairs with `is_set`: the new key space was published before.
        self.0.store(true, Ordering::Release);
    }

    pub fn is_set(&self) -> bool {
        // Acquire, pairs with `set`: what is retired now waits for readers of the old index, and
        // those that begin then come to the new one.
        self.0.load(Ordering::Acquire)
    }
}
