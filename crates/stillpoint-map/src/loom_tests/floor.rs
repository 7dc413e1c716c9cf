//! A move ends while another thread reserves room, or gives it up.

use super::*;
use crate::table::{Kind, OldTable, References};

/// An empty map whose table moves, but for the last unit, to one of so many bits, and the tables that
/// it has left.
struct Moving {
    core: ManuallyDrop<Core>,
    retired: StdMutex<Vec<OldTable>>,
}

impl crate::growth::World<References> for &Moving {
    fn retire(self, _: OldBucket) {
        unreachable!("there are no chains");
    }

    fn retire_table(self, old: OldTable) {
        self.retired.lock().unwrap().push(old);
    }

    fn drive_later(self) {}
}

impl Moving {
    fn new(from: u32, to: u32, floor: Floor) -> Arc<Self> {
        let [table, next] = [from, to].map(|bits| NewTable::new(bits).unwrap());
        assert!(table.table().set_next(next).is_ok());
        let map = Self {
            core: ManuallyDrop::new(Core::of(Tables::of(table, floor))),
            retired: StdMutex::default(),
        };
        let units = 1 << from.min(to);
        (1..units).for_each(|_| assert_eq!(map.writer().help(), Progress::Moved));
        Arc::new(map)
    }

    fn writer(&self) -> Writer<'_, Core, &Self> {
        // SAFETY: the model frees nothing before its end.
        unsafe { Writer::of(pinned(&self.core), self) }
    }

    /// Ends the move, and those that follow from it, while `other` runs.
    fn move_beside(this: &Arc<Self>, other: impl FnOnce(Writer<'_, Core, &Self>) + Send + 'static) {
        let theirs = Arc::clone(this);
        let thread = thread::spawn(move || other(theirs.writer()));
        this.writer().help();
        thread.join().unwrap();
        while this.writer().help() != Progress::NothingToTake {}
    }

    fn capacity(&self) -> usize {
        self.writer().capacity()
    }
}

impl Drop for Moving {
    fn drop(&mut self) {
        // SAFETY: the model's threads have ended.
        unsafe {
            let retired = self.retired.get_mut().unwrap().drain(..);
            retired.for_each(|old| old.free());
            ManuallyDrop::drop(&mut self.core);
        }
    }
}

/// What was reserved comes, also if a move to a smaller table ends meanwhile.
#[test]
fn loom_reserve_while_a_shrink_ends() {
    // Twice the table, and a sparse one.
    for entries in [11, 60] {
        model(move || {
            let map = Moving::new(2, 1, Floor::new(1, false));
            Moving::move_beside(&map, move |map| assert!(map.reserve(entries)));
            assert!(map.capacity() >= entries, "it was reserved");
        });
    }
}

/// A table that is to fit shrinks, also if a move to a larger one ends meanwhile.
#[test]
fn loom_shrink_to_fit_while_a_growth_ends() {
    model(|| {
        let map = Moving::new(1, 2, Floor::new(2, true));
        Moving::move_beside(&map, |map| map.shrink_to_fit());
        assert_eq!(map.capacity(), References::capacity(1), "it is to fit");
    });
}

/// So many entries, and the table is to shrink, but their number forbids it.
fn as_small_as_can_be(from: u32, to: u32, entries: usize) -> Arc<Moving> {
    let floor = Floor::new(1, false);
    floor.remove();
    let map = Moving::new(from, to, floor);
    (0..entries).for_each(|_| map.core.count.add(1));
    map
}

/// With so few entries the table shrinks by two steps if it is to fit; by itself only by one.
const FEW: usize = 6;

fn remove_entries(core: &Core, count: usize) {
    (0..count).for_each(|_| core.count.add(1_u64.wrapping_neg()));
}

/// A table that is to fit once more, after entries were removed, shrinks all the way, also if a move
/// has come to its end meanwhile because they were too many.
#[test]
fn loom_shrink_to_fit_while_a_table_has_fitted() {
    model(|| {
        let map = as_small_as_can_be(2, 3, 16);
        Moving::move_beside(&map, |core| {
            remove_entries(&core, 16 - FEW);
            core.shrink_to_fit();
        });
        assert_eq!(map.capacity(), References::capacity(1), "it is to fit");
    });
}

/// What was reserved stays, also if the table is to fit.
#[test]
fn loom_reserve_while_a_table_is_to_fit() {
    model(|| {
        let map = as_small_as_can_be(4, 3, 0);
        Moving::move_beside(&map, |map| assert!(map.reserve(21)));
        assert!(map.capacity() >= 21, "it was reserved");
    });
}
