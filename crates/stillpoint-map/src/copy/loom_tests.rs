//! Model-checked tests of a map of copies, with grace periods under it. Loom watches the slots: an
//! access to one while it is written fails.

mod moves;

use super::{
    core::{Changed, Core, World},
    epochs,
    moving::Move,
    spill::Spill,
    table::Table,
    walk::Walk,
};
use crate::word::SLOTS;
use std::{ptr::NonNull, sync::Mutex as StdMutex};
use stillpoint::internal::{Cookie, GracePeriods, Policy, Sound};
use stillpoint_platform::{
    model::{self as loom, thread},
    sync::Arc,
};

/// What a model leaves out, beside what `P` does.
trait Leaves: Policy {
    const FENCES_EMPTYING: bool = true;
    const FENCES_OPENING: bool = true;
}

impl Leaves for Sound {}

enum NoWait {}
impl Leaves for NoWait {}
// SAFETY: broken on purpose; loom sees what comes of it.
unsafe impl Policy for NoWait {
    const WAITS_FOR_READERS: bool = false;
}

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

fn model(test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(test);
}

/// The low byte of a key is its tag, and the high ones choose its bucket.
fn hash_of(key: &u64) -> u64 {
    key & !0xff | (key & 0xff) << 1
}

/// A key of the first bucket of two, and of the half `half` of it in one of four.
fn key(half: u64, tag: u64) -> u64 {
    half << 62 | tag
}

const KEY: u64 = 9;
/// Other keys of the first bucket.
const OTHERS: u64 = 20;

/// A map, its domain, and what was retired, which the model frees at its end.
struct Map<P: Policy> {
    core: Core<u64, u64, Cookie>,
    periods: GracePeriods<P>,
    retired: StdMutex<Vec<Retired>>,
}

enum Retired {
    Spill(Spill<u64, u64>),
    Table(Table<'static, u64, u64>),
}
// SAFETY: an address.
unsafe impl Send for Retired {}

/// The number of the threads that change maps, to grace periods; that of readers is 1.
const WRITER: u64 = 2;

impl<P: Leaves> epochs::GracePeriods for Map<P> {
    type Cookie = Cookie;

    fn get_state(&self) -> Cookie {
        self.periods.get_state()
    }

    fn has_ended(&self, cookie: Cookie) -> bool {
        self.periods.try_complete(cookie, WRITER)
    }

    fn start(&self) {}

    const FENCES_EMPTYING: bool = P::FENCES_EMPTYING;
    const FENCES_OPENING: bool = P::FENCES_OPENING;
}

impl<P: Leaves> World<u64, u64> for Map<P> {
    fn retire_spill(&self, spill: Spill<u64, u64>) {
        self.retired.lock().unwrap().push(Retired::Spill(spill));
    }

    fn retire_table(&self, table: Table<'_, u64, u64>) {
        // SAFETY: used once more, when the model's threads have ended.
        let table = unsafe { table.forget_lifetime() };
        self.retired.lock().unwrap().push(Retired::Table(table));
    }

    fn drive_later(&self) {}
}

impl<P: Leaves> Map<P> {
    /// With entries of these keys, whose values are 0.
    fn new(entries: impl IntoIterator<Item = u64>) -> Arc<Self> {
        Self::of_capacity(0, entries)
    }

    fn of_capacity(capacity: usize, entries: impl IntoIterator<Item = u64>) -> Arc<Self> {
        let map = Self {
            core: Core::new(capacity, false).unwrap(),
            periods: GracePeriods::new(),
            retired: StdMutex::default(),
        };
        entries.into_iter().for_each(|key| map.put(key, 0));
        Arc::new(map)
    }

    /// Inserts an entry, or updates it.
    fn put(&self, key: u64, value: u64) {
        let changed = || {
            // SAFETY: the model frees nothing before its end.
            unsafe {
                let hash = hash_of(&key);
                let look = self.core.look(hash, |other| *other == key);
                self.core.put(hash, &look, (key, value), self, &hash_of)
            }
        };
        while changed() != Changed::Done {}
    }

    fn remove(&self, key: u64) {
        let changed = || {
            // SAFETY: as in `put`.
            unsafe {
                let hash = hash_of(&key);
                let look = self.core.look(hash, |other| *other == key);
                self.core.take(hash, &look, self, &hash_of)
            }
        };
        while changed() != Changed::Done {}
    }

    fn get(&self, key: u64) -> Option<u64> {
        // SAFETY: as in `put`. Whether a slot is written meanwhile is what loom checks.
        let found = unsafe { self.core.table().find(hash_of(&key), |other| *other == key) };
        Some(found?.1)
    }

    /// Closes an epoch, if the one before is over.
    fn advance(&self) {
        self.core.epochs.advance(self, false);
    }

    /// The table, for a move to another one of so many bits.
    fn start_move(&self, bits: u32) -> Move<'_, u64, u64> {
        // SAFETY: the model keeps it.
        let from = unsafe { self.core.table() };
        assert!(from.set_next(Table::new(bits).unwrap()));
        Move::of(from).unwrap()
    }

    fn move_all(&self, to_move: Move<'_, u64, u64>) {
        // SAFETY: as in `put`.
        let help = || unsafe { to_move.help(self, &hash_of, || self.core.epochs.stamp(self)) };
        while help() == crate::resize::Progress::Moved {}
    }

    /// Each of these keys is visited once.
    fn assert_visits_once(&self, keys: &[u64]) {
        // SAFETY: as in `put`.
        let mut walk = unsafe { Walk::from(Some(NonNull::from(&self.core)), Some(0)) };
        let mut visited = Vec::new();
        while let Some((key, _)) = walk.next(&hash_of) {
            visited.push(key);
        }
        for key in keys {
            let visits = visited.iter().filter(|visited| *visited == key).count();
            assert_eq!(visits, 1, "visits of {key}");
        }
    }
}

impl<P: Policy> Drop for Map<P> {
    fn drop(&mut self) {
        for retired in self.retired.get_mut().unwrap().drain(..) {
            // SAFETY: the model's threads have ended.
            unsafe {
                match retired {
                    Retired::Spill(spill) => spill.free(),
                    Retired::Table(table) => table.free_memory(),
                }
            }
        }
    }
}

// SAFETY: loom checks each access to a slot; the rest is atomics.
unsafe impl<P: Policy> Send for Map<P> {}
// SAFETY: the same.
unsafe impl<P: Policy> Sync for Map<P> {}

/// Runs `other` on a thread, and `here` on this one.
fn both<P: Leaves>(
    map: &Arc<Map<P>>,
    other: impl FnOnce(&Map<P>) + Send + 'static,
    here: impl FnOnce(&Map<P>),
) where
    P: Send + Sync + 'static,
{
    let theirs = Arc::clone(map);
    let thread = thread::spawn(move || other(&theirs));
    here(map);
    thread.join().unwrap();
}

/// What one look-up sees is there for the next: values only grow.
fn assert_grows(map: &Map<Sound>, key: u64) {
    let (first, second) = (map.get(key), map.get(key));
    assert!(first <= second, "seen, and not seen");
}

#[test]
fn loom_copies_find_and_insert() {
    model(|| {
        let map = Map::<Sound>::new([]);
        both(&map, |map| assert_grows(map, KEY), |map| map.put(KEY, 1));
        assert_eq!(map.get(KEY), Some(1));
    });
}

/// The tag is published before the entry is in its slot.
#[test]
#[should_panic(expected = "Causality violation")]
fn loom_copies_a_tag_before_its_entry_is_caught() {
    model(|| {
        let map = Map::<Sound>::new([]);
        both(
            &map,
            |map| assert_grows(map, KEY),
            |map| {
                // SAFETY: as in `put`.
                let bucket = unsafe { map.core.table() }.at(0);
                // SAFETY: broken on purpose.
                unsafe {
                    let word = bucket.word();
                    bucket.set_word(word.with(0, KEY as u8));
                    bucket.write(0, (KEY, 1));
                }
            },
        );
    });
}

#[test]
fn loom_copies_find_and_update() {
    model(|| {
        let map = Map::<Sound>::new([KEY]);
        both(
            &map,
            |map| {
                assert!(map.get(KEY).is_some(), "the key is there throughout");
                assert_grows(map, KEY);
            },
            |map| map.put(KEY, 1),
        );
        assert_eq!(map.get(KEY), Some(1));
    });
}

#[test]
fn loom_copies_find_and_remove() {
    model(|| {
        let map = Map::<Sound>::new([KEY, KEY + 1]);
        both(
            &map,
            |map| {
                assert!(matches!(map.get(KEY), None | Some(0)));
                assert_eq!(map.get(KEY + 1), Some(0));
            },
            |map| map.remove(KEY),
        );
        assert_eq!(map.get(KEY), None);
    });
}

/// A full bucket: the key, and others.
fn full() -> Arc<Map<Sound>> {
    Map::new([KEY].into_iter().chain(OTHERS..OTHERS + SLOTS as u64 - 1))
}

/// An update that finds no clean slot takes its key from a slot to the spill.
#[test]
fn loom_copies_find_and_spill() {
    model(|| {
        let map = full();
        both(
            &map,
            |map| {
                let (first, second) = (map.get(KEY), map.get(KEY));
                assert!(first.is_some(), "the key is there throughout");
                assert!(first <= second, "seen, and not seen");
            },
            |map| map.put(KEY, 1),
        );
        assert_eq!(map.get(KEY), Some(1));
    });
}

/// And then its array is replaced.
#[test]
fn loom_copies_find_and_replace_a_spill() {
    model(|| {
        let map = full();
        map.put(KEY, 1);
        both(
            &map,
            |map| {
                assert!(map.get(KEY).is_some(), "the key is there throughout");
                assert_grows(map, KEY);
            },
            |map| map.put(KEY, 2),
        );
        assert_eq!(map.get(KEY), Some(2));
    });
}

/// A bucket with a spill and one clean slot, which an insert takes, and whose update then spills.
fn spill_of_a_new_key(get: fn(&Map<Sound>) -> Option<u64>) {
    model(move || {
        let map = full();
        map.put(OTHERS + SLOTS as u64, 0);
        map.remove(KEY);
        (0..3).for_each(|_| map.advance());
        both(
            &map,
            move |map| {
                let first = get(map);
                assert!(first <= map.get(KEY), "seen, and not seen");
            },
            |map| {
                map.put(KEY, 1);
                map.put(KEY, 2);
            },
        );
        assert_eq!(map.get(KEY), Some(2));
    });
}

#[test]
fn loom_copies_what_was_seen_stays_seen() {
    spill_of_a_new_key(|map| map.get(KEY));
}

/// A reader that finds a key in the spill does not look at the word once more.
#[test]
#[should_panic(expected = "seen, and not seen")]
fn loom_copies_a_spill_seen_before_its_update_is_caught() {
    spill_of_a_new_key(|map| {
        // SAFETY: as in `put`.
        unsafe {
            let bucket = map.core.table().at(0);
            let seen = bucket.seen(bucket.word());
            let (_, pair) = bucket.place(&seen, KEY as u8, |key| *key == KEY)?;
            Some(pair.1)
        }
    });
}

#[test]
fn loom_copies_walk_and_spill() {
    model(|| {
        let map = full();
        // The word says already that there is something behind the bucket.
        map.put(OTHERS + SLOTS as u64, 0);
        both(
            &map,
            |map| map.assert_visits_once(&[KEY, OTHERS]),
            |map| map.put(KEY, 1),
        );
    });
}

/// A slot is written again after a grace period, which no reader of its old entry is in.
fn reuse<P: Leaves + Send + Sync + 'static>(empty: fn(&Map<P>)) {
    model(move || {
        let map = Map::<P>::new([KEY].into_iter().chain(OTHERS..OTHERS + SLOTS as u64 - 1));
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
        // SAFETY: as in `put`.
        let mut locked = unsafe { map.core.table() }
            .lock_at(0, || old.stamp())
            .unwrap();
        locked.empty(0, || old.stamp());
    });
}

/// A slot is emptied while another thread opens an epoch, and then reads in a section that the grace
/// period of that epoch does not wait for: so the stamp is of the new epoch, or the reader does not
/// find the slot.
fn reuse_while_an_epoch_opens<P: Leaves + Send + Sync + 'static>(read: fn(&Map<P>)) {
    model(move || {
        let map = Map::<P>::new([KEY].into_iter().chain(OTHERS..OTHERS + SLOTS as u64 - 1));
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

/// Two threads insert the same key: one of them finds the other's.
#[test]
fn loom_copies_two_inserts_of_a_key() {
    model(|| {
        let map = Map::<Sound>::new([]);
        both(&map, |map| map.put(KEY, 1), |map| map.put(KEY, 2));
        map.assert_visits_once(&[KEY]);
        assert_eq!(map.core.count.get(), 1);
    });
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
