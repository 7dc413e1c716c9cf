//! Model-checked tests of slots: between the thread that frees one and the thread that gets it,
//! and of regions and arenas that go with their last slots. A region's memory that is used after it
//! went ends the model.

use super::{
    Arena, DELETED, UsedSlot,
    list::List,
    region::{Pushed, Pushing, Region},
};
use std::{alloc::Layout, ptr::NonNull};
use stillpoint::internal::{GracePeriods, Policy, Sound};
use stillpoint_platform::{
    model::{self as loom, thread},
    race::Owner,
    sync::{Arc, AtomicPtr, Ordering, UnsafeCell},
};

fn model(test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(test);
}

/// An arena of slots so large that a run has few, and each push makes it worthwhile.
fn arena() -> NonNull<Arena> {
    let arena = Arena::for_entries(Layout::new::<[u64; 64]>(), 1);
    arena.expect("memory").into_raw()
}

/// What a thread may do with an arena, or its slots.
struct Mine<T>(NonNull<T>);

impl<T> Clone for Mine<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Mine<T> {}

// SAFETY: loom checks each access.
unsafe impl<T> Send for Mine<T> {}
// SAFETY: the same.
unsafe impl<T> Sync for Mine<T> {}

impl Mine<Arena> {
    fn allocate(self) -> Option<Mine<u8>> {
        // SAFETY: the model closes it in the end.
        unsafe { self.0.as_ref() }.allocate().map(Mine)
    }

    fn runs_in_use(self) -> usize {
        // SAFETY: the model closes it in the end.
        unsafe { Arena::with_list(self.0, |list| list.runs().0 - list.runs().1) }.expect("no fork")
    }

    fn close(self) {
        // SAFETY: the test's other threads only free.
        unsafe { Arena::close(self.0) };
    }
}

/// What is in a slot in use.
type Value = UnsafeCell<u32>;

impl Mine<u8> {
    fn write(self, value: u32) -> Self {
        // SAFETY: the slot is large enough; whether it is ours is what loom checks.
        unsafe { self.0.cast().write(Value::new(value)) };
        self
    }

    /// Loom fails if another thread's access is not ordered.
    fn change(self, value: u32) {
        // SAFETY: the slot has a value.
        let at = unsafe { self.0.cast::<Value>().as_ref() };
        // SAFETY: whether it is ours is what loom checks.
        at.with_mut(|at| unsafe { *at = value });
    }

    fn read(self) -> u32 {
        // SAFETY: the slot has a value.
        let at = unsafe { self.0.cast::<Value>().as_ref() };
        // SAFETY: whether no thread writes it is what loom checks.
        at.with(|at| unsafe { *at })
    }

    fn free(self) {
        // SAFETY: the test does not use it any more; or that is what is checked.
        unsafe { UsedSlot::of(self.0) }.free();
    }
}

/// A run's slots are freed by one thread, and allocated by another, which reads the links.
fn free_and_allocate(free: fn(Mine<u8>)) {
    model(move || {
        let arena = Mine(arena());
        let slots: Vec<_> = std::iter::from_fn(|| arena.allocate()).take(2).collect();
        // No thread has them any more but the one that frees them.
        let theirs = [slots[0].write(1), slots[1].write(2)];
        let other = thread::spawn(move || theirs.into_iter().for_each(free));
        // So many that those of the run are asked for again.
        let ours: Vec<_> = (0..4).filter_map(|_| arena.allocate()).collect();
        for (index, slot) in ours.iter().enumerate() {
            assert!(
                !ours[..index].iter().any(|other| other.0 == slot.0),
                "twice"
            );
            slot.write(3);
        }
        other.join().unwrap();
        ours.into_iter().for_each(Mine::free);
        arena.close();
    });
}

#[test]
fn loom_free_and_allocate() {
    free_and_allocate(Mine::<u8>::free);
}

/// Loom sees the link that the push has written, if the slot is used after it.
#[test]
#[should_panic(expected = "Causality violation")]
fn loom_a_slot_used_after_its_free_is_caught() {
    model(|| {
        let arena = Mine(arena());
        let first = arena.allocate().unwrap().write(1);
        let other = thread::spawn(move || {
            first.free();
            // SAFETY: broken on purpose: it is the arena's link by now.
            let link = unsafe { first.0.cast::<UnsafeCell<u16>>().as_ref() };
            // SAFETY: the same; loom sees it.
            link.with_mut(|link| unsafe { *link = 0 });
        });
        let ours: Vec<_> = (0..4).filter_map(|_| arena.allocate()).collect();
        other.join().unwrap();
        ours.into_iter().for_each(Mine::free);
        arena.close();
    });
}

/// One thread takes slots of a stripe's run and frees them, and another one frees a slot of it: the
/// stripe has given the run up when all are free, whichever thread frees the last.
#[test]
fn loom_stripe_gives_its_run_up() {
    model(|| {
        let arena = Mine(arena());
        let first = arena.allocate().unwrap().write(1);
        let other = thread::spawn(move || first.free());
        if let Some(second) = arena.allocate() {
            second.write(2).free();
        }
        other.join().unwrap();
        assert_eq!(arena.runs_in_use(), 0);
        arena.close();
    });
}

/// Two threads free the last slots while a third part of the program closes the arena: the region
/// goes once, after all.
#[test]
fn loom_last_slots_and_the_end() {
    model(|| {
        DELETED.set((0, 0));
        let arena = Mine(arena());
        let (first, second) = (arena.allocate().unwrap(), arena.allocate().unwrap());
        let other = thread::spawn(move || first.free());
        let another = thread::spawn(move || second.free());
        arena.close();
        other.join().unwrap();
        another.join().unwrap();
        // SAFETY: the model keeps the memory that went, with this in it.
        let first_byte = unsafe { Region::of(first.0).0.cast::<u8>().read() };
        assert_eq!(first_byte, 0xff, "the region went");
        assert_eq!(DELETED.get(), (1, 1));
    });
}

/// After its push a slot does not hold the region: that a run is worthwhile is said before. Loom looks
/// for its atomic in memory that was overwritten with ones.
#[test]
#[should_panic(expected = "the index is 18446744073709551615")]
fn loom_a_region_touched_after_the_push_is_caught() {
    model(|| {
        let arena = Mine(arena());
        let (first, second) = (arena.allocate().unwrap(), arena.allocate().unwrap());
        arena.close();
        let other = thread::spawn(move || {
            let (region, run) = Region::of(first.0);
            // SAFETY: broken on purpose after the push.
            unsafe {
                match UsedSlot::of(first.0).push(Pushing::Unlocked) {
                    Pushed::Refused(slot) => slot.free(),
                    _ => Region::make_available(region, run),
                }
            }
        });
        second.free();
        other.join().unwrap();
    });
}

/// A run is given up, and a slot of it is freed, while it is to be taken up already: the thread that
/// takes it up finds that it has no owner, or leaves it to be taken up.
#[test]
fn loom_run_given_up_is_not_lost() {
    model(|| {
        let arena = Mine(arena());
        let (first, second) = (arena.allocate().unwrap(), arena.allocate().unwrap());
        let (region, run) = Region::of(first.0);
        assert_eq!(Region::of(second.0), (region, run));
        // SAFETY: two slots are in use.
        unsafe { Region::make_available(region, run) };
        let other = thread::spawn(move || {
            // SAFETY: it is closed in the end.
            let stripes = unsafe { &(*arena.0.as_ptr()).stripes };
            let owned = stripes
                .iter()
                .find_map(|stripe| stripe.try_with(Option::take)?);
            // SAFETY: two slots are in use.
            assert!(unsafe { owned.expect("it has a run").close() }.is_none());
            first.free();
        });
        let claim = |stripe| {
            // SAFETY: a slot is in use.
            let work = |list: &mut List| unsafe { Region::claim(list, region, run, stripe) };
            // SAFETY: it is closed in the end.
            unsafe { Arena::with_list(arena.0, work) }.expect("no fork")
        };
        let owned = claim(0);
        other.join().unwrap();
        // SAFETY: a slot is in use.
        let is_available = unsafe { region.as_ref() }.available() & 1 << run != 0;
        assert!(owned.is_some() || is_available, "it is lost");
        // SAFETY: a slot is in use.
        let _ = owned.map(|owned| unsafe { owned.close() });
        second.free();
        arena.close();
    });
}

enum NoWait {}
// SAFETY: broken on purpose; the model's memory outlives its readers.
unsafe impl Policy for NoWait {
    const WAITS_FOR_READERS: bool = false;
}

/// A slot is freed after a grace period, and has another value at once.
fn reuse_of_a_slot<P: Policy>() {
    model(|| {
        let grace_periods = Arc::new(GracePeriods::<P>::new());
        let arena = Mine(arena());
        let slot = arena.allocate().unwrap().write(1);
        let found = Arc::new(AtomicPtr::new(slot.0.as_ptr()));
        let (theirs, sections) = (Arc::clone(&found), Arc::clone(&grace_periods));
        let reader = thread::spawn(move || {
            let section = sections.enter(1);
            if let Some(slot) = NonNull::new(theirs.load(Ordering::Acquire)) {
                assert_eq!(Mine(slot).read(), 1);
            }
            drop(section);
        });
        found.store(std::ptr::null_mut(), Ordering::Release);
        let cookie = grace_periods.get_state();
        let has_ended = grace_periods.try_complete(cookie, 2);
        if has_ended {
            // As a free and the next insert do, which loom would not see: they make cells anew.
            slot.change(7);
            slot.free();
            arena.allocate().unwrap().write(2).free();
        }
        reader.join().unwrap();
        if !has_ended {
            slot.free();
        }
        arena.close();
    });
}

#[test]
fn loom_readers_and_the_next_use_of_a_slot() {
    reuse_of_a_slot::<Sound>();
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_a_slot_reused_before_its_grace_period_is_caught() {
    reuse_of_a_slot::<NoWait>();
}
