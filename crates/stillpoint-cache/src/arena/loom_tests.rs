//! Model-checked tests of a value that is read, cloned and moved at the same time. A grace period is
//! the end of the readers' threads.
//!
//! Detects a weakened release of `leave`, acquire of `slot`, and release and fence of `disown`.

use super::*;
use stillpoint_platform::model::{self as loom, thread};
use stillpoint_platform::sync::Arc as Shared;

fn model(test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(test);
}

/// Returns an arena with one value, in a run that is to leave.
fn leaving() -> (Arena, Shared<Bytes>) {
    let arena = Arena::new();
    let value = arena.bytes(&[7; 3]).expect("memory");
    // As `begin_moving` has it, but for what is worth it.
    let slot = value.place().expect("a slot").cast();
    arena.0.state.lock().set_leaving_at(slot);
    (arena, Shared::new(value))
}

/// A reader finds the bytes, in the old place or the new one, and a clone keeps the old one.
#[test]
fn loom_readers_and_clones_of_a_value_that_is_moved() {
    model(|| {
        let (arena, value) = leaving();
        let reader = {
            let value = Shared::clone(&value);
            thread::spawn(move || {
                assert_eq!(**value, [7; 3]);
                let clone = Bytes::clone(&value);
                assert_eq!(*clone, [7; 3]);
            })
        };
        // SAFETY: the other thread reads from it, and ends before the old place is dropped.
        let old = unsafe { value.leave(&arena) }.expect("memory");
        assert!(old.is_some());
        assert_eq!(**value, [7; 3]);
        reader.join().unwrap();
        drop(old);
        assert_eq!(arena.statistics().values, 1);
        drop(value);
        assert_eq!(arena.statistics(), ArenaStatistics::default());
    });
}

/// The last of its owners frees a value, after the others have read it.
#[test]
fn loom_the_last_owner_frees() {
    model(|| {
        let arena = Arena::new();
        let value = arena.bytes(&[7; 3]).expect("memory");
        let other = value.clone();
        let thread = thread::spawn(move || {
            assert_eq!(*other, [7; 3]);
            drop(other);
        });
        assert_eq!(*value, [7; 3]);
        drop(value);
        thread.join().unwrap();
        assert_eq!(arena.statistics(), ArenaStatistics::default());
    });
}

/// Of two threads that move a value one does.
#[test]
fn loom_two_threads_move_a_value() {
    model(|| {
        let (arena, value) = leaving();
        let mover = {
            let (value, arena) = (Shared::clone(&value), arena.clone());
            // SAFETY: the old place is dropped after both threads have read.
            thread::spawn(move || unsafe { value.leave(&arena) }.expect("memory"))
        };
        // SAFETY: the same.
        let mine = unsafe { value.leave(&arena) }.expect("memory");
        let other = mover.join().unwrap();
        assert!(mine.is_some() != other.is_some());
        assert_eq!(**value, [7; 3]);
        drop((mine, other, value));
        assert_eq!(arena.statistics(), ArenaStatistics::default());
    });
}
