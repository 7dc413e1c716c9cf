//! Maps of copies: what is particular to entries that lie in the table.
//!
//! Detects copies locked with another word than was seen.

use std::{
    cell::Cell,
    hash::{BuildHasherDefault, Hash, Hasher},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};
use stillpoint::Domain;
use stillpoint_map::{CopyMap, DefaultHashBuilder, Operation};

const MANY: u64 = if cfg!(miri) { 60 } else { 20_000 };

/// A value in which a torn or misplaced copy shows, with padding.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Wide {
    small: u8,
    number: u64,
    again: [u64; 3],
}

impl Wide {
    fn new(number: u64) -> Self {
        Self {
            small: number as u8,
            number,
            again: [number; 3],
        }
    }
}

/// Readers of keys that are there throughout, while their values are replaced again and again, and
/// other keys come and go, and the table grows and shrinks.
#[test]
fn keys_that_stay_are_found_and_whole() {
    const STAY: u64 = 16;
    let map: CopyMap<u64, Wide> = CopyMap::new();
    for key in 0..STAY {
        map.pin().insert(key, Wide::new(key));
    }
    let over = AtomicBool::new(false);
    let is_whole = |key: u64, value: Wide| {
        assert_eq!(value, Wide::new(value.number));
        assert_eq!(value.number % STAY, key);
    };
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut last = [0; STAY as usize];
                while !over.load(Ordering::Relaxed) {
                    let map = map.pin();
                    for key in 0..STAY {
                        let value = map.get(&key).expect("the key is there throughout");
                        is_whole(key, value);
                        assert!(last[key as usize] <= value.number, "a value came back");
                        last[key as usize] = value.number;
                    }
                    // By a loop, and by `fold`, which has a way of its own.
                    let mut visits = [[0; STAY as usize]; 2];
                    let staying = || map.iter().filter(|(key, _)| *key < STAY);
                    for (key, value) in staying() {
                        is_whole(key, value);
                        visits[0][key as usize] += 1;
                    }
                    staying().for_each(|(key, value)| {
                        is_whole(key, value);
                        visits[1][key as usize] += 1;
                    });
                    assert_eq!(visits, [[1; STAY as usize]; 2]);
                }
            });
        }
        for round in 1..=MANY / 20 {
            for key in 0..STAY {
                let new = Wide::new(round * STAY + key);
                assert!(map.pin().insert(key, new).is_some());
            }
            for key in STAY..STAY + round % 500 {
                map.pin().insert(key, Wide::new(key));
            }
            for key in STAY..STAY + round % 500 {
                map.pin().remove(&key);
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(map.len(), STAY as usize);
}

/// A section that stays open holds up all slots: changes go on, behind the buckets.
#[test]
fn changes_wait_for_no_reader() {
    let domain = Domain::new();
    let map = CopyMap::new_in(&domain);
    let held = domain.read_lock();
    map.pin().insert(1, 0);
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1..=MANY {
                assert_eq!(map.pin().update(&1, |value| value + 1), Some(number));
                assert_eq!(map.pin().insert(2 + number % 10, number), None);
                assert_eq!(map.pin().remove(&(2 + number % 10)), Some(number));
            }
        });
    });
    assert_eq!(map.with_guard(&held).get(&1), Some(MANY));
    assert_eq!(
        map.with_guard(&held).iter().collect::<Vec<_>>(),
        [(1, MANY)]
    );
}

/// So does the number of tables: entries that find no slot do not have one replaced after another.
#[test]
#[cfg_attr(miri, ignore = "slow")]
fn tables_do_not_pile_up_behind_a_reader() {
    const ENTRIES: u64 = 6000;
    let domain = Domain::new();
    let map = CopyMap::<u64, u64>::new_in(&domain);
    map.pin().reserve(ENTRIES as usize);
    (0..ENTRIES).for_each(|key| assert_eq!(map.pin().insert(key, 0), None));
    let held = domain.read_lock();
    for number in 1..=20 {
        for key in 0..ENTRIES {
            // Another key each time.
            let [old, new] = [number - 1, number].map(|number| key + number * ENTRIES);
            assert!(map.with_guard(&held).remove(&old).is_some());
            map.with_guard(&held).insert(new, 0);
        }
    }
    // Large tables are freed by callbacks; another one moves the current table.
    let callbacks = domain.statistics().callbacks_pending;
    assert!(callbacks <= 2, "{callbacks}");
    drop(held);
    domain.barrier();
}

/// Emptied slots are used again: a key that is removed and inserted for ever needs no larger table,
/// and few nodes behind its bucket.
#[test]
fn slots_are_used_again() {
    let domain = Domain::new();
    let map: CopyMap<u64, u64> = CopyMap::new_in(&domain);
    for number in 0..MANY {
        map.pin().insert(1, number);
        map.pin().remove(&1);
        if number % 3 == 0 {
            domain.synchronize();
        }
    }
    domain.barrier();
    let nodes = domain.statistics().objects_freed;
    assert!(nodes < MANY / 2, "{nodes} of {MANY}");
    assert_eq!(map.pin().capacity(), 10);
}

/// The entries of a map behind its buckets: each is updated in a section in which no slot comes free.
fn update_in_one_section(map: &CopyMap<u64, u64>, entries: u64, times: u64) {
    let map = map.pin();
    for _ in 0..times {
        for key in 0..entries {
            assert!(map.update(&key, |value| value + 1).is_some());
        }
    }
}

/// Entries of a map that is only updated do not stay behind its buckets.
#[test]
fn entries_come_back_into_slots() {
    const ENTRIES: u64 = if cfg!(miri) { 60 } else { 500 };
    let domain = Domain::new();
    let map: CopyMap<u64, u64> = CopyMap::new_in(&domain);
    (0..ENTRIES).for_each(|key| assert_eq!(map.pin().insert(key, 0), None));
    update_in_one_section(&map, ENTRIES, 5);
    let update_each = || {
        for key in 0..ENTRIES {
            assert!(map.pin().update(&key, |value| value + 1).is_some());
            domain.synchronize();
        }
    };
    // The table moves, and the move ends. Its nodes are not counted: this thread retires one for each
    // entry behind a bucket that it moves, and the service thread frees those of its part by a callback.
    update_each();
    let retired = || {
        let statistics = domain.statistics();
        statistics.objects_freed + statistics.objects_pending
    };
    let before = retired();
    update_each();
    // An update of an entry behind a bucket retires one or two nodes.
    let nodes = retired() - before;
    assert!(
        nodes < ENTRIES * 2 / 3,
        "{nodes} nodes of {ENTRIES} entries"
    );
    assert!((0..ENTRIES).all(|key| map.pin().get(&key) == Some(7)));
}

/// A map whose entries are all behind its buckets gives its table back when they are removed.
#[test]
fn a_map_of_entries_behind_buckets_shrinks() {
    const ENTRIES: u64 = if cfg!(miri) { 60 } else { 500 };
    let domain = Domain::new();
    let map: CopyMap<u64, u64> = CopyMap::new_in(&domain);
    (0..ENTRIES).for_each(|key| assert_eq!(map.pin().insert(key, 0), None));
    // No slot comes free.
    let held = domain.read_lock();
    update_in_one_section(&map, ENTRIES, 12);
    for key in 0..ENTRIES {
        assert_eq!(map.with_guard(&held).remove(&key), Some(12));
    }
    // Moves go on with changes.
    for _ in 0..ENTRIES {
        map.with_guard(&held).remove(&0);
        map.with_guard(&held).insert(0, 0);
    }
    assert_eq!(map.with_guard(&held).capacity(), 10);
}

#[test]
fn replaced_nodes_count_against_the_budget() {
    let domain = Domain::new();
    let map: CopyMap<u64, u64> = CopyMap::new_in(&domain);
    let held = domain.read_lock();
    for number in 0..1000 {
        map.with_guard(&held).insert(1, number);
    }
    let unreclaimed = domain.statistics().bytes_pending;
    assert!(unreclaimed >= 900 * 24, "{unreclaimed}");
    drop(held);
    domain.barrier();
}

#[test]
fn a_map_grows_and_gives_its_table_back() {
    // The service thread moves nothing: it might be in the middle of its part when changes end.
    let domain = Domain::new();
    domain.set_callback_delay(Duration::from_secs(3600));
    let map: CopyMap<u64, u64> = CopyMap::new_in(&domain);
    assert_eq!(map.pin().capacity(), 0);
    for key in 0..MANY {
        assert_eq!(map.pin().insert(key, !key), None);
    }
    assert_eq!(map.len() as u64, MANY);
    assert!((0..MANY).all(|key| map.pin().get(&key) == Some(!key)));
    for key in 10..MANY {
        assert_eq!(map.pin().remove(&key), Some(!key));
    }
    // The last move goes on with the next changes.
    for _ in 0..MANY / 16 {
        map.pin().insert(0, !0);
    }
    // Ten entries need eight buckets at most. A removal that empties none does not look at that: in
    // one run of fifty the last step is not taken.
    assert!(map.pin().capacity() <= 160, "{}", map.pin().capacity());
    assert_eq!(map.pin().keys().count(), 10);
}

/// Has the service thread work until the map's capacity is so small.
fn settle(domain: &Domain, map: &CopyMap<u64, u64>, capacity: usize) {
    // A slice follows each grace period, and a barrier waits for one at least.
    for _ in 0..1000 {
        if map.pin().capacity() <= capacity {
            return;
        }
        domain.barrier();
    }
    panic!("the table stays at {}", map.pin().capacity());
}

/// Tables shrink though no thread changes the map any more, and are given back.
#[test]
fn an_idle_map_gives_its_table_back() {
    const KEPT: u64 = 5;
    let domain = Domain::new();
    let reserved = CopyMap::with_capacity_in(MANY as usize, &domain);
    reserved.pin().insert(1, 1);
    reserved.pin().shrink_to_fit();
    settle(&domain, &reserved, 10);
    assert_eq!(reserved.pin().get(&1), Some(1));

    let map = CopyMap::new_in(&domain);
    (0..MANY).for_each(|key| assert_eq!(map.pin().insert(key, !key), None));
    (KEPT..MANY).for_each(|key| assert_eq!(map.pin().remove(&key), Some(!key)));
    // Whether it shrinks further is looked at when a bucket becomes empty.
    settle(&domain, &map, 104);
    let mut entries: Vec<_> = map.pin().iter().collect();
    entries.sort_unstable();
    assert!(entries.into_iter().eq((0..KEPT).map(|key| (key, !key))));
    // The slice that made it so small may still be under way, and retire tables.
    let is_drained = (0..1000).any(|_| {
        domain.barrier();
        domain.statistics().callbacks_pending == 0
    });
    assert!(is_drained, "a table is kept");
}

/// One call is enough for a table that is to be halved more than once.
#[test]
fn a_table_that_is_to_fit_is_halved_until_it_does() {
    let domain = Domain::new();
    let map = CopyMap::with_capacity_in(MANY as usize, &domain);
    let large = map.pin().capacity();
    // So many that they have room in an eighth, and by themselves leave the table as large as a
    // quarter.
    let stay = large as u64 * 3 / 32;
    (0..stay).for_each(|key| assert_eq!(map.pin().insert(key, !key), None));
    map.pin().shrink_to_fit();
    settle(&domain, &map, large / 8);
    assert_eq!(map.pin().capacity(), large / 8);
    assert!((0..stay).all(|key| map.pin().get(&key) == Some(!key)));
}

/// Also with nodes behind its buckets.
#[test]
fn an_idle_map_is_dropped_while_it_is_moved() {
    let domain = Domain::new();
    for _ in 0..if cfg!(miri) { 2 } else { 50 } {
        let map = CopyMap::with_capacity_in(MANY as usize, &domain);
        (0..MANY / 20).for_each(|key| assert_eq!(map.pin().insert(key, 0), None));
        update_in_one_section(&map, MANY / 20, 10);
        map.pin().shrink_to_fit();
        drop(map);
    }
    domain.barrier();
    domain.kvfree_barrier();
    // The barrier's own callback is counted until it has returned.
    while domain.statistics().callbacks_pending > 0 {
        std::thread::yield_now();
    }
    assert_eq!(domain.statistics().bytes_pending, 0);
}

/// Hashes as its thread says: panics, collides, or uses a map again.
#[derive(Default)]
struct Odd(u64);

thread_local! {
    static PANICS_AT: Cell<Option<u64>> = const { Cell::new(None) };
    static RUNS: Cell<Option<fn()>> = const { Cell::new(None) };
    /// Not while this key is hashed.
    static INSERTED: Cell<u64> = const { Cell::new(0) };
}

impl Hasher for Odd {
    fn write(&mut self, bytes: &[u8]) {
        self.write_u64(
            bytes
                .iter()
                .fold(0, |number, byte| number << 8 | u64::from(*byte)),
        );
    }

    fn write_u64(&mut self, key: u64) {
        assert_ne!(PANICS_AT.get(), Some(key), "as asked for");
        // Each time: a bucket may change whenever its keys are hashed, and is moved all the same.
        if key != INSERTED.get()
            && let Some(run) = RUNS.take()
        {
            run();
            RUNS.set(Some(run));
        }
        self.0 = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

type OddMap = CopyMap<u64, u64, BuildHasherDefault<Odd>>;

/// A table that grows asks for the hashes of keys. If that panics, it grows later.
#[test]
fn a_hash_that_panics_in_a_move_loses_nothing() {
    /// Of them, the first three quarters are inserted while hashes panic.
    const ENTRIES: u64 = if cfg!(miri) { 80 } else { 400 };
    let map = OddMap::default();
    map.pin().insert(0, 0);
    PANICS_AT.set(Some(0));
    let mut panicked = 0;
    for key in 1..ENTRIES * 3 / 4 {
        let insert = AssertUnwindSafe(|| map.pin().insert(key, key));
        panicked += u32::from(catch_unwind(insert).is_err());
    }
    assert!(panicked > 0, "a move hashes the key");
    PANICS_AT.set(None);
    for key in ENTRIES * 3 / 4..ENTRIES {
        map.pin().insert(key, key);
    }
    assert_eq!(map.len() as u64, ENTRIES);
    let capacity = map.pin().capacity() as u64;
    assert!(capacity >= ENTRIES, "the table grows in the end");
    assert!((0..ENTRIES).all(|key| map.pin().get(&key) == Some(key)));
    let mut keys: Vec<_> = map.pin().keys().collect();
    keys.sort_unstable();
    assert!(keys.into_iter().eq(0..ENTRIES));
}

/// Used by its own hashes.
static REENTERED: OddMap = CopyMap::with_hasher(BuildHasherDefault::new());

#[test]
fn a_hash_may_use_the_map_again() {
    RUNS.set(Some(|| {
        let _ = REENTERED.pin().insert(u64::MAX, 1);
        REENTERED.pin().remove(&u64::MAX);
        REENTERED.pin().update(&0, |value| value);
    }));
    // Each hash of another key is three changes more.
    let keys = if cfg!(miri) { 16 } else { 200 };
    for key in 0..keys {
        INSERTED.set(key);
        REENTERED.pin().insert(key, key);
    }
    RUNS.set(None);
    assert_eq!(REENTERED.len() as u64, keys);
    assert!(REENTERED.pin().capacity() as u64 >= keys, "the table grows");
    assert!((0..keys).all(|key| REENTERED.pin().get(&key) == Some(key)));
}

/// A hash that blocks in a move holds up no other thread. The move ends after it has returned.
#[test]
fn a_hash_that_blocks_holds_up_no_other_thread() {
    const ENTRIES: u64 = if cfg!(miri) { 15 } else { 60 };
    static BLOCKED: AtomicBool = AtomicBool::new(false);
    static OVER: AtomicBool = AtomicBool::new(false);
    let map = OddMap::default();
    thread::scope(|scope| {
        scope.spawn(|| {
            RUNS.set(Some(|| {
                BLOCKED.store(true, Ordering::Release);
                while !OVER.load(Ordering::Acquire) {
                    thread::yield_now();
                }
            }));
            for key in 0..ENTRIES {
                INSERTED.set(key);
                map.pin().insert(key, key);
                if OVER.load(Ordering::Relaxed) {
                    break;
                }
            }
            assert!(BLOCKED.load(Ordering::Relaxed), "a move hashes keys");
        });
        while !BLOCKED.load(Ordering::Acquire) {
            thread::yield_now();
        }
        for key in 0..ENTRIES * 5 {
            map.pin().insert(key, !key);
            assert_eq!(map.pin().get(&key), Some(!key));
        }
        assert_eq!(map.pin().iter().count() as u64, ENTRIES * 5);
        assert_eq!(map.pin().remove(&0), Some(!0));
        OVER.store(true, Ordering::Release);
    });
    for key in 0..ENTRIES {
        map.pin().insert(key, !key);
    }
    assert!(map.pin().capacity() as u64 >= ENTRIES * 5, "it grows");
    assert!((0..ENTRIES * 5).all(|key| map.pin().get(&key) == Some(!key)));
}

/// A key whose hash is another one each time.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Liar(u64);

impl Hash for Liar {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0 ^ fresh());
    }
}

fn fresh() -> u64 {
    thread_local!(static NEXT: Cell<u64> = const { Cell::new(1) });
    NEXT.set(
        NEXT.get()
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1),
    );
    NEXT.get()
}

#[test]
fn hashes_that_lie_lose_entries_and_nothing_else() {
    let map: CopyMap<Liar, u64> = CopyMap::new();
    for key in 0..MANY.min(3000) {
        map.pin().insert(Liar(key % 100), key);
        map.pin().remove(&Liar(key % 50));
    }
    map.pin().clear();
    assert!(map.pin().iter().count() <= 3000);
}

#[test]
fn closures_may_panic_and_use_the_map_again() {
    let map = CopyMap::from([(1, 1)]);
    let pinned = map.pin();
    let panics = AssertUnwindSafe(|| pinned.update(&1, |_| panic!("as asked for")));
    assert!(catch_unwind(panics).is_err());
    let updated = pinned.update(&1, |value| {
        // The first time it changes what is updated, and is called again.
        if value == 1 {
            pinned.insert(1, 5);
        }
        value + 1
    });
    assert_eq!(updated, Some(6));
    let removed = pinned.compute(&1, |_| {
        pinned.insert(2, 2);
        Operation::<i32, ()>::Remove
    });
    assert_eq!(removed, stillpoint_map::CopyCompute::Removed(1, 6));
    assert_eq!(pinned.get(&2), Some(2));
}

#[test]
fn an_empty_map_is_small_and_has_no_table() {
    assert!(size_of::<CopyMap<u64, u64>>() <= 64);
    let map: CopyMap<u64, u64> = CopyMap::new();
    assert_eq!(map.pin().get(&1), None);
    assert_eq!(map.pin().remove(&1), None);
    assert_eq!(map.pin().update(&1, |value| value), None);
    assert_eq!(map.pin().iter().count(), 0);
    map.pin().shrink_to_fit();
    assert_eq!(map.pin().capacity(), 0);
    assert!(map.pin().try_reserve(usize::MAX).is_err());
    assert_eq!(map.pin().capacity(), 0);
}

/// Entries of all sizes and alignments.
#[test]
fn entries_of_any_layout() {
    #[derive(Clone, Copy, PartialEq, Debug)]
    #[repr(align(256))]
    struct Aligned(u8);

    let nothing: CopyMap<u16, ()> = CopyMap::new();
    let aligned: CopyMap<u8, Aligned> = CopyMap::new();
    let large: CopyMap<u16, [u64; 40]> = CopyMap::new();
    for key in 0..100_u8 {
        nothing.pin().insert(key.into(), ());
        aligned.pin().insert(key, Aligned(key));
        large.pin().insert(key.into(), [key.into(); 40]);
    }
    for key in 0..100_u8 {
        assert!(nothing.pin().contains_key(&u16::from(key)));
        assert_eq!(aligned.pin().get(&key), Some(Aligned(key)));
        assert_eq!(large.pin().get(&u16::from(key)), Some([key.into(); 40]));
    }
    let unit: CopyMap<(), (), DefaultHashBuilder> = CopyMap::new();
    unit.pin().insert((), ());
    assert_eq!(unit.pin().insert((), ()), Some(()));
    assert_eq!(unit.len(), 1);
}

/// As std's maps do: a predicate may count, and gather what goes.
#[test]
fn retain_asks_once_about_each_entry() {
    let map: CopyMap<u64, u64> = (0..1000).map(|key| (key, key)).collect();
    let (mut asked, mut gone) = (0, Vec::new());
    map.pin().retain(|key, _| {
        asked += 1;
        if asked % 2 == 0 {
            gone.push(*key);
        }
        asked % 2 != 0
    });
    assert_eq!((asked, gone.len(), map.len()), (1000, 500, 500));
    assert!(gone.iter().all(|key| map.pin().get(key).is_none()));
}
