//! The callback that moves tables on the service thread, beside the threads that use the map.

use super::{By, KEY, Leaves, Map, Sound, both, key, model, moves::halves};
use crate::driving::Driving;
use std::sync::atomic::Ordering;
use stillpoint_platform::{
    model::thread,
    sync::{Arc, UnsafeCell},
};

/// As the callback does.
fn run<P: Leaves>(map: &Map<P>) {
    assert!(map.core.driving.begin(), "there is one callback at a time");
    drive(map);
}

fn drive<P: Leaves>(map: &Map<P>) {
    if map.writer().drive() {
        map.is_asked_for.store(true, Ordering::Relaxed);
    }
    map.core.driving.end();
}

/// A table begins to move while the callback ends: that goes on, or another one is asked for.
fn begin_a_move_while_it_ends(run: fn(&Map<Sound>)) {
    model(move || {
        let map = Map::new([]);
        // For a move that has ended.
        assert!(map.core.driving.is_to_queue());
        both(&map, run, |map| {
            let table = map.table();
            map.core.start_move(table, table.bits());
            map.writer().have_driven();
        });
        let is_moving = map.writer().to_drive().is_some();
        let is_asked_for = map.is_asked_for.load(Ordering::Relaxed);
        assert!(is_asked_for || !is_moving, "the table stays as it is");
    });
}

#[test]
fn loom_copies_a_move_that_begins_is_driven() {
    begin_a_move_while_it_ends(run);
}

/// It does not look once more when it has said that it ends.
#[test]
#[should_panic(expected = "the table stays as it is")]
fn loom_copies_a_callback_that_ends_too_soon_is_caught() {
    begin_a_move_while_it_ends(|map| {
        assert!(map.core.driving.begin());
        if map.writer().to_drive().is_some() {
            map.is_asked_for.store(true, Ordering::Relaxed);
        } else {
            map.core.driving.end_queue();
        }
        map.core.driving.end();
    });
}

/// The callback comes while another thread keeps it out, which then begins a move: that goes on, or another
/// callback is asked for.
fn begin_a_move_after_a_turn(run: fn(&Map<Sound>)) {
    model(move || {
        let map = Map::new([]);
        assert!(map.core.driving.is_to_queue());
        both(&map, run, |map| {
            drop(map.core.driving.exclude());
            let table = map.table();
            map.core.start_move(table, table.bits());
            map.writer().have_driven();
        });
        let is_moving = map.writer().to_drive().is_some();
        let is_asked_for = map.is_asked_for.load(Ordering::Relaxed);
        assert!(is_asked_for || !is_moving, "the table stays as it is");
    });
}

#[test]
fn loom_copies_a_move_that_begins_after_a_turn_is_driven() {
    begin_a_move_after_a_turn(|map| {
        if map.core.driving.begin_queued() {
            drive(map);
        }
    });
}

/// The callback that was kept out does not try once more when it has said that it goes.
#[test]
#[should_panic(expected = "the table stays as it is")]
fn loom_copies_a_callback_that_goes_too_soon_is_caught() {
    begin_a_move_after_a_turn(|map| {
        if map.core.driving.begin() {
            drive(map);
        } else {
            map.core.driving.end_queue();
        }
    });
}

/// The callback moves a table that shrinks, beside another thread.
fn drive_beside(other: fn(&Map<Sound>)) {
    model(move || {
        let map = halves(20);
        map.start_move(1);
        assert!(map.core.driving.is_to_queue());
        both(&map, other, |map| {
            run(map);
            map.end_retired();
        });
        while map.is_asked_for.swap(false, Ordering::Relaxed) {
            run(&map);
        }
        assert_eq!(map.table().bits(), 1, "it has moved");
        map.assert_visits_once(&[key(0, KEY), key(1, KEY + 1)], By::Next);
    });
}

#[test]
fn loom_copies_find_while_it_is_driven() {
    drive_beside(|map| {
        let _section = map.periods.enter(1);
        assert_eq!(map.get(key(0, KEY)), Some(0));
        assert_eq!(map.get(key(1, KEY + 1)), Some(0));
    });
}

#[test]
fn loom_copies_change_while_it_is_driven() {
    drive_beside(|map| {
        let _section = map.periods.enter(1);
        map.put(key(1, KEY + 1), 1);
        assert_eq!(map.get(key(1, KEY + 1)), Some(1), "the update is lost");
    });
}

/// Two callbacks of a map: one that has not ended yet, and the next.
struct Turns {
    driving: Driving,
    /// What they change.
    tables: UnsafeCell<u32>,
}

// SAFETY: loom checks each access to the cell.
unsafe impl Send for Turns {}
// SAFETY: the same.
unsafe impl Sync for Turns {}

impl Turns {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            driving: Driving::new(),
            tables: UnsafeCell::new(0),
        })
    }

    fn change(&self) {
        // SAFETY: whether it is this thread's turn is what loom checks.
        self.tables.with_mut(|tables| unsafe { *tables += 1 });
    }

    fn take_turn(&self) {
        if self.driving.begin() {
            self.change();
            self.driving.end();
        }
    }
}

/// Slices and the end of a map, which frees its tables, come one after the other.
#[test]
fn loom_copies_slices_take_turns() {
    let ends: [fn(&Turns); 2] = [Turns::take_turn, |turns| {
        turns.driving.close();
        turns.change();
    }];
    for end in ends {
        model(move || {
            let turns = Turns::new();
            let theirs = Arc::clone(&turns);
            let thread = thread::spawn(move || theirs.take_turn());
            end(&turns);
            thread.join().unwrap();
        });
    }
}

/// A map is closed without waiting for the slice that is under way.
#[test]
#[should_panic(expected = "Causality violation")]
fn loom_copies_a_close_that_does_not_wait_is_caught() {
    model(|| {
        let turns = Turns::new();
        let theirs = Arc::clone(&turns);
        let thread = thread::spawn(move || theirs.take_turn());
        let _ = turns.driving.begin();
        turns.change();
        thread.join().unwrap();
    });
}
