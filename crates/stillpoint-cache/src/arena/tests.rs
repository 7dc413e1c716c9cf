//! Detects empty runs that are always kept, and a state's number not compared when a value goes (a
//! fork's child aborts then).

use super::*;
use std::collections::HashMap;

/// Returns the bytes of a value that tell whose it is, and whether they are all there.
fn content(key: u64, len: usize) -> Vec<u8> {
    let word = (key ^ (len as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes();
    let mut all = word.repeat(len / word.len() + 1);
    all.truncate(len);
    all
}

/// Sizes of all kinds: none, slots of many classes, pages, more than a region.
fn sizes() -> Vec<usize> {
    let region = stillpoint_map::internal::REGION;
    let mut sizes: Vec<_> = (0..12).map(|power| 3 << power).collect();
    sizes.extend([
        0,
        1,
        7,
        8,
        9,
        region / 16,
        region - PAGE,
        region,
        2 * region + 1,
    ]);
    sizes
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

const ROUNDS: usize = if cfg!(miri) { 300 } else { 20_000 };

/// Moves all values that are to leave, as a cache does, with no reader in the way.
fn move_all<'a>(arena: &Arena, values: impl Iterator<Item = &'a Bytes>) -> usize {
    arena.begin_moving();
    // SAFETY: no other thread reads the values; references end before the old places do.
    let old: Vec<_> = values
        .filter_map(|value| unsafe { value.leave(arena) }.expect("memory"))
        .collect();
    old.len()
}

/// Fills an arena with values of a size that fits into a slot, also in Miri's small regions.
fn filled(arena: &Arena, many: u64) -> Vec<Bytes> {
    let value = |key| arena.bytes(&content(key, LEN)).expect("memory");
    (0..many).map(value).collect()
}

const LEN: usize = if cfg!(miri) { 40 } else { 1000 };
const MANY: u64 = if cfg!(miri) { 400 } else { 40_000 };

/// Leaves one of `each` values.
fn thin_out(values: &mut Vec<Bytes>, each: usize) {
    let mut number = 0;
    values.retain(|_| {
        number += 1;
        number % each == 0
    });
}

#[test]
fn values_keep_their_bytes_and_all_memory_goes_back() {
    let (arena, mut random, sizes) = (Arena::new(), Random(7), sizes());
    let mut values = HashMap::new();
    let mut clones = Vec::new();
    let mut moved = 0;
    for round in 0..ROUNDS {
        let key = random.below(500) as u64;
        match random.below(8) {
            0..4 => {
                let len = sizes[random.below(sizes.len() - 4 * usize::from(round % 50 > 0))];
                let value = arena.bytes(&content(key, len)).expect("memory");
                assert!(value.footprint() >= len);
                values.insert(key, value);
            }
            4 => clones.extend(values.get(&key).map(|value| (key, value.clone()))),
            5 if !clones.is_empty() => drop(clones.swap_remove(random.below(clones.len()))),
            _ => drop(values.remove(&key)),
        }
        if round % (ROUNDS / 20) == 0 {
            values.retain(|_, _| random.below(2) == 0);
            moved += move_all(&arena, values.values());
        }
        if round % 500 == 0 {
            for (&key, value) in values
                .iter()
                .chain(clones.iter().map(|(key, value)| (key, value)))
            {
                assert!(**value == content(key, value.len()), "of {key}");
            }
        }
    }
    // So few rounds scatter too little in Miri's small regions: other tests move there.
    assert!(cfg!(miri) || moved > 0);
    let footprints: usize = values.values().map(Bytes::footprint).sum();
    let statistics = arena.statistics();
    assert!(statistics.bytes >= footprints as u64 && statistics.held_bytes >= statistics.bytes);
    drop((values, clones));
    assert_eq!(arena.statistics(), ArenaStatistics::default());
    assert_eq!(Arc::strong_count(&arena.0), 1, "a region keeps the arena");
}

/// Values that go here and there leave room that others do not use: moving gives it back.
#[test]
fn what_is_scattered_is_moved_together() {
    let arena = Arena::new();
    let mut values = filled(&arena, MANY);
    let full = arena.statistics();
    assert!(full.held_bytes < full.bytes + full.bytes / 8, "{full:?}");
    let mut random = Random(3);
    let mut key = 0;
    let mut keys = Vec::new();
    values.retain(|_| {
        let stays = random.below(2) == 0;
        keys.extend(stays.then_some(key));
        key += 1;
        stays
    });
    assert!(arena.is_scattered());
    let scattered = arena.statistics();
    assert!(scattered.held_bytes > scattered.bytes + scattered.bytes / 2);
    let moved = move_all(&arena, values.iter());
    assert!((1..=values.len() / 2 + 1).contains(&moved), "{moved}");
    let after = arena.statistics();
    assert!(
        after.held_bytes < after.bytes + after.bytes / 8,
        "{after:?}"
    );
    assert!(!arena.is_scattered());
    for (key, value) in keys.into_iter().zip(&values) {
        assert!(**value == content(key, LEN));
    }
}

/// While its memory is wanted, it keeps no empty runs, and less in excess is worth a move.
#[test]
#[cfg_attr(miri, ignore = "many values, and no other unsafe code")]
fn memory_that_is_wanted_is_scattered_sooner() {
    let arena = Arena::new();
    let mut values = filled(&arena, 100_000);
    let mut number = 0;
    values.retain(|_| {
        number += 1;
        number % 25 > 0
    });
    assert!(!arena.is_scattered());
    arena.want_back(true);
    assert!(arena.is_scattered());
    let before = arena.statistics();
    assert!(move_all(&arena, values.iter()) > 0);
    assert!(!arena.is_scattered());
    let after = arena.statistics();
    assert!(
        after.held_bytes < before.held_bytes,
        "{before:?}, {after:?}"
    );
}

/// One run in 256 otherwise.
#[test]
fn no_empty_run_is_kept_while_memory_is_wanted() {
    let many = if cfg!(miri) { 1000 } else { 20_000 };
    for is_wanted in [false, true] {
        let arena = Arena::new();
        let fill = |key| arena.bytes(&content(key, 4000)).expect("memory");
        let mut values: Vec<_> = (0..many).map(fill).collect();
        arena.want_back(is_wanted);
        values.truncate(values.len() / 2);
        let after = arena.statistics();
        let runs = (after.held_bytes - after.bytes) / (32 << 10);
        let kept = after.held_bytes / (32 << 10) / 256;
        let expected = if is_wanted { 0..1 } else { kept..kept + 1 };
        assert!(expected.contains(&runs), "{is_wanted}: {runs}, {after:?}");
    }
}

/// What has clones stays for these, and is moved for the others.
#[test]
fn clones_keep_the_old_place() {
    let arena = Arena::new();
    let mut values = filled(&arena, MANY);
    thin_out(&mut values, 10);
    let clones = values.clone();
    let before = arena.statistics();
    assert!(move_all(&arena, values.iter()) > 0);
    let with_clones = arena.statistics();
    assert!(with_clones.held_bytes >= before.held_bytes);
    assert!(with_clones.values > before.values);
    assert!(clones.iter().zip(&values).all(|(one, other)| one == other));
    drop(clones);
    let after = arena.statistics();
    assert!(after.held_bytes < before.held_bytes / 2, "{after:?}");
    drop(arena);
    // The arena stays for its values.
    assert!(values.iter().all(|value| value.len() == LEN));
    drop(values.pop().expect("one").clone());
}

/// What belongs to another arena is left alone.
#[test]
fn values_of_another_arena_are_not_moved() {
    let (one, other) = (Arena::new(), Arena::new());
    let mut values = filled(&one, MANY);
    thin_out(&mut values, 4);
    one.begin_moving();
    // SAFETY: no other thread reads the values.
    let old = values.iter().map(|value| unsafe { value.leave(&other) });
    assert!(old.into_iter().all(|old| old == Ok(None)));
    assert!(move_all(&one, values.iter()) > 0);
}

#[test]
fn threads_share_values_and_an_arena() {
    let arena = Arena::new();
    let rounds = ROUNDS / 10;
    let shared = arena.bytes(&content(1, 100)).expect("memory");
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (arena, shared) = (&arena, &shared);
            scope.spawn(move || {
                let (mut random, mut mine) = (Random(thread + 1), Vec::new());
                for _ in 0..rounds {
                    let len = random.below(300);
                    mine.push((
                        arena.bytes(&content(thread, len)).expect("memory"),
                        shared.clone(),
                    ));
                    if mine.len() > 50 {
                        let (own, other) = mine.swap_remove(random.below(50));
                        assert!(*own == content(thread, own.len()) && other == *shared);
                    }
                }
            });
        }
    });
    drop(shared);
    assert_eq!(arena.statistics(), ArenaStatistics::default());
}

/// The handler of a fork, where another thread held the lock: values are read, and leaked when they go.
#[test]
#[cfg_attr(miri, ignore = "memory is lost, as it is in a child")]
fn values_of_an_arena_whose_lock_is_lost_are_read_and_leaked() {
    let arena = Arena::new();
    let old: Vec<_> = (0..100)
        .map(|key| arena.bytes(&content(key, 100)).expect("memory"))
        .collect();
    let giant = arena.bytes(&content(1, 5 << 20)).expect("memory");
    std::mem::forget(arena.0.state.lock());
    // SAFETY: no other thread uses the arena.
    unsafe { arena.0.reset_in_child() };
    for (key, value) in old.iter().enumerate() {
        assert!(**value == content(key as u64, 100));
    }
    drop((old, giant, arena));
}

/// It is asked once, until it has begun; and again, if it could not be asked.
#[test]
fn it_asks_for_values_to_be_moved() {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let arena = Arena::new();
    arena.on_scattered(|| ASKED.fetch_add(1, Relaxed) > 0);
    let mut values = filled(&arena, MANY);
    thin_out(&mut values, 8);
    // Refused at first.
    assert_eq!(ASKED.load(Relaxed), 2);
    assert!(arena.is_scattered() && move_all(&arena, values.iter()) > 0);
    assert!(!arena.is_scattered());
    assert_eq!(ASKED.load(Relaxed), 2);
}
