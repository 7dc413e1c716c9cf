//! Model-checked tests of buckets, tables and moves, with grace periods under them.

use crate::{
    bucket::Locked,
    core::Core,
    resize::{self, Move, Progress},
    slot::{Head, Slot},
    table::Table,
    walk::Walk,
    word::{SLOTS, tag},
};
use std::{mem::ManuallyDrop, ptr::NonNull};
use stillpoint::internal::{GracePeriods, Policy, Sound};
use stillpoint_platform::{
    model::{self as loom, thread},
    sync::{Arc, UnsafeCell},
};

mod at_once;

enum NoWait {}
// SAFETY: broken on purpose; the model's memory outlives its readers.
unsafe impl Policy for NoWait {
    const WAITS_FOR_READERS: bool = false;
}

fn model(test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(test);
}

/// An entry whose contents loom watches.
#[repr(C)]
struct Entry {
    head: Head,
    value: UnsafeCell<u32>,
}

impl Entry {
    fn new(hash: u64, value: u32) -> Box<Self> {
        Box::new(Self {
            head: Head { hash },
            value: UnsafeCell::new(value),
        })
    }

    fn head(&self) -> NonNull<Head> {
        NonNull::from(self).cast()
    }
}

/// The value of an entry that was found. Loom fails if it is being written, or was not made known.
fn read(head: NonNull<Head>) -> u32 {
    // SAFETY: made from an `Entry`, which the model keeps until its end.
    let entry = unsafe { head.cast::<Entry>().as_ref() };
    // SAFETY: whether no thread writes it is what loom checks.
    entry.value.with(|value| unsafe { *value })
}

/// A hash of bucket `bucket` of a table of two, and of the half `half` of it in one of four.
fn hash(bucket: u64, half: u64, tag: u64) -> u64 {
    bucket << 63 | half << 62 | tag << 1
}

const KEY: u64 = 9;

/// A table of two buckets that the model ends with, and entries.
struct World {
    table: Table<'static>,
    entries: Vec<Box<Entry>>,
}

// SAFETY: loom checks each access to an entry; the rest is atomics.
unsafe impl Send for World {}
// SAFETY: the same.
unsafe impl Sync for World {}

impl World {
    fn new(entries: Vec<Box<Entry>>) -> Arc<Self> {
        Self::of_bits(1, entries)
    }

    fn of_bits(bits: u32, entries: Vec<Box<Entry>>) -> Arc<Self> {
        let table = Table::new(bits).unwrap();
        Arc::new(Self { table, entries })
    }

    fn entry(&self, index: usize) -> NonNull<Head> {
        self.entries[index].head()
    }

    fn hash(&self, index: usize) -> u64 {
        self.entries[index].head.hash
    }

    /// Puts the entry of that number in.
    fn insert(&self, index: usize) {
        let hash = self.hash(index);
        let (table, mut locked) = self.table.lock(hash);
        if locked.free().is_none() {
            locked.extend(resize::spare().unwrap());
        }
        let place = locked.free().unwrap();
        let slot = Slot::entry(self.entry(index), hash, table.bits());
        locked.fill(place, slot, tag(hash));
    }

    /// Puts it in, unless one with its tag is there. Returns whether it was put in.
    fn try_insert(&self, index: usize) -> bool {
        let hash = self.hash(index);
        let (table, mut locked) = self.table.lock(hash);
        if locked.find(tag(hash), |_| true).is_some() {
            return false;
        }
        let place = locked.free().unwrap();
        let slot = Slot::entry(self.entry(index), hash, table.bits());
        locked.fill(place, slot, tag(hash));
        true
    }

    fn remove(&self, index: usize) {
        let (_, mut locked) = self.table.lock(self.hash(index));
        let place = locked.find(tag(self.hash(index)), |_| true).unwrap();
        locked.clear(place);
    }

    fn replace(&self, old: usize, new: usize) {
        let (table, mut locked) = self.table.lock(self.hash(old));
        let is_it = |entry| entry == self.entry(old);
        let place = locked.find(tag(self.hash(old)), is_it).unwrap();
        let slot = Slot::entry(self.entry(new), self.hash(new), table.bits());
        locked.replace(place, slot);
    }

    /// The value of the entry with that entry's hash.
    fn find(&self, index: usize) -> Option<u32> {
        let hash = self.hash(index);
        // SAFETY: the model keeps all entries.
        let is_it = |head: NonNull<Head>| unsafe { head.as_ref() }.hash == hash;
        self.table.find(hash, is_it).map(read)
    }

    /// A move to a table of so many bits, under way.
    fn start_move(&self, bits: u32) -> Move<'static> {
        assert!(self.table.set_next(Table::new(bits).unwrap()));
        Move::of(self.table).unwrap()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // SAFETY: the model's threads have ended.
        unsafe {
            if let Some(next) = self.table.next() {
                next.free();
            }
            self.table.free();
        }
    }
}

/// Runs `other` on a thread, and `here` on this one.
fn both(
    world: &Arc<World>,
    other: impl FnOnce(&World) + Send + 'static,
    here: impl FnOnce(&World),
) {
    let theirs = Arc::clone(world);
    let thread = thread::spawn(move || other(&theirs));
    here(world);
    thread.join().unwrap();
}

/// Takes units until there are none.
fn move_all(to_move: Move<'_>) -> Progress {
    loop {
        let progress = to_move.help(|_| unreachable!("there are no chains"));
        if progress != Progress::Moved {
            return progress;
        }
    }
}

#[test]
fn loom_find_and_insert() {
    model(|| {
        let world = World::new(vec![Entry::new(hash(0, 0, KEY), 1)]);
        both(
            &world,
            |world| assert!(matches!(world.find(0), None | Some(1))),
            |world| {
                // The entry is complete when it is found: loom sees a write that is not ordered.
                // SAFETY: whether it is ours is what loom checks.
                world.entries[0]
                    .value
                    .with_mut(|value| unsafe { *value = 1 });
                world.insert(0);
            },
        );
        assert_eq!(world.find(0), Some(1));
    });
}

/// The entry is in its slot before it is complete.
#[test]
#[should_panic(expected = "Causality violation")]
fn loom_an_entry_completed_after_its_insert_is_caught() {
    model(|| {
        let world = World::new(vec![Entry::new(hash(0, 0, KEY), 1)]);
        both(
            &world,
            |world| assert!(matches!(world.find(0), None | Some(1))),
            |world| {
                world.insert(0);
                // SAFETY: broken on purpose; loom sees it.
                world.entries[0]
                    .value
                    .with_mut(|value| unsafe { *value = 1 });
            },
        );
    });
}

/// Two look-ups of a key that is removed and inserted again, in the same slot and with another
/// value: what is new to one look-up is not gone for the next.
fn find_twice_while_a_slot_is_filled(fill: fn(&World, usize)) {
    model(move || {
        let entries = vec![
            Entry::new(hash(0, 0, KEY), 1),
            Entry::new(hash(0, 0, KEY), 2),
        ];
        let world = World::new(entries);
        world.insert(0);
        both(
            &world,
            |world| {
                let first = world.find(0);
                let second = world.find(0);
                assert!(first != Some(2) || second == Some(2), "seen, and not seen");
            },
            |world| {
                world.remove(0);
                fill(world, 1);
            },
        );
    });
}

#[test]
fn loom_what_was_seen_stays_seen() {
    find_twice_while_a_slot_is_filled(World::insert);
}

/// The entry is in its slot before the slot has its tag: a look-up that still has the tag of the
/// entry before sees it.
#[test]
#[should_panic(expected = "seen, and not seen")]
fn loom_a_slot_before_its_tag_is_caught() {
    find_twice_while_a_slot_is_filled(|world, index| {
        let hash = world.hash(index);
        let (table, mut locked) = world.table.lock(hash);
        let place = locked.free().unwrap();
        let slot = Slot::entry(world.entry(index), hash, table.bits());
        locked.replace(place, slot);
        locked.fill(place, slot, tag(hash));
    });
}

/// An insert after a removal takes the slot again: a reader finds the one, the other, or neither,
/// and a key that stays.
#[test]
fn loom_find_and_remove() {
    model(|| {
        let world = World::new(vec![
            Entry::new(hash(0, 0, KEY), 1),
            Entry::new(hash(0, 0, KEY + 1), 2),
            Entry::new(hash(0, 0, KEY + 2), 3),
        ]);
        world.insert(0);
        world.insert(1);
        both(
            &world,
            |world| {
                assert!(matches!(world.find(0), None | Some(1)));
                assert_eq!(world.find(1), Some(2));
            },
            |world| {
                world.remove(0);
                world.insert(2);
            },
        );
        assert_eq!((world.find(0), world.find(2)), (None, Some(3)));
    });
}

#[test]
fn loom_find_and_replace() {
    model(|| {
        let world = World::new(vec![
            Entry::new(hash(0, 0, KEY), 1),
            Entry::new(hash(0, 0, KEY), 2),
        ]);
        world.insert(0);
        both(
            &world,
            |world| {
                let first = world.find(0).expect("it is there throughout");
                assert!(world.find(0).expect("it is there throughout") >= first);
            },
            |world| world.replace(0, 1),
        );
        assert_eq!(world.find(0), Some(2));
    });
}

/// A full bucket, whose last key is `SLOTS - 1`, and one entry more.
fn full() -> Arc<World> {
    let entry = |index| Entry::new(hash(0, index & 1, KEY + index), index as u32);
    let world = World::new((0..=SLOTS as u64).map(entry).collect());
    (0..SLOTS).for_each(|index| world.insert(index));
    world
}

const LAST: usize = SLOTS - 1;

#[test]
fn loom_find_and_extend() {
    model(|| {
        let world = full();
        both(
            &world,
            |world| {
                assert_eq!(world.find(LAST), Some(LAST as u32));
                // Once it is seen, it stays.
                if world.find(SLOTS).is_some() {
                    assert_eq!(world.find(SLOTS), Some(SLOTS as u32));
                }
            },
            |world| world.insert(SLOTS),
        );
    });
}

/// The link is published before the bucket behind it has the last entry.
#[test]
#[should_panic(expected = "the key is there throughout")]
fn loom_a_link_before_its_bucket_is_caught() {
    model(|| {
        let world = full();
        both(
            &world,
            |world| assert!(world.find(LAST).is_some(), "the key is there throughout"),
            |world| {
                let home = world.table.at(0);
                let spare = Box::leak(resize::spare().unwrap());
                let last = home.slot(LAST);
                home.set_slot(LAST, Slot::link(NonNull::from(&mut *spare)));
                home.set_word(home.word().linked());
                spare.set_slot(0, last);
                spare.set_word(crate::word::Word::EMPTY.with(0, tag(world.hash(LAST))));
            },
        );
    });
}

/// How a walk goes: `fold` has a way of its own.
#[derive(Clone, Copy)]
enum By {
    Fold,
    Next,
}

/// A walk over a chain that becomes longer visits what stays once.
fn walk_and_extend(by: By) {
    model(move || {
        let world = full();
        let core = Arc::new(ManuallyDrop::new(Core::of(world.table, 1)));
        let walked = Arc::clone(&core);
        both(
            &world,
            move |_| assert_visits_once(&walked, SLOTS, by),
            |world| world.insert(SLOTS),
        );
    });
}

#[test]
fn loom_walk_and_extend() {
    walk_and_extend(By::Fold);
}

#[test]
fn loom_walk_by_steps_and_extend() {
    walk_and_extend(By::Next);
}

/// Each of the first entries, whose values are their numbers, is visited once.
fn assert_visits_once(core: &Core, entries: usize, by: By) {
    // SAFETY: the model keeps tables and entries.
    let mut walk = unsafe { Walk::from(Some(NonNull::from(core)), Some(0)) };
    let mut visits = [0; 2 * SLOTS];
    let mut visit = |head| visits[read(head) as usize] += 1;
    match by {
        By::Fold => walk.for_each(visit),
        By::Next => {
            while let Some(head) = walk.next() {
                visit(head);
            }
        }
    }
    assert!(
        visits[..entries].iter().all(|visits| *visits == 1),
        "{visits:?}"
    );
}

/// Entries of both halves of the first bucket of two, or of the first two of four.
fn halves(bits: u32) -> Arc<World> {
    let entry = |index| Entry::new(hash(0, index & 1, KEY + index), index as u32);
    let world = World::of_bits(bits, (0..4).map(entry).collect());
    (0..2).for_each(|index| world.insert(index));
    world
}

/// Readers of both halves, and a writer, while the unit moves.
fn find_while_moving(bits: u32, to: u32) {
    model(move || {
        let world = halves(bits);
        let to_move = world.start_move(to);
        both(
            &world,
            |world| {
                assert_eq!((world.find(0), world.find(1)), (Some(0), Some(1)));
            },
            |_| assert_eq!(move_all(to_move), Progress::Finished),
        );
        assert_eq!((world.find(0), world.find(1)), (Some(0), Some(1)));
    });
    model(move || {
        let world = halves(bits);
        let to_move = world.start_move(to);
        both(
            &world,
            |world| {
                world.insert(2);
                assert_eq!(world.find(2), Some(2));
                world.remove(1);
                assert_eq!(world.find(1), None);
            },
            |_| assert_eq!(move_all(to_move), Progress::Finished),
        );
        let found: Vec<_> = (0..4).map(|index| world.find(index)).collect();
        assert_eq!(found, [Some(0), None, Some(2), None]);
    });
}

#[test]
fn loom_find_while_a_unit_grows() {
    find_while_moving(1, 2);
}

#[test]
fn loom_find_while_a_unit_shrinks() {
    find_while_moving(2, 1);
}

fn walk_while_moving(bits: u32, to: u32, by: By) {
    model(move || {
        let world = halves(bits);
        let to_move = world.start_move(to);
        let core = Arc::new(ManuallyDrop::new(Core::of(world.table, 1)));
        let walked = Arc::clone(&core);
        both(
            &world,
            move |_| assert_visits_once(&walked, 2, by),
            |_| assert_eq!(move_all(to_move), Progress::Finished),
        );
    });
}

#[test]
fn loom_walk_while_a_unit_grows() {
    walk_while_moving(1, 2, By::Fold);
    walk_while_moving(1, 2, By::Next);
}

#[test]
fn loom_walk_while_a_unit_shrinks() {
    walk_while_moving(2, 1, By::Fold);
    walk_while_moving(2, 1, By::Next);
}

/// The old bucket says that it has moved before the new ones are filled.
#[test]
#[should_panic(expected = "the key is there throughout")]
fn loom_a_mark_before_the_fill_is_caught() {
    model(|| {
        let world = halves(1);
        let to_move = world.start_move(2);
        both(
            &world,
            |world| assert!(world.find(0).is_some(), "the key is there throughout"),
            |world| {
                let mut locked = world.table.lock_at(0).unwrap();
                let entries: Vec<_> = locked.entries().collect();
                locked.set_moved();
                drop(locked);
                for (slot, tag) in entries {
                    // SAFETY: the model keeps the entry.
                    let (half, slot) = unsafe { slot.grown(1) }.unwrap();
                    let bucket = to_move.to.at(half);
                    bucket.set_slot(0, slot);
                    bucket.set_word(crate::word::Word::EMPTY.with(0, tag));
                }
            },
        );
    });
}

/// A shrink that locks one of the two buckets loses what is inserted into the other meanwhile.
#[test]
#[should_panic(expected = "an insert is lost")]
fn loom_a_shrink_under_one_lock_is_caught() {
    model(|| {
        let world = halves(2);
        let to_move = world.start_move(1);
        both(
            &world,
            |world| {
                world.insert(3);
                assert!(world.find(3).is_some(), "an insert is lost");
            },
            |world| {
                let (from, to) = (to_move.from, to_move.to.at(0));
                let mut lower = from.lock_at(0).unwrap();
                let upper = from.at(1);
                let mut unlocked = Locked::unlocked(upper, upper.word());
                let mut word = crate::word::Word::EMPTY;
                let both = lower.entries().map(|entry| (entry, false));
                let both = both.chain(unlocked.entries().map(|entry| (entry, true)));
                for (place, ((slot, tag), is_upper)) in both.enumerate() {
                    to.set_slot(place, slot.shrunk(is_upper).unwrap());
                    word = word.with(place, tag);
                }
                to.set_word(word);
                lower.set_moved();
                unlocked.set_moved();
                drop((lower, unlocked));
                let _ = world;
            },
        );
        assert!(world.find(3).is_some(), "an insert is lost");
    });
}

/// Two threads insert the same key: one of them finds the other's, also in the next table.
#[test]
fn loom_two_inserts_of_a_key() {
    for moves in [false, true] {
        model(move || {
            let entry = |value| Entry::new(hash(0, 0, KEY), value);
            let world = World::new(vec![entry(0), entry(1)]);
            let theirs = Arc::clone(&world);
            let to_move = moves.then(|| world.start_move(2));
            let other = thread::spawn(move || theirs.try_insert(1));
            if let Some(to_move) = to_move {
                assert_eq!(move_all(to_move), Progress::Finished);
            }
            let ours = world.try_insert(0);
            assert!(ours != other.join().unwrap(), "one of them inserts");
            assert_eq!(world.find(0), Some(if ours { 0 } else { 1 }));
        });
    }
}

/// Two threads help: one of them ends the move, after all units.
#[test]
fn loom_two_helpers() {
    model(|| {
        // An entry in each of two chunks.
        let entry = |bucket: u64| Entry::new(hash(bucket, 0, KEY), 0);
        let world = World::new(vec![entry(0), entry(1)]);
        (0..2).for_each(|index| world.insert(index));
        let to_move = world.start_move(2);
        let theirs = thread::spawn(move || move_all(to_move));
        let ours = move_all(to_move);
        if ours == Progress::Finished {
            // All that the other thread has moved is seen.
            assert!(
                (0..to_move.from.buckets()).all(|unit| to_move.from.at(unit).word().is_moved())
            );
        }
        let theirs = theirs.join().unwrap();
        let ended = [ours, theirs]
            .into_iter()
            .filter(|end| *end == Progress::Finished);
        assert_eq!(ended.count(), 1);
        assert!((0..2).all(|index| world.find(index).is_some()));
    });
}

/// A removed entry is written again after a grace period: no reader has it then.
fn reuse_after_removal<P: Policy>(retires_first: bool) {
    model(move || {
        let grace_periods = Arc::new(GracePeriods::<P>::new());
        let world = World::new(vec![Entry::new(hash(0, 0, KEY), 1)]);
        world.insert(0);
        let (theirs, sections) = (Arc::clone(&world), Arc::clone(&grace_periods));
        let reader = thread::spawn(move || {
            let section = sections.enter(1);
            assert!(matches!(theirs.find(0), None | Some(1)));
            drop(section);
        });
        if !retires_first {
            world.remove(0);
        }
        let cookie = grace_periods.get_state();
        if grace_periods.try_complete(cookie, 2) {
            // SAFETY: whether it is ours is what loom checks.
            world.entries[0]
                .value
                .with_mut(|value| unsafe { *value = 7 });
        }
        if retires_first {
            world.remove(0);
        }
        reader.join().unwrap();
    });
}

#[test]
fn loom_find_and_free() {
    reuse_after_removal::<Sound>(false);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_a_free_that_does_not_wait_is_caught() {
    reuse_after_removal::<NoWait>(false);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_an_entry_retired_before_its_removal_is_caught() {
    reuse_after_removal::<Sound>(true);
}
