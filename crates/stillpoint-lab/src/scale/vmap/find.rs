//! Looking areas up, and checking ranges, on one thread.
//!
//! There are [`AREAS`] areas of one page, and as many looked-up addresses as fit a cache, at random.
//! `find_ns` is the time of one look-up, its section or lock included, when the next does not
//! depend on it; `find_dependent_ns` when the next address cannot be known before; `check_ns` the
//! time of a check of 64 bytes, section or lock included, in an area that is in the cache. The best
//! of some slices is reported, as in `scale read`.

use std::hint::black_box;

use anyhow::{Result, ensure};

use super::index::Index;
use crate::run::Sample;
use crate::scale::timing::best_ns;

const AREAS: usize = 100_000;

const ADDRESSES: usize = 1 << 16;

const SLICES: usize = 5;

/// Look-ups of one slice.
const LOOKUPS: usize = 1 << 17;

pub fn measure<I: Index>() -> Result<Sample> {
    let arena = super::arena()?;
    let areas = (0..AREAS)
        .map(|_| arena.alloc(4096, 1))
        .collect::<Result<Vec<_>, _>>()?;
    let ranges: Vec<_> = areas
        .iter()
        .map(|area| area.addr()..area.addr() + area.len())
        .collect();
    let index = I::new(&arena, &ranges);

    let mut random = fastrand::Rng::with_seed(1);
    let addresses: Vec<usize> = (0..ADDRESSES)
        .map(|_| ranges[random.usize(..AREAS)].start + random.usize(..4096))
        .collect();
    ensure!(
        addresses.iter().all(|&addr| index
            .find(addr)
            .is_some_and(|(start, len)| addr - start < len)),
        "an area is not found"
    );

    Ok(Sample::of([
        (
            "find_ns",
            best_ns(SLICES, || independent(&index, &addresses)),
        ),
        (
            "find_dependent_ns",
            best_ns(SLICES, || dependent(&index, &addresses)),
        ),
        (
            "check_ns",
            best_ns(SLICES, || check(&index, ranges[AREAS / 2].start)),
        ),
    ]))
}

#[inline(never)]
fn independent<I: Index>(index: &I, addresses: &[usize]) -> usize {
    let mut sum = 0_usize;
    for round in 0..LOOKUPS {
        let (start, len) = index.find(addresses[round % ADDRESSES]).unwrap_or_default();
        sum = sum.wrapping_add(start ^ len);
    }
    black_box(sum);
    LOOKUPS
}

#[inline(never)]
fn dependent<I: Index>(index: &I, addresses: &[usize]) -> usize {
    let mut at = 0;
    for _ in 0..LOOKUPS {
        let (start, len) = index.find(addresses[at]).unwrap_or_default();
        // One page further, which only the arithmetic knows: areas begin at pages, and are of one.
        at = (at + 1 + (start & 1) + (len >> 13)) % ADDRESSES;
    }
    black_box(at);
    LOOKUPS
}

#[inline(never)]
fn check<I: Index>(index: &I, start: usize) -> usize {
    for _ in 0..LOOKUPS {
        black_box(index.check(black_box(start + 100), black_box(64)));
    }
    LOOKUPS
}
