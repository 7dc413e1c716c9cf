//! Single inserts and single reads, while one thread inserts [`ENTRIES`] and another looks for those
//! that are there, then while it does so alone, for [`REST`]. The reader looks for [`STEP`] entries
//! at once and then pauses, so that a lock is free most of the time.
//!
//! `p999_us`, `p9999_us` and `max_us` are of inserts, `read_p999_us` of reads meanwhile,
//! `read_rest_p999_us` of reads at rest. A read that does not find its key fails the measurement.
//! The limit has no reader.

use std::hint;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::Work;
use crate::map::{Map, MapHandle};
use crate::run::Sample;
use crate::scale::keys::{Numbers, key};
use crate::scale::timing::{Times, no_times};
use crate::scale::{join, spawn};

/// Entries at the end.
const ENTRIES: usize = 16_000_000;

/// How long reads are timed at rest.
const REST: Duration = Duration::from_millis(500);

/// Number of inserted entries after which the reader learns of them; it reads as many without a pause.
const STEP: usize = 64;

/// Its pause.
const PAUSE: Duration = Duration::from_micros(30);

/// What the two threads share.
#[derive(Default)]
struct Shared {
    /// Entries that the reader may look for. Release in the writer: they are in the map. Acquire in
    /// the reader.
    inserted: AtomicUsize,
    /// The reader has read.
    is_reading: AtomicBool,
    /// Nothing is inserted any more.
    is_at_rest: AtomicBool,
    stop: AtomicBool,
}

/// What the reader saw.
struct Read {
    meanwhile: Times,
    at_rest: Times,
    missed: usize,
}

/// Measures the growth of a map that is not told how large it will be.
pub fn measure<M: Map>(work: &Work) -> Result<Sample> {
    let map: &M = super::leak(M::with_capacity(0));
    let shared = Shared::default();
    let (inserts, read) = thread::scope(|scope| {
        let reader =
            M::IS_SHARED.then(|| spawn(Builder::new(), scope, || shared.read(&map.handle(2))));
        let mut writer = map.handle(1);
        if M::IS_SHARED {
            shared.begin(&mut writer);
        }
        let inserts = shared.insert(&mut writer, work.divided(ENTRIES));
        let read = reader.map(|reader| {
            thread::sleep(REST);
            shared.stop.store(true, Ordering::Relaxed);
            join(reader)
        });
        anyhow::Ok((inserts, read.transpose()?))
    })?;

    let us = |times: &Times, quantile| times.value_at_quantile(quantile) as f64 / 1e3;
    let mut figures = vec![
        ("p999_us", us(&inserts, 0.999)),
        ("p9999_us", us(&inserts, 0.9999)),
        ("max_us", inserts.max() as f64 / 1e3),
    ];
    if let Some(read) = read {
        ensure!(read.missed == 0, "{} reads missed a key", read.missed);
        figures.push(("read_p999_us", us(&read.meanwhile, 0.999)));
        figures.push(("read_rest_p999_us", us(&read.at_rest, 0.999)));
    }
    Ok(Sample::of(figures))
}

impl Shared {
    /// Inserts an entry, and waits until the reader has found it.
    fn begin(&self, handle: &mut impl MapHandle) {
        handle.insert(key(0), 0);
        self.inserted.store(1, Ordering::Release);
        while !self.is_reading.load(Ordering::Relaxed) {
            thread::yield_now();
        }
    }

    fn insert(&self, handle: &mut impl MapHandle, entries: usize) -> Times {
        let mut times = no_times();
        // One look at the clock for each insert: the time between two is that of an insert, and of
        // taking the last one down.
        let mut last = Instant::now();
        for number in 1..entries {
            handle.insert(key(number as u64), number as u64);
            let now = Instant::now();
            times.saturating_record((now - last).as_nanos() as u64);
            last = now;
            if number % STEP == 0 {
                self.inserted.store(number + 1, Ordering::Release);
            }
        }
        self.inserted.store(entries, Ordering::Release);
        self.is_at_rest.store(true, Ordering::Relaxed);
        times
    }

    fn read(&self, handle: &impl MapHandle) -> Read {
        let mut read = Read {
            meanwhile: no_times(),
            at_rest: no_times(),
            missed: 0,
        };
        let mut numbers = Numbers::of(2);
        while !self.stop.load(Ordering::Relaxed) {
            let inserted = self.inserted.load(Ordering::Acquire);
            if inserted == 0 {
                thread::yield_now();
                continue;
            }
            let times = if self.is_at_rest.load(Ordering::Relaxed) {
                &mut read.at_rest
            } else {
                &mut read.meanwhile
            };
            for _ in 0..STEP {
                let number = numbers.below(inserted);
                let begun = Instant::now();
                let found = handle.get(key(number));
                times.saturating_record(begun.elapsed().as_nanos() as u64);
                read.missed += usize::from(found != Some(number));
            }
            self.is_reading.store(true, Ordering::Relaxed);
            // It spins, since a thread that has slept finds its caches cold.
            let begun = Instant::now();
            while begun.elapsed() < PAUSE {
                hint::spin_loop();
            }
        }
        read
    }
}
