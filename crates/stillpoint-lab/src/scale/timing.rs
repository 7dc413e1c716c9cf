//! The measuring loops that experiments share: waits, each by itself; pairs of a section's begin and end; the best of
//! some slices.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::Result;
use hdrhistogram::Histogram;

use super::threads::in_threads;
use crate::subject::ReadSide;

/// Least number of waits of each caller, however long they take.
const FEWEST: u64 = 5;

/// Longer waits are counted as this long.
const LONGEST: Duration = Duration::from_secs(60);

/// How long each wait, or other operation, took: in nanoseconds, to three digits.
pub type Times = Histogram<u64>;

/// No waits yet.
pub fn no_times() -> Times {
    let longest = LONGEST.as_nanos() as u64;
    Histogram::new_with_bounds(1, longest, 3).expect("the bounds are constants, and in order")
}

/// One wait.
#[derive(Clone, Copy)]
pub struct Timed {
    /// How long it took.
    pub took: Duration,
    /// When the caller had its answer.
    pub ended: Instant,
}

/// Times `wait` from its call to its return.
pub fn time(wait: impl FnOnce()) -> Timed {
    let begun = Instant::now();
    wait();
    let ended = Instant::now();
    Timed {
        took: ended - begun,
        ended,
    }
}

/// Notes one wait.
pub fn note(times: &mut Times, timed: &Timed) {
    times.saturating_record(timed.took.as_nanos() as u64);
}

/// Waits again and again, `until` then.
pub fn repeat(until: Instant, mut once: impl FnMut() -> Timed) -> Times {
    let mut times = no_times();
    loop {
        let timed = once();
        note(&mut times, &timed);
        if timed.ended >= until && times.len() >= FEWEST {
            return times;
        }
    }
}

/// Returns the nanoseconds of an operation in the best of `slices` slices: whatever lengthens the others is the
/// machine's other work. A slice returns the number of its operations.
pub fn best_ns(slices: usize, mut slice: impl FnMut() -> usize) -> f64 {
    let time = |_| {
        let begun = Instant::now();
        let operations = slice();
        begun.elapsed().as_nanos() as f64 / operations as f64
    };
    (0..slices).map(time).fold(f64::INFINITY, f64::min)
}

/// Slices of pairs that a process times.
const SLICES: usize = 16;

/// How long a slice takes, about.
const SLICE: Duration = Duration::from_millis(25);

/// Returns the nanoseconds of a pair while `threads` threads read: see `scale read`.
pub fn ns_per_pair<R: ReadSide>(threads: u32) -> Result<f64> {
    let count = pairs_per_slice::<R>();
    let together = Barrier::new(threads as usize);
    let threads: Vec<[f64; SLICES]> = in_threads(threads as usize, |_| {
        let mut part = R::register_thread();
        [(); SLICES].map(|()| {
            together.wait();
            time_pairs(&mut part, count).as_nanos() as f64 / count as f64
        })
    })?;

    let mean = |slice: usize| {
        threads.iter().map(|slices| slices[slice]).sum::<f64>() / threads.len() as f64
    };
    Ok((0..SLICES).map(mean).fold(f64::INFINITY, f64::min))
}

/// How many pairs one thread alone does in a slice's time.
fn pairs_per_slice<R: ReadSide>() -> u64 {
    let mut part = R::register_thread();
    let mut count = 1024;
    loop {
        let taken = time_pairs(&mut part, count);
        if taken >= SLICE / 10 {
            return (count as f64 * SLICE.as_secs_f64() / taken.as_secs_f64()) as u64;
        }
        count *= 2;
    }
}

fn time_pairs<R: ReadSide>(part: &mut R, count: u64) -> Duration {
    let begun = Instant::now();
    part.pairs(count);
    begun.elapsed()
}
