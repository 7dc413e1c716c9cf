//! Slots that are used again, and the epochs that say when.

use super::{KEY, Leaves, Map, NoWait, Sound, WRITER, both, full, model};
use stillpoint::internal::Policy;

enum EmptiesWithoutFence {}
impl Leaves for EmptiesWithoutFence {
    const FENCES_EMPTYING: bool = false;
}
// SAFETY: grace periods are sound.
unsafe impl Policy for EmptiesWithoutFence {}

enum OpensWithoutFence {}
impl Leaves for OpensWithoutFence {
    const FENCES_OPENING: bool = false;
}
// SAFETY: broken on purpose; loom sees what comes of it.
unsafe impl Policy for OpensWithoutFence {
    const WAITS_FOR_READERS: bool = false;
}

/// A slot is written again after a grace period, which no reader of its old entry is in.
fn reuse<P: Leaves + Send + Sync + 'static>(empty: fn(&Map<P>)) {
    model(move || {
        let map = full::<P>();
        both(
            &map,
            |map| {
                let _section = map.periods.enter(1);
                assert!(matches!(map.get(KEY), None | Some(0)));
            },
            move |map| {
                empty(map);
                map.advance();
                map.advance();
                map.put(KEY + 1, 7);
            },
        );
        assert_eq!(map.get(KEY + 1), Some(7));
    });
}

#[test]
fn loom_copies_a_slot_is_used_again() {
    reuse::<Sound>(|map| {
        map.remove(KEY);
        map.advance();
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_copies_a_slot_used_again_at_once_is_caught() {
    reuse::<NoWait>(|map| {
        map.remove(KEY);
        map.advance();
    });
}

/// The thread that closes epochs is another one than that which then writes the slot, and has read it.
fn reuse_after_epochs_of_another_thread<P: Leaves + Send + Sync + 'static>(read: fn(&Map<P>)) {
    model(move || {
        let map = full::<P>();
        map.advance();
        both(
            &map,
            move |map| {
                read(map);
                map.advance();
                map.advance();
            },
            |map| {
                map.remove(KEY);
                map.put(KEY + 1, 7);
            },
        );
        assert_eq!(map.get(KEY + 1), Some(7));
    });
}

#[test]
fn loom_copies_a_slot_is_used_again_after_epochs_of_another_thread() {
    reuse_after_epochs_of_another_thread::<Sound>(|map| {
        let _section = map.periods.enter(1);
        assert!(matches!(map.get(KEY), None | Some(0)));
    });
}

/// Without the fences that come before it.
#[test]
fn loom_copies_an_epoch_has_what_was_read_before_it() {
    reuse_after_epochs_of_another_thread::<OpensWithoutFence>(read_without_a_fence);
}

/// The stamp is of an epoch that was closed before the slot was emptied.
#[test]
#[should_panic(expected = "Causality violation")]
fn loom_copies_an_old_stamp_is_caught() {
    reuse::<Sound>(|map| {
        let old = map.core.epochs.now();
        map.advance();
        map.advance();
        // Readers that enter from here on do not hold up the grace period of the closed epoch.
        map.periods.try_complete(map.periods.get_state(), WRITER);
        let mut locked = map.table().lock_at(0, || old.stamp()).unwrap();
        locked.empty(0, || old.stamp());
    });
}

/// A slot is emptied while another thread opens an epoch, and then reads in a section that the grace
/// period of that epoch does not wait for: so the stamp is of the new epoch, or the reader does not
/// find the slot.
fn reuse_while_an_epoch_opens<P: Leaves + Send + Sync + 'static>(read: fn(&Map<P>)) {
    model(move || {
        let map = full::<P>();
        map.advance();
        assert!(map.periods.try_complete(map.periods.get_state(), WRITER));
        both(
            &map,
            move |map| {
                map.advance();
                read(map);
            },
            |map| {
                map.remove(KEY);
                map.advance();
                map.put(KEY + 1, 7);
            },
        );
        assert_eq!(map.get(KEY + 1), Some(7));
    });
}

fn read_in_a_new_section<P: Leaves>(map: &Map<P>) {
    map.periods.begin(map.periods.get_state());
    let _section = map.periods.enter(1);
    assert!(matches!(map.get(KEY), None | Some(0)));
}

#[test]
fn loom_copies_a_slot_emptied_while_an_epoch_opens() {
    reuse_while_an_epoch_opens::<Sound>(read_in_a_new_section);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_copies_a_slot_emptied_without_a_fence_is_caught() {
    reuse_while_an_epoch_opens::<EmptiesWithoutFence>(read_in_a_new_section);
}

/// A section begins with a fence in models, which would stand in for that of the epoch, and has none
/// where there is a membarrier. So it has none here, and no grace period waits for it.
fn read_without_a_fence<P: Leaves>(map: &Map<P>) {
    assert!(matches!(map.get(KEY), None | Some(0)));
}

#[test]
fn loom_copies_the_fence_of_an_epoch_is_enough() {
    reuse_while_an_epoch_opens::<NoWait>(read_without_a_fence);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_copies_an_epoch_opened_without_a_fence_is_caught() {
    reuse_while_an_epoch_opens::<OpensWithoutFence>(read_without_a_fence);
}

/// Two threads close epochs: one does, and the cookie is seen by the next.
#[test]
fn loom_copies_two_close_epochs() {
    model(|| {
        let map = Map::<Sound>::new([]);
        both(&map, Map::advance, Map::advance);
        map.advance();
    });
}
