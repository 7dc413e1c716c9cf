//! Many threads: no foreign, torn or lost value.

use super::*;
use crate::store::{
    Arithmetic, TenantStatistics,
    common::Owner,
    layout::{RawItem, Shape},
    state::{Plan, Value},
};
use std::{
    sync::{
        Barrier,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

const THREADS: u64 = 4;
const ROUNDS: u64 = if cfg!(miri) { 40 } else { 20_000 };
const KEYS: u64 = if cfg!(miri) { 20 } else { 2000 };

/// A value that tells its key, its writer's version, and whether it is whole.
fn stamped(key: u64, version: u64) -> Vec<u8> {
    let len = 16 + (key ^ version) as usize % 700;
    let mut bytes = pattern(key, version, len);
    bytes[..8].copy_from_slice(&key.to_le_bytes());
    bytes[8..16].copy_from_slice(&version.to_le_bytes());
    bytes
}

fn check(key: u64, value: &[u8]) -> u64 {
    let word = |at: usize| u64::from_le_bytes(value[at..at + 8].try_into().unwrap());
    assert_eq!(word(0), key, "another key's value");
    assert_eq!(value, stamped(key, word(8)), "torn");
    word(8)
}

fn join<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap()
}

const LIMIT: u64 = if cfg!(miri) { 64 << 10 } else { 1 << 20 };

#[test]
fn values_are_whole_and_not_older_than_what_was_written() {
    let (store, tenant, _) = store_of(LIMIT, true);
    write_own_and_read_all(&store, &tenant);
    check_dead(&tenant);
    let figures = tenant.statistics();
    let there = (0..KEYS).filter(|key| value_of(&tenant, &key.to_le_bytes()).is_some());
    assert_eq!(there.count() as u64, figures.items);
}

/// The same, with the background threads of a store that is not a test's.
#[test]
fn values_are_whole_while_room_is_made_ahead_of_need() {
    let (store, tenant) = live(LIMIT);
    write_own_and_read_all(&store, &tenant);
}

/// Each thread writes its own keys, and reads all.
fn write_own_and_read_all(store: &Store, tenant: &Tenant) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            // Segments move and go all the time.
            while !stop.load(Ordering::Relaxed) {
                store.maintain();
                store.shrink(64 << 10);
                thread::yield_now();
            }
        });
        let workers: Vec<_> = (0..THREADS)
            .map(|own| {
                scope.spawn(move || {
                    let mut last = vec![0; KEYS as usize];
                    let mut random = own + 1;
                    for round in 1..ROUNDS {
                        random = random.wrapping_mul(6364136223846793005).wrapping_add(1);
                        let key = (random >> 33) % KEYS;
                        let mine = key - key % THREADS + own;
                        if round % 3 == 0 && mine < KEYS {
                            set(tenant, &mine.to_le_bytes(), &stamped(mine, round)).unwrap();
                            last[mine as usize] = round;
                        }
                        let pin = tenant.get(&key.to_le_bytes(), |item| {
                            let version = check(key, item.value());
                            if key % THREADS == own {
                                assert_eq!(version, last[key as usize]);
                            }
                            (round % 16 == 0).then(|| item.pin()).flatten()
                        });
                        if let Some(Some(pin)) = pin {
                            thread::yield_now();
                            check(key, &pin);
                        }
                        if round % 97 == 0 && mine < KEYS {
                            let _ = tenant.delete(&mine.to_le_bytes(), None);
                            assert_eq!(value_of(tenant, &mine.to_le_bytes()), None);
                        }
                    }
                })
            })
            .collect();
        workers.into_iter().for_each(join);
        stop.store(true, Ordering::Relaxed);
    });
}

/// Compaction, eviction's copies and touches meet; no increment is lost.
#[test]
fn counters_lose_nothing_to_compaction() {
    let (store, tenant, clock) = store_of(if cfg!(miri) { 1 << 20 } else { 8 << 20 }, false);
    let counters = 5u64;
    let far = clock.now() + 1000;
    let start = Arithmetic {
        initial: Some((0, far)),
        ..Arithmetic::increment(0)
    };
    for key in 0..counters {
        tenant.arithmetic(&key.to_le_bytes(), start).unwrap();
    }
    let stop = AtomicBool::new(false);
    let rounds = ROUNDS / 10;
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                store.maintain();
                thread::yield_now();
            }
        });
        let workers: Vec<_> = (0..THREADS)
            .map(|own| {
                let tenant = &tenant;
                scope.spawn(move || {
                    for round in 0..rounds {
                        let key = (round % counters).to_le_bytes();
                        tenant.arithmetic(&key, Arithmetic::increment(1)).unwrap();
                        tenant.touch(&key, far + round as u32).unwrap();
                        // Others in the same segments.
                        let other = [own as u8, round as u8, 9];
                        set(tenant, &other, &[0; 300]).unwrap();
                    }
                })
            })
            .collect();
        workers.into_iter().for_each(join);
        stop.store(true, Ordering::Relaxed);
    });
    let sum = (0..counters).map(|key| {
        let value = value_of(&tenant, &key.to_le_bytes()).unwrap();
        let text = String::from_utf8(value).unwrap();
        text.trim_end().parse::<u64>().unwrap()
    });
    assert_eq!(sum.sum::<u64>(), THREADS * rounds);
}

/// Of many that would make a value again, one wins, whatever is copied meanwhile.
#[test]
fn one_of_many_wins() {
    let (store, tenant, _) = store_of(1 << 20, true);
    for round in 0..if cfg!(miri) { 3 } else { 200u32 } {
        set(&tenant, &round.to_le_bytes(), &[0; 3000]).unwrap();
        let wins: usize = thread::scope(|scope| {
            let win = || {
                let won = tenant.get(&round.to_le_bytes(), |item| item.win());
                usize::from(won == Some(true))
            };
            let workers: Vec<_> = (0..3).map(|_| scope.spawn(win)).collect();
            store.maintain();
            workers.into_iter().map(join).sum()
        });
        assert_eq!(wins, 1);
    }
}

/// Adds of one key: one succeeds in each round.
#[test]
fn one_of_many_adds() {
    let (_store, tenant, _) = store_of(1 << 20, true);
    for round in 0..if cfg!(miri) { 3 } else { 500u32 } {
        let added: usize = thread::scope(|scope| {
            let add = |own: u8| {
                let tenant = &tenant;
                move || {
                    let stored = tenant.set(b"k", 0, 0, &[own; 50], Mode::Add, ANY);
                    assert!(matches!(stored, Ok(_) | Err(Outcome::NotStored)));
                    usize::from(stored.is_ok())
                }
            };
            let workers: Vec<_> = (0..3).map(|own| scope.spawn(add(own))).collect();
            workers.into_iter().map(join).sum()
        });
        assert_eq!(added, 1, "in round {round}");
        tenant.delete(b"k", None).unwrap();
    }
}

/// A pass that has begun before a flush takes nothing of what is stored after it.
#[test]
fn a_sweep_takes_only_what_was_flushed() {
    let (store, tenant, _) = store_of(32 << 20, true);
    let is_short = |figures: &TenantStatistics| figures.segment_bytes < figures.item_bytes;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    store.maintain();
                }
            });
        }
        let items = if cfg!(miri) { 8 } else { 400u32 };
        for _ in 0..if cfg!(miri) { 3 } else { 300 } {
            tenant.flush_all(0);
            for number in 0..items {
                set(&tenant, &number.to_le_bytes(), &[1; 2000]).unwrap();
            }
            // What was taken away is charged to no tenant.
            if is_short(&tenant.statistics()) {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    // Exact, as no other thread charges now.
    let figures = tenant.statistics();
    assert!(!is_short(&figures), "{figures:?}");
}

/// Once a flush is due, no thread finds what was there before.
#[test]
fn a_flush_that_is_due_is_seen_by_all_threads() {
    let (_store, tenant, clock) = store_of(1 << 20, true);
    let barrier = Barrier::new(THREADS as usize + 1);
    let rounds = if cfg!(miri) { 3 } else { 2000 };
    let found = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..rounds {
                    barrier.wait();
                    if tenant.peek(b"k", |_| {}).is_some() {
                        found.fetch_add(1, Ordering::Relaxed);
                    }
                    barrier.wait();
                }
            });
        }
        for _ in 0..rounds {
            set(&tenant, b"k", b"v").unwrap();
            tenant.flush_all(1);
            clock.advance(1);
            barrier.wait();
            barrier.wait();
        }
    });
    assert_eq!(found.load(Ordering::Relaxed), 0);
}

/// An expiry or a win mark that is set while a command copies the item is not lost.
#[test]
fn what_changes_in_place_is_not_lost_to_a_copy() {
    let (_store, tenant, clock) = store_of(1 << 20, true);
    let (soon, late) = (clock.now() + 10, clock.now() + 1000);
    let touch = || tenant.touch(b"k", late).unwrap();
    let win = || assert_eq!(tenant.get(b"k", |item| item.win()), Some(true));
    let changes: [&dyn Fn(); 2] = [&touch, &win];
    let mut results = Vec::new();
    for change in changes {
        tenant.set(b"k", 0, soon, b"1", Mode::Set, ANY).unwrap();
        let mut times = 0;
        let copy = |item: Option<RawItem>, owner: &Owner| {
            let old = item.unwrap();
            let shape = Shape {
                key: b"k",
                value_len: 1,
                exptime: old.exptime(),
                cas: owner.next_cas(),
                marks: old.access().marks(),
                ..Shape::default()
            };
            times += 1;
            if times == 1 {
                change();
            }
            Ok(Plan {
                shape,
                value: Value::Parts([b"2", b""]),
                depends: true,
            })
        };
        tenant.state.store(b"k", true, copy).unwrap();
        assert_eq!((times, value_of(&tenant, b"k")), (2, Some(b"2".to_vec())));
        let seen = tenant.peek(b"k", |item| (item.exptime(), item.has_win()));
        results.push(seen.unwrap());
    }
    assert_eq!(results, [(late, false), (soon, true)]);
}

/// A large value that is written anew, because another thread was faster, leaves nothing in the count.
#[test]
fn what_was_never_published_is_not_dead_for_ever() {
    let (_store, tenant, _) = store_of(1 << 20, true);
    let value = [1; 40_000];
    set(&tenant, b"k", b"v").unwrap();
    let mut times = 0;
    let replace = |item: Option<RawItem>, owner: &Owner| {
        assert!(item.is_some());
        times += 1;
        if (2..5).contains(&times) {
            set(&tenant, b"k", b"another").unwrap();
        }
        let shape = Shape {
            key: b"k",
            value_len: value.len(),
            cas: owner.next_cas(),
            ..Shape::default()
        };
        Ok(Plan {
            shape,
            value: Value::Parts([&value, b""]),
            depends: true,
        })
    };
    tenant.state.store(b"k", true, replace).unwrap();
    assert_eq!(value_of(&tenant, b"k"), Some(value.to_vec()));
    assert!(times > 4);
    check_dead(&tenant);
}

/// Of drafts that replace the same item, those that were late are written into the same memory again.
#[test]
fn drafts_that_were_late_leave_nothing_in_the_count() {
    let (_store, tenant, _) = store_of(16 << 20, true);
    set(&tenant, b"k", b"v").unwrap();
    let rounds = if cfg!(miri) { 4 } else { 3000 };
    thread::scope(|scope| {
        for own in 0..THREADS as u8 {
            let tenant = &tenant;
            scope.spawn(move || {
                for _ in 0..rounds {
                    let mut draft = tenant.prepare(b"k", 0, 0, 33_000).unwrap();
                    draft.push(&[own; 33_000]).unwrap();
                    draft.store(Mode::Replace, ANY).unwrap();
                }
            });
        }
    });
    check_dead(&tenant);
    assert_eq!(tenant.statistics().items, 1);
}
