//! The index: found throughout, whatever happens to buckets and lines.

use super::{
    be, beside, model, model_of,
    world::{World, hash},
};
use crate::store::{
    rcu::{global, lines_freed, read_lock, without_waiting},
    word::Word,
};
use std::cell::Cell;
use stillpoint_platform::sync::Arc;

impl World {
    /// Of one segment, all items of which are in the index; values are numbers from 1 on.
    pub fn full(hashes: &[u64]) -> Self {
        be(0);
        let numbered = hashes.iter().zip(1..);
        let items: Vec<_> = numbered.map(|(&hash, value)| (hash, 0, value)).collect();
        let world = Self::new(1, &items);
        (0..hashes.len()).for_each(|item| world.insert(item));
        world
    }

    fn hash_of(&self) -> impl Fn(Word) -> u64 {
        |word| self.at(word).hash
    }

    /// Splits one bucket, if readers of a join have left.
    pub fn grow(&self) {
        settle();
        self.index.grow(u64::MAX, &read_lock(), self.hash_of());
        global().reclaim();
    }

    /// Joins one, if readers of a split have left.
    fn shrink(&self) {
        settle();
        let is_joined = self.index.shrink(1, &read_lock(), self.hash_of());
        JOINS.set(JOINS.get() + u64::from(is_joined));
        global().reclaim();
    }

    fn walked(&self) -> Vec<u64> {
        let (mut cursor, mut words, mut all) = (0, Vec::new(), Vec::new());
        loop {
            let section = read_lock();
            let more = self
                .index
                .walk(&mut cursor, &mut words, &section, self.hash_of());
            all.extend(words.iter().map(|&(_, hash)| hash));
            if !more {
                all.sort_unstable();
                return all;
            }
        }
    }
}

std::thread_local! {
    /// How many joins there were, in all executions of the models that this thread has run.
    static JOINS: Cell<u64> = const { Cell::new(0) };
}

/// Ends a grace period if no reader is left. Not in a section, which would wait for itself.
fn settle() {
    global().poll(global().get_state());
}

/// Runs models in some execution of which a bucket is joined: without that they show nothing.
fn that_join(models: impl FnOnce()) {
    let before = JOINS.get();
    models();
    assert!(JOINS.get() > before, "no bucket was joined");
}

/// The same, of a line that is freed.
fn that_free(models: impl FnOnce()) {
    let before = lines_freed();
    models();
    assert!(lines_freed() > before, "no line was freed");
}

/// Bucket 0 of two, bucket 1 of two.
pub const LOW: u64 = 0;
pub const HIGH: u64 = 1;

/// A world of two items, each in a bucket of its own, and their hashes.
pub fn in_two_buckets() -> (Arc<World>, [u64; 2]) {
    let hashes = [hash(LOW, 1), hash(HIGH, 2)];
    let world = World::full(&hashes);
    world.grow();
    (Arc::new(world), hashes)
}

#[test]
fn loom_a_reader_and_an_insert() {
    model(|| {
        be(0);
        let world = Arc::new(World::new(1, &[(hash(LOW, 1), 0, 1)]));
        let reader = beside(1, &world, move |other| other.get(hash(LOW, 1)));
        world.write(0, 7);
        world.insert(0);
        assert!(matches!(reader.join().unwrap(), None | Some(7)));
    });
}

/// The third of a bucket has a line behind it.
#[test]
fn loom_a_reader_and_an_insert_behind_the_bucket() {
    model(|| {
        let [first, second, third] = [1, 2, 3].map(|tag| hash(LOW, tag));
        be(0);
        let items = [first, second, third].map(|hash| (hash, 0, 1));
        let world = Arc::new(World::new(1, &items));
        (0..2).for_each(|item| world.insert(item));
        let reader = beside(1, &world, move |other| other.get(third));
        world.write(2, 7);
        world.insert(2);
        assert!(matches!(reader.join().unwrap(), None | Some(7)));
    });
}

#[test]
fn loom_writers_of_a_bucket() {
    model(|| {
        let hashes = [1, 2, 3].map(|tag| hash(LOW, tag));
        be(0);
        let world = Arc::new(World::new(1, &hashes.map(|hash| (hash, 0, 1))));
        let writer = beside(1, &world, move |other| {
            (1..3).for_each(|item| other.insert(item))
        });
        world.insert(0);
        writer.join().unwrap();
        assert_eq!(world.walked(), hashes);
    });
}

/// What two of them write under the lock is ordered by it.
#[test]
fn loom_a_copy_and_the_next_copy() {
    model(|| {
        let only = hash(LOW, 1);
        be(0);
        let world = Arc::new(World::new(1, &[(only, 0, 1), (only, 0, 1), (only, 0, 1)]));
        world.insert(0);
        let writer = beside(1, &world, move |other| other.write_and_put(1));
        world.write_and_put(2);
        writer.join().unwrap();
        assert!(world.get(only).unwrap() > 1);
    });
}

impl World {
    /// Writes an item from the one that is there, and puts it in its place, under the lock.
    fn write_and_put(&self, item: usize) {
        let section = read_lock();
        let hash = self.item(item).hash;
        let mut bucket = self.index.lock(hash, &section);
        let (slot, old) = self.find_locked(&bucket, hash).unwrap();
        self.write(item, Self::value(self.at(old)) + 1);
        bucket.put(slot, self.word(item));
    }
}

fn reader_and_split(hashes: &'static [u64], wanted: usize) {
    model_of(2, move || {
        let world = Arc::new(World::full(hashes));
        let reader = beside(1, &world, move |other| other.get(hashes[wanted]));
        world.grow();
        assert_eq!(reader.join().unwrap(), Some(wanted as u32 + 1));
    });
}

#[test]
fn loom_a_reader_and_the_split_of_its_bucket() {
    const HASHES: [u64; 2] = [LOW | 1 << 48, HIGH | 2 << 48];
    reader_and_split(&HASHES, 0);
    reader_and_split(&HASHES, 1);
}

/// One that finds nothing goes to the new bucket, which it must see made.
#[test]
fn loom_a_reader_of_nothing_and_the_split_of_its_bucket() {
    model(|| {
        let world = Arc::new(World::full(&[hash(LOW, 1)]));
        let reader = beside(1, &world, move |other| other.get(hash(HIGH, 2)));
        world.grow();
        assert_eq!(reader.join().unwrap(), None);
    });
}

/// A reader that learns of the number of buckets from a join comes to one that an earlier split has
/// made.
#[test]
fn loom_a_reader_and_a_join_behind_two_splits() {
    that_join(|| {
        model_of(2, || {
            let hashes = [hash(LOW, 1), hash(HIGH, 2)];
            let world = Arc::new(World::full(&hashes));
            let reader = beside(1, &world, move |other| other.get(hashes[1]));
            world.grow();
            world.grow();
            world.shrink();
            assert_eq!(reader.join().unwrap(), Some(2));
        });
    });
}

/// The moved one lies in a line, which goes.
#[test]
fn loom_a_reader_and_a_split_that_unlinks_a_line() {
    const HASHES: [u64; 3] = [LOW | 1 << 48, LOW | 2 << 48, HIGH | 3 << 48];
    that_free(|| reader_and_split(&HASHES, 2));
}

/// They have come to the bucket before there was another, or after.
#[test]
fn loom_a_writer_and_the_split_of_its_bucket() {
    model(|| {
        let (low, high) = (hash(LOW, 1), hash(HIGH, 2));
        be(0);
        let world = Arc::new(World::new(1, &[(low, 0, 1), (high, 0, 2)]));
        world.insert(0);
        let writer = beside(1, &world, move |other| other.insert(1));
        world.grow();
        writer.join().unwrap();
        assert_eq!((world.get(low), world.get(high)), (Some(1), Some(2)));
        assert_eq!(world.walked(), [low, high]);
    });
}

fn reader_and_join(wanted: u64) {
    model(move || {
        let (world, hashes) = in_two_buckets();
        let reader = beside(1, &world, move |other| other.get(hashes[wanted as usize]));
        world.shrink();
        // Only if the reader has left.
        world.index.release();
        assert_eq!(reader.join().unwrap(), Some(wanted as u32 + 1));
    });
}

#[test]
fn loom_a_reader_and_a_join() {
    that_join(|| reader_and_join(LOW));
    that_join(|| reader_and_join(HIGH));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_memory_of_buckets_that_is_given_back_under_readers_is_caught() {
    without_waiting(|| reader_and_join(HIGH));
}

/// A writer that is on its way to the bucket whose memory is given back: it finds the item where that
/// has gone to.
fn writer_and_release() {
    model(|| {
        let (world, hashes) = in_two_buckets();
        let writer = beside(1, &world, move |other| {
            let section = read_lock();
            let bucket = other.index.lock(hashes[1], &section);
            let found = other.find_locked(&bucket, hashes[1]);
            found.map(|(_, word)| World::value(other.at(word)))
        });
        world.shrink();
        world.index.release();
        assert_eq!(writer.join().unwrap(), Some(2));
    });
}

#[test]
fn loom_a_writer_and_memory_that_a_join_gives_back() {
    that_join(writer_and_release);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_memory_of_buckets_that_is_given_back_under_writers_is_caught() {
    without_waiting(writer_and_release);
}

#[test]
fn loom_a_writer_and_a_join() {
    that_join(|| {
        model(|| {
            let (low, high) = (hash(LOW, 1), hash(HIGH, 2));
            be(0);
            let world = World::new(1, &[(low, 0, 1), (high, 0, 2)]);
            world.insert(0);
            world.grow();
            let world = Arc::new(world);
            let writer = beside(1, &world, move |other| other.insert(1));
            world.shrink();
            writer.join().unwrap();
            assert_eq!((world.get(low), world.get(high)), (Some(1), Some(2)));
            assert_eq!(world.walked(), [low, high]);
        });
    });
}

/// A split takes the item from the second slot, a join puts it back into the first, where the
/// reader has been.
fn reader_and_both() {
    model(|| {
        let (first, high) = (hash(LOW, 1), hash(HIGH, 2));
        let world = World::full(&[first, high]);
        let gone = world.remove(first);
        assert!(gone.is_none());
        let world = Arc::new(world);
        let reader = beside(1, &world, move |other| other.get(high));
        world.grow();
        world.shrink();
        assert_eq!(reader.join().unwrap(), Some(2), "not found");
    });
}

#[test]
fn loom_a_reader_a_split_and_a_join() {
    that_join(reader_and_both);
}

#[test]
#[should_panic(expected = "not found")]
fn loom_a_split_and_a_join_within_a_section_are_caught() {
    without_waiting(reader_and_both);
}

fn reader_and_trim() {
    model_of(2, || {
        let hashes = [1, 2, 3].map(|tag| hash(LOW, tag));
        let world = Arc::new(World::full(&hashes));
        let reader = beside(1, &world, move |other| {
            (other.get(hashes[2]), other.get(hashes[1]))
        });
        assert!(world.remove(hashes[2]).is_none());
        global().reclaim();
        let (third, second) = reader.join().unwrap();
        assert!(matches!(third, None | Some(3)));
        assert_eq!(second, Some(2));
    });
}

#[test]
fn loom_a_reader_and_a_line_that_is_unlinked() {
    that_free(reader_and_trim);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_a_line_that_is_freed_under_a_reader_is_caught() {
    without_waiting(reader_and_trim);
}

#[test]
fn loom_a_walk_and_a_split() {
    model_of(2, || {
        let hashes = [hash(LOW, 1), hash(HIGH, 2)];
        let world = Arc::new(World::full(&hashes));
        let walk = beside(1, &world, move |other| other.walked());
        world.grow();
        assert_eq!(walk.join().unwrap(), hashes);
    });
}

#[test]
fn loom_a_walk_and_a_join() {
    that_join(|| {
        model_of(2, || {
            let (world, hashes) = in_two_buckets();
            let walk = beside(1, &world, move |other| other.walked());
            world.shrink();
            assert_eq!(walk.join().unwrap(), hashes);
        });
    });
}

/// Two threads that would both change the number of buckets: one does.
#[test]
fn loom_a_split_and_a_join_of_two_threads() {
    that_join(|| {
        model_of(2, || {
            let (world, hashes) = in_two_buckets();
            let grows = beside(1, &world, move |other| other.grow());
            world.shrink();
            grows.join().unwrap();
            assert_eq!(world.walked(), hashes);
        });
    });
}
