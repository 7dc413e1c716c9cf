//! A reader's record: the one word through which a thread says that it reads.
//!
//! ```text
//!   word = 0                        quiescent
//!   word = sequence | nesting       inside a section that began when `started` was `sequence`; nesting >= 1
//!
//!   lock:    if nesting == 0 { s = started [R1]; word = s, nested once [R2]; light [R3] } else { word += 1 }
//!   unlock:  if nesting == 1 { word = 0 [R4]; light [R5]; if flags != 0 { ... [R6] } } else { word -= 1 }
//!   renew:   s = started [R1]; if word != s { word = s, nested once [R4, R2]; light [R3, R5]; if flags != 0 { ... [R6] } }
//! ```
//!
//! `README.md` in this folder proves the pairs. Renewing is an unlock and a lock in one: its store is
//! both R4 and R2, and its barrier both R5 and R3.
//!
//! `started` has the form of the word that a new section stores, so the fast path is five loads, two
//! stores and three branches. Nested, unregistered and fenced sections leave it at the nesting test
//! of [`Record::lock_global_outermost`], sections with deferred work at the nesting test of
//! [`Record::unlock`], wakes and fences at its flags test.
//!
//! Only the owner writes the word, with plain stores. A signal handler of the owner's thread may
//! lock and unlock between any two of these steps, because it leaves the word as it found it.

use super::{
    barrier_mode::BarrierMode,
    entry::Entry,
    flavour::Flavour,
    seq::{STEP, Seq},
    shared::Shared,
};
use crate::platform::{
    barrier, fork, stderr,
    sync::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering},
    thread::Token,
};
use std::ptr;

// The model has no statics, and so no global domains.
#[cfg(not(stillpoint_loom))]
mod global;
#[cfg(all(test, stillpoint_loom))]
mod model_tests;
mod owned;

/// A waiter sleeps until this record's section has ended.
const WAKE: u32 = 1 << 0;
/// The owner has exited, or never had thread-local state to keep the record in: the record is given
/// back at the end of the section.
const DEPARTED: u32 = 1 << 1;
/// The owner put off work that a section must not do; it is due at the end of the section.
const DEFERRED_WORK: u32 = 1 << 2;
/// Readers have to fence where a section ends. Never changes for a record.
const FENCE: u32 = 1 << 3;

const NESTING: u64 = STEP - 1;

/// Work that the caller must do after leaving an outermost section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unlocked {
    pub(crate) work_pending: bool,
}

/// The layout of the first two fields is known to the C header, which inlines the fast paths of
/// [`Record::lock_global_outermost`] and [`Record::unlock`].
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Record {
    word: AtomicU64,
    flags: AtomicU32,
    /// How the owner reads, for reports.
    flavour: AtomicU8,
    /// Whether readers have to fence where a section begins.
    fences: bool,
    /// Whether readers have to fence where a section ends.
    fences_at_end: bool,
    /// The owner's token, or `A_GUARD`; 0 while the record is unowned.
    owner: AtomicU64,
    domain: u64,
    /// Points to what outlives every record: see `Registry`.
    shared: *const Shared,
    /// Points to data that outlives every record, as `shared` does.
    entry: *const Entry,
    /// The next record of the list that this one is in while it is unowned: see `registry.rs`.
    pub(super) next: AtomicPtr<()>,
}

// SAFETY: `fences`, `fences_at_end`, `domain`, `shared` and `entry` are never written after
// construction, all other fields are atomics, and the two pointers are to Sync data that outlives
// the record (the registry owns all three).
unsafe impl Send for Record {}
// SAFETY: as for Send.
unsafe impl Sync for Record {}

impl Record {
    /// # Safety
    ///
    /// `shared` and `entry` outlive the record.
    pub(super) unsafe fn new(
        domain: u64,
        readers: BarrierMode,
        shared: *const Shared,
        entry: *const Entry,
    ) -> Self {
        let fences_at_end = readers.readers_fence_at_end();
        Self {
            word: AtomicU64::new(0),
            flags: AtomicU32::new(fence_flag(fences_at_end)),
            flavour: AtomicU8::new(Flavour::Thread as u8),
            fences: readers.readers_fence(),
            fences_at_end,
            owner: AtomicU64::new(0),
            domain,
            shared,
            entry,
            next: AtomicPtr::new(ptr::null_mut()),
        }
    }

    #[inline(always)]
    pub(crate) fn domain(&self) -> u64 {
        self.domain
    }

    #[inline(always)]
    fn shared(&self) -> &Shared {
        // SAFETY: `shared` outlives the record: `new`'s contract.
        unsafe { &*self.shared }
    }

    /// Returns the kernel id of the thread that owns the record, or has made the guard that does.
    pub(super) fn tid(&self) -> u32 {
        fork::tid_of(self.owner.load(Ordering::Relaxed), self.entry().tid())
    }

    pub(super) fn entry(&self) -> &Entry {
        // SAFETY: as for `shared`.
        unsafe { &*self.entry }
    }

    /// Enters a section, or one more level of it. Owner (or a signal handler in its thread) only.
    ///
    /// # Aborts
    ///
    /// Past 65,535 levels.
    #[inline]
    pub(crate) fn lock(&self) {
        let word = self.word.load(Ordering::Relaxed);
        if word & NESTING != 0 {
            self.nest(word);
        } else {
            // Acquire [R1]: our loads cannot find what was unlinked before this number's cookies were taken.
            self.begin(self.shared().seq.enter());
            if self.fences {
                // Fence [R3]: the scan sees our word, or our loads see what was done before its W3.
                barrier::full_fence();
            }
        }
    }

    /// Enters an outermost section. Owner only, outside of sections, and not in a signal handler.
    /// With `FENCES` this is a sequentially consistent fence, whatever the domain's barrier mode.
    #[inline(always)]
    pub(crate) fn lock_outermost<const FENCES: bool>(&self, started: &AtomicU64) {
        debug_assert!(!self.is_reading(), "the record's one section");
        // Acquire [R1]: our loads cannot find what was unlinked before this number's cookies were taken.
        self.begin(started.load(Ordering::Acquire));
        if FENCES || self.fences {
            // Fence [R3]: the scan sees our word, or our loads see what was done before its W3.
            barrier::full_fence();
        }
    }

    /// Leaves a section that [`Record::lock_outermost`] began. Owner only, not in a signal handler.
    #[inline(always)]
    pub(crate) fn unlock_outermost(&self) {
        debug_assert!(
            self.word.load(Ordering::Relaxed) & NESTING == 1,
            "the one section"
        );
        self.end();
    }

    /// Performs R2, and R3 as a light barrier.
    #[inline(always)]
    fn begin(&self, word: u64) {
        #[cfg(feature = "stall-backtrace")]
        self.entry().note_backtrace();
        // Release [R2]: a scan that reads this instead of the last section's R4 sees that section's
        // accesses as past.
        self.word.store(word, Ordering::Release);
        // Light [R3]: the scan sees our word, or our loads see what was done before its W3.
        barrier::light_asymmetric();
    }

    #[cold]
    fn nest(&self, word: u64) {
        if word & NESTING == NESTING {
            too_deep();
        }
        // Release [R2]: a scan that reads this instead of the first level's store sees the sections
        // before this one as past.
        self.word.store(word + 1, Ordering::Release);
    }

    /// Ends one section and begins the next: for an owner that is always inside one. Does nothing
    /// if no grace period has started since. Owner only, inside an outermost section (else it does
    /// nothing), and not in a signal handler.
    #[inline]
    pub(crate) fn quiescent_state(&self) {
        // Acquire [R1]: the next section's loads cannot find what was unlinked before this number's cookies were taken.
        let now = self.shared().seq.enter();
        let word = self.word.load(Ordering::Relaxed);
        if word != now && word & NESTING == 1 {
            self.renew(now);
        }
    }

    #[inline(never)]
    fn renew(&self, word: u64) {
        // Release [R4, R2]: in one store, the last section's accesses happen before the scan that
        // sees the new number.
        self.begin(word);
        if self.fences {
            // Fence [R3, R5]: the scan sees the new number, or our loads see what was done before
            // its W3; and the flag of S1 is seen below, or the waiter's look behind its S2 sees the
            // new number.
            barrier::full_fence();
        }
        // Relaxed [R6]: R5 has ordered it after the word.
        if self.flags.load(Ordering::Relaxed) != self.fence_flag() {
            self.take_flags();
        }
    }

    /// Leaves a section, or one level of it. Owner (or a signal handler in its thread) only.
    #[inline(always)]
    pub(crate) fn unlock(&self) -> Unlocked {
        let word = self.word.load(Ordering::Relaxed);
        debug_assert!(word & NESTING != 0, "unlock without lock");
        if word & NESTING == 1 {
            self.end();
            Unlocked {
                work_pending: false,
            }
        } else {
            self.unnest(word)
        }
    }

    #[inline(always)]
    fn end(&self) {
        // Release [R4]: our accesses happen before the scan that sees 0.
        self.word.store(0, Ordering::Release);
        // Light [R5]: we see the flag of S1, or the waiter's look behind its S2 sees 0. Where the
        // flags say FENCE it is no barrier.
        barrier::light_asymmetric();
        // Relaxed [R6]: R5 has ordered it after the word.
        if self.flags.load(Ordering::Relaxed) != 0 {
            self.ended_with_flags();
        }
    }

    #[inline(never)]
    fn unnest(&self, word: u64) -> Unlocked {
        // A signal handler of this thread is nested one level deeper, so it never takes the owner's
        // note.
        let work_pending =
            word & NESTING == 2 && self.flags.load(Ordering::Relaxed) & DEFERRED_WORK != 0;
        if work_pending {
            self.flags.fetch_and(!DEFERRED_WORK, Ordering::Relaxed);
            self.end();
        } else {
            // Release [R2]: as in `nest`, a scan that reads this sees the sections before this one
            // as past.
            self.word.store(word - 1, Ordering::Release);
        }
        Unlocked { work_pending }
    }

    /// Does the rest of R6, for an outermost section that has ended. Async-signal-safe: a fence, a swap
    /// and at most one futex wake.
    #[cold]
    #[inline(never)]
    pub(crate) fn ended_with_flags(&self) {
        let fence = self.fence_flag();
        if fence != 0 {
            // Fence [R5]: we see the flag of S1, or the waiter's look behind its S2 sees 0.
            barrier::full_fence();
            // Relaxed [R6]: R5 has ordered it after the word.
            if self.flags.load(Ordering::Relaxed) == fence {
                return;
            }
        }
        self.take_flags();
    }

    fn take_flags(&self) {
        // AcqRel [R6]: the waiter's announcement, before its S1, is seen by our signal; and what
        // the owner did happens before the record is given back.
        let flags = self.flags.swap(self.fence_flag(), Ordering::AcqRel);
        if flags & WAKE != 0 {
            self.shared().wake_all();
        }
        if flags & DEPARTED != 0 {
            self.vacate();
        }
    }

    fn fence_flag(&self) -> u32 {
        fence_flag(self.fences_at_end)
    }

    /// Returns whether this is a section that the thread `token` has open as a thread. For that
    /// thread.
    pub(super) fn is_section_of(&self, token: Token) -> bool {
        self.is_owned_by(token) && self.is_reading() && self.flavour() == Flavour::Thread
    }

    /// Returns true if the owner is inside a section. Exact for the owner, a racy snapshot for
    /// other threads.
    #[inline]
    pub(crate) fn is_reading(&self) -> bool {
        self.word.load(Ordering::Relaxed) != 0
    }

    /// Returns the number that the owner's present section carries. Owner only.
    pub(crate) fn section(&self) -> Option<Seq> {
        let word = self.word.load(Ordering::Relaxed);
        (word != 0).then(|| Seq::from_bits(word))
    }

    /// Returns the number of this record's section if grace period `goal` must wait for it.
    #[inline]
    pub(super) fn holds_out(&self, goal: Seq) -> Option<Seq> {
        // Acquire [W4]: a section that we find ended (R4), or followed by a later one (R2), is
        // past: its accesses happen before our return.
        let word = self.word.load(Ordering::Acquire);
        let seq = Seq::from_bits(word);
        (word != 0 && !seq.entered_after(goal)).then_some(seq)
    }

    /// Asks for a signal when the section ends.
    pub(super) fn request_wake(&self) {
        // AcqRel [S1]: our announcement in the event is seen by the unlock that takes the flag, in
        // `take_flags`.
        self.flags.fetch_or(WAKE, Ordering::AcqRel);
    }

    /// Puts work off to the end of the owner's section. Owner only (no handler), inside a section.
    ///
    /// The section then counts one level more than it has. So its end looks for the note, and a
    /// signal handler that runs meanwhile leaves the note alone.
    pub(crate) fn defer_to_unlock(&self) {
        if self.flags.load(Ordering::Relaxed) & DEFERRED_WORK == 0 {
            self.nest(self.word.load(Ordering::Relaxed));
            self.flags.fetch_or(DEFERRED_WORK, Ordering::Relaxed);
        }
    }

    pub(super) fn has_owner(&self) -> bool {
        self.owner.load(Ordering::Relaxed) != 0
    }

    pub(super) fn is_owned_by(&self, token: Token) -> bool {
        self.owner.load(Ordering::Relaxed) == token.get()
    }

    pub(super) fn flavour(&self) -> Flavour {
        [Flavour::Thread, Flavour::Qsbr, Flavour::Owned]
            [self.flavour.load(Ordering::Relaxed) as usize]
    }

    /// Gives an unowned record to an owner.
    ///
    /// The flags stay as they are. A waiter may set WAKE at this moment, because it has seen a section
    /// of the last owner: a store here might undo that, and the waiter may find the next owner's
    /// section in its way. If WAKE is from earlier, the first unlock signals in vain.
    pub(super) fn assign(&self, token: Token, tid: u32, flavour: Flavour) {
        debug_assert_eq!(
            self.owner.load(Ordering::Relaxed),
            0,
            "a record has one owner"
        );
        debug_assert_eq!(
            self.word.load(Ordering::Relaxed),
            0,
            "an unowned record is quiescent"
        );
        debug_assert_eq!(
            self.flags.load(Ordering::Relaxed) & (DEPARTED | DEFERRED_WORK),
            0,
            "they are taken at the end of a section"
        );
        self.flavour.store(flavour as u8, Ordering::Relaxed);
        self.entry().note_owner(tid);
        self.owner.store(token.get(), Ordering::Relaxed);
    }

    /// Gives the record back now, or at the end of the section that the owner is in. Owner only;
    /// the owner may no longer enter new sections through it.
    ///
    /// A leaked guard keeps its section open for ever, and with it everything that may have been
    /// borrowed from it.
    pub(crate) fn depart(&self) {
        if self.is_reading() {
            // Release, pairs with `take_flags`: all that the owner did with the record happens
            // before it is given back.
            self.flags.fetch_or(DEPARTED, Ordering::AcqRel);
        } else {
            self.vacate();
        }
    }

    /// Gives the quiescent record back. Async-signal-safe: a section that outlives its thread's end
    /// may end in a handler.
    pub(crate) fn vacate(&self) {
        self.owner.store(0, Ordering::Relaxed);
        self.shared().owners.leave();
        let record = ptr::from_ref(self).cast_mut().cast();
        self.shared()
            .given_back
            .push(record, |next| self.next.store(next, Ordering::Relaxed));
    }

    /// Resets the record in the child of a fork: it is quiescent and has no owner.
    ///
    /// # Safety
    ///
    /// No section is open through it, except one whose thread was lost.
    pub(super) unsafe fn reset(&self) {
        self.word.store(0, Ordering::Relaxed);
        self.flags.store(self.fence_flag(), Ordering::Relaxed);
        self.owner.store(0, Ordering::Relaxed);
    }
}

fn fence_flag(fences_at_end: bool) -> u32 {
    if fences_at_end { FENCE } else { 0 }
}

#[cold]
#[inline(never)]
fn too_deep() -> ! {
    // Not through std: this may run in a signal handler that interrupted a thread holding std's
    // lock.
    stderr::line(format_args!(
        "read-side critical sections nested more than 65,535 deep (guards leaked in a loop?); aborting"
    ));
    std::process::abort();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{gp::seq::Sequence, platform::thread};

    pub(super) fn with_record(first: u64, test: impl FnOnce(&Record, &Shared)) {
        let (shared, entry) = (
            Shared::new(Sequence::new(Seq::from_bits(first))),
            Entry::new(),
        );
        // SAFETY: both are dropped after the record.
        let record = unsafe { Record::new(1, BarrierMode::Membarrier, &shared, &entry) };
        record.assign(thread::token(), 0, Flavour::Thread);
        test(&record, &shared);
    }

    fn is_given_back(record: &Record, shared: &Shared) -> bool {
        ptr::eq(shared.given_back.first(), ptr::from_ref(record).cast())
    }

    #[test]
    fn an_active_word_is_never_zero_also_at_the_wrap() {
        with_record(0, |record, _| {
            record.lock();
            assert!(record.is_reading());
            assert_eq!(record.section(), Some(Seq::from_bits(0)));
            record.unlock();
            assert!(!record.is_reading());
        });
    }

    #[test]
    fn only_the_outermost_unlock_ends_the_section() {
        with_record(7 * STEP, |record, shared| {
            record.lock();
            let goal = shared.seq.start();
            record.lock();
            assert_eq!(
                record.holds_out(goal),
                Some(Seq::from_bits(7 * STEP)),
                "nesting keeps the outermost number"
            );
            record.unlock();
            assert!(record.holds_out(goal).is_some());
            record.unlock();
            assert!(record.holds_out(goal).is_none());
        });
    }

    #[test]
    fn a_departed_record_is_given_back_at_the_end_of_its_section() {
        with_record(0, |record, shared| {
            let me = thread::token();
            record.lock();
            record.depart();
            assert!(record.is_owned_by(me));
            assert!(!is_given_back(record, shared), "a reader still uses it");
            record.unlock();
            assert!(is_given_back(record, shared));
            assert!(!record.is_owned_by(me));
        });
    }

    #[test]
    fn help_is_due_once() {
        with_record(0, |record, _| {
            record.lock();
            record.defer_to_unlock();
            assert!(record.unlock().work_pending);
            record.lock();
            assert!(!record.unlock().work_pending);
        });
    }

    #[test]
    fn help_is_due_at_the_end_of_the_section_that_asked_and_in_no_handler_before() {
        with_record(0, |record, _| {
            record.lock();
            record.lock();
            record.defer_to_unlock();
            record.defer_to_unlock();
            // A handler's section, at any moment from here on.
            record.lock();
            assert!(!record.unlock().work_pending);
            assert!(!record.unlock().work_pending);
            record.lock();
            assert!(!record.unlock().work_pending);
            assert!(record.is_reading());
            assert!(record.unlock().work_pending);
            assert!(!record.is_reading());
        });
    }
}
