//! Items that are copied, while readers and commands use them.

use super::{
    be, beside, model, model_of,
    world::{World, hash},
};
use crate::store::{
    access::{Access, FETCHED, STALE, WIN},
    rcu::read_lock,
};
use stillpoint_platform::sync::{Arc, Ordering};

/// The only key.
fn key() -> u64 {
    hash(0, 1)
}

impl World {
    /// An item in a sealed segment, and room for a copy and for a change of it in two others.
    fn sealed() -> Self {
        be(0);
        let world = Self::new(3, &[(key(), 0, 1), (key(), 1, 0), (key(), 2, 0)]);
        world.insert(0);
        world.seal(0);
        // Room for copies: written to a segment that stays open.
        for segment in [1, 2] {
            world.segment(segment).stage.add(super::world::SIZE, 36);
        }
        world
    }

    /// Compacts the first segment; the item's copy is the second.
    fn compact(&self) {
        let retired = self.evacuate(0, &[(0, Some(1))]);
        self.release(retired);
    }

    /// Calls `change` with the item that is there, under the lock of its bucket, as `Tenant::change`.
    fn change<R>(&self, change: impl FnOnce(&super::world::Item) -> R) -> R {
        let section = read_lock();
        let bucket = self.index.lock(key(), &section);
        let (_, word) = self.find_locked(&bucket, key()).unwrap();
        change(self.at(word))
    }

    /// The item that is there in the end.
    fn last(&self) -> (u32, u32, u32) {
        self.change(|item| {
            let exptime = item.exptime.load(Ordering::Relaxed);
            (Self::value(item), item.access.bits(), exptime)
        })
    }
}

#[test]
fn loom_a_reader_and_a_compaction() {
    model(|| {
        let world = Arc::new(World::sealed());
        let reader = beside(1, &world, move |other| {
            let section = read_lock();
            let word = other.find(key(), &section).expect("one copy or the other");
            other.at(word).access.touch(9);
            World::value(other.at(word))
        });
        world.compact();
        assert_eq!(reader.join().unwrap(), 1);
        assert_eq!(world.last().0, 1);
    });
}

/// `touch` of the protocol, and the win mark, under the lock: no copy loses them.
#[test]
fn loom_changes_in_place_and_a_compaction() {
    model(|| {
        let world = Arc::new(World::sealed());
        let changes = beside(1, &world, move |other| {
            other.change(|item| item.exptime.store(77, Ordering::Relaxed));
            assert!(other.change(|item| item.access.win()));
        });
        world.compact();
        changes.join().unwrap();
        let (_, bits, exptime) = world.last();
        assert_eq!((exptime, bits & WIN), (77, WIN), "lost by the copy");
    });
}

/// Without the lock it may be lost.
#[test]
#[should_panic(expected = "lost by the copy")]
fn loom_a_change_in_place_without_the_lock_is_caught() {
    model(|| {
        let world = Arc::new(World::sealed());
        let changes = beside(1, &world, move |other| {
            let section = read_lock();
            let word = other.find(key(), &section).unwrap();
            other.at(word).exptime.store(77, Ordering::Relaxed);
        });
        world.compact();
        changes.join().unwrap();
        assert_eq!(world.last().2, 77, "lost by the copy");
    });
}

/// A reader notes its access without a lock; the mark stays.
#[test]
fn loom_an_access_and_a_win_mark() {
    model(|| {
        let world = Arc::new(World::sealed());
        let reads = beside(1, &world, move |one| one.item(0).access.touch(9));
        let wins = beside(2, &world, move |two| two.change(|item| item.access.win()));
        assert!(world.change(|item| item.access.win()) != wins.join().unwrap());
        reads.join().unwrap();
        world.item(0).access.touch(10);
        let (_, bits, _) = world.last();
        assert_eq!(bits & (WIN | FETCHED), WIN | FETCHED);
    });
}

/// A reader that has the new CAS value of an item sees that it is stale; one that sees that finds the
/// new CAS value under the lock.
#[test]
fn loom_a_reader_of_an_item_that_becomes_stale() {
    model(|| {
        let world = Arc::new(World::sealed());
        let marks = beside(1, &world, move |other| {
            other.change(|item| {
                item.access.set_stale();
                item.cas.set(1);
            });
        });
        // As `Item::new`, and `Item::cas`.
        let cas = world.item(0).cas.get();
        let is_stale = world.item(0).access.marks() & STALE != 0;
        assert!(is_stale || cas == 0, "the new value without the mark");
        if is_stale {
            assert_eq!(world.change(|item| item.cas.get()), 1);
        }
        marks.join().unwrap();
    });
}

/// `incr`, `append`, a comparison: of the item that was looked at, or again.
#[test]
fn loom_a_dependent_change_and_a_compaction() {
    model_of(2, || {
        let world = Arc::new(World::sealed());
        let adds = beside(1, &world, move |other| other.add_one(2));
        world.compact();
        adds.join().unwrap();
        assert_eq!(world.last().0, 2);
    });
}

impl World {
    /// As `TenantState::store` of a plan that depends on the item that is there.
    fn add_one(&self, item: usize) {
        loop {
            let section = read_lock();
            let seen = self.find(key(), &section).unwrap();
            self.write(item, Self::value(self.at(seen)) + 1);
            let put = self.put_in(item, Some(seen), &section);
            drop(section);
            match put {
                Ok(retired) => return self.release(retired),
                // Written once more.
                Err(_) => self.segment(2).stage.add(super::world::SIZE, 56),
            }
        }
    }
}

#[test]
fn loom_heat_of_a_copy_is_less() {
    model(|| {
        let world = World::sealed();
        (0..3).for_each(|_| world.item(0).access.touch(5));
        assert_eq!(world.item(0).access.heat(), 3);
        world.compact();
        let copy = Access::new(world.last().1);
        assert_eq!((copy.heat(), copy.last_access(5)), (2, 5));
    });
}
