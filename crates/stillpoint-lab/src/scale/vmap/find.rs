//! Looking areas up, and checking ranges, on one thread.
//!
//! There are as many areas of one page as the name says, and as many looked-up addresses as fit a cache, at random.
//! `find_ns` is the time of one look-up, its section or lock included, when the next does not
//! depend on it; `find_dependent_ns` when the next address cannot be known before; `check_ns` the
//! time of a check of 64 bytes, section or lock included, in an area that is in the cache. The best
//! of some slices is reported, as in `scale read`.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::index::Index;
use crate::run::Sample;

const ADDRESSES: usize = 1 << 16;

const SLICES: usize = 5;

/// Look-ups of one slice.
const LOOKUPS: usize = 1 << 17;

pub fn measure<I: Index>(count: usize) -> Result<Sample> {
    let arena = super::arena()?;
    let areas = (0..count)
        .map(|_| arena.alloc(4096, 1))
        .collect::<Result<Vec<_>, _>>()?;
    let ranges: Vec<_> = areas
        .iter()
        .map(|area| area.addr()..area.addr() + area.len())
        .collect();
    let index = I::new(&arena, &ranges);

    let mut random = fastrand::Rng::with_seed(1);
    let addresses: Vec<usize> = (0..ADDRESSES)
        .map(|_| ranges[random.usize(..count)].start + random.usize(..4096))
        .collect();
    ensure!(
        addresses.iter().all(|&addr| index
            .find(addr)
            .is_some_and(|(start, len)| addr - start < len)),
        "an area is not found"
    );

    Ok(Sample::of([
        ("find_ns", best(|| independent(&index, &addresses))),
        ("find_dependent_ns", best(|| dependent(&index, &addresses))),
        ("check_ns", best(|| check(&index, ranges[count / 2].start))),
    ]))
}

fn best(mut slice: impl FnMut() -> Duration) -> f64 {
    (0..SLICES)
        .map(|_| slice().as_nanos() as f64 / LOOKUPS as f64)
        .fold(f64::INFINITY, f64::min)
}

#[inline(never)]
fn independent<I: Index>(index: &I, addresses: &[usize]) -> Duration {
    let begun = Instant::now();
    let mut sum = 0_usize;
    for round in 0..LOOKUPS {
        let (start, len) = index.find(addresses[round % ADDRESSES]).unwrap_or_default();
        sum = sum.wrapping_add(start ^ len);
    }
    black_box(sum);
    begun.elapsed()
}

#[inline(never)]
fn dependent<I: Index>(index: &I, addresses: &[usize]) -> Duration {
    let begun = Instant::now();
    let mut at = 0;
    for _ in 0..LOOKUPS {
        let (start, len) = index.find(addresses[at]).unwrap_or_default();
        // One page further, which only the arithmetic knows: areas begin at pages, and are of one.
        at = (at + 1 + (start & 1) + (len >> 13)) % ADDRESSES;
    }
    black_box(at);
    begun.elapsed()
}

#[inline(never)]
fn check<I: Index>(index: &I, start: usize) -> Duration {
    let begun = Instant::now();
    for _ in 0..LOOKUPS {
        black_box(index.check(black_box(start + 100), black_box(64)));
    }
    begun.elapsed()
}
