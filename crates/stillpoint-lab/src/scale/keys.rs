//! Keys that are requested: the same ones for all subjects, and in each run.

/// Returns the key of a number, another one for each number, and at no regular distance, as random ones (the
/// finalizer of splitmix64, which can be inverted).
#[inline]
pub fn key(number: u64) -> u64 {
    let mut key = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    key = (key ^ (key >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    key = (key ^ (key >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    key ^ (key >> 31)
}

/// Numbers at random, each found in a nanosecond and without memory.
pub struct Numbers(u64);

impl Numbers {
    /// The numbers of a seed.
    pub fn of(seed: u64) -> Self {
        Self(key(seed))
    }

    /// The next one below `bound`, which fits in 32 bits.
    #[inline]
    pub fn below(&mut self, bound: usize) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        ((self.0 >> 32) * bound as u64) >> 32
    }
}

/// Ranks from 0, of which the one of rank k is requested as often as 1 / (k + 1) to the power of
/// the exponent says. Sampled by rejection from the inverted integral (Hörmann and Derflinger,
/// "Rejection-inversion to generate variates from monotone discrete distributions", 1996), so that
/// it needs no table.
pub struct Zipf {
    exponent: f64,
    ranks: f64,
    /// The integral below the first rank and up to the last.
    ends: (f64, f64),
    /// A rank so close to its point is always taken.
    near: f64,
    random: fastrand::Rng,
}

impl Zipf {
    /// Creates a distribution over `ranks` ranks, at least one. With the exponent 0 all are requested alike.
    pub fn new(ranks: u64, exponent: f64, seed: u64) -> Self {
        let mut zipf = Self {
            exponent,
            ranks: ranks.max(1) as f64,
            ends: (0.0, 0.0),
            near: 0.0,
            random: fastrand::Rng::with_seed(seed),
        };
        zipf.ends = (zipf.integral(1.5) - 1.0, zipf.integral(zipf.ranks + 0.5));
        zipf.near = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.weight(2.0));
        zipf
    }

    fn weight(&self, at: f64) -> f64 {
        at.powf(-self.exponent)
    }

    fn integral(&self, to: f64) -> f64 {
        let power = 1.0 - self.exponent;
        if power.abs() < 1e-9 {
            to.ln()
        } else {
            (power * to.ln()).exp_m1() / power
        }
    }

    fn inverse(&self, integral: f64) -> f64 {
        let power = 1.0 - self.exponent;
        if power.abs() < 1e-9 {
            integral.exp()
        } else {
            ((power * integral).max(-1.0).ln_1p() / power).exp()
        }
    }

    /// The next rank.
    pub fn rank(&mut self) -> u64 {
        loop {
            let (first, last) = self.ends;
            let sampled = last + self.random.f64() * (first - last);
            let point = self.inverse(sampled);
            let rank = point.round().clamp(1.0, self.ranks);
            if rank - point <= self.near || sampled >= self.integral(rank + 0.5) - self.weight(rank)
            {
                return rank as u64 - 1;
            }
        }
    }

    /// The next key: that of the rank, at no regular distance.
    pub fn key(&mut self) -> u64 {
        key(self.rank())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn keys_are_distinct_and_numbers_cover_their_range() {
        let keys: HashSet<u64> = (0..10_000).map(key).collect();
        assert_eq!(keys.len(), 10_000);
        let mut numbers = Numbers::of(1);
        let found: HashSet<u64> = (0..1_000).map(|_| numbers.below(10)).collect();
        assert_eq!(found, (0..10).collect());
    }

    /// How often each of ten ranks is requested.
    fn frequencies(exponent: f64) -> [f64; 10] {
        const REQUESTS: usize = 200_000;
        let mut zipf = Zipf::new(10, exponent, 1);
        let mut counts = [0; 10];
        for _ in 0..REQUESTS {
            counts[zipf.rank() as usize] += 1;
        }
        counts.map(|count| f64::from(count) / REQUESTS as f64)
    }

    #[test]
    fn ranks_are_as_frequent_as_the_law_says() {
        for exponent in [0.0, 0.3, 0.99, 1.0, 1.2, 2.7] {
            let weight = |rank: usize| (rank as f64 + 1.0).powf(-exponent);
            let all: f64 = (0..10).map(weight).sum();
            for (rank, frequency) in frequencies(exponent).into_iter().enumerate() {
                let expected = weight(rank) / all;
                assert!(
                    (frequency - expected).abs() < 0.005,
                    "{exponent}, {rank}: {frequency}, not {expected}"
                );
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_keys_and_another_gives_others() {
        let keys = |seed| {
            let mut zipf = Zipf::new(1_000, 0.99, seed);
            (0..100).map(|_| zipf.key()).collect::<Vec<_>>()
        };
        assert_eq!(keys(1), keys(1));
        assert_ne!(keys(1), keys(2));
        assert!(Zipf::new(1, 2.0, 1).rank() == 0);
    }
}
