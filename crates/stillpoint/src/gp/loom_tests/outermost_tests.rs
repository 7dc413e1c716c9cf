//! Sections whose beginning is a fence that users rely on: [`Record::lock_outermost`].
//!
//! Detects an outermost section without its fence.

use super::{FIRST, model};
use crate::gp::{
    barrier_mode::BarrierMode,
    engine::{Engine, Progress},
    flavour::Flavour,
    policy::Sound,
    record::Record,
    seq::Sequence,
};
use crate::platform::{
    sync::{Arc, AtomicPtr, AtomicUsize, Ordering, UnsafeCell},
    thread::Token,
};
use loom::thread;
use std::{
    ptr,
    sync::atomic::{AtomicBool as Flag, Ordering::SeqCst},
};

fn engine() -> Engine<Sound> {
    Engine::new(1, BarrierMode::EntryFence, Sequence::new(FIRST))
}

/// Two words, and the engine that orders the accesses to them.
type Words = (Engine<Sound>, [AtomicUsize; 2]);

/// Writes word `mine`, begins a section by `begin`, and returns the other word.
fn write_and_read(
    (engine, words): &Words,
    mine: usize,
    begin: fn(&Engine<Sound>, &Record),
) -> usize {
    let record = engine.register(Token::for_model(mine as u64 + 1), Flavour::Thread);
    words[mine].store(1, Ordering::Relaxed);
    begin(engine, record);
    let other = words[1 - mine].load(Ordering::Relaxed);
    record.unlock_outermost();
    other
}

/// Returns whether some schedule has each of two threads miss what the other has written.
fn both_can_miss(begin: fn(&Engine<Sound>, &Record)) -> bool {
    let missed = std::sync::Arc::new(Flag::new(false));
    let seen = std::sync::Arc::clone(&missed);
    model(move || {
        let words: Words = (engine(), [AtomicUsize::new(0), AtomicUsize::new(0)]);
        let words = Arc::new(words);
        let theirs = Arc::clone(&words);
        let other = thread::spawn(move || write_and_read(&theirs, 1, begin));
        let mine = write_and_read(&words, 0, begin);
        if (mine, other.join().unwrap()) == (0, 0) {
            seen.store(true, SeqCst); // Pairs with the load below, behind all schedules.
        }
    });
    missed.load(SeqCst) // Pairs with the store above.
}

/// The pattern of a deque that steals: a pin in place of its own fence.
#[test]
fn loom_outermost_section_is_a_fence() {
    assert!(!both_can_miss(|engine, record| {
        record.lock_outermost::<true>(engine.started());
    }));
}

/// And the test can tell: with R1 and R2 alone both miss.
#[test]
fn loom_outermost_section_without_a_fence_is_caught() {
    assert!(both_can_miss(|_, record| {
        let _ = record.begin_without_fence();
    }));
}

/// R1 to R4 with W1 to W6, as everywhere.
#[test]
fn loom_outermost_section_is_waited_for() {
    struct World {
        engine: Engine<Sound>,
        pointer: AtomicPtr<UnsafeCell<u32>>,
        element: UnsafeCell<u32>,
    }
    // SAFETY: loom checks each access to `element`.
    unsafe impl Sync for World {}
    // SAFETY: as above.
    unsafe impl Send for World {}
    model(|| {
        let world = Arc::new(World {
            engine: engine(),
            pointer: AtomicPtr::new(ptr::null_mut()),
            element: UnsafeCell::new(1),
        });
        let at = ptr::from_ref(&world.element).cast_mut();
        world.pointer.store(at, Ordering::Release); // Pairs with the load below.
        let theirs = Arc::clone(&world);
        let reader = thread::spawn(move || {
            let record = theirs.engine.register(Token::for_model(1), Flavour::Thread);
            for _ in 0..2 {
                record.lock_outermost::<true>(theirs.engine.started());
                let found = theirs.pointer.load(Ordering::Acquire); // Pairs with the store above.
                if !found.is_null() {
                    // SAFETY: that it is alive is what the test is about.
                    unsafe { (*found).with(|element| assert_eq!(*element, 1)) };
                }
                record.unlock_outermost();
            }
        });
        world.pointer.swap(ptr::null_mut(), Ordering::AcqRel); // Pairs with the load above.
        let cookie = world.engine.start();
        if world.engine.try_complete(cookie, Token::for_model(1000)) == Progress::Ended {
            // SAFETY: that no thread uses it any more is what the test is about.
            world.element.with_mut(|element| unsafe { *element = 0 });
        }
        reader.join().unwrap();
    });
}
