//! Model-checked tests of the orderings in the statistics page: the copy of a gauge, the sequence
//! count.

use super::{
    fields::GRACE_PERIODS,
    layout::{MAGIC, VERSION, WORD, block_at, head, slot, slot_at},
    read::{self, Page, ReadAt, Value},
    sequence, tap,
};
use crate::{
    model::{model::Builder, thread},
    sync::{Arc, AtomicU64, Ordering},
};
use std::{collections::HashMap, io};

fn model(test: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(test);
}

/// T1 with T2. A thread that gave up after some copies would leave an old value now and then.
#[test]
fn loom_the_copy_of_a_gauge_is_right_in_the_end() {
    model(|| {
        let gauge = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
        let count = |by: u64| {
            let gauge = Arc::clone(&gauge);
            thread::spawn(move || {
                gauge.0.fetch_add(by, Ordering::Relaxed);
                tap::follow(&gauge.1, || gauge.0.load(Ordering::Relaxed));
            })
        };
        let threads = [count(1), count(2)];
        threads
            .into_iter()
            .for_each(|thread| thread.join().expect("it does not panic"));
        assert_eq!(gauge.1.load(Ordering::Relaxed), 3);
    });
}

/// Q1 with Q4, Q2 with Q3.
#[test]
fn loom_what_is_read_behind_an_even_count_belongs_together() {
    model(|| {
        let words = Arc::new([const { 0 }; 3].map(AtomicU64::new));
        let theirs = Arc::clone(&words);
        let writer = thread::spawn(move || {
            for value in 1..3 {
                sequence::change(&theirs[0], || {
                    theirs[1].store(value, Ordering::Relaxed);
                    theirs[2].store(value, Ordering::Relaxed);
                });
            }
        });
        let load = |at: usize| words[at].load(Ordering::Relaxed);
        let count = || Ok::<_, ()>(load(0));
        if let Ok(Some((second, first))) = sequence::read(count, || (load(2), load(1))) {
            assert_eq!(first, second);
        }
        writer.join().expect("it does not panic");
    });
}

/// The words of a page that change while it is read. All others are constant, or zero. The words of
/// one call are read from the last to the first.
struct Changing(HashMap<usize, AtomicU64>);

const SLOT: usize = slot_at(0);
const BLOCK: usize = block_at(0);

impl Changing {
    fn new() -> Self {
        let words = [
            head::SLOTS,
            SLOT + slot::SEQUENCE,
            SLOT + slot::STATE,
            SLOT + slot::NUMBER,
            BLOCK + GRACE_PERIODS,
        ];
        Self(words.map(|at| (at, AtomicU64::new(0))).into())
    }

    fn store(&self, at: usize, value: u64) {
        self.0[&at].store(value, Ordering::Relaxed);
    }

    /// Adds a slot and its domain, as `Block::new` does.
    fn add(&self) {
        self.store(head::SLOTS, 1);
        sequence::change(&self.0[&(SLOT + slot::SEQUENCE)], || {
            self.store(BLOCK + GRACE_PERIODS, 7);
            self.store(SLOT + slot::NUMBER, 7);
            self.store(SLOT + slot::STATE, slot::USED);
        });
    }

    fn assert_consistent(page: &Page) {
        for thing in &page.things {
            assert_eq!(thing.number, 7);
            assert_eq!(thing.value("grace_periods"), Some(&Value::Counter(7)));
        }
    }
}

impl ReadAt for Changing {
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let first = offset as usize / WORD;
        for (number, bytes) in bytes.chunks_exact_mut(WORD).enumerate().rev() {
            let at = first + number;
            let value = match self.0.get(&at) {
                Some(word) => word.load(Ordering::Relaxed),
                None if at == head::MAGIC => MAGIC,
                None if at == head::VERSION => VERSION,
                None => 0,
            };
            bytes.copy_from_slice(&value.to_ne_bytes());
        }
        Ok(())
    }
}

/// Q1 with Q4, Q2 with Q3, in a whole page. The number of slots needs no order: a slot that is not yet
/// written is a free one.
#[test]
fn loom_a_page_that_grows_is_consistent() {
    model(|| {
        let page = Arc::new(Changing::new());
        let theirs = Arc::clone(&page);
        let writer = thread::spawn(move || theirs.add());
        let seen = read::read(&*page).expect("it is consistent");
        Changing::assert_consistent(&seen);
        writer.join().expect("it does not panic");
        assert_eq!(
            read::read(&*page).expect("it is consistent").things.len(),
            1
        );
    });
}
