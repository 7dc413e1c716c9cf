//! A reader that leaves, and a thread that pushes: what is pushed is freed once, after the reader's
//! use of it, and not left behind by both.

use super::{
    super::{
        barrier_mode::BarrierMode,
        flavour::Flavour,
        loom_tests::{FIRST, NoWait, model},
        policy::{Policy, Sound},
        record::Record,
        seq::Sequence,
    },
    Batches, Engine,
};
use crate::platform::{
    sync::{Arc, AtomicPtr, Ordering, UnsafeCell},
    thread::Token,
};
use loom::thread;
use std::ptr;

/// How many elements there are.
const ELEMENTS: usize = 3;

enum NoSweepFence {}
// SAFETY: this one leaves memory alone; it loses what is due.
unsafe impl Policy for NoSweepFence {
    const SWEEP_FENCE: bool = false;
}

enum NoBarriers {}
// SAFETY: broken on purpose; the model's elements are cells that report the misuse.
unsafe impl Policy for NoBarriers {
    const HEAVY_BARRIER: bool = false;
    const SWEEP_FENCE: bool = false;
}

enum SweepsOnce {}
// SAFETY: this one leaves memory alone; it loses what is due.
unsafe impl Policy for SweepsOnce {
    const SWEEPS_AGAIN: bool = false;
}

struct World<P: Policy> {
    batches: Batches<usize, P>,
    pointers: [AtomicPtr<UnsafeCell<u32>>; ELEMENTS],
    elements: [UnsafeCell<u32>; ELEMENTS],
}

// SAFETY: loom checks each access to `elements`.
unsafe impl<P: Policy> Sync for World<P> {}
// SAFETY: as above.
unsafe impl<P: Policy> Send for World<P> {}

impl<P: Policy> World<P> {
    fn new() -> Arc<Self> {
        let engine = Engine::new(1, BarrierMode::Membarrier, Sequence::new(FIRST));
        let world = Arc::new(Self {
            batches: Batches::new(engine),
            pointers: [(); ELEMENTS].map(|()| AtomicPtr::new(ptr::null_mut())),
            elements: [1; ELEMENTS].map(UnsafeCell::new),
        });
        for (pointer, element) in world.pointers.iter().zip(&world.elements) {
            pointer.store(ptr::from_ref(element).cast_mut(), Ordering::Release); // Pairs with the load in `read`.
        }
        world
    }

    /// Frees what is due, until all of it is freed.
    fn sweep(&self, mut pushed: bool, me: u64) {
        loop {
            let due = self.batches.sweep(pushed, false, Token::for_model(me));
            for element in due.batches {
                // SAFETY: that no thread uses it any more is what the test is about.
                self.elements[element].with_mut(|element| unsafe {
                    assert_eq!(*element, 1, "freed once");
                    *element = 0;
                });
            }
            pushed = due.again;
            if !due.again {
                return;
            }
        }
    }

    fn register(&self, me: u64) -> &Record {
        let engine = &self.batches.engine;
        engine.register(Token::for_model(me), Flavour::Thread)
    }

    /// A section, at whose end the reader frees what is due.
    fn read(&self, me: u64) {
        let record = self.register(me);
        record.lock_outermost::<false>(self.batches.engine.started());
        for pointer in &self.pointers {
            let found = pointer.load(Ordering::Acquire); // Pairs with the stores in `new`.
            if !found.is_null() {
                // SAFETY: that it is alive is what the test is about.
                unsafe { (*found).with(|element| assert_eq!(*element, 1)) };
            }
        }
        record.unlock_outermost();
        self.sweep_behind(me);
    }

    /// What a reader does that has left.
    fn sweep_behind(&self, me: u64) {
        if self.batches.is_any_pending() {
            self.sweep(false, me);
        }
    }

    fn retire(&self, element: usize, me: u64) {
        self.pointers[element].swap(ptr::null_mut(), Ordering::AcqRel); // Pairs with the load in `read`.
        self.batches.push(element);
        self.sweep(true, me);
    }

    fn assert_all_freed(&self, retired: usize) {
        assert!(!self.batches.is_any_pending(), "no reader is left");
        for element in &self.elements[..retired] {
            // SAFETY: the other threads have been joined.
            element.with(|element| unsafe { assert_eq!(*element, 0, "it was due") });
        }
    }
}

fn reader_and_updater<P: Policy>() {
    model(|| {
        let world = World::<P>::new();
        let theirs = Arc::clone(&world);
        let reader = thread::spawn(move || theirs.read(1));
        world.retire(0, 2);
        reader.join().unwrap();
        world.assert_all_freed(1);
    });
}

/// The count with R5, W1 and W3; the requests with the push and R4.
#[test]
fn loom_batches_are_left_by_neither() {
    reader_and_updater::<Sound>();
}

#[test]
#[should_panic]
fn loom_batches_that_wait_for_no_reader_are_caught() {
    reader_and_updater::<NoWait>();
}

/// Two that push and sweep side by side, of which one finds the other at it; so often that this one
/// comes to the end of its looks.
fn updaters<P: Policy>(theirs: usize) {
    model(move || {
        let world = World::<P>::new();
        let updating = Arc::clone(&world);
        let other = thread::spawn(move || {
            for element in 1..=theirs {
                updating.retire(element, 1);
            }
        });
        world.retire(0, 2);
        other.join().unwrap();
        world.assert_all_freed(1 + theirs);
    });
}

#[test]
fn loom_batches_of_two_updaters() {
    updaters::<Sound>(1);
}

/// One request in each look of the sweeper's.
#[test]
fn loom_batches_pushed_during_the_last_look() {
    updaters::<Sound>(super::SWEEPS);
}

#[test]
#[should_panic = "no reader is left"]
fn loom_batches_pushed_during_the_only_look_are_missed() {
    updaters::<SweepsOnce>(1);
}

/// A reader of two batches, with whom nothing is due before it leaves.
#[test]
fn loom_batches_of_one_reader() {
    model(|| {
        let world = World::<Sound>::new();
        let theirs = Arc::clone(&world);
        let reader = thread::spawn(move || theirs.read(1));
        world.retire(0, 2);
        world.retire(1, 2);
        reader.join().unwrap();
        world.assert_all_freed(2);
    });
}

/// Two readers for which a batch waits leave at once, each perhaps while it looks as if the other
/// were still there. With membarrier there is no fence where their sections end.
fn two_readers_leave<P: Policy>() {
    model(|| {
        let world = World::<P>::new();
        for me in [1, 2] {
            world.register(me).begin_without_fence();
        }
        world.retire(0, 3);
        let readers = [1, 2].map(|me| {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                let token = Token::for_model(me);
                let record = world.batches.engine.open_record_of(token).expect("its own");
                record.end_without_fence();
                world.sweep_behind(me);
            })
        });
        for reader in readers {
            reader.join().unwrap();
        }
        world.assert_all_freed(1);
    });
}

#[test]
fn loom_batches_of_two_readers_that_leave_at_once() {
    two_readers_leave::<Sound>();
}

#[test]
#[should_panic = "no reader is left"]
fn loom_batches_of_two_readers_without_the_fence_are_left() {
    two_readers_leave::<NoSweepFence>();
}

/// In the model the barrier is the updater's fence: without it the scan does not see the reader, or
/// the reader does not see the count.
#[test]
#[should_panic]
fn loom_batches_without_barriers_are_caught() {
    reader_and_updater::<NoBarriers>();
}
