//! The table by itself: its words have their own hashes, so that no item is looked at.
//!
//! Detects joins right after splits, joined buckets that do not lead back, memory given back under
//! readers, and walks that visit items twice.

use super::{
    resize::{JOINS, LOAD},
    *,
};
use crate::store::class::Class;
use std::{sync::atomic::AtomicBool, thread};
use stillpoint::{read_lock, synchronize};

fn word(hash: u64) -> Word {
    Word::new((hash as usize) << 2, Class::OWN, hash)
}

fn hash_of(word: Word) -> u64 {
    word.address() as u64 >> 2
}

fn insert(index: &Index, hash: u64) {
    let section = read_lock();
    index.lock(hash, &section).insert(word(hash)).unwrap();
}

fn remove(index: &Index, hash: u64) {
    let section = read_lock();
    let mut bucket = index.lock(hash, &section);
    let (slot, _) = bucket.find(hash, |found| found == word(hash)).unwrap();
    bucket.clear(slot);
    bucket.trim();
}

fn finds(index: &Index, hash: u64) -> bool {
    let is_it = |found: Word| (found == word(hash)).then_some(());
    index.find(hash, &read_lock(), is_it).is_some()
}

/// A hash that tells nothing of its neighbours.
fn scattered(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20
}

fn buckets(index: &Index) -> u64 {
    index.buckets.load(Ordering::Relaxed)
}

/// All hashes of a walk, in order.
fn walked(index: &Index) -> Vec<u64> {
    let (mut cursor, mut words, mut all) = (0, Vec::new(), Vec::new());
    while {
        let more = index.walk(&mut cursor, &mut words, &read_lock(), hash_of);
        all.extend(words.iter().map(|&(_, hash)| hash));
        more
    } {}
    all.sort_unstable();
    all
}

fn empty(buckets: u64) -> Index {
    let index = Index::new(Arc::new(Pool::new(1 << 20).unwrap()));
    while index.buckets.load(Ordering::Relaxed) < buckets {
        let items = (index.buckets.load(Ordering::Relaxed) + 1) * LOAD;
        index.grow(items, &read_lock(), |_| unreachable!("it is empty"));
    }
    index
}

/// A thread that has read the number of buckets long ago comes only to buckets that are there,
/// and ends in the right one.
#[test]
fn a_stale_number_of_buckets_leads_to_the_right_one() {
    let check = |index: &Index, stale: u64| {
        let buckets = buckets(index);
        for hash in 0..if cfg!(miri) { 8 } else { 64 } {
            let right = number(hash, buckets);
            let mut at = number(hash, stale);
            while let Some(next) = next_bucket(hash, at, index.bucket(at).depth()) {
                assert!(
                    next < buckets.max(at),
                    "{hash} from {at}: {next} of {buckets}"
                );
                at = next;
            }
            assert_eq!(at, right);
            let locked = index.lock_from(number(hash, stale), hash);
            assert_eq!(low_bits(hash, locked.depth()), right);
        }
    };
    let sizes: &[u64] = if cfg!(miri) {
        &[9, 11]
    } else {
        &[8, 9, 11, 16, 21, 31]
    };
    for &many in sizes {
        let index = empty(many);
        assert_eq!(buckets(&index), many);
        (FIRST as u64..=many).for_each(|stale| check(&index, stale));
        // Joined one by one, with what was more.
        synchronize();
        for fewer in (FIRST as u64..many).rev() {
            index.shrink(fewer, &read_lock(), hash_of);
            assert_eq!(buckets(&index), fewer);
            (fewer..=many).for_each(|stale| check(&index, stale));
        }
    }
}

/// It grows and shrinks with its items, all of which stay, and gives memory back.
#[test]
fn it_follows_its_items() {
    let index = empty(FIRST as u64);
    let many = if cfg!(miri) { 150 } else { 20_000 };
    for round in 0..2 {
        for number in 0..many {
            insert(&index, scattered(number));
            index.grow(number + 1, &read_lock(), hash_of);
        }
        assert!(buckets(&index) >= many / LOAD - 1, "in round {round}");
        let full = index.bytes();
        assert!(
            full >= many / LOAD * 64 && full <= many * 32 + 4096,
            "{full}"
        );
        assert_eq!(walked(&index).len() as u64, many);
        assert!((0..many).all(|number| finds(&index, scattered(number))));
        let mut there = many;
        for kept in [many / 3, many / 9, 10, 0] {
            (kept..there).for_each(|number| remove(&index, scattered(number)));
            there = kept;
            synchronize();
            while let Some(enough) = index.enough(kept, false) {
                index.shrink(enough, &read_lock(), hash_of);
            }
            // Other tests' readers, too.
            synchronize();
            index.release();
            assert!((0..kept).all(|number| finds(&index, scattered(number))));
            assert_eq!(walked(&index).len() as u64, kept);
            let bytes = index.bytes();
            assert!(bytes <= kept * 32 + 4096, "{bytes} for {kept}");
        }
        assert_eq!((buckets(&index), index.bytes()), (FIRST as u64, 0));
        synchronize();
    }
}

/// A reader that has seen a split sees no join, and the reverse.
#[test]
fn it_turns_once_readers_have_left() {
    let index = empty(40);
    let reader = || {
        let (entered, wait) = std::sync::mpsc::channel();
        let (leave, left) = std::sync::mpsc::channel::<()>();
        let thread = thread::spawn(move || {
            let _section = read_lock();
            entered.send(()).unwrap();
            let _ = left.recv();
        });
        wait.recv().unwrap();
        move || {
            drop(leave);
            thread.join().unwrap();
            synchronize();
        }
    };
    let leave = reader();
    index.grow(41 * LOAD, &read_lock(), hash_of);
    assert_eq!(buckets(&index), 41);
    assert!(!index.shrink(20, &read_lock(), hash_of));
    assert_eq!(buckets(&index), 41);
    leave();
    let leave = reader();
    index.shrink(40, &read_lock(), hash_of);
    index.shrink(30, &read_lock(), hash_of);
    assert_eq!(buckets(&index), 30);
    index.grow(40 * LOAD, &read_lock(), hash_of);
    assert_eq!(buckets(&index), 30);
    leave();
    index.grow(40 * LOAD, &read_lock(), hash_of);
    assert_eq!(buckets(&index), 34);
}

/// Memory behind the last bucket stays while a reader may be there.
#[test]
fn memory_of_joined_buckets_waits_for_readers() {
    let index = empty(200);
    synchronize();
    let section = read_lock();
    index.shrink(100, &section, hash_of);
    index.shrink(100, &section, hash_of);
    assert_eq!(buckets(&index), 100);
    let before = index.bytes();
    index.release();
    assert_eq!(index.bytes(), before);
    // As one that has read the number before.
    assert!((100..200u64).all(|gone| index.bucket(gone).depth() == gone.ilog2()));
    drop(section);
    synchronize();
    index.release();
    assert_eq!((before, index.bytes()), (16 << 10, 8 << 10));
}

/// Tells threads to stop when it is dropped: also when a check has failed.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What is there throughout is found throughout, and a walk comes to it once.
#[test]
fn readers_miss_nothing_while_it_grows_and_shrinks() {
    let (kept, others) = if cfg!(miri) { (20, 40) } else { (500, 3000) };
    let index = empty(FIRST as u64);
    (0..kept).for_each(|number| insert(&index, scattered(number)));
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    for number in 0..kept {
                        assert!(finds(&index, scattered(number)), "{number} is missed");
                    }
                }
            });
        }
        scope.spawn(|| {
            let mut expected: Vec<_> = (0..kept).map(scattered).collect();
            expected.sort_unstable();
            while !stop.load(Ordering::Relaxed) {
                let mut found = walked(&index);
                found.retain(|hash| expected.binary_search(hash).is_ok());
                assert!(found == expected, "{} of {kept}", found.len());
            }
        });
        let _stop = StopAtEnd(&stop);
        for _ in 0..if cfg!(miri) { 2 } else { 60 } {
            for number in kept..kept + others {
                insert(&index, scattered(number));
                index.grow(number + 1, &read_lock(), hash_of);
            }
            for number in kept..kept + others {
                remove(&index, scattered(number));
            }
            let before = buckets(&index);
            for _ in 0..others as usize / JOINS + 1 {
                synchronize();
                if let Some(enough) = index.enough(kept, false) {
                    index.shrink(enough, &read_lock(), hash_of);
                }
            }
            assert!(buckets(&index) < before, "it shrinks");
            synchronize();
            index.release();
        }
    });
}

/// A bucket between the steps of a split has words twice: a walk gives each of them once.
#[test]
fn a_walk_leaves_out_what_a_split_has_copied() {
    let index = empty(8);
    for hash in [1, 9, 17] {
        insert(&index, hash);
    }
    // As `split` does it, but for the slots that it empties.
    index
        .make_part(3, &mut index.resize.try_lock().unwrap().memory)
        .unwrap();
    for number in 0..=1u64 {
        let mut old = index.bucket(number).lock(&index.lines);
        let new = index.bucket(number + 8);
        new.init(4, true);
        let mut to = new.made_locked(&index.lines);
        let moved = old
            .slots()
            .filter_map(|slot| Word::from_bits(slot.load(Ordering::Relaxed)));
        for word in moved.filter(|&word| hash_of(word) & 8 != 0) {
            to.insert(word).unwrap();
        }
        old.set_depth(4);
        index.buckets.store(number + 9, Ordering::Release);
    }
    assert_eq!(walked(&index), [1, 9, 17]);
}
