//! A record that belongs to a guard, and to no thread: see `record_cache.rs`.

use super::{NESTING, Record};
use crate::platform::{clock::Nanos, sync::Ordering, thread::Token};
use std::panic::Location;

/// Owner of a record that belongs to a guard: no thread has this token.
const A_GUARD: u64 = u64::MAX;

impl Record {
    /// Returns whether a guard owns the record, rather than a thread.
    pub(in crate::gp) fn is_a_guards(&self) -> bool {
        self.owner.load(Ordering::Relaxed) == A_GUARD
    }

    /// Returns whether a guard owns the record and its section is open. For that guard.
    pub(crate) fn is_open_guard(&self) -> bool {
        self.is_a_guards() && self.is_reading()
    }

    /// Gives a thread's quiescent record to a guard, and enters its section.
    #[inline]
    pub(crate) fn lock_owned(&self, location: &'static Location<'static>, now: Nanos) {
        debug_assert!(!self.is_reading(), "a spare record is quiescent");
        self.owner.store(A_GUARD, Ordering::Relaxed);
        self.entry().note_section(location, now);
        self.lock();
    }

    /// Leaves the section of a guard; the record is then quiescent and still the guard's.
    #[inline]
    pub(crate) fn unlock_owned(&self) {
        debug_assert_eq!(
            self.word.load(Ordering::Relaxed) & NESTING,
            1,
            "a guard's section does not nest"
        );
        self.end();
        self.entry().clear_name();
    }

    /// Makes a guard's quiescent record the calling thread's own again, for the next guard.
    #[inline]
    pub(in crate::gp) fn take_back(&self, token: Token, tid: u32) {
        self.entry().set_tid(tid);
        self.owner.store(token.get(), Ordering::Relaxed);
    }

    /// Names a guard's section for reports.
    pub(crate) fn set_name(&self, name: Box<str>) {
        self.entry().set_name(name);
    }

    /// Ends the section of a guard that no longer exists.
    ///
    /// # Safety
    ///
    /// If a guard owns the record, that guard is never used again, and the record is not reassigned
    /// meanwhile.
    pub(in crate::gp) unsafe fn abandon(&self) {
        if self.is_a_guards() && self.is_reading() {
            self.unlock_owned();
            self.vacate();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{gp::record::tests::with_record, platform::thread};

    #[test]
    fn a_guards_record_is_no_threads_until_it_is_taken_back() {
        with_record(0, |record, shared| {
            let me = thread::token();
            record.lock_owned(Location::caller(), 1);
            let goal = shared.seq.start();
            assert!(record.is_reading() && !record.is_owned_by(me));
            record.set_name("task".into());
            assert_eq!(
                record.entry().name().as_deref().map(|name| &**name),
                Some("task")
            );
            record.unlock_owned();
            assert!(record.holds_out(goal).is_none() && record.entry().name().is_none());
            record.take_back(me, 7);
            assert!(record.is_owned_by(me));
            assert_eq!(record.entry().tid(), 7);
        });
    }
}
