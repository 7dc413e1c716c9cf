//! Model-checked tests of the life of one entry: inserted, found, pinned, evicted, expired, removed.
//! State, policy, wheel and node are the real ones, and so are the grace periods; the map is one
//! place. Each thread does what [`crate::put`] and [`crate::remove`] do.
//!
//! Detects an entry retired while it is in its queue.

use crate::{
    node::{Id, Locked, Meta, NEVER, Stage, Weight},
    removal::Cause,
    state::{Claimed, Entrant, For, ROOT, State},
    tenant::Handle,
};
use std::ptr::{self, NonNull};
use stillpoint::internal::{GracePeriods, Policy, Sound};
use stillpoint_platform::{
    model::{self as loom, thread},
    sync::{Arc, AtomicPtr, Mutex, MutexGuard, Ordering, UnsafeCell, lock},
};

fn model(test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(test);
}

enum NoWait {}
// SAFETY: broken on purpose; the model's memory outlives its readers.
unsafe impl Policy for NoWait {
    const WAITS_FOR_READERS: bool = false;
}

struct Entry {
    meta: Meta,
    /// Written by the free: loom fails if a reader is not before that.
    value: UnsafeCell<u32>,
}

struct World<P: Policy> {
    state: Mutex<State>,
    /// The map.
    place: AtomicPtr<Entry>,
    entry: NonNull<Entry>,
    sections: GracePeriods<P>,
}

// SAFETY: loom checks what threads do with the entry.
unsafe impl<P: Policy> Send for World<P> {}
// SAFETY: as above.
unsafe impl<P: Policy> Sync for World<P> {}

/// Time at which the entry expires, unless it never does, and a time after that.
const EXPIRES: u64 = 1 << 30;
const AFTER: u64 = 1 << 40;

impl<P: Policy> World<P> {
    /// Makes a world with an entry that is in the map, not linked.
    fn new(expires: u64) -> Arc<Self> {
        let entry = Box::new(Entry {
            meta: Meta::new(Weight::of(1), 7, expires, expires, false),
            value: UnsafeCell::new(1),
        });
        let entry = NonNull::from(Box::leak(entry));
        Arc::new(Self {
            state: Mutex::new(State::new(Handle::root(), 100)),
            place: AtomicPtr::new(entry.as_ptr()),
            entry,
            sections: GracePeriods::new(),
        })
    }

    fn linked(expires: u64) -> Arc<Self> {
        let world = Self::new(expires);
        world.link();
        world
    }

    fn id(&self) -> Id {
        // SAFETY: in bounds.
        Id::of_model(unsafe { NonNull::new_unchecked(&raw mut (*self.entry.as_ptr()).meta) })
    }

    fn entry(&self) -> &Entry {
        // SAFETY: it is leaked until the end.
        unsafe { self.entry.as_ref() }
    }

    fn lock(&self) -> (MutexGuard<'_, State>, Locked) {
        // SAFETY: as in `Inner::lock`.
        (lock(&self.state), unsafe { Locked::assume() })
    }

    /// Links the entry: the second half of an insert.
    fn link(&self) {
        let (mut state, mut locked) = self.lock();
        self.admit(&mut state, &mut locked, 0);
    }

    fn admit(&self, state: &mut State, locked: &mut Locked, reserved: u64) {
        let (entrant, claimed) = (self.entrant(), &mut Claimed::default());
        let admitted = state.admit(locked, self.id(), entrant, reserved, claimed);
        assert_eq!(admitted, Ok(None));
    }

    fn entrant(&self) -> Entrant {
        Entrant {
            number: ROOT,
            expires: self.entry().meta.expires.load(Ordering::Relaxed),
            standing: None,
        }
    }

    /// As [`link`](Self::link), in two holds of the lock, and in a section only in the second one.
    fn link_in_batches(&self, thread: u64) {
        let (mut state, mut locked) = self.lock();
        let is_new = locked.of(self.id()).stage == Stage::New;
        let ticket = is_new.then(|| state.wait(self.id(), self.entrant(), 1));
        drop(state);
        let Some(ticket) = ticket else { return };
        let section = self.sections.enter(thread);
        let (mut state, mut locked) = self.lock();
        if let Some((_, _, reserved)) = state.resume(ticket) {
            // SAFETY: whether it has not been freed is what loom checks.
            self.entry()
                .value
                .with(|value| assert_eq!(unsafe { *value }, 1));
            self.admit(&mut state, &mut locked, reserved);
        }
        drop((state, section));
    }

    fn find(&self) -> bool {
        // Acquire, as the map's readers: the entry is complete.
        !self.place.load(Ordering::Acquire).is_null()
    }

    /// Finds the entry in a section: a hit.
    fn get(&self, thread: u64) {
        let section = self.sections.enter(thread);
        if self.find() {
            let meta = &self.entry().meta;
            let _ = meta.mark_lasting() || {
                meta.mark();
                true
            };
            // SAFETY: whether it has not been freed is what loom checks.
            self.entry()
                .value
                .with(|value| assert_eq!(unsafe { *value }, 1));
        }
        drop(section);
    }

    /// Takes it out of the map; the one thread that has done so frees it after a grace period.
    fn remove_from_map(&self, thread: u64) -> bool {
        let (entry, none) = (self.entry.as_ptr(), ptr::null_mut());
        let taken = self
            .place
            .compare_exchange(entry, none, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok();
        if taken {
            // The rule: it has left its queue, for good.
            let (state, mut locked) = self.lock();
            let stage = locked.of(self.id()).stage;
            drop(state);
            assert_eq!(stage, Stage::Claimed, "in a queue");
            self.free(thread);
        }
        taken
    }

    /// Frees the entry after a grace period, if that ends.
    fn free(&self, thread: u64) {
        let cookie = self.sections.get_state();
        self.sections.begin(cookie);
        if self.sections.try_complete(cookie, thread) {
            // SAFETY: whether all readers have left is what loom checks.
            self.entry().value.with_mut(|value| unsafe { *value = 0 });
        }
    }

    /// Replaces it by an entry of the same weight, and takes that out at the end. Whether the old
    /// one was claimed for the new one, and whether that took its place.
    fn replace(&self, thread: u64, retires_first: bool) -> (bool, bool) {
        let new = Meta::new(Weight::of(1), 7, NEVER, NEVER, false);
        let new = NonNull::from(Box::leak(Box::new(new)));
        let (entry, none) = (self.entry.as_ptr(), ptr::null_mut());
        // The new one is no reader's in this model: its place is empty.
        let swapped = self
            .place
            .compare_exchange(entry, none, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok();
        if swapped && retires_first {
            self.free(thread);
        }
        let (mut state, mut locked) = self.lock();
        let id = Id::of_model(new);
        let inherited = swapped.then(|| {
            let both = [self.id(), id];
            state.replace(&mut locked, both, Cause::Replaced, NEVER)
        });
        if inherited.is_some_and(|inherited| inherited.is_linked) {
            assert_eq!(
                (state.tenant(ROOT).usage, state.tenant(ROOT).entries()),
                (1, 1)
            );
            state.claim(&mut locked, id, Some(Cause::Removed));
        }
        drop(state);
        if swapped && !retires_first {
            self.free(thread);
        }
        // SAFETY: leaked above, and in no queue.
        drop(unsafe { Box::from_raw(new.as_ptr()) });
        inherited.map_or((false, false), |inherited| {
            (inherited.counted.is_some(), inherited.is_linked)
        })
    }

    /// Evicts it, if it is in its queue, and reads it once more, as a listener's clone does; in a
    /// section.
    fn evict_and_read(&self, thread: u64) -> bool {
        let section = self.sections.enter(thread);
        let mut claimed = Claimed::default();
        let (mut state, mut locked) = self.lock();
        state.shrink(&mut locked, (ROOT, 0), For::Limit, &mut claimed);
        drop(state);
        // SAFETY: claimed in the section.
        let is_claimed = unsafe { claimed.iter() }.any(|id| id == self.id());
        if is_claimed {
            // SAFETY: whether it has not been freed is what loom checks.
            self.entry()
                .value
                .with(|value| assert_eq!(unsafe { *value }, 1));
        }
        drop(section);
        if is_claimed {
            self.remove_from_map(thread);
        }
        is_claimed
    }

    /// Claims what `claim` does, and takes that out of the map. How many.
    fn claim_some(
        &self,
        thread: u64,
        claim: impl FnOnce(&mut State, &mut Locked, &mut Claimed),
    ) -> usize {
        let mut claimed = Claimed::default();
        let (mut state, mut locked) = self.lock();
        claim(&mut state, &mut locked, &mut claimed);
        drop(state);
        // SAFETY: the model's memory outlives its readers.
        let removed = unsafe { claimed.iter() }.filter(|id| {
            assert_eq!(*id, self.id());
            self.remove_from_map(thread)
        });
        removed.count()
    }

    fn evict(&self, thread: u64) -> usize {
        self.claim_some(thread, |state, locked, claimed| {
            state.shrink(locked, (ROOT, 0), For::Limit, claimed);
        })
    }

    fn expire(&self, thread: u64) -> usize {
        self.claim_some(
            thread,
            |state, locked, claimed| {
                while state.expire(locked, AFTER, claimed) {}
            },
        )
    }

    /// Removes the entry by its key. Returns whether this has claimed it, and how often it has taken it out.
    fn remove(&self, thread: u64) -> (bool, usize) {
        if !self.find() {
            return (false, 0);
        }
        let (mut state, mut locked) = self.lock();
        let claimed = state.claim(&mut locked, self.id(), None);
        drop(state);
        (claimed, usize::from(self.remove_from_map(thread)))
    }

    /// Checks that nothing is left of the entry, and that it was accounted for once.
    fn check_gone(&self) {
        let (state, mut locked) = self.lock();
        assert!(!self.find() && state.next_due().is_none());
        assert_eq!(locked.of(self.id()).stage, Stage::Claimed);
        let root = state.tenant(ROOT);
        assert_eq!((root.usage, root.entries(), root.pinned_bytes), (0, 0, 0));
    }
}

impl<P: Policy> Drop for World<P> {
    fn drop(&mut self) {
        // SAFETY: leaked by `new`; no thread is left.
        drop(unsafe { Box::from_raw(self.entry.as_ptr()) });
    }
}

#[test]
fn loom_an_insert_and_the_removal_of_its_entry() {
    insert_and_removal(EXPIRES, World::link);
}

fn insert_and_removal(expires: u64, insert: fn(&World<Sound>)) {
    model(move || {
        let world = World::new(expires);
        let other = Arc::clone(&world);
        let remover = thread::spawn(move || other.remove(1));
        insert(&world);
        assert_eq!(remover.join().unwrap(), (true, 1));
        world.check_gone();
    });
}

/// The insert is in no section between the two holds, and finds the entry in the list or not at all.
#[test]
fn loom_an_insert_that_waits_for_room_and_the_removal_of_its_entry() {
    insert_and_removal(NEVER, |world| world.link_in_batches(2));
}

#[test]
fn loom_an_eviction_an_expiry_and_a_removal() {
    model(|| {
        let world = World::<Sound>::linked(EXPIRES);
        let (one, two) = (Arc::clone(&world), Arc::clone(&world));
        let evicts = thread::spawn(move || one.evict(1));
        let expires = thread::spawn(move || two.expire(2));
        let (_, removed) = world.remove(3);
        let all = evicts.join().unwrap() + expires.join().unwrap() + removed;
        assert_eq!(all, 1, "one thread has taken it out");
        world.check_gone();
    });
}

#[test]
fn loom_a_reader_and_the_eviction_of_what_it_has_found() {
    reader_and_eviction::<Sound>();
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_an_entry_freed_before_its_grace_period_is_caught() {
    reader_and_eviction::<NoWait>();
}

fn reader_and_eviction<P: Policy>() {
    model(|| {
        let world = World::<P>::linked(NEVER);
        let other = Arc::clone(&world);
        let reader = thread::spawn(move || other.get(1));
        assert_eq!(world.evict(2), 1);
        reader.join().unwrap();
        world.check_gone();
    });
}

/// Taken out of the map first, it is there in its queue for a thread that evicts.
#[test]
#[should_panic(expected = "in a queue")]
fn loom_an_entry_that_leaves_the_map_before_its_queue_is_caught() {
    model(|| {
        World::<Sound>::linked(NEVER).remove_from_map(1);
    });
}

#[test]
fn loom_a_replacement_and_an_eviction() {
    replacement_and_eviction(false);
}

/// As the rule would have it if the old one were retired as it leaves the map.
#[test]
#[should_panic(expected = "Causality violation")]
fn loom_an_entry_that_is_retired_in_its_queue_is_caught() {
    replacement_and_eviction(true);
}

fn replacement_and_eviction(retires_first: bool) {
    model(move || {
        let world = World::<Sound>::linked(NEVER);
        let other = Arc::clone(&world);
        let evicts = thread::spawn(move || other.evict_and_read(1));
        let (claimed, linked) = world.replace(2, retires_first);
        let evicted = evicts.join().unwrap();
        // One of the two has claimed it; the new one is linked in its place if it was not evicted.
        assert_eq!(claimed, linked);
        assert!(!(claimed && evicted), "claimed twice");
        world.check_gone();
    });
}

/// Either the pin comes first, and nothing is evicted, or it is told that it has come too late.
#[test]
fn loom_a_pin_and_an_eviction() {
    model(|| {
        let world = World::<Sound>::linked(NEVER);
        let other = Arc::clone(&world);
        let evicts = thread::spawn(move || other.evict(1));
        let pinned = {
            let (mut state, mut locked) = world.lock();
            state.pin(&mut locked, world.id(), true)
        };
        let evicted = evicts.join().unwrap();
        assert_eq!(
            (pinned, evicted),
            if pinned { (true, 0) } else { (false, 1) }
        );
        if pinned {
            assert_eq!(world.lock().0.tenant(ROOT).pinned_bytes, 1);
            assert_eq!(world.remove(2), (true, 1));
        }
        world.check_gone();
    });
}

/// The mark that readers write without a lock, while a search for a victim clears it.
#[test]
fn loom_hits_that_are_noted_while_a_search_clears_them() {
    model(|| {
        let world = World::<Sound>::linked(NEVER);
        let other = Arc::clone(&world);
        let reader = thread::spawn(move || (0..3).for_each(|_| other.get(1)));
        // Searches end, whatever is noted meanwhile.
        assert_eq!(world.evict(2), 1);
        reader.join().unwrap();
        world.check_gone();
    });
}

/// A use is noted by a compare-exchange, so it does not undo that another thread hides the entry.
#[test]
fn loom_a_use_that_is_noted_while_the_entry_is_hidden() {
    for expires in [NEVER, EXPIRES] {
        model(move || {
            let meta = Arc::new(Meta::new(Weight::of(1), 7, expires, NEVER, false));
            let other = Arc::clone(&meta);
            let user = thread::spawn(move || {
                if !other.mark_lasting() {
                    other.mark();
                    other.touch(0, 2 * EXPIRES, || 0);
                }
            });
            meta.hide();
            user.join().unwrap();
            // SAFETY: the other thread has ended.
            assert!(unsafe { meta.is_hidden_at_last() }, "found again");
        });
    }
}
