//! Sections whose beginning is a fence that users rely on: [`Record::lock_outermost`].
//!
//! Detects an outermost section without its fence.

use super::{FIRST, World, litmus_tests::observed, model};
use crate::gp::{
    barrier_mode::BarrierMode, engine::Engine, flavour::Flavour, policy::Sound, record::Record,
    seq::Sequence,
};
use crate::platform::{
    sync::{Arc, AtomicUsize, Ordering},
    thread::Token,
};
use loom::thread;

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
    observed(3, move || {
        let words: Words = (engine(), [AtomicUsize::new(0), AtomicUsize::new(0)]);
        let words = Arc::new(words);
        let theirs = Arc::clone(&words);
        let other = thread::spawn(move || write_and_read(&theirs, 1, begin));
        let mine = write_and_read(&words, 0, begin);
        (mine, other.join().unwrap()) == (0, 0)
    })
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
    model(|| {
        let world = World::of(engine());
        let theirs = Arc::clone(&world);
        let reader = thread::spawn(move || {
            let record = theirs.register(1);
            for _ in 0..2 {
                record.lock_outermost::<true>(theirs.engine.started());
                theirs.use_element();
                record.unlock_outermost();
            }
        });
        world.unlink_and_try_to_free();
        reader.join().unwrap();
    });
}
