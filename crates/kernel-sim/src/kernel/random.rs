//! Random numbers, from the seed alone: each source has its own stream, so that two variants of
//! a run see the same background and the same workload, whatever else differs between them.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp1};

use super::queue::Time;

/// A stream.
#[derive(Debug)]
pub struct Random(Xoshiro256PlusPlus);

impl Random {
    /// The stream `name` of `seed`. The generator is one whose output never changes with its
    /// crate's version.
    pub fn new(seed: u64, name: &str) -> Self {
        // FNV-1a, which keeps the streams apart; the generator's own seeding mixes the bits.
        let mixed = name
            .bytes()
            .fold(seed ^ 0xcbf2_9ce4_8422_2325, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
            });
        Self(Xoshiro256PlusPlus::seed_from_u64(mixed))
    }

    /// A whole number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0.random_range(0..bound)
    }

    /// Returns whether something with this probability happens.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.0.random_bool(probability)
    }

    /// Nanoseconds between 0 and `most` microseconds, each as likely.
    pub fn uniform_us(&mut self, most: f64) -> Time {
        (self.0.random::<f64>() * most * 1e3) as Time
    }

    /// Nanoseconds of a memoryless span of `mean` microseconds.
    pub fn exponential_us(&mut self, mean: f64) -> Time {
        let span: f64 = Exp1.sample(&mut self.0);
        (span * mean * 1e3) as Time
    }
}
