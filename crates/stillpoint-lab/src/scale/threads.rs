//! Threads of a measurement, and the clock.

use std::process;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Builder, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};

/// A thousand threads should not take a thousand times the default stack.
const STACK: usize = 256 << 10;

/// Starts a thread of a measurement. If the system has none to give, the process ends and says so:
/// the others may be waiting for this one, and a measurement with fewer threads than asked for is
/// none.
pub fn spawn<'scope, T: Send + 'scope>(
    thread: Builder,
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> ScopedJoinHandle<'scope, T> {
    thread.spawn_scoped(scope, work).unwrap_or_else(|error| {
        eprintln!("stillpoint: cannot start a thread ({error}); lower --threads or --readers");
        process::exit(1)
    })
}

/// Starts one of many threads, on a small stack.
pub fn spawn_small<'scope>(scope: &'scope Scope<'scope, '_>, work: impl FnOnce() + Send + 'scope) {
    spawn(Builder::new().stack_size(STACK), scope, work);
}

/// Sets the flag when it is dropped, also where something failed.
pub struct SetAtEnd<'f>(pub &'f AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns what a thread of a measurement has found.
pub fn join<T>(thread: ScopedJoinHandle<'_, T>) -> Result<T> {
    thread.join().map_err(|_| anyhow!("a thread panicked"))
}

/// Runs `work` on `count` threads at once, each with its number, and returns what they have found.
pub fn in_threads<T: Send>(count: usize, work: impl Fn(usize) -> T + Sync) -> Result<Vec<T>> {
    let work = &work;
    thread::scope(|scope| {
        let start = |number| spawn(Builder::new(), scope, move || work(number));
        let threads: Vec<_> = (0..count).map(start).collect();
        threads.into_iter().map(join).collect()
    })
}

/// Returns the time from the first beginning to the last end.
pub fn span(times: impl IntoIterator<Item = (Instant, Instant)>) -> Result<Duration> {
    let longest = |(a, b): (Instant, Instant), (begun, ended)| (a.min(begun), b.max(ended));
    let (begun, ended) = times.into_iter().reduce(longest).context("no thread ran")?;
    Ok(ended - begun)
}

/// Runs `work` on threads that begin together, each on what `make` has made there before. Returns the time from the
/// first beginning to the last end. `work` returns the number of wrong answers: if there is one, the
/// measurement has failed.
pub fn together<S>(
    threads: usize,
    make: impl Fn(usize) -> S + Sync,
    work: impl Fn(&mut S) -> usize + Sync,
) -> Result<Duration> {
    let ready = Barrier::new(threads);
    let ended = in_threads(threads, |number| {
        let mut made = make(number);
        ready.wait();
        let begun = Instant::now();
        let wrong = work(&mut made);
        (begun, Instant::now(), wrong)
    })?;
    let wrong: usize = ended.iter().map(|(.., wrong)| wrong).sum();
    ensure!(wrong == 0, "{wrong} wrong answers");
    span(ended.into_iter().map(|(begun, ended, _)| (begun, ended)))
}
