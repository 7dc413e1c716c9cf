//! What an engine keeps about stalls: what is timed, who waits, and who is told.

use super::report::StallReport;
use crate::platform::{
    clock::{self, Nanos},
    environment,
    fork::{self, Process},
    sync::{AtomicPtr, AtomicU64, Mutex, Ordering, lock},
    thread, user_code,
};
use std::{
    fmt,
    panic::Location,
    ptr,
    sync::{Arc, OnceLock},
    time::Duration,
};

/// The default stall time-out of a new domain, unless the environment sets one; the kernel's is 21
/// s.
const DEFAULT_STALL_TIMEOUT: Duration = Duration::from_secs(10);

/// The time-out of domains in which nothing counts as a stall.
pub(super) const NEVER: Nanos = Nanos::MAX;

pub(super) type Handler = Arc<dyn Fn(&StallReport) + Send + Sync>;

/// Times what is being waited for. Each stall is reported once.
pub(super) struct Stalls {
    domain: u64,
    pub(super) timeout: AtomicU64,
    pub(super) grace_period: Watch,
    pub(super) service: Watch,
    pub(super) waiters: Mutex<Waiters>,
    /// The handler, boxed; null for none. It is copied and replaced under the lock; the pointer is
    /// valid at any time, even in the child of a fork that finds the lock taken.
    handler: AtomicPtr<Handler>,
    pub(super) handling: Mutex<()>,
    pub(super) panicked: AtomicU64,
    /// Function that returns how much the layer above has not reclaimed.
    pub(super) gauge: OnceLock<Box<dyn Fn() -> Unreclaimed + Send + Sync>>,
}

/// Retired objects that have not been freed.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Unreclaimed {
    pub(crate) objects: u64,
    pub(crate) bytes: u64,
}

impl Stalls {
    pub(super) fn new(domain: u64) -> Self {
        Self {
            domain,
            timeout: AtomicU64::new(
                environment::stall()
                    .timeout
                    .unwrap_or_else(|| clock::nanos(DEFAULT_STALL_TIMEOUT)),
            ),
            grace_period: Watch::new(),
            service: Watch::new(),
            waiters: Mutex::new(Waiters::NONE),
            handler: AtomicPtr::new(ptr::null_mut()),
            handling: Mutex::new(()),
            panicked: AtomicU64::new(0),
            gauge: OnceLock::new(),
        }
    }

    /// Returns how many entries the lists of waiters have.
    pub(super) fn listed(&self) -> usize {
        let waiters = lock(&self.waiters);
        waiters.threads.len() + waiters.futures.len() + waiters.pollers.len()
    }

    pub(super) fn unreclaimed(&self) -> Unreclaimed {
        self.gauge
            .get()
            .map_or_else(Unreclaimed::default, |unreclaimed| unreclaimed())
    }

    pub(super) fn bytes_unreclaimed(&self) -> u64 {
        self.unreclaimed().bytes
    }

    pub(super) fn timeout(&self) -> Nanos {
        self.timeout.load(Ordering::Relaxed)
    }

    /// Lists the calling thread among the waiters, until the returned value is dropped.
    pub(super) fn list_waiter(&self) -> Listed<'_> {
        list(&self.waiters, Waiter::Thread(thread::tid()))
    }

    pub(super) fn handler(&self) -> Option<Handler> {
        let _handling = lock(&self.handling);
        // SAFETY: null, or a box that is dropped after it has been replaced, which cannot happen
        // under our lock.
        unsafe { self.handler.load(Ordering::Relaxed).as_ref() }.cloned()
    }

    pub(super) fn set_handler(&self, handler: Option<Handler>) {
        let new = handler.map_or(ptr::null_mut(), |handler| Box::into_raw(Box::new(handler)));
        let handling = lock(&self.handling);
        // Needs no partner: every thread that reads the handler holds the lock.
        let old = self.handler.swap(new, Ordering::AcqRel);
        drop(handling);
        if !old.is_null() {
            // SAFETY: it came out of a box here, and is no longer published.
            self.drop_handler(unsafe { *Box::from_raw(old) });
        }
    }

    /// Drops the handler. No lock is held here: it may own anything, and this may be its last reference.
    pub(super) fn drop_handler(&self, handler: Handler) {
        self.note_panic(user_code::panics(self.domain, || drop(handler)));
    }

    pub(super) fn note_panic(&self, panicked: bool) {
        self.panicked
            .fetch_add(u64::from(panicked), Ordering::Relaxed);
    }
}

impl Drop for Stalls {
    fn drop(&mut self) {
        self.set_handler(None);
    }
}

impl fmt::Debug for Stalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stalls")
            .field("grace_period", &self.grace_period)
            .field("service", &self.service)
            .finish_non_exhaustive()
    }
}

/// Times one thing.
#[derive(Debug)]
pub(super) struct Watch {
    /// When timing began or progress was last made, in nanoseconds, with [`REPORTED`] once a stall has been
    /// reported; 0 while nothing is timed. Both are one word: otherwise a thread could mark a stall that
    /// is over, and the next one would count as reported.
    pub(super) since: AtomicU64,
    pub(super) count: AtomicU64,
    /// Number of unreclaimed bytes when timing began. Written after `since`, so a thread that reads both
    /// in between sees the number of the last stall.
    bytes: AtomicU64,
}

/// A flag above the bits of the time.
const REPORTED: u64 = 1 << 63;

/// The verdict of a [`Watch`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Not yet; look again at this time.
    Early(Nanos),
    /// A stall of this length, which the caller has to report.
    Due(Duration),
    Reported,
}

impl Watch {
    pub(super) fn new() -> Self {
        Self {
            since: AtomicU64::new(0),
            count: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    /// Starts timing, unless that has begun, and returns the start, which [`Watch::verdict`] takes.
    /// `bytes` returns the number of unreclaimed bytes.
    pub(super) fn start(&self, now: Nanos, bytes: impl FnOnce() -> u64) -> u64 {
        match self
            .since
            .compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed)
        {
            Ok(_) => {
                self.bytes.store(bytes(), Ordering::Relaxed);
                now
            }
            Err(since) => since,
        }
    }

    /// Returns by how many bytes `now` exceeds the number at the start; 0 if it does not.
    pub(super) fn grown_to(&self, now: u64) -> u64 {
        now.saturating_sub(self.bytes.load(Ordering::Relaxed))
    }

    /// Stops timing. Returns since when it was timed; 0 if it was not.
    pub(super) fn stop(&self) -> Nanos {
        match self.since.load(Ordering::Relaxed) {
            0 => 0,
            _ => self.stop_slow(),
        }
    }

    #[cold]
    fn stop_slow(&self) -> Nanos {
        // A swap, so that of two threads that stop it at once only one counts the time.
        self.since.swap(0, Ordering::Relaxed) & !REPORTED
    }

    /// Restarts a running watch at `now`, because there is progress. Returns whether a stall had
    /// been reported.
    pub(super) fn advance(&self, now: impl Fn() -> Nanos) -> bool {
        self.since
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |since| {
                (since != 0).then(&now)
            })
            .is_ok_and(|before| before & REPORTED != 0)
    }

    /// Returns when the present stall began, if it has been reported; else 0.
    pub(super) fn reported_since(&self) -> Nanos {
        match self.since.load(Ordering::Relaxed) {
            since if since & REPORTED != 0 => since & !REPORTED,
            _ => 0,
        }
    }

    pub(super) fn is_reported(&self) -> bool {
        self.since.load(Ordering::Relaxed) & REPORTED != 0
    }

    /// Judges a wait that began at `since`, the result of [`Watch::start`].
    pub(super) fn verdict(&self, since: u64, now: Nanos, timeout: Nanos) -> Verdict {
        if since & REPORTED != 0 {
            return Verdict::Reported;
        }
        let due = since.saturating_add(timeout);
        if now < due {
            return Verdict::Early(due);
        }
        match self.since.compare_exchange(
            since,
            since | REPORTED,
            Ordering::Relaxed,
            Ordering::Relaxed,
        ) {
            Ok(_) => {
                self.count.fetch_add(1, Ordering::Relaxed);
                Verdict::Due(Duration::from_nanos(now.saturating_sub(since)))
            }
            Err(reported) if reported == since | REPORTED => Verdict::Reported,
            // That wait is over, and the present one has not lasted that long.
            Err(_) => Verdict::Early(now.saturating_add(timeout)),
        }
    }
}

/// The waiting threads and futures.
#[derive(Debug, Clone)]
pub(super) struct Waiters {
    /// Threads that have been waiting for more than a moment, by the kernel's id.
    pub(super) threads: Vec<u32>,
    /// Where waiting futures were made, and how many at each place.
    pub(super) futures: Vec<(&'static Location<'static>, usize)>,
    /// The threads that polled them last, by the kernel's id, and how many each.
    pub(super) pollers: Vec<(u32, usize)>,
}

impl Waiters {
    pub(super) const NONE: Self = Self {
        threads: Vec::new(),
        futures: Vec::new(),
        pollers: Vec::new(),
    };

    fn add(&mut self, who: Waiter) {
        match who {
            Waiter::Thread(tid) => self.threads.push(tid),
            Waiter::Future(place, poller) => {
                count(&mut self.pollers, poller);
                count(&mut self.futures, place);
            }
        }
    }

    fn remove(&mut self, who: Waiter) {
        match who {
            Waiter::Thread(tid) => {
                if let Some(at) = self.threads.iter().position(|&known| known == tid) {
                    self.threads.swap_remove(at);
                }
            }
            Waiter::Future(place, poller) => {
                uncount(&mut self.pollers, poller);
                uncount(&mut self.futures, place);
            }
        }
    }
}

fn count<T: PartialEq>(counts: &mut Vec<(T, usize)>, item: T) {
    match counts.iter_mut().find(|(known, _)| *known == item) {
        Some((_, count)) => *count += 1,
        None => counts.push((item, 1)),
    }
}

fn uncount<T: PartialEq>(counts: &mut Vec<(T, usize)>, item: T) {
    if let Some(at) = counts.iter().position(|(known, _)| *known == item) {
        counts[at].1 -= 1;
        if counts[at].1 == 0 {
            counts.swap_remove(at);
        }
    }
}

/// A waiting thread or future.
#[derive(Debug, Clone, Copy)]
pub(super) enum Waiter {
    Thread(u32),
    /// Where the future was made, and the thread that polls it.
    Future(&'static Location<'static>, u32),
}

/// Lists `who` among `waiters` until the returned value is dropped.
pub(super) fn list(waiters: &Mutex<Waiters>, who: Waiter) -> Listed<'_> {
    lock(waiters).add(who);
    Listed {
        waiters,
        who,
        process: fork::process(),
    }
}

/// An entry in the list of waiters.
#[derive(Debug)]
pub(crate) struct Listed<'a> {
    waiters: &'a Mutex<Waiters>,
    who: Waiter,
    /// In the child of a fork, waiters from before it are not listed.
    process: Process,
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        if self.process == fork::process() {
            lock(self.waiters).remove(self.who);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The wait's end comes between a look at the clock and the verdict.
    #[test]
    fn a_wait_that_is_over_is_not_reported_and_the_next_one_is() {
        let watch = Watch::new();
        let since = watch.start(1_000, || 10);
        watch.stop();
        assert_eq!(
            watch.verdict(since, 5_000, 1_000),
            Verdict::Early(6_000),
            "it is over"
        );
        assert!(!watch.is_reported());
        let next = watch.start(6_000, || 20);
        assert_eq!((watch.start(6_100, || 30), watch.grown_to(50)), (next, 30));
        assert_eq!(watch.grown_to(10), 0, "fewer than then");
        assert_eq!(
            watch.verdict(since, 6_500, 1_000),
            Verdict::Early(7_500),
            "and was another one"
        );
        assert_eq!(watch.verdict(next, 6_500, 1_000), Verdict::Early(7_000));
        assert_eq!(
            watch.verdict(next, 7_000, 1_000),
            Verdict::Due(Duration::from_nanos(1_000))
        );
        assert_eq!(watch.verdict(next, 8_000, 1_000), Verdict::Reported, "once");
        assert_eq!(
            watch.verdict(watch.start(8_000, || 0), 9_000, 1_000),
            Verdict::Reported
        );
        watch.stop();
        assert_eq!(
            (watch.is_reported(), watch.count.load(Ordering::Relaxed)),
            (false, 1)
        );
    }

    #[test]
    fn progress_ends_a_stall_and_the_watch_goes_on() {
        let watch = Watch::new();
        assert!(!watch.advance(|| 1_000));
        assert_eq!(watch.start(2_000, || 10), 2_000, "it was not running");
        assert!(!watch.advance(|| 3_000), "it had not been reported");
        let verdict = |now| watch.verdict(watch.start(now, || 20), now, 1_000);
        assert_eq!(verdict(3_500), Verdict::Early(4_000));
        let a_second = Duration::from_nanos(1_000);
        assert_eq!(verdict(4_000), Verdict::Due(a_second));
        assert!(watch.advance(|| 5_000));
        assert!(!watch.is_reported());
        assert_eq!(verdict(6_000), Verdict::Due(a_second));
        assert_eq!(watch.grown_to(50), 40, "since it was started");
    }
}
