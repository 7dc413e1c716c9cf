//! Waits while no reader is registered: they return at once.
//!
//! A program may wait long before it has a reader, or in a domain that none of its threads reads. How many records have an owner is counted where
//! records are handed out and given back, which readers do once in their life and not once a section:
//!
//! ```text
//!   reader   owned += 1        [O1]           waiter   unlink
//!            fence(SeqCst)     [O2]                    fence(SeqCst)      [O3]
//!            sections                                  if owned == 0      [O4] acquire
//!            owned -= 1        [O5] release                free
//! ```
//!
//! # Why no reader is missed
//!
//! Take a section through a record, and the last O1 and O2 for that record before it; they happen before it, also where the record came from
//! another thread. O2 and O3 are ordered:
//!
//! * **O3 first.** The section's loads come after O2, so they find the object unlinked.
//! * **O2 first.** O4 reads what O1 wrote or a later value. Each O5 comes after its own O1 in the count's order, and the count was never below 0;
//!   so where it is 0, each O1 before has its O5 before, this section's too. O4 reads from the release sequence of all of them (there are only
//!   read-modify-writes), so the section's accesses happen before the free.
//!
//! A record that is the waiter's own needs neither: its sections are ordered with the waiter by being in one thread.
//!
//! No number moves, and no shared word is written: a wait of this kind ends no grace period, it only returns. The one who could tell is a
//! caller that had named a grace period without starting it (`get_state`): it must find that ended by a whole wait that came after, whatever readers
//! there are by then. So once there has been such a name, waits take the slow path. (liburcu returns early where its registry is empty, too.)

use super::{engine::Engine, policy::Policy, seq::Cookie};
use crate::platform::{
    barrier::full_fence,
    sync::{AtomicBool, AtomicU64, Ordering},
};

#[derive(Debug)]
pub(super) struct Owners {
    /// Records that have an owner, or a section of one who has gone. May be more for a moment.
    owned: AtomicU64,
    /// Whether a grace period has been named, and not started, for a caller outside. Never taken back. Not ordered: a wait that the name must
    /// not outlast happens after it.
    named: AtomicBool,
}

impl Owners {
    pub(super) fn new() -> Self {
        Self { owned: AtomicU64::new(0), named: AtomicBool::new(false) }
    }

    /// [O1, O2] To be called before the first section through any of `count` records that are handed out.
    pub(super) fn come(&self, count: usize) {
        self.owned.fetch_add(count as u64, Ordering::Relaxed); // [O1]
        // Fence [O2]: a waiter sees us (O1), or our sections see what it unlinked.
        full_fence();
    }

    /// [O5] To be called when a record is given back, after its last section. Release: what its sections did happens before what the waiter
    /// does who does not count it. Async-signal-safe.
    pub(super) fn leave(&self) {
        self.owned.fetch_sub(1, Ordering::Release);
    }

    /// In the child of a fork, which has `owned` of them.
    #[cfg(not(stillpoint_loom))]
    pub(super) fn reset_in_child(&self, owned: u64) {
        self.owned.store(owned, Ordering::Relaxed);
    }
}

impl<P: Policy> Engine<P> {
    /// [O3, O4] Whether all sections are over that had begun before this call. Sure of it only if no reader is registered, or the caller
    /// alone: `own` says whether it has a record here, in which it is in no section. Fences only where a look without says that it may be so.
    #[inline]
    pub(crate) fn has_no_reader(&self, own: impl Fn() -> bool) -> bool {
        let owners = &self.shared.owners;
        // Acquire [O4]: what sections did before O5 happens before what we do.
        let alone = || match owners.owned.load(Ordering::Acquire) {
            0 => true,
            1 => own(),
            _ => false,
        };
        if !alone() || owners.named.load(Ordering::Relaxed) {
            return false;
        }
        // Fence [O3]: we see the reader (O1), or its sections see what we unlinked.
        full_fence();
        alone() // [O4]
    }

    /// [`Engine::get_state`] for a caller that may ask about it, whatever waits there are meanwhile.
    pub(crate) fn get_state_to_ask(&self) -> Cookie {
        if !self.shared.owners.named.load(Ordering::Relaxed) {
            self.shared.owners.named.store(true, Ordering::Relaxed);
        }
        self.get_state()
    }
}

#[cfg(all(test, stillpoint_loom, not(stillpoint_shuttle)))]
mod loom_tests {
    use super::super::{
        loom_tests::{World, model},
        policy::Sound,
        stall::Flavour,
    };
    use crate::platform::thread::Token;
    use loom::thread;

    /// Sections without a fence, as where membarrier stands in for it: what the reader has is O2 alone. A waiter that finds no reader frees.
    fn no_reader(sections: usize) {
        model(move || {
            let world = World::<Sound>::new();
            let reading = world.clone();
            let reader = thread::spawn(move || {
                let record = reading.engine.register(Token::for_model(1), Flavour::Thread);
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
            assert!(world.engine.has_no_reader(|| false), "it has given its record back");
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

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::super::{engine::BarrierMode, policy::Sound, seq::Sequence, stall::Flavour};
    use super::*;
    use crate::platform::thread;

    fn engine() -> Engine<Sound> {
        Engine::new(1, BarrierMode::Membarrier, Sequence::new(Cookie::from_raw(0).seq()))
    }

    #[test]
    fn a_record_counts_from_its_claim_to_the_end_of_its_last_section() {
        let engine = engine();
        assert!(engine.has_no_reader(|| false));
        let (first, second) =
            (engine.register(thread::token(), Flavour::Thread), engine.register(thread::token(), Flavour::Owned));
        assert!(!engine.has_no_reader(|| true), "two are not the caller's one");
        second.depart();
        assert!(!engine.has_no_reader(|| false) && engine.has_no_reader(|| true));
        first.lock();
        first.depart();
        assert!(!engine.has_no_reader(|| false), "its section outlives its owner");
        first.unlock();
        assert!(engine.has_no_reader(|| false));
    }

    #[test]
    fn in_a_forks_child_the_records_of_vanished_threads_do_not_count() {
        let engine = engine();
        let mine = engine.register(thread::token(), Flavour::Thread);
        let vanished = std::thread::scope(|scope| scope.spawn(thread::token).join().unwrap());
        engine.register(vanished, Flavour::Thread).lock();
        assert!(!engine.has_no_reader(|| true));
        // SAFETY: as in a child: the other thread is gone, and its record is not used any more.
        unsafe { engine.registry.reset_in_child(thread::token()) };
        assert!(engine.has_no_reader(|| true) && !engine.has_no_reader(|| false), "the caller's own is left");
        mine.depart();
        assert!(engine.has_no_reader(|| false));
    }

    #[test]
    fn a_named_grace_period_sends_waits_to_the_slow_path() {
        let engine = engine();
        let _ = engine.get_state();
        assert!(engine.has_no_reader(|| false), "the library alone asks about its own names");
        let _ = engine.get_state_to_ask();
        assert!(!engine.has_no_reader(|| false));
    }
}
