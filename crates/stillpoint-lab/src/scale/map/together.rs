//! Threads that begin together.

use std::sync::Barrier;
use std::thread::Builder;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::scale::{join, span, spawn};

/// Has threads work, each on what it has made before, and beginning together. `made` is called in
/// between. Returns the time from the first beginning to the last end, and what `made` returned.
/// `work` tells how many answers were wrong: a map that gives one fails the measurement.
pub fn together<S, T>(
    threads: usize,
    make: impl Fn(usize) -> S + Sync,
    made: impl FnOnce() -> Result<T>,
    work: impl Fn(&mut S) -> usize + Sync,
) -> Result<(Duration, T)> {
    let ready = Barrier::new(threads + 1);
    let start = Barrier::new(threads + 1);
    std::thread::scope(|scope| {
        let thread = |number| {
            let (ready, start, make, work) = (&ready, &start, &make, &work);
            spawn(Builder::new(), scope, move || {
                let mut its_own = make(number);
                ready.wait();
                start.wait();
                let begun = Instant::now();
                let wrong = work(&mut its_own);
                (begun, Instant::now(), wrong)
            })
        };
        let threads: Vec<_> = (0..threads).map(thread).collect();
        ready.wait();
        let between = made();
        start.wait();
        let ended = threads.into_iter().map(join).collect::<Result<Vec<_>>>()?;
        let wrong: usize = ended.iter().map(|(.., wrong)| wrong).sum();
        ensure!(wrong == 0, "{wrong} wrong answers");
        Ok((
            span(ended.into_iter().map(|(begun, ended, _)| (begun, ended)))?,
            between?,
        ))
    })
}
