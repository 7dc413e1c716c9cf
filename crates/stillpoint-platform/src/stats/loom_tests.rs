//! Model-checked tests of the orderings in the statistics page: the copy of a gauge, the sequence
//! count, the counts in the head.

use super::{
    layout::{
        self, BLOCKS_AT, FIELDS_AT, FieldKind, MAGIC, SLOTS_AT, Unit, VERSION, WORD, field, head,
        slot,
    },
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

/// A page whose words in `model` change while it is read. All others are constant, or zero. The
/// words of one call are read from the last to the first.
struct Changing {
    constant: HashMap<usize, u64>,
    model: HashMap<usize, AtomicU64>,
}

impl Changing {
    /// Makes a page that has no fields yet.
    fn new() -> Self {
        let text = |text: &str| layout::text_words::<1>(text)[0];
        let constant = [
            (head::MAGIC, MAGIC),
            (head::VERSION, VERSION),
            (head::BYTES, layout::BYTES as u64),
            (FIELDS_AT + field::NAME, text("field")),
            (FIELDS_AT + field::KIND, FieldKind::Counter as u64),
            (FIELDS_AT + field::UNIT, Unit::Count as u64),
            (FIELDS_AT + field::LEN, 1),
            (SLOTS_AT + slot::BLOCK, BLOCKS_AT as u64),
        ];
        let model = [
            head::BLOCK,
            head::FIELDS,
            head::SLOTS,
            SLOTS_AT + slot::SEQUENCE,
            SLOTS_AT + slot::STATE,
            SLOTS_AT + slot::NUMBER,
            BLOCKS_AT,
        ];
        Self {
            constant: constant.into_iter().collect(),
            model: model
                .map(|at| (at, AtomicU64::new(0)))
                .into_iter()
                .collect(),
        }
    }

    fn store(&self, at: usize, value: u64) {
        self.model[&at].store(value, Ordering::Relaxed);
    }

    /// Stores 1 as `Table::show` does.
    fn show(&self, at: usize) {
        self.model[&at].store(1, Ordering::Release);
    }

    /// Adds the fields, a slot and its domain, as `Table::find` and `Block::new` do.
    fn add(&self) {
        self.store(head::BLOCK, 1);
        self.show(head::FIELDS);
        self.show(head::SLOTS);
        sequence::change(&self.model[&(SLOTS_AT + slot::SEQUENCE)], || {
            self.store(BLOCKS_AT, 7);
            self.store(SLOTS_AT + slot::NUMBER, 7);
            self.store(SLOTS_AT + slot::STATE, slot::USED);
        });
    }

    fn assert_consistent(page: &Page) {
        for thing in &page.things {
            assert_eq!(thing.number, 7);
            assert_eq!(thing.value("field"), Some(&Value::Counter(7)));
        }
    }
}

impl ReadAt for Changing {
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let first = offset as usize / WORD;
        for (number, bytes) in bytes.chunks_exact_mut(WORD).enumerate().rev() {
            let at = first + number;
            let value = match self.model.get(&at) {
                Some(word) => word.load(Ordering::Relaxed),
                None => self.constant.get(&at).copied().unwrap_or(0),
            };
            bytes.copy_from_slice(&value.to_ne_bytes());
        }
        Ok(())
    }
}

/// The release stores of the counts with Q5: if a slot is found, so are the fields.
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
