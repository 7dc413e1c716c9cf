//! Chains that become shorter.

use super::*;
use crate::{slot::Slot, word::SLOTS};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

const LAST: usize = SLOTS - 1;

/// A chain of two buckets: the second one has the entries `LAST` and `SLOTS`. Behind them are three
/// more, which are in no table; the last two have one hash.
fn linked() -> Arc<World> {
    let entry = |index: u64| {
        let key = index.min(ALIKE as u64);
        Entry::new(hash(0, key & 1, KEY + key), index as u32)
    };
    let world = World::new((0..=ALIKE as u64 + 1).map(entry).collect());
    (0..=SLOTS).for_each(|index| world.insert(index));
    assert!(world.table.at(0).word().has_link());
    world
}

/// The first of the two entries with one hash.
const ALIKE: usize = SLOTS + 2;

fn is_plain(world: &World) -> bool {
    world.table.at(0).word().is_plain()
}

/// The second bucket goes, and its place in the first one is an entry's again. What is in the first one
/// is found all the time; what was seen stays seen.
#[test]
fn loom_find_and_cut() {
    model(|| {
        let world = linked();
        world.remove(SLOTS);
        both(
            &world,
            |world| {
                assert!(world.find(1).is_some(), "the key is there throughout");
                let is_seen = world.find(SLOTS + 1).is_some();
                assert!(
                    !is_seen || world.find(SLOTS + 1).is_some(),
                    "seen, and not seen"
                );
                assert!(matches!(world.find(LAST), None | Some(6)));
            },
            |world| {
                world.remove(LAST);
                assert!(is_plain(world), "the bucket has left");
                world.insert(SLOTS + 1);
                assert_eq!(
                    world.table.at(0).word().tag(LAST),
                    tag(world.hash(SLOTS + 1))
                );
            },
        );
        assert_eq!(world.find(SLOTS + 1), Some(SLOTS as u32 + 1));
    });
}

/// The chain becomes longer again behind a reader that knows the link from before.
#[test]
fn loom_find_while_a_cut_chain_is_extended() {
    model(|| {
        let world = linked();
        world.remove(SLOTS);
        both(
            &world,
            |world| {
                let is_seen = world.find(SLOTS + 1).is_some();
                assert!(
                    !is_seen || world.find(SLOTS + 1).is_some(),
                    "seen, and not seen"
                );
                let is_seen = world.find(SLOTS + 2).is_some();
                assert!(
                    !is_seen || world.find(SLOTS + 1).is_some(),
                    "seen, and not seen"
                );
            },
            |world| {
                world.remove(LAST);
                world.insert(SLOTS + 1);
                world.insert(SLOTS + 2);
                assert!(!is_plain(world), "there is another bucket");
            },
        );
        assert_eq!(world.find(SLOTS + 1), Some(SLOTS as u32 + 1));
    });
}

/// The bucket is cut off with an entry in it.
#[test]
#[should_panic(expected = "the key is there throughout")]
fn loom_a_cut_of_a_bucket_with_an_entry_is_caught() {
    model(|| {
        let world = linked();
        both(
            &world,
            |world| assert!(world.find(LAST).is_some(), "the key is there throughout"),
            |world| {
                let home = world.table.at(0);
                // SAFETY: it leaves the chain now. Broken on purpose.
                let (links, home) = unsafe { (home.unlinked(), Unshared::of(home)) };
                world.left.lock().unwrap().extend(links);
                home.set_slot(LAST, Slot::NONE);
                home.set_word(world.table.at(0).word().unlinked());
            },
        );
    });
}

/// A walk visits what stays once, while the chain becomes shorter and longer.
fn walk_and_cut(next: bool) {
    model(move || {
        let world = linked();
        world.remove(SLOTS);
        both(
            &world,
            move |world| {
                let mut visits = [0; SLOTS + 3];
                let mut walk = Walk::from(Some(pinned(&world.core).live()), Some(0));
                if next {
                    while let Some(head) = walk.next() {
                        visits[read(head) as usize] += 1;
                    }
                } else {
                    walk.for_each(|head| visits[read(head) as usize] += 1);
                }
                assert!(
                    visits[..LAST].iter().all(|visits| *visits == 1),
                    "{visits:?}"
                );
                assert!(
                    visits[LAST..].iter().all(|visits| *visits <= 1),
                    "{visits:?}"
                );
            },
            |world| {
                world.remove(LAST);
                world.insert(SLOTS + 1);
                world.insert(SLOTS + 2);
            },
        );
    });
}

#[test]
fn loom_walk_and_cut() {
    walk_and_cut(false);
}

#[test]
fn loom_walk_by_steps_and_cut() {
    walk_and_cut(true);
}

/// What has left the chain is used again after a grace period: no reader is in it then.
fn reuse_after_cut<P: Policy>() {
    model(|| {
        let grace_periods = Arc::new(GracePeriods::<P>::new());
        let world = linked();
        world.remove(SLOTS);
        let (theirs, sections) = (Arc::clone(&world), Arc::clone(&grace_periods));
        let reader = thread::spawn(move || {
            let section = sections.enter(1);
            let found = theirs.find(ALIKE);
            assert_ne!(found, Some(ALIKE as u32 + 1), "a bucket is used again");
            drop(section);
        });
        world.remove(LAST);
        let cookie = grace_periods.get_state();
        if grace_periods.try_complete(cookie, 2) {
            let left = world.left.lock().unwrap()[0].pointer();
            // SAFETY: the model ends with it, and no other thread writes it.
            let left = unsafe { Unshared::of(left.as_ref()) };
            // As another chain's, which it may be by then.
            let hash = world.hash(ALIKE + 1);
            left.set_slot(0, world.slot(ALIKE + 1, 1));
            left.set_word(crate::word::Word::EMPTY.with(0, tag(hash)));
            // Where the link was.
            world.insert(ALIKE);
        }
        reader.join().unwrap();
    });
}

#[test]
fn loom_find_and_reuse_a_bucket() {
    reuse_after_cut::<Sound>();
}

#[test]
#[should_panic(expected = "a bucket is used again")]
fn loom_a_bucket_used_again_at_once_is_caught() {
    reuse_after_cut::<NoWait>();
}

/// A removal that cuts, while the chain moves: the bucket leaves the chain, or stays in one that is
/// left behind, and is freed once. Both happen.
fn cut_while_moving(to: u32) {
    static CUT: [AtomicBool; 2] = [const { AtomicBool::new(false) }; 2];
    CUT.iter().for_each(|cut| cut.store(false, Relaxed));
    model(move || {
        let world = linked();
        world.remove(SLOTS);
        let to_move = world.start_move(to);
        let theirs = Arc::clone(&world);
        let mover = thread::spawn(move || {
            let mut behind = Vec::new();
            while to_move.help(|bucket| behind.push(bucket)) == Progress::Moved {}
            assert!(theirs.find(1).is_some(), "the key is there throughout");
            behind
        });
        world.remove(LAST);
        assert_eq!(world.find(LAST), None, "a removal is lost");
        let behind = mover.join().unwrap();
        let left = world.left.lock().unwrap().len();
        assert_eq!(left + behind.len(), 1, "a bucket is freed once");
        CUT[left].store(true, Relaxed);
        world.left.lock().unwrap().extend(behind);
        assert!((0..LAST).all(|index| world.find(index) == Some(index as u32)));
    });
    assert!(CUT.iter().all(|cut| cut.load(Relaxed)));
}

#[test]
fn loom_cut_while_a_unit_moves() {
    // To a larger table, to one of its size, and to a sparse one.
    [2, 1, 3].into_iter().for_each(cut_while_moving);
}
