//! Segments: published in, sealed, emptied, taken away once, freed when readers and pins have left.

use super::{
    be, beside,
    index::{HIGH, LOW, in_two_buckets},
    model, model_of,
    world::{Retired, SIZE, SegmentRef, World, hash},
};
use crate::store::{
    class::SEGMENT_HEADER,
    rcu::{read_lock, without_waiting},
    stage::Stage,
};
use std::sync::atomic::Ordering as StdOrdering;
use stillpoint_platform::sync::Arc;

const ONE: u64 = 1 << 48;
const TWO: u64 = 2 << 48;

impl World {
    /// How often a segment was taken away; and no dead bytes are counted of such.
    fn taken(&self) -> usize {
        self.taken.load(StdOrdering::Relaxed)
    }

    fn dead(&self) -> i64 {
        self.dead.load(StdOrdering::Relaxed)
    }
}

fn reader_and_replacement() {
    model(|| {
        be(0);
        // The new one lies in another segment.
        let world = Arc::new(World::new(2, &[(ONE, 0, 1), (ONE, 1, 2)]));
        world.insert(0);
        world.seal(0);
        let reader = beside(1, &world, move |other| other.get(ONE));
        let retired = world.put(1, None).ok().unwrap();
        assert!(retired.is_some(), "it was the last of its segment");
        world.release(retired);
        assert!(matches!(reader.join().unwrap(), Some(1 | 2)));
        assert_eq!((world.taken(), world.dead()), (1, 0));
    });
}

#[test]
fn loom_a_reader_and_a_replacement_that_empties_a_segment() {
    reader_and_replacement();
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_a_segment_that_is_freed_under_a_reader_is_caught() {
    without_waiting(reader_and_replacement);
}

/// One of them takes it away.
#[test]
fn loom_a_reader_and_two_threads_that_empty_a_segment() {
    model_of(2, || {
        be(0);
        let hashes = [ONE, TWO];
        let world = Arc::new(World::new(1, &hashes.map(|hash| (hash, 0, 1))));
        world.insert(0);
        world.insert(1);
        world.seal(0);
        let reader = beside(1, &world, move |reads| reads.get(ONE));
        let remover = beside(2, &world, move |removes| {
            let retired = removes.remove(ONE);
            removes.release(retired);
        });
        let retired = world.remove(TWO);
        world.release(retired);
        remover.join().unwrap();
        reader.join().unwrap();
        assert_eq!((world.taken(), world.dead()), (1, 0));
    });
}

/// Two items of a sealed segment, in two buckets: no lock orders the threads that take them out.
fn sealed_in_two_buckets() -> Arc<World> {
    let (world, _) = in_two_buckets();
    world.seal(0);
    world
}

/// The thread that takes the last item out frees the segment, though another one has emptied the slot
/// that a reader looks at.
#[test]
fn loom_a_reader_and_two_threads_that_empty_a_segment_in_two_buckets() {
    // Three: the thread that empties the slot, that which frees, the reader.
    model_of(3, || {
        let world = sealed_in_two_buckets();
        let reader = beside(1, &world, move |reads| reads.get(hash(LOW, 1)));
        let remover = beside(2, &world, move |removes| {
            let retired = removes.remove(hash(HIGH, 2));
            removes.release(retired);
        });
        let retired = world.remove(hash(LOW, 1));
        world.release(retired);
        remover.join().unwrap();
        reader.join().unwrap();
        assert_eq!((world.taken(), world.dead()), (1, 0));
    });
}

/// A thread takes one item out, has no memory for the other, and leaves the segment to the thread
/// that deletes that.
#[test]
fn loom_a_reader_and_the_last_item_of_a_partly_emptied_segment() {
    model_of(2, || {
        let world = sealed_in_two_buckets();
        let reader = beside(1, &world, move |reads| reads.get(hash(LOW, 1)));
        let segment = world.segment(0);
        let evictor = beside(2, &world, move |evicts| {
            let retired = evicts.evacuate_partly(&segment, 0, 0);
            drop(segment);
            evicts.release(retired);
        });
        let retired = world.remove(hash(HIGH, 2));
        world.release(retired);
        evictor.join().unwrap();
        reader.join().unwrap();
        // It may have been deleted before, so that nothing was left.
        assert_eq!((world.taken(), world.dead()), (1, 0));
    });
}

/// The same, where another thread takes the rest out.
#[test]
fn loom_a_partly_emptied_segment_and_the_thread_that_takes_the_rest() {
    model_of(2, || {
        let world = sealed_in_two_buckets();
        let reader = beside(1, &world, move |reads| reads.get(hash(LOW, 1)));
        let segment = world.segment(0);
        let evictor = beside(2, &world, move |evicts| {
            let retired = evicts.evacuate_partly(&segment, 0, 0);
            assert!(retired.is_none(), "one is left");
        });
        let retired = world.evacuate(0, &[(0, None), (1, None)]);
        let is_done = retired.is_some();
        world.release(retired);
        evictor.join().unwrap();
        reader.join().unwrap();
        match is_done {
            true => {
                assert_eq!((world.taken(), world.dead()), (1, 0));
                assert_eq!(world.get(hash(HIGH, 2)), None);
            }
            false => {
                assert_eq!((world.taken(), world.dead()), (0, SIZE as i64));
                assert_eq!(world.get(hash(HIGH, 2)), Some(2));
            }
        }
    });
}

/// A thread keeps what it has found, and leaves its section.
fn pin_and_free() {
    model(|| {
        be(0);
        let world = Arc::new(World::new(1, &[(ONE, 0, 1)]));
        world.insert(0);
        world.seal(0);
        let reader = beside(1, &world, move |other| other.pin(ONE).map(|_pin| ()));
        let retired = world.remove(ONE);
        world.release(retired);
        reader.join().unwrap();
    });
}

impl World {
    /// As `Item::pin`, and reads the value by it.
    fn pin(&self, hash: u64) -> Option<SegmentRef> {
        let (pin, word) = {
            let section = read_lock();
            let word = self.find(hash, &section)?;
            (self.keep(word), word)
        };
        assert_eq!(Self::value(self.at(word)), 1);
        Some(pin)
    }
}

#[test]
fn loom_a_pin_and_the_free_of_its_segment() {
    pin_and_free();
}

/// The item was written while the segment was open. Either it is published in time, and taken out,
/// or its writer is told.
#[test]
fn loom_a_publication_and_an_evacuation() {
    model(|| {
        be(0);
        let world = Arc::new(World::new(1, &[(ONE, 0, 1)]));
        // It is written in this section.
        let section = read_lock();
        world.seal(0);
        let evicts = beside(1, &world, move |other| {
            let retired = other.evacuate(0, &[(0, None)]);
            let is_done = retired.is_some();
            other.release(retired);
            is_done
        });
        let put = world.put_in(0, None, &section);
        let was_published = put.is_ok();
        drop(section);
        let retired = put.unwrap_or_else(|retired| retired);
        // Discarded, it may have been the last of a segment that was not leaving by then.
        assert!(!(was_published && retired.is_some()));
        world.release(retired);
        assert!(evicts.join().unwrap());
        assert_eq!(world.get(ONE), None, "of a segment that has gone");
        assert_eq!((world.taken(), world.dead()), (1, 0));
    });
}

#[test]
fn loom_two_evacuations() {
    model(|| {
        be(0);
        let world = Arc::new(World::new(2, &[(ONE, 0, 1), (ONE, 1, 0), (ONE, 1, 0)]));
        world.insert(0);
        world.seal(0);
        let segment = world.segment(0);
        let first = beside(1, &world, move |other| other.leave_and_stay(&segment));
        let segment = world.segment(0);
        world.leave_and_stay(&segment);
        drop(segment);
        first.join().unwrap();
        assert!(world.get(ONE).is_some());
    });
}

impl World {
    /// Begins to evacuate, and has no memory for copies.
    fn leave_and_stay(&self, segment: &SegmentRef) {
        let note = |dead| self.note_dead(dead);
        if segment.stage.leave(note) {
            assert!(!segment.stage.stay(note));
        }
    }
}

/// A stage, and what was written before it was sealed.
fn stage_of(items: usize) -> Arc<World> {
    be(0);
    let all: Vec<_> = (0..items).map(|item| (item as u64, 0, 1)).collect();
    Arc::new(World::new(1, &all))
}

fn first_stage(world: &World) -> SegmentRef {
    world.segment(0)
}

/// Its last item dies while it is sealed: one of the two takes it away.
#[test]
fn loom_the_last_item_and_the_seal() {
    model(|| {
        let world = stage_of(1);
        let remover = beside(1, &world, move |other| {
            let stage = &first_stage(&other).stage;
            stage.remove(SIZE, |dead| other.note_dead(dead))
        });
        let segment = first_stage(&world);
        let sealed = segment.stage.seal(|dead| world.note_dead(dead));
        assert!(sealed != remover.join().unwrap(), "one of them");
        assert_eq!(world.dead(), 0);
    });
}

/// Items are written to it while others die; what takes it away counts all of them.
#[test]
fn loom_dead_bytes_of_a_segment_that_is_being_filled() {
    model(|| {
        let world = stage_of(1);
        let fills = beside(1, &world, move |other| {
            let stage = &first_stage(&other).stage;
            stage.add(SIZE, SEGMENT_HEADER + 2 * SIZE);
            let empty = stage.seal(|dead| other.note_dead(dead));
            assert!(!empty);
            stage.remove(SIZE, |dead| other.note_dead(dead))
        });
        let segment = first_stage(&world);
        let last = segment.stage.remove(SIZE, |dead| world.note_dead(dead));
        assert!(last != fills.join().unwrap(), "one of them");
        assert_eq!(world.dead(), 0, "it has been taken away");
    });
}

/// A thread stops to take items out: those that died meanwhile are counted, or it is taken away.
#[test]
fn loom_a_stay_and_the_last_item() {
    model(|| {
        let world = stage_of(2);
        world.seal(0);
        let leaves = beside(1, &world, move |other| {
            let stage = &first_stage(&other).stage;
            let note = |dead| other.note_dead(dead);
            stage.leave(note) && stage.stay(note)
        });
        let stage = &first_stage(&world).stage;
        let note = |dead| world.note_dead(dead);
        let removes = [stage.remove(SIZE, note), stage.remove(SIZE, note)];
        let taken = removes.into_iter().chain([leaves.join().unwrap()]);
        assert_eq!(taken.filter(|&taken| taken).count(), 1);
        assert_eq!(world.dead(), 0);
    });
}

/// What looks at all segments comes to one that was open a moment ago.
fn seal_and_look(look: fn(&Stage) -> bool) {
    model(move || {
        be(0);
        let world = Arc::new(World::new(1, &[(ONE, 0, 0)]));
        let looks = beside(1, &world, move |other| {
            let segment = first_stage(&other);
            if look(&segment.stage) {
                assert_eq!(segment.stage.end(), SEGMENT_HEADER + SIZE);
                assert_eq!(World::value(other.item(0)), 5);
            }
        });
        world.write(0, 5);
        let segment = first_stage(&world);
        segment.stage.add(SIZE, SEGMENT_HEADER + SIZE);
        world.seal(0);
        looks.join().unwrap();
    });
}

#[test]
fn loom_a_seal_and_a_thread_that_takes_items_out() {
    seal_and_look(|stage| stage.leave(|_| ()));
}

#[test]
fn loom_a_seal_and_a_thread_that_looks() {
    seal_and_look(Stage::is_sealed);
}

#[test]
fn loom_retired_is_released_once() {
    model(|| {
        be(0);
        let world = Arc::new(World::new(2, &[(ONE, 0, 1), (ONE, 1, 2)]));
        world.insert(0);
        world.seal(0);
        let removes = beside(1, &world, move |other| {
            let retired: Retired = other.remove(ONE);
            other.release(retired);
        });
        let retired = world.put(1, None).unwrap_or_else(|retired| retired);
        world.release(retired);
        removes.join().unwrap();
        assert_eq!(world.taken(), 1);
    });
}
