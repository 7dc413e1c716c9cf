//! What a run has counted, and what it has found wrong.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;

/// Something that no sound machinery lets happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Fault {
    /// A section saw the end of a grace period that should have waited for it: an element was dead,
    /// or another's, before the section's end.
    TooShort,
    /// A section saw what was written before a grace period missing, and what was written after it
    /// there.
    Ordering,
    /// A cookie came true inside the section that it was taken in, or was not true after a wait
    /// that covers it.
    Cookie,
    /// A reader saw a version older than one that it had seen before.
    Version,
    /// A callback, or a deferred free, never came.
    Lost,
    /// A callback, or a deferred free, came twice.
    Twice,
    /// A barrier returned before what it waits for had happened.
    Barrier,
    /// A wait did not return, although no reader blocks it.
    WriterStall,
    /// The child of a fork failed, or hung.
    Fork,
    /// An LRU list's count was wrong.
    Count,
    /// Memory of an area that a section holds had another's bytes in it, or was found where it must
    /// not be.
    Content,
    /// A thread panicked, or could not be started.
    Panic,
    /// The run was over, and its end did not come: a thread, a barrier or a domain's last callback
    /// never returned.
    NoEnd,
}

/// Every fault in its order, and its name in reports.
pub const FAULTS: [(Fault, &str); 13] = [
    (Fault::TooShort, "grace_period_too_short"),
    (Fault::Ordering, "memory_ordering"),
    (Fault::Cookie, "cookie"),
    (Fault::Version, "version"),
    (Fault::Lost, "callback_lost"),
    (Fault::Twice, "callback_twice"),
    (Fault::Barrier, "barrier"),
    (Fault::WriterStall, "writer_stall"),
    (Fault::Fork, "fork"),
    (Fault::Count, "count"),
    (Fault::Content, "content"),
    (Fault::Panic, "panic"),
    (Fault::NoEnd, "no_end"),
];

/// The counts, which threads add to now and then.
#[derive(Debug, Default)]
pub struct Tally {
    /// Sections that were checked from their beginning to their end.
    pub sections: CachePadded<AtomicU64>,
    /// Grace periods that writers and fake writers have waited for, callbacks included:
    /// rcutorture's "version".
    pub waits: CachePadded<AtomicU64>,
    /// Grace periods that the domain has ended; known when the run is over.
    pub grace_periods: AtomicU64,
    /// Callbacks queued, and invoked.
    pub queued: CachePadded<AtomicU64>,
    /// The same.
    pub invoked: CachePadded<AtomicU64>,
    /// Objects handed to deferred frees (areas, list items), and gone.
    pub retired: CachePadded<AtomicU64>,
    /// The same.
    pub freed: CachePadded<AtomicU64>,
    /// Elements published (rta), refused because none was free (rtaf), and recycled (rtf).
    pub published: CachePadded<AtomicU64>,
    /// The same.
    pub exhausted: AtomicU64,
    /// The same.
    pub recycled: CachePadded<AtomicU64>,
    /// Barriers tried, and returned.
    pub barriers: AtomicU64,
    /// The same.
    pub barriers_done: AtomicU64,
    /// Forks whose child did well; handlers that read (signals that come too fast are one); threads
    /// that came, read and went; stalls that were reported.
    pub forks: AtomicU64,
    /// The same.
    pub signals: AtomicU64,
    /// The same.
    pub exits: AtomicU64,
    /// The same.
    pub stalls: AtomicU64,
    faults: [AtomicUsize; FAULTS.len()],
    any: CachePadded<AtomicBool>,
    first: Mutex<Option<First>>,
}

/// The first fault.
#[derive(Debug, Clone)]
pub struct First {
    /// What it is about.
    pub what: String,
    /// When it was found.
    pub at: Instant,
}

/// Adds to a count.
pub fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed);
}

impl Tally {
    /// Notes a fault. Async-signal-safe as long as it is not the first; for handlers there is
    /// [`Tally::fault_in_handler`].
    #[cold]
    pub fn fault(&self, fault: Fault, what: impl FnOnce() -> String) {
        self.fault_in_handler(fault);
        let mut first = self.first.lock();
        first.get_or_insert_with(|| First {
            what: what(),
            at: Instant::now(),
        });
    }

    /// Counts a fault. Async-signal-safe.
    #[cold]
    pub fn fault_in_handler(&self, fault: Fault) {
        self.faults[fault as usize].fetch_add(1, Ordering::Relaxed);
        self.any.store(true, Ordering::Relaxed);
    }

    /// Counts the section of a signal handler. Async-signal-safe.
    pub fn section_in_handler(&self) {
        add(&self.signals, 1);
        add(&self.sections, 1);
    }

    /// Notes a fault if of `made` things not as many had `come` in the end, which `what` says.
    pub fn compare(&self, made: u64, come: u64, what: impl FnOnce() -> String) {
        if made != come {
            self.fault(
                if made > come {
                    Fault::Lost
                } else {
                    Fault::Twice
                },
                what,
            );
        }
    }

    /// Returns whether there is any.
    pub fn is_faulty(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// How many there are of a kind.
    pub fn count_of(&self, fault: Fault) -> usize {
        self.faults[fault as usize].load(Ordering::Relaxed)
    }

    /// How many there are.
    pub fn faults(&self) -> usize {
        self.faults
            .iter()
            .map(|count| count.load(Ordering::Relaxed))
            .sum()
    }

    /// The first one; a handler's may have no description.
    pub fn first(&self) -> Option<First> {
        self.first.lock().clone()
    }

    /// How long the run went without a fault.
    pub fn survived(&self, start: Instant) -> Duration {
        let first = self
            .first()
            .map(|first| first.at.saturating_duration_since(start));
        first.unwrap_or_else(|| start.elapsed())
    }
}
