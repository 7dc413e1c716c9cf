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

use super::Work;
use super::replay::{Counted, replay};
use crate::cache::Cache;
use crate::run::Sample;
use crate::scale::map::keys::Numbers;
use crate::scale::map::zipf::Zipf;

const ENTRIES: usize = 10_000;
const REQUESTS: u64 = 1_000_000;

/// The first key of a second set.
const OTHERS: u64 = 1 << 40;

/// Returns the requests of a scenario, the same ones in each run, if it is one of a pattern.
pub fn of(scenario: &str) -> Option<Box<dyn Iterator<Item = u64>>> {
    fn pattern(key: impl FnMut(u64) -> u64 + 'static) -> Box<dyn Iterator<Item = u64>> {
        Box::new((0..REQUESTS).map(key))
    }
    let mut random = Numbers::of(1);
    let mut zipf = Zipf::new(200_000, 0.9, 2);
    Some(match scenario {
        "loop-9800" => pattern(|at| at % 9_800),
        "loop-11000" => pattern(|at| at % 11_000),
        "loop-20000" => pattern(|at| at % 20_000),
        "two-loops" => pattern(|at| match at % 65_000 {
            first @ ..30_000 => first % 6_000,
            second => OTHERS + (second - 30_000) % 7_000,
        }),
        "sawtooth" => pattern(|at| (at % 30_000).min(29_999 - at % 30_000)),
        "zipf" => pattern(move |_| zipf.rank()),
        "zipf-scan" => pattern(move |at| match at / 100_000 % 2 {
            0 => zipf.rank(),
            _ => OTHERS + at,
        }),
        "zipf-once" => pattern(move |at| match random.below(10) {
            ..7 => OTHERS + at,
            _ => zipf.rank(),
        }),
        "zipf-moves" => pattern(move |at| at / 200_000 * OTHERS + zipf.rank()),
        "set-moves" => pattern(move |at| at / 200_000 * OTHERS + random.below(8_000)),
        "set-to-zipf" => {
            let mut zipf = Zipf::new(20_000, 0.7, 3);
            pattern(move |at| match at {
                ..500_000 => random.below(10_000),
                _ => OTHERS + zipf.rank(),
            })
        }
        "recent-3" => pattern(move |at| match at % 3 {
            0 => at / 3,
            _ => (at / 3).saturating_sub(random.below(5_000)),
        }),
        // The first ones ask for keys below 0.
        "recent-2" => pattern(move |at| match at % 2 {
            0 => at / 2,
            _ => (at / 2).wrapping_sub(2_500 + random.below(2_000)),
        }),
        _ => return None,
    })
}

fn requests(work: &Work, scenario: &str) -> impl Iterator<Item = u64> {
    of(scenario)
        .into_iter()
        .flatten()
        .take(work.divided(REQUESTS as usize))
}

/// Measures a hit ratio.
pub fn measure<C: Cache>(work: &Work, scenario: &str) -> Result<Sample> {
    let cache: &C = super::leak(C::with_entries(ENTRIES));
    let counted = replay(cache, requests(work, scenario));
    Ok(Sample::of([("hit_ratio", counted.ratio())]))
}

/// Counts the hits of a plain LRU.
pub fn lru(work: &Work, scenario: &str) -> Result<Sample> {
    let mut counted = Counted::default();
    let (mut last_uses, mut keys) = (HashMap::new(), BTreeMap::new());
    for (at, key) in requests(work, scenario).enumerate() {
        let before = last_uses.insert(key, at);
        counted.note(before.is_some());
        keys.insert(at, key);
        if let Some(before) = before {
            keys.remove(&before);
        } else if keys.len() > ENTRIES
            && let Some((_, oldest)) = keys.pop_first()
        {
            last_uses.remove(&oldest);
        }
    }
    Ok(Sample::of([("hit_ratio", counted.ratio())]))
}

#[cfg(test)]
mod tests {
    use super::super::SCENARIOS;
    use super::*;
    use crate::choice::scenarios;

    #[test]
    fn each_pattern_has_a_million_requests_the_same_in_each_run() {
        let patterns =
            scenarios(SCENARIOS).filter_map(|scenario| Some((of(scenario)?, of(scenario)?)));
        let lengths = patterns.map(|(one, other)| {
            one.zip(other)
                .map(|(one, other)| assert_eq!(one, other))
                .count()
        });
        assert_eq!(lengths.collect::<Vec<_>>(), [1_000_000; 13]);
    }
}
