//! The mixes of conc-map-bench, which are those of libcuckoo's universal benchmark: each thread has
//! keys of its own, inserts them in their order, removes the oldest, and looks for one at random,
//! there or not. A hundred operations in shuffled order are repeated; there are as many operations
//! as the capacity, of all threads together. What comes before the mix, the filling of three
//! quarters of the capacity in two of the mixes, is not timed.
//!
//! A map that gives a wrong answer fails the measurement.

use anyhow::Result;

use super::Work;
use crate::map::{Map, MapHandle};
use crate::run::Sample;
use crate::scale::keys::key;
use crate::scale::threads::together;

/// Operations in a hundred.
#[derive(Clone, Copy)]
struct Mix {
    name: &'static str,
    read: usize,
    insert: usize,
    remove: usize,
    update: usize,
    /// Quarters of the capacity that are filled before.
    quarters: usize,
}

const MIXES: [Mix; 3] = [
    Mix {
        name: "readheavy",
        read: 98,
        insert: 1,
        remove: 1,
        update: 0,
        quarters: 3,
    },
    Mix {
        name: "exchange",
        read: 10,
        insert: 40,
        remove: 40,
        update: 10,
        quarters: 3,
    },
    Mix {
        name: "rapidgrow",
        read: 5,
        insert: 80,
        remove: 5,
        update: 10,
        quarters: 0,
    },
];

/// A scenario.
#[derive(Clone, Copy)]
pub struct Plan {
    mix: Mix,
    /// `None`: as many as asked for.
    threads: Option<u32>,
    /// Whether the map is told the capacity.
    is_presized: bool,
}

impl Plan {
    /// The plan of a scenario of this name, if it is one of a mix.
    pub fn of(scenario: &str) -> Option<Self> {
        let mut parts = scenario.split('-');
        let name = parts.next()?;
        let mix = MIXES.into_iter().find(|mix| mix.name == name)?;
        Some(Self {
            mix,
            threads: parts.next()?.parse().ok(),
            is_presized: parts.next().is_none(),
        })
    }
}

#[derive(Clone, Copy)]
enum Operation {
    Read,
    Insert,
    Remove,
    Update,
}

impl Mix {
    /// A hundred operations, the same for all subjects.
    fn operations(&self) -> Vec<Operation> {
        let mut operations = [
            vec![Operation::Read; self.read],
            vec![Operation::Insert; self.insert],
            vec![Operation::Remove; self.remove],
            vec![Operation::Update; self.update],
        ]
        .concat();
        fastrand::Rng::with_seed(1).shuffle(&mut operations);
        operations
    }
}

/// What is done, in numbers.
struct Extent {
    threads: usize,
    operations: Vec<Operation>,
    /// Entries that each thread inserts before.
    filled: usize,
    /// Keys of each thread: a power of two.
    keys: usize,
    /// Times that each thread does the operations.
    passes: usize,
}

impl Extent {
    fn new(mix: &Mix, threads: usize, capacity: usize) -> Self {
        let operations = mix.operations();
        let filled = capacity / 4 * mix.quarters;
        let inserted = capacity.div_ceil(operations.len()) * mix.insert;
        Self {
            threads,
            filled: filled / threads,
            keys: (filled + inserted.max(capacity))
                .div_ceil(threads)
                .next_power_of_two(),
            passes: capacity / threads / operations.len(),
            operations,
        }
    }

    /// All operations of all threads.
    fn all(&self) -> usize {
        self.threads * self.passes * self.operations.len()
    }
}

/// A thread at work: where it is among its keys.
struct Worker<'e, H> {
    extent: &'e Extent,
    handle: H,
    keys: Vec<u64>,
    inserted: usize,
    removed: usize,
    sought: usize,
    /// Wrong answers.
    wrong: usize,
}

impl<'e, H: MapHandle> Worker<'e, H> {
    /// The thread of this number, its part of the map filled.
    fn new(extent: &'e Extent, handle: H, number: usize) -> Self {
        let keys = (0..extent.keys as u64)
            .map(|place| key((number as u64) << 32 | place))
            .collect();
        let mut worker = Self {
            extent,
            handle,
            keys,
            inserted: 0,
            removed: 0,
            sought: 0,
            wrong: 0,
        };
        for _ in 0..extent.filled {
            worker.insert();
        }
        worker
    }

    fn mask(&self) -> usize {
        self.keys.len() - 1
    }

    /// A key at random, and whether it is in the map.
    #[inline]
    fn seek(&mut self) -> (u64, bool) {
        let place = self.sought;
        let (factor, step) = (self.keys.len() / 2 + 1, self.keys.len() / 4 - 1);
        self.sought = factor.wrapping_mul(place).wrapping_add(step) & self.mask();
        let age = place.wrapping_sub(self.removed) & self.mask();
        (self.keys[place], age < self.inserted - self.removed)
    }

    #[inline]
    fn expect(&mut self, answer: bool, expected: bool) {
        self.wrong += usize::from(answer != expected);
    }

    #[inline]
    fn insert(&mut self) {
        let key = self.keys[self.inserted & self.mask()];
        let is_new = self.handle.insert(key, 0);
        self.inserted += 1;
        self.expect(is_new, true);
    }

    #[inline]
    fn run(&mut self, operation: Operation) {
        match operation {
            Operation::Read => {
                let (key, is_there) = self.seek();
                let found = self.handle.get(key).is_some();
                self.expect(found, is_there);
            }
            Operation::Insert => self.insert(),
            Operation::Remove if self.removed == self.inserted => {
                let (key, _) = self.seek();
                let removed = self.handle.remove(key);
                self.expect(removed, false);
            }
            Operation::Remove => {
                let key = self.keys[self.removed & self.mask()];
                let removed = self.handle.remove(key);
                self.removed += 1;
                self.expect(removed, true);
            }
            Operation::Update => {
                let (key, is_there) = self.seek();
                let updated = self.handle.update(key);
                self.expect(updated, is_there);
            }
        }
    }

    /// Each operation once.
    fn pass(&mut self) {
        let extent = self.extent;
        for &operation in &extent.operations {
            self.run(operation);
        }
    }
}

/// Measures a mix.
pub fn measure<M: Map>(work: &Work, plan: Plan) -> Result<Sample> {
    let capacity = 1 << work.capacity_log2;
    let threads = plan.threads.unwrap_or(work.threads) as usize;
    let extent = Extent::new(&plan.mix, threads, capacity);
    let map: &M = super::leak(M::with_capacity(if plan.is_presized {
        capacity
    } else {
        0
    }));
    let make = |number| Worker::new(&extent, map.handle(threads), number);
    let took = together(threads, make, |worker| {
        for _ in 0..extent.passes {
            worker.pass();
        }
        worker.wrong
    })?;
    let per_s = extent.all() as f64 / took.as_secs_f64();
    Ok(Sample::of([("ops_per_s", per_s)]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choice::scenarios;
    use crate::map::Lookup;
    use crate::scale::map::SCENARIOS;
    use crate::scale::map::subjects::{Limit, Unshared};

    #[test]
    fn each_mix_has_a_hundred_operations_and_each_number_of_threads() {
        for mix in &MIXES {
            assert_eq!(mix.operations().len(), 100, "{}", mix.name);
        }
        let plans: Vec<_> = scenarios(SCENARIOS).filter_map(Plan::of).collect();
        assert_eq!(plans.len(), 15);
        assert_eq!(plans.iter().filter(|plan| plan.is_presized).count(), 9);
        let threads = |count| plans.iter().filter(|plan| plan.threads == count).count();
        assert_eq!([Some(1), Some(2), None].map(threads), [5, 5, 5]);
    }

    #[test]
    fn conc_map_bench_has_as_many_keys() {
        let keys = |mix: &Mix, threads| Extent::new(mix, threads, 1 << 25).keys;
        // 1.75 times the capacity, and 1.0, in the next power of two.
        assert_eq!(keys(&MIXES[1], 1), 1 << 26);
        assert_eq!(keys(&MIXES[1], 2), 1 << 25);
        assert_eq!(keys(&MIXES[2], 1), 1 << 25);
        assert_eq!(Extent::new(&MIXES[1], 2, 1 << 25).filled, 3 << 22);
    }

    /// Forgets each hundredth key.
    struct Forgetful(Unshared, usize);

    impl Lookup for Forgetful {
        fn get(&self, key: u64) -> Option<u64> {
            self.0.get(key)
        }
    }

    impl MapHandle for Forgetful {
        fn insert(&mut self, key: u64, value: u64) -> bool {
            self.1 += 1;
            self.1.is_multiple_of(100) || self.0.insert(key, value)
        }

        fn remove(&mut self, key: u64) -> bool {
            self.0.remove(key)
        }

        fn update(&mut self, key: u64) -> bool {
            self.0.update(key)
        }

        fn count(&self) -> usize {
            self.0.count()
        }
    }

    #[test]
    fn wrong_answers_count() {
        for mix in &MIXES {
            let extent = Extent::new(mix, 1, 1 << 10);
            // What does not grow goes round its keys.
            let is_exchange = mix.insert == mix.remove;
            let passes = if is_exchange { 40 } else { extent.passes };
            let map = Limit::with_capacity(0);
            let mut sound = Worker::new(&extent, map.handle(1), 0);
            let mut broken = Worker::new(&extent, Forgetful(map.handle(1), 0), 0);
            for _ in 0..passes {
                sound.pass();
                broken.pass();
            }
            assert_eq!(sound.wrong, 0, "{}", mix.name);
            assert!(broken.wrong > 0, "{}", mix.name);
            assert_eq!(sound.handle.count(), sound.inserted - sound.removed);
        }
    }
}
