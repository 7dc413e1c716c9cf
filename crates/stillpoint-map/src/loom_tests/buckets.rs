//! Look-ups, inserts, removals and longer chains, in one table; and what is freed after a grace period.

use super::*;

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
        let (home, slot) = (table.home_of(hash), world.slot(index, table.bits()));
        // SAFETY: broken on purpose.
        unsafe { Unshared::of(home) }.set_slot(home.word().free().unwrap(), slot);
        locked.add(slot, tag(hash)).unwrap();
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
                let (home, spare) = (world.table.at(0), resize::spare());
                let last = home.slot(LAST);
                // SAFETY: broken on purpose.
                let spare = unsafe { Unshared::of(home) }.link(home.word(), spare);
                spare.set_slot(0, last);
                spare.set_word(crate::word::Word::EMPTY.with(0, tag(world.hash(LAST))));
            },
        );
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
