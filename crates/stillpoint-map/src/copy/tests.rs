//! Changes of a bucket that is another one than they have seen.
//!
//! Detects a change that locks with the seen word although there is a list.

use super::{
    core::{Changed, Core},
    growth::tests::Alone,
};
use crate::word::SLOTS;

/// The low byte of a key is its tag. All are of one bucket.
fn hash_of(key: &u64) -> u64 {
    key << 1
}

/// An insert has seen a bucket without its key, which another one has put behind the bucket since. The
/// word is the same, and a slot has come free.
#[test]
fn an_insert_finds_what_came_behind_the_bucket_since_its_look() {
    const KEY: u64 = 50;
    let (core, world) = (
        Core::<u64, u64, ()>::new(0, false).expect("memory"),
        Alone::default(),
    );
    // SAFETY: there are no readers, and all is of one thread.
    unsafe {
        let look = |key: u64| core.look(hash_of(&key), |other| *other == key);
        let add = |key| {
            let changed = core.put(hash_of(&key), &look(key), (key, 0), &world, &hash_of);
            assert_eq!(changed, Changed::Done);
        };
        let first = 10;
        (first..=first + SLOTS as u64).for_each(add);
        let taken = core.take(hash_of(&first), &look(first), &world, &hash_of);
        assert_eq!(taken, Changed::Done);

        let before = look(KEY);
        assert!(before.pair().is_none());
        add(KEY);
        core.epochs.advance(&world, true);
        core.epochs.advance(&world, true);
        let changed = core.put(hash_of(&KEY), &before, (KEY, 1), &world, &hash_of);
        assert_eq!(changed, Changed::NotSame, "the key is there twice");
        assert_eq!(look(KEY).pair(), Some((KEY, 0)));
    }
}
