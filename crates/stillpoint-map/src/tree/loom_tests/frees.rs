//! What was replaced is freed after a grace period.

use super::{FREED, World, model};
use stillpoint::internal::{GracePeriods, Policy, Sound};
use stillpoint_platform::{model::thread, sync::Arc};

enum NoWait {}
// SAFETY: broken on purpose; the model's memory outlives its readers.
unsafe impl Policy for NoWait {
    const WAITS_FOR_READERS: bool = false;
}

/// Nodes, and the keys of fences, are overwritten after a grace period: no reader has them then.
fn free_what_was_replaced<P: Policy>(
    keys: &'static [u32],
    comes: &'static [u32],
    goes: &'static [u32],
) {
    model(move || {
        let grace_periods = Arc::new(GracePeriods::<P>::new());
        let ended = Arc::clone(&grace_periods);
        let is_shared = Arc::new(stillpoint_platform::sync::AtomicU32::new(0));
        let shared = Arc::clone(&is_shared);
        let free = move || {
            // Not before the reader is there.
            shared.load(stillpoint_platform::sync::Ordering::Relaxed) > 0
                && ended.try_complete(ended.get_state(), 2)
        };
        let world = World::freeing(keys, comes, Box::new(free));
        is_shared.store(1, stillpoint_platform::sync::Ordering::Relaxed);
        let theirs = Arc::clone(&world);
        let reader = thread::spawn(move || {
            let section = grace_periods.enter(1);
            let keys = theirs.keys(false);
            assert!(!keys.contains(&FREED), "freed");
            assert!(
                matches!(theirs.find(keys[0]), None | Some(1..FREED)),
                "freed"
            );
            drop(section);
        });
        for key in goes {
            world.remove(*key);
        }
        for index in 0..comes.len() {
            world.insert(keys.len() + index);
        }
        reader.join().unwrap();
    });
}

#[test]
fn loom_tree_read_and_free() {
    free_what_was_replaced::<Sound>(&[1, 2, 4], &[3], &[]);
    free_what_was_replaced::<Sound>(&[1, 2, 3, 4], &[], &[4, 3]);
}

#[test]
#[should_panic(expected = "freed")]
fn loom_tree_a_leaf_freed_at_once_is_caught() {
    free_what_was_replaced::<NoWait>(&[1, 2, 4], &[3], &[]);
}

/// An entry that was removed stays as a fence, until its leaf is merged with the one before.
#[test]
#[should_panic(expected = "Causality violation")]
fn loom_tree_a_fence_freed_at_once_is_caught() {
    free_what_was_replaced::<NoWait>(&[1, 2, 3, 4], &[], &[4, 3]);
}
