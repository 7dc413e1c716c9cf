//! What comes back when a cache is told to shrink: one of [`BYTES`], which has been full for as long
//! as it took to fill it, is told to be half as large.
//!
//! Values are bytes, of 64 to 2,000. `rss_ms` is the time from then until the resident memory is
//! down by half of what the cache says it held; absent where that has not happened after
//! [`PATIENCE`]. `rss_ratio` is what is resident then, above what was before the cache, divided by
//! what the cache says it holds. Subjects that cannot be told are absent.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::Work;
use crate::cache::ByteCache;
use crate::run::Sample;
use crate::scale::map::keys::key;
use crate::scale::memory::resident;

/// The cache's size.
const BYTES: u64 = 128 << 20;

/// The bytes of a value.
const SIZES: std::ops::RangeInclusive<usize> = 64..=2_000;

const PATIENCE: Duration = Duration::from_secs(2);

/// Between two looks.
const LOOK: Duration = Duration::from_micros(200);

/// Measures how fast memory comes back.
pub fn measure<C: ByteCache>(work: &Work) -> Result<Sample> {
    let base = resident()?;
    let bytes = BYTES / u64::from(work.divide);
    let cache: &C = super::leak(C::with_bytes(bytes));
    fill(cache, 2 * bytes);
    let held = cache.charged();
    let before = resident()?;
    let wanted = before.saturating_sub(held - held / 2);

    let begun = Instant::now();
    cache.shrink(held / 2);
    let mut figures = Vec::new();
    while begun.elapsed() < PATIENCE {
        if resident()? <= wanted {
            figures.push(("rss_ms", begun.elapsed().as_secs_f64() * 1e3));
            break;
        }
        thread::sleep(LOOK);
    }
    let left = resident()?.saturating_sub(base) as f64;
    figures.push(("rss_ratio", left / cache.charged().max(1) as f64));
    Ok(Sample::of(figures))
}

/// Inserts values of `bytes` bytes together.
pub fn fill(cache: &impl ByteCache, bytes: u64) {
    let mut random = fastrand::Rng::with_seed(1);
    let value: Vec<u8> = (0..*SIZES.end()).map(|at| at as u8).collect();
    let (mut inserted, mut number) = (0, 0);
    while inserted < bytes {
        let size = random.usize(SIZES);
        cache.insert(key(number), &value[..size]);
        inserted += size as u64;
        number += 1;
    }
}
