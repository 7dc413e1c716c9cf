//! Waits while no reader is registered: they return at once.
//!
//! A program may wait before it has a reader, or in a domain that none of its threads reads. So the
//! records with an owner are counted where records are handed out and given back: once in the life
//! of a reader, not once a section.
//!
//! ```text
//!   reader   owned += 1        [O1] relaxed   waiter   unlink
//!            fence(SeqCst)     [O2]                    fence(SeqCst)      [O3]
//!            sections                                  if owned == 0      [O4] acquire
//!            owned -= 1        [O5] release                free
//! ```
//!
//! # Why no reader is missed
//!
//! Take a section through a record, and the last O1 and O2 for that record before it; they happen
//! before it, also where the record came from another thread. O2 and O3 are ordered:
//!
//! * **O3 first.** The section's loads come after O2, so they find the object unlinked.
//! * **O2 first.** O4 reads what O1 wrote or a later value. Each O5 comes after its own O1 in the
//!   count's order, and the count was never below 0. So if O4 reads 0, the O5 of every earlier O1
//!   is also earlier, including this section's. O4 reads from the release sequence of all of them
//!   (there are only read-modify-writes), so the section's accesses happen before the free.
//!
//! The waiter's own record needs neither: its sections are in the waiter's program order.
//!
//! Such a wait ends no grace period and writes no shared word; it only returns. One kind of caller could
//! notice that: it has named a grace period without starting it (`get_state`), and a whole wait that begins
//! after that must end the named one. So once such a cookie has been given out, waits take the slow path.
//! (liburcu, too, returns early if its registry is empty.)

use crate::platform::{
    barrier::full_fence,
    sync::{AtomicBool, AtomicU64, Ordering},
};

#[derive(Debug)]
pub(super) struct Owners {
    /// Records that have an owner, or an open section of an owner that has exited. May be too high
    /// for a moment.
    owned: AtomicU64,
    /// Set once a grace period has been named, and not started, for a caller outside; never cleared.
    /// Relaxed: a wait that must end the named grace period happens after the naming.
    named: AtomicBool,
}

impl Owners {
    pub(super) fn new() -> Self {
        Self {
            owned: AtomicU64::new(0),
            named: AtomicBool::new(false),
        }
    }

    /// Counts `count` records that are handed out. Must be called before the first section through
    /// one of them.
    pub(super) fn come(&self, count: usize) {
        // Relaxed [O1]: O2 orders it before our sections.
        self.owned.fetch_add(count as u64, Ordering::Relaxed);
        // Fence [O2]: a waiter's O4 sees us counted, or our sections see what it unlinked.
        full_fence();
    }

    /// Stops counting a record that is given back. Must be called after its last section.
    /// Async-signal-safe.
    pub(super) fn leave(&self) {
        // Release [O5]: our sections' accesses happen before the actions of a waiter that no longer
        // finds us counted.
        self.owned.fetch_sub(1, Ordering::Release);
    }

    /// Returns the number of records that have an owner, for the only thread of a process.
    pub(super) fn count(&self) -> u64 {
        self.owned.load(Ordering::Relaxed)
    }

    /// Returns true if no reader is registered but the caller, so that all sections that had begun before
    /// this call are over. `own` says whether the caller has a record here and is in no section of it.
    /// Fences only if the first look, without a fence, finds no other reader.
    #[inline]
    pub(super) fn no_other_reads(&self, own: impl Fn() -> bool) -> bool {
        // Acquire [O4]: what sections did before their O5 happens before what we do.
        let alone = || match self.owned.load(Ordering::Acquire) {
            0 => true,
            1 => own(),
            _ => false,
        };
        if !alone() || self.named.load(Ordering::Relaxed) {
            return false;
        }
        // Fence [O3]: our next look sees the reader counted (O1), or its sections see what we
        // unlinked.
        full_fence();
        alone()
    }

    /// Notes that a grace period is being named, and not started, for a caller outside.
    pub(super) fn note_named(&self) {
        if !self.named.load(Ordering::Relaxed) {
            self.named.store(true, Ordering::Relaxed);
        }
    }

    /// Sets the count to `owned`, in the child of a fork.
    pub(super) fn reset(&self, owned: u64) {
        self.owned.store(owned, Ordering::Relaxed);
    }
}

#[cfg(all(test, stillpoint_loom, not(stillpoint_shuttle)))]
mod loom_tests {
    use super::super::{
        flavour::Flavour,
        loom_tests::{World, model},
        policy::Sound,
    };
    use crate::platform::thread::Token;
    use loom::thread;

    /// Sections without a fence, as in membarrier mode: the reader's only fence is O2. A waiter
    /// that finds no reader frees.
    fn no_reader(sections: usize) {
        model(move || {
            let world = World::<Sound>::new();
            let reading = world.clone();
            let reader = thread::spawn(move || {
                let record = reading
                    .engine
                    .register(Token::for_model(1), Flavour::Thread);
                for _ in 0..sections {
                    record.begin_without_fence();
                    reading.use_element();
                    record.end_without_fence();
                }
                record.depart();
            });
            world.unlink();
            if world.engine.has_no_reader(|| false) {
                world.free();
            }
            reader.join().unwrap();
            world.unlink();
            assert!(
                world.engine.has_no_reader(|| false),
                "it has given its record back"
            );
        });
    }

    #[test]
    fn loom_owners_pairs() {
        no_reader(1);
    }

    #[test]
    fn loom_owners_of_two_sections() {
        no_reader(2);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{engine::Engine, flavour::Flavour, policy::Sound};
    use crate::platform::thread;

    #[test]
    fn a_record_counts_from_its_claim_to_the_end_of_its_last_section() {
        let engine = Engine::<Sound>::for_test();
        assert!(engine.has_no_reader(|| false));
        let (first, second) = (
            engine.register(thread::token(), Flavour::Thread),
            engine.register(thread::token(), Flavour::Owned),
        );
        assert!(
            !engine.has_no_reader(|| true),
            "two are not the caller's one"
        );
        second.depart();
        assert!(!engine.has_no_reader(|| false) && engine.has_no_reader(|| true));
        first.lock();
        first.depart();
        assert!(
            !engine.has_no_reader(|| false),
            "its section outlives its owner"
        );
        first.unlock();
        assert!(engine.has_no_reader(|| false));
    }

    #[test]
    fn a_named_grace_period_sends_waits_to_the_slow_path() {
        let engine = Engine::<Sound>::for_test();
        let _ = engine.get_state();
        assert!(
            engine.has_no_reader(|| false),
            "the library alone asks about its own names"
        );
        let _ = engine.get_state_to_ask();
        assert!(!engine.has_no_reader(|| false));
    }
}
