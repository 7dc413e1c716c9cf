//! A move ends while another thread reserves room, or gives it up.

use super::*;

/// An empty map for 20 entries, whose table moves to one of so many bits but for the last unit.
fn moving(to: u32, stays: bool) -> Arc<Map<Sound>> {
    let map = Map::of_capacity_that(20, stays, []);
    map.start_move(to);
    let units = 1 << to.min(2);
    (1..units).for_each(|_| assert_eq!(map.help(), Progress::Moved));
    map
}

/// Ends the move, and those that follow from it, while `other` runs.
fn move_beside(map: &Arc<Map<Sound>>, other: impl FnOnce(&Map<Sound>) + Send + 'static) {
    both(map, other, |map| _ = map.help());
    while map.help() != Progress::NothingToTake {}
}

fn capacity(map: &Map<Sound>) -> usize {
    map.writer().capacity()
}

/// What was reserved comes, also if a move to a smaller table ends meanwhile.
#[test]
fn loom_copies_reserve_while_a_shrink_ends() {
    model(|| {
        let map = moving(1, false);
        move_beside(&map, |map| assert!(map.writer().reserve(11)));
        assert!(capacity(&map) >= 11, "it was reserved");
    });
}

/// A table that is to fit shrinks, also if a move to another one of its size ends meanwhile.
#[test]
fn loom_copies_shrink_to_fit_while_a_move_ends() {
    model(|| {
        let map = moving(2, true);
        move_beside(&map, |map| map.writer().shrink_to_fit());
        assert_eq!(capacity(&map), 10, "it is to fit");
    });
}
