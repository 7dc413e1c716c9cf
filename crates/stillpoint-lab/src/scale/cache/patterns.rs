//! Hit ratios on patterns that policies are known to do well or badly on: one client makes a million requests, each
//! of which reads, and inserts on a miss, in a cache of 10,000 entries. The subject `lru` evicts the entry whose use
//! is longest ago.
//!
//! | scenario | requests |
//! |---|---|
//! | `loop-9800`, `loop-11000`, `loop-20000` | that many keys in turn, again and again |
//! | `two-loops` | 6,000 keys in turn, five times, then 7,000 others, five times, and again |
//! | `sawtooth` | 15,000 keys up, then down, and again |
//! | `zipf` | 200,000 keys by Zipf's law, with the exponent 0.9 |
//! | `zipf-scan` | 100,000 requests as in `zipf`, then 100,000 new keys, and again |
//! | `zipf-once` | 70 % new keys, the others as in `zipf` |
//! | `zipf-moves` | as `zipf`, with other keys after each 200,000 requests |
//! | `set-moves` | any of 8,000 keys, with other keys after each 200,000 requests |
//! | `set-to-zipf` | half a million requests for any of 10,000 keys, then 20,000 others by Zipf's law, with the exponent 0.7 |
//! | `recent-3` | a new key, then two of the last 5,000 new keys |
//! | `recent-2` | a new key, then one that was new 2,500 to 4,500 new keys ago |

use std::collections::{BTreeMap, HashMap};

use anyhow::Result;

use super::replay::{Counted, replay};
use super::{Work, leak};
use crate::cache::Cache;
use crate::run::Sample;
use crate::scale::keys::{Numbers, Zipf};

const ENTRIES: usize = 10_000;
const REQUESTS: u64 = 1_000_000;

/// The first key of a second set.
const OTHERS: u64 = 1 << 40;

/// Returns the requests of a scenario, the same ones in each run, if it is one of a pattern. `divide` divides their
/// number, the numbers of keys and the periods.
pub fn of(scenario: &str, divide: u32) -> Option<Box<dyn Iterator<Item = u64>>> {
    let divide = u64::from(divide);
    let pattern = move |key: Box<dyn FnMut(u64) -> u64>| -> Option<Box<dyn Iterator<Item = u64>>> {
        Some(Box::new((0..REQUESTS / divide).map(key)))
    };
    let n = move |number: u64| number / divide;
    let around = move |keys| pattern(Box::new(move |at| at % n(keys)));
    let mut random = Numbers::of(1);
    let mut zipf = Zipf::new(n(200_000), 0.9, 2);
    pattern(match scenario {
        "loop-9800" => return around(9_800),
        "loop-11000" => return around(11_000),
        "loop-20000" => return around(20_000),
        "two-loops" => Box::new(move |at| {
            let (first, second) = (n(6_000), n(7_000));
            match at % (5 * (first + second)) {
                at if at < 5 * first => at % first,
                at => OTHERS + (at - 5 * first) % second,
            }
        }),
        "sawtooth" => Box::new(move |at| {
            let at = at % (2 * n(15_000));
            at.min(2 * n(15_000) - 1 - at)
        }),
        "zipf" => Box::new(move |_| zipf.rank()),
        "zipf-scan" => Box::new(move |at| match at / n(100_000) % 2 {
            0 => zipf.rank(),
            _ => OTHERS + at,
        }),
        "zipf-once" => Box::new(move |at| match random.below(10) {
            ..7 => OTHERS + at,
            _ => zipf.rank(),
        }),
        "zipf-moves" => Box::new(move |at| at / n(200_000) * OTHERS + zipf.rank()),
        "set-moves" => {
            Box::new(move |at| at / n(200_000) * OTHERS + random.below(n(8_000) as usize))
        }
        "set-to-zipf" => {
            let mut zipf = Zipf::new(n(20_000), 0.7, 3);
            Box::new(move |at| match at < n(500_000) {
                true => random.below(n(10_000) as usize),
                false => OTHERS + zipf.rank(),
            })
        }
        "recent-3" => Box::new(move |at| match at % 3 {
            0 => at / 3,
            _ => (at / 3).saturating_sub(random.below(n(5_000) as usize)),
        }),
        // The first ones ask for keys below 0.
        "recent-2" => Box::new(move |at| match at % 2 {
            0 => at / 2,
            _ => (at / 2).wrapping_sub(n(2_500) + random.below(n(2_000) as usize)),
        }),
        _ => return None,
    })
}

/// Returns whether a scenario is one of a pattern.
pub fn is_one(scenario: &str) -> bool {
    of(scenario, 1).is_some()
}

fn requests(work: &Work, scenario: &str) -> impl Iterator<Item = u64> {
    of(scenario, work.divide).into_iter().flatten()
}

/// Measures a hit ratio.
pub fn measure<C: Cache>(work: &Work, scenario: &str) -> Result<Sample> {
    let cache: &C = leak(C::with_entries(work.divided(ENTRIES)));
    let counted = replay(cache, requests(work, scenario));
    Ok(Sample::of([("hit_ratio", counted.ratio())]))
}

/// Counts the hits of a plain LRU.
pub fn lru(work: &Work, scenario: &str) -> Result<Sample> {
    let counted = of_lru(work.divided(ENTRIES), requests(work, scenario));
    Ok(Sample::of([("hit_ratio", counted.ratio())]))
}

fn of_lru(entries: usize, requests: impl Iterator<Item = u64>) -> Counted {
    let mut counted = Counted::default();
    let (mut last_uses, mut keys) = (HashMap::new(), BTreeMap::new());
    for (at, key) in requests.enumerate() {
        let before = last_uses.insert(key, at);
        counted.note(before.is_some());
        keys.insert(at, key);
        if let Some(before) = before {
            keys.remove(&before);
        } else if keys.len() > entries
            && let Some((_, oldest)) = keys.pop_first()
        {
            last_uses.remove(&oldest);
        }
    }
    counted
}

#[cfg(test)]
mod tests {
    use super::super::SCENARIOS;
    use super::*;
    use crate::choice::scenarios;
    use std::collections::HashSet;

    #[test]
    fn each_pattern_has_a_million_requests_the_same_in_each_run() {
        let patterns =
            scenarios(SCENARIOS).filter_map(|scenario| Some((of(scenario, 1)?, of(scenario, 1)?)));
        let lengths = patterns.map(|(one, other)| {
            one.zip(other)
                .map(|(one, other)| assert_eq!(one, other))
                .count()
        });
        assert_eq!(lengths.collect::<Vec<_>>(), [1_000_000; 13]);
    }

    /// In a quick look as well, so that caches evict there.
    #[test]
    fn keys_are_as_many_as_a_pattern_says() {
        for divide in [1, 10] {
            let keys = |scenario| {
                let all = of(scenario, divide).expect("a pattern");
                all.collect::<HashSet<_>>().len()
            };
            let expected = [
                ("loop-11000", 11_000),
                ("two-loops", 13_000),
                ("sawtooth", 15_000),
                ("set-moves", 40_000),
            ];
            for (scenario, expected) in expected {
                assert_eq!(keys(scenario), expected / divide as usize, "{scenario}");
            }
        }
    }

    #[test]
    fn an_lru_misses_all_of_a_loop_that_is_longer_than_it() {
        for divide in [1, 10] {
            let hits = |scenario| {
                let requests = of(scenario, divide).expect("a pattern");
                let all = REQUESTS / u64::from(divide);
                all - of_lru(ENTRIES / divide as usize, requests).missed()
            };
            let divide = u64::from(divide);
            assert_eq!(hits("loop-11000"), 0);
            assert_eq!(hits("loop-9800"), (REQUESTS - 9_800) / divide);
        }
    }
}
