//! Reads of one thread, all of which find their key.
//!
//! `ns_per_op` is the time of a read when the next key is known before, `dependent_ns` when it is
//! the value that is found: the entries are one cycle, of which each value is the next key (a short
//! one the processor learns to predict, so that of 1,000 entries it can be the lesser figure). The
//! best of [`SLICES`] slices is reported, as in `scale read`.

use std::hint::black_box;

use anyhow::{Result, ensure};

use crate::map::{Lookup, Map, MapHandle, OrderedHandle, OrderedMap};
use crate::run::Sample;
use crate::scale::keys::{Numbers, key};
use crate::scale::timing::best_ns;

const SLICES: usize = 5;

/// Reads of one slice. A debug build shows that they can be measured, and no more.
const READS: usize = if cfg!(debug_assertions) {
    1 << 12
} else {
    1 << 18
};

/// Measures a hash map.
pub fn measure<M: Map>(entries: usize) -> Result<Sample> {
    let map: &M = super::leak(M::with_capacity(entries));
    let mut handle = map.handle(1);
    fill(entries, |key, value| {
        handle.insert(key, value);
    });
    of_filled(&handle, entries)
}

/// Measures a map in the order of its keys.
pub fn measure_ordered<M: OrderedMap>(entries: usize) -> Result<Sample> {
    let map: &M = super::leak(M::new());
    let mut handle = map.handle();
    fill(entries, |key, value| handle.put(key, value));
    of_filled(&handle, entries)
}

fn of_filled(handle: &impl Lookup, entries: usize) -> Result<Sample> {
    let is_found = |number| handle.get(key(number)).is_some();
    ensure!((0..entries as u64).all(is_found), "a key is not found");

    let mut numbers = Numbers::of(1);
    let independent = best_ns(SLICES, || independent(handle, entries, &mut numbers));
    let mut at = key(0);
    let dependent = best_ns(SLICES, || dependent(handle, &mut at));
    Ok(Sample::of([
        ("ns_per_op", independent),
        ("dependent_ns", dependent),
    ]))
}

/// One cycle of all keys, at random.
fn fill(entries: usize, mut insert: impl FnMut(u64, u64)) {
    let mut order: Vec<u32> = (0..entries as u32).collect();
    fastrand::Rng::with_seed(1).shuffle(&mut order);
    let next = order.iter().skip(1).chain(order.first());
    for (&number, &next) in order.iter().zip(next) {
        insert(key(number.into()), key(next.into()));
    }
}

#[inline(never)]
fn independent(handle: &impl Lookup, entries: usize, numbers: &mut Numbers) -> usize {
    let mut sum = 0_u64;
    for _ in 0..READS {
        let found = handle.get(key(numbers.below(entries)));
        sum = sum.wrapping_add(found.unwrap_or_default());
    }
    black_box(sum);
    READS
}

#[inline(never)]
fn dependent(handle: &impl Lookup, at: &mut u64) -> usize {
    for _ in 0..READS {
        *at = handle.get(*at).unwrap_or_default();
    }
    black_box(*at);
    READS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scale::map::subjects::Limit;

    #[test]
    fn entries_are_one_cycle() {
        let map = Limit::with_capacity(100);
        let mut handle = map.handle(1);
        fill(100, |key, value| {
            handle.insert(key, value);
        });
        let next = |at: &u64| handle.get(*at);
        let cycle = std::iter::successors(Some(key(0)), next).skip(1);
        assert_eq!(cycle.take_while(|&at| at != key(0)).count(), 99);
    }
}
