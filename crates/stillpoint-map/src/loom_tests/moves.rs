//! Walks, and tables that move.

use super::*;

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
        both(
            &world,
            move |world| assert_visits_once(&world.core, SLOTS, by),
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

/// How often each of the entries, whose values are their numbers, is visited.
fn visits(core: &Core, by: By) -> [usize; 2 * SLOTS] {
    let mut walk = Walk::from(Some(pinned(core).live()), Some(0));
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
    visits
}

/// Each of the first entries is visited once.
fn assert_visits_once(core: &Core, entries: usize, by: By) {
    let visits = visits(core, by);
    assert!(
        visits[..entries].iter().all(|visits| *visits == 1),
        "{visits:?}"
    );
}

/// Each of these entries is visited once, in both ways.
pub fn assert_all_visited(core: &Core, entries: &[usize]) {
    for by in [By::Fold, By::Next] {
        let visits = visits(core, by);
        assert!(
            entries.iter().all(|entry| visits[*entry] == 1),
            "{visits:?}"
        );
    }
}

/// Entries of both halves of the first bucket of two, or of the first two of four.
pub fn halves(bits: u32) -> Arc<World> {
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

/// To many, of which most stay as they are.
#[test]
fn loom_find_while_a_unit_becomes_sparse() {
    find_while_moving(1, 3);
}

#[test]
fn loom_find_while_a_unit_shrinks() {
    find_while_moving(2, 1);
}

fn walk_while_moving(bits: u32, to: u32, by: By) {
    model(move || {
        let world = halves(bits);
        let to_move = world.start_move(to);
        both(
            &world,
            move |world| assert_visits_once(&world.core, 2, by),
            |_| assert_eq!(move_all(to_move), Progress::Finished),
        );
        // The old buckets are still there, and have what they had.
        world.remove(1);
        world.insert(2);
        assert_eq!(visits(&world.core, by)[..3], [1, 0, 1]);
    });
}

#[test]
fn loom_walk_while_a_unit_grows() {
    walk_while_moving(1, 2, By::Fold);
    walk_while_moving(1, 2, By::Next);
}

#[test]
fn loom_walk_while_a_unit_becomes_sparse() {
    walk_while_moving(1, 3, By::Fold);
    walk_while_moving(1, 3, By::Next);
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
                let (_, to) = to_move.tables();
                let mut locked = world.table.lock_at(0).unwrap();
                let entries: Vec<_> = locked.entries().collect();
                locked.set_moved();
                drop(locked);
                for (slot, tag, _) in entries {
                    let (half, slot) = slot.grown(1);
                    // SAFETY: broken on purpose.
                    let bucket = unsafe { Unshared::of(to.at(usize::from(half))) };
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
                let (from, to) = to_move.tables();
                // SAFETY: broken on purpose.
                let to = unsafe { Unshared::of(to.at(0)) };
                let mut lower = from.lock_at(0).unwrap();
                let upper = from.at(1);
                let mut unlocked = Locked::unlocked(upper, upper.word());
                let mut word = crate::word::Word::EMPTY;
                let both = lower.entries().map(|entry| (entry, false));
                let both = both.chain(unlocked.entries().map(|entry| (entry, true)));
                for (place, ((slot, tag, _), is_upper)) in both.enumerate() {
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

/// The key that is in slot 0 comes back in slot 1, in which there was another one. Returns how often it is
/// found, by `look`.
fn a_key_that_comes_back(look: fn(&Pinned<Core>) -> Vec<Live<'_, Head>>) {
    model(move || {
        let entry = |tag| Entry::new(hash(0, 0, tag), 0);
        let world = World::new([KEY, KEY + 1, KEY + 2, KEY].map(entry).into());
        (0..2).for_each(|index| world.insert(index));
        both(
            &world,
            move |world| {
                let ours = [0, 3].map(|index| world.entry(index));
                let is_it = |head: &Live<'_, Head>| ours.contains(&head.pointer());
                let times = look(pinned(&world.core)).into_iter().filter(is_it).count();
                assert!(times < 2, "a key is there twice");
            },
            |world| {
                world.remove(0);
                world.insert(2);
                world.remove(1);
                world.insert(3);
            },
        );
    });
}

/// A clone takes each home as it is at one instant.
#[test]
fn loom_a_home_at_once_has_no_key_twice() {
    a_key_that_comes_back(|core| {
        let mut found = Vec::new();
        core.home_at_once(0, &mut found);
        found
    });
}

#[test]
#[should_panic(expected = "a key is there twice")]
fn loom_a_clone_by_a_walk_is_caught() {
    a_key_that_comes_back(|core| Walk::from(Some(core.live()), Some(0)).collect());
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
            let (from, _) = to_move.tables();
            assert!((0..from.buckets()).all(|unit| from.at(unit).word().is_moved()));
        }
        let theirs = theirs.join().unwrap();
        let ended = [ours, theirs]
            .into_iter()
            .filter(|end| *end == Progress::Finished);
        assert_eq!(ended.count(), 1);
        assert!((0..2).all(|index| world.find(index).is_some()));
    });
}
