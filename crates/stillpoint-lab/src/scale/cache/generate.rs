//! Keys that are requested: the same ones for all subjects, and in each run.

use super::super::map::keys::key;

/// Keys in turn, again and again.
pub struct Loop {
    keys: u64,
    next: u64,
}

impl Loop {
    /// Creates a source of `keys` keys.
    pub fn new(keys: u64) -> Self {
        Self { keys, next: 0 }
    }
}

impl Iterator for Loop {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let found = key(self.next);
        self.next = (self.next + 1) % self.keys;
        Some(found)
    }
}

/// New keys without an end, each several times in succession.
pub struct Scan {
    next: u64,
    times: u64,
    left: u64,
}

impl Scan {
    /// The keys from this number on.
    pub fn new(first: u64, times: u64) -> Self {
        Self {
            next: first,
            times,
            left: times,
        }
    }
}

impl Iterator for Scan {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        if self.left == 0 {
            self.next += 1;
            self.left = self.times;
        }
        self.left -= 1;
        Some(key(self.next))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use super::*;

    #[test]
    fn a_loop_comes_back_and_a_scan_does_not() {
        let looped: Vec<_> = Loop::new(7).take(21).collect();
        assert_eq!(looped[..7], looped[7..14]);
        assert_eq!(looped.iter().collect::<HashSet<_>>().len(), 7);

        let mut times = HashMap::new();
        Scan::new(5, 2)
            .take(100)
            .for_each(|key| *times.entry(key).or_insert(0) += 1);
        assert_eq!(times.len(), 50);
        assert!(times.values().all(|&times| times == 2));
        assert!(looped.iter().any(|looped| times.contains_key(looped)));
    }
}
