//! Stalls: what holds a grace period up for longer than anyone would want, and who waits for it.
//!
//! Whoever waits times the wait, and reports it once: the readers that are in the way, and all who have been waiting for a while.
//! A deadlock (the waiter holds a lock that a reader wants) so ends in a report that names both sides. A service thread that does
//! not come to its work, because a callback blocks it, is reported in the same way by those who need it.
//!
//! Nothing here is on a fast path: the first look at the clock comes after the spinning, the first lock after the first sleep.

use super::{
    engine::Engine,
    policy::Policy,
    record::Record,
    seq::{Cookie, Seq},
};
use crate::platform::{
    clock::{self, Nanos},
    fork::{self, Process},
    sync::{AtomicPtr, AtomicU64, Mutex, Ordering, lock},
    thread, user_code,
};
use std::{fmt, panic::Location, ptr, sync::Arc, time::Duration};

#[cfg(feature = "stall-backtrace")]
use std::backtrace::Backtrace;

/// What a new domain takes for a stall; the kernel's is 21 s.
pub(crate) const DEFAULT_STALL_TIMEOUT: Duration = Duration::from_secs(10);

/// How many readers a report names.
const LISTED_HOLDOUTS: usize = 16;

/// A grace period, or the service thread, has been held up for longer than the domain's stall time-out.
///
/// Given to the handler of [`Domain::on_stall`](crate::Domain::on_stall), and with the `tracing` feature emitted as an event. Its
/// `Display` is a report for people. The kernel's "rcu detected stalls" message.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StallReport {
    /// What is held up.
    pub stalled: Stalled,
    /// The number of the domain, as its `Debug` shows it; 1 is the global one.
    pub domain: u64,
    /// How long it has been held up so far.
    pub lasted: Duration,
    /// The readers that hold the grace period up, those that began first: 16 at most. Empty if it is the service thread that is late.
    pub holdouts: Vec<Holdout>,
    /// How many more readers hold it up than are listed.
    pub more_holdouts: usize,
    /// The threads that have been waiting for more than a moment, in calls of this domain.
    pub waiters: Vec<ThreadName>,
    /// Where the futures that wait were made, and how many at each place.
    pub futures: Vec<(&'static Location<'static>, usize)>,
}

/// What a [`StallReport`] is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stalled {
    /// A grace period: readers have not left their sections.
    GracePeriod(Cookie),
    /// The service thread: a callback, destructor or waker does not return, or the system gives the thread no time.
    Service,
}

/// A reader that holds a grace period up.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Holdout {
    /// The thread that began the section; a task may be elsewhere by now.
    pub thread: ThreadName,
    /// How it reads.
    pub flavour: Flavour,
    /// The name that a task gave its guard ([`OwnedGuard::named`](crate::tasks_trace::OwnedGuard::named)).
    pub task: Option<String>,
    /// Where the guard was made; of owned guards.
    pub made_at: Option<&'static Location<'static>>,
    /// How long ago, to some milliseconds; of owned guards.
    pub held: Option<Duration>,
    /// Where it entered the section (with the feature `stall-backtrace`).
    #[cfg(feature = "stall-backtrace")]
    pub entered: Option<Arc<Backtrace>>,
}

/// How a thread reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Flavour {
    /// By guards, [`Domain::read_lock`](crate::Domain::read_lock).
    Thread = 0,
    /// As a [`QsbrReader`](crate::QsbrReader).
    Qsbr = 1,
    /// By an [`OwnedGuard`](crate::tasks_trace::OwnedGuard), which belongs to a task and to no thread.
    Owned = 2,
}

/// A thread, as a person would look for it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ThreadName {
    /// The kernel's id; 0 where there is none.
    pub tid: u32,
    /// The name that the kernel has for it; `None` if the thread has ended (its guard was leaked) or where names cannot be known.
    pub name: Option<String>,
}

impl ThreadName {
    fn of(tid: u32) -> Self {
        Self { tid, name: thread::name_of(tid) }
    }
}

impl fmt::Display for ThreadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "thread '{name}' (tid {})", self.tid),
            None => write!(f, "a thread that is gone (tid {})", self.tid),
        }
    }
}

impl fmt::Display for Holdout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.flavour, &self.task) {
            (Flavour::Thread, _) => write!(f, "{} holds a guard", self.thread)?,
            (Flavour::Qsbr, _) => write!(f, "{} is online as a QSBR reader without passing a quiescent state", self.thread)?,
            (Flavour::Owned, Some(task)) => write!(f, "task '{task}' holds an owned guard, made by {}", self.thread)?,
            (Flavour::Owned, None) => write!(f, "a task holds an owned guard, made by {}", self.thread)?,
        }
        if let Some(place) = self.made_at {
            write!(f, " at {place}")?;
        }
        if let Some(held) = self.held {
            write!(f, " {held:.1?} ago")?;
        }
        #[cfg(feature = "stall-backtrace")]
        if let Some(entered) = &self.entered {
            write!(f, ", entered at\n{entered}")?;
        }
        Ok(())
    }
}

impl fmt::Display for StallReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.stalled {
            Stalled::GracePeriod(cookie) => write!(f, "stillpoint: a grace period ({cookie:?})")?,
            Stalled::Service => write!(f, "stillpoint: the service thread")?,
        }
        write!(f, " of domain {} has been held up for {:.1?}", self.domain, self.lasted)?;
        let listed = |f: &mut fmt::Formatter<'_>, what: &str, who: &mut dyn Iterator<Item = &dyn fmt::Display>| {
            who.enumerate().try_for_each(|(n, who)| if n == 0 { write!(f, "; {what}: {who}") } else { write!(f, ", {who}") })
        };
        listed(f, "in its way", &mut self.holdouts.iter().map(|holdout| holdout as _))?;
        if self.more_holdouts > 0 {
            write!(f, " and {} more", self.more_holdouts)?;
        }
        listed(f, "waiting", &mut self.waiters.iter().map(|waiter| waiter as _))?;
        for (n, (place, count)) in self.futures.iter().enumerate() {
            write!(f, "{}{count} made at {place}", if n == 0 { "; futures that wait: " } else { ", " })?;
        }
        Ok(())
    }
}

type Handler = Arc<dyn Fn(&StallReport) + Send + Sync>;

/// Times what is being waited for. Each stall is reported once.
pub(super) struct Stalls {
    domain: u64,
    timeout: AtomicU64,
    grace_period: Watch,
    service: Watch,
    waiters: Mutex<Waiters>,
    /// In a box; null for none. Copied, and replaced, under the lock; the pointer alone is whole at any time, also for the child of a
    /// fork that finds the lock taken.
    handler: AtomicPtr<Handler>,
    handling: Mutex<()>,
    panicked: AtomicU64,
}

/// Who waits.
#[derive(Debug, Clone)]
struct Waiters {
    /// Threads that have been waiting for more than a moment, by the kernel's id.
    threads: Vec<u32>,
    /// Where futures that wait were made, and how many.
    futures: Vec<(&'static Location<'static>, usize)>,
}

impl Waiters {
    const NONE: Self = Self { threads: Vec::new(), futures: Vec::new() };

    fn add(&mut self, who: Waiting) {
        match who {
            Waiting::Thread(tid) => self.threads.push(tid),
            Waiting::Future(place) => match self.futures.iter_mut().find(|(known, _)| *known == place) {
                Some((_, count)) => *count += 1,
                None => self.futures.push((place, 1)),
            },
        }
    }

    fn remove(&mut self, who: Waiting) {
        match who {
            Waiting::Thread(tid) => {
                if let Some(at) = self.threads.iter().position(|&known| known == tid) {
                    self.threads.swap_remove(at);
                }
            }
            Waiting::Future(place) => {
                if let Some(at) = self.futures.iter().position(|&(known, _)| known == place) {
                    self.futures[at].1 -= 1;
                    if self.futures[at].1 == 0 {
                        self.futures.swap_remove(at);
                    }
                }
            }
        }
    }
}

/// One of them.
#[derive(Debug, Clone, Copy)]
enum Waiting {
    Thread(u32),
    Future(&'static Location<'static>),
}

/// Times one thing.
#[derive(Debug)]
struct Watch {
    /// Since when it has been held up, and whether that has been reported ([`REPORTED`]); 0 while it is not. One word, so that no thread
    /// reports what is over: the mark would stay, and the next stall be taken for a reported one.
    since: AtomicU64,
    count: AtomicU64,
}

/// Beside a time, which is smaller.
const REPORTED: u64 = 1 << 63;

/// What a [`Watch`] says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// Not yet; look again at this time.
    Early(Nanos),
    /// A stall of this length, which the caller has to report.
    Due(Duration),
    Reported,
}

impl Watch {
    fn new() -> Self {
        Self { since: AtomicU64::new(0), count: AtomicU64::new(0) }
    }

    /// What [`Watch::verdict`] is to be asked about.
    fn start(&self, now: Nanos) -> u64 {
        self.since.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed).map_or_else(|since| since, |_| now)
    }

    fn stop(&self) {
        if self.since.load(Ordering::Relaxed) != 0 {
            self.since.store(0, Ordering::Relaxed);
        }
    }

    fn is_reported(&self) -> bool {
        self.since.load(Ordering::Relaxed) & REPORTED != 0
    }

    /// About a wait that was under way `since`, as [`Watch::start`] has it.
    fn verdict(&self, since: u64, now: Nanos, timeout: Nanos) -> Verdict {
        if since & REPORTED != 0 {
            return Verdict::Reported;
        }
        let due = since.saturating_add(timeout);
        if now < due {
            return Verdict::Early(due);
        }
        match self.since.compare_exchange(since, since | REPORTED, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => {
                self.count.fetch_add(1, Ordering::Relaxed);
                Verdict::Due(Duration::from_nanos(now.saturating_sub(since)))
            }
            Err(reported) if reported == since | REPORTED => Verdict::Reported,
            // It is over, and what is waited for now has not been waited for that long.
            Err(_) => Verdict::Early(now.saturating_add(timeout)),
        }
    }
}

impl Stalls {
    pub(super) fn new(domain: u64) -> Self {
        Self {
            domain,
            timeout: AtomicU64::new(clock::nanos(DEFAULT_STALL_TIMEOUT)),
            grace_period: Watch::new(),
            service: Watch::new(),
            waiters: Mutex::new(Waiters::NONE),
            handler: AtomicPtr::new(ptr::null_mut()),
            handling: Mutex::new(()),
            panicked: AtomicU64::new(0),
        }
    }

    /// A grace period has ended: whatever is waited for next is waited for afresh.
    pub(super) fn grace_period_ended(&self) {
        self.grace_period.stop();
    }

    /// Work for the service thread waits from now on, if none did.
    pub(super) fn service_wanted(&self) {
        self.service.start(clock::now());
    }

    /// The service thread comes to its work.
    pub(super) fn service_came(&self) {
        self.service.stop();
    }

    fn timeout(&self) -> Nanos {
        self.timeout.load(Ordering::Relaxed)
    }

    /// Lists the calling thread among those who wait, until the returned value is dropped.
    pub(super) fn list_waiter(&self) -> Listed<'_> {
        self.list(Waiting::Thread(thread::tid()))
    }

    fn list(&self, who: Waiting) -> Listed<'_> {
        lock(&self.waiters).add(who);
        Listed { stalls: self, who, process: fork::process() }
    }

    fn handler(&self) -> Option<Handler> {
        let _handling = lock(&self.handling);
        // SAFETY: null or a box that is dropped after it has been replaced, which nobody does under our lock.
        unsafe { self.handler.load(Ordering::Relaxed).as_ref() }.cloned()
    }

    fn set_handler(&self, handler: Option<Handler>) {
        let new = handler.map_or(ptr::null_mut(), |handler| Box::into_raw(Box::new(handler)));
        let handling = lock(&self.handling);
        // Needs no partner: all who look at the handler hold the lock.
        let old = self.handler.swap(new, Ordering::AcqRel);
        drop(handling);
        if !old.is_null() {
            // SAFETY: it came out of a box here, and nobody can find it any more.
            self.drop_handler(unsafe { *Box::from_raw(old) });
        }
    }

    /// With nothing locked: it may own anything, and be the last to know the handler.
    fn drop_handler(&self, handler: Handler) {
        self.note_panic(user_code::panics(self.domain, || drop(handler)));
    }

    fn note_panic(&self, panicked: bool) {
        self.panicked.fetch_add(u64::from(panicked), Ordering::Relaxed);
    }

    /// In the child of a fork: whoever was late or waited has vanished, or is timed afresh.
    ///
    /// # Safety
    ///
    /// As for [`fork::ForkReset::reset_in_child`](crate::platform::fork::ForkReset::reset_in_child).
    #[cfg(not(stillpoint_loom))]
    pub(super) unsafe fn reset_in_child(&self) {
        for watch in [&self.grace_period, &self.service] {
            watch.since.store(0, Ordering::Relaxed);
        }
        // SAFETY: the caller's promise; user code does not run under these locks.
        unsafe {
            self.waiters.reinit(Waiters::NONE);
            self.handling.reinit(());
        }
    }
}

impl Drop for Stalls {
    fn drop(&mut self) {
        self.set_handler(None);
    }
}

impl fmt::Debug for Stalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stalls").field("grace_period", &self.grace_period).field("service", &self.service).finish_non_exhaustive()
    }
}

/// A place in the list of those who wait.
#[derive(Debug)]
pub(crate) struct Listed<'a> {
    stalls: &'a Stalls,
    who: Waiting,
    /// In the child of a fork nobody of before it is listed.
    process: Process,
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        if self.process == fork::process() {
            lock(&self.stalls.waiters).remove(self.who);
        }
    }
}

impl<P: Policy> Engine<P> {
    /// To be called by whoever finds `cookie` held up. Reports a stall if it is time; when to look again at the latest.
    pub(crate) fn note_held_up(&self, cookie: Cookie, now: Nanos) -> Nanos {
        let watch = &self.stalls.grace_period;
        let since = watch.start(now);
        if self.has_ended(cookie) {
            // It ended before the watch was started, so nobody will stop it: the next grace period must not look old.
            watch.stop();
            return now;
        }
        match watch.verdict(since, now, self.stalls.timeout()) {
            Verdict::Early(due) => due,
            Verdict::Reported => Nanos::MAX,
            Verdict::Due(lasted) => {
                let mut holdouts: Vec<_> = self.holdouts(cookie.seq()).collect();
                oldest_first(&mut holdouts, cookie.seq());
                let listed = holdouts.iter().take(LISTED_HOLDOUTS).map(|(record, _)| holdout(record)).collect();
                self.report(Stalled::GracePeriod(cookie), lasted, listed, holdouts.len().saturating_sub(LISTED_HOLDOUTS));
                Nanos::MAX
            }
        }
    }

    /// To be called now and then by those for whom the service thread should work. When to look again at the latest.
    pub(crate) fn note_service(&self, now: Nanos) -> Nanos {
        let watch = &self.stalls.service;
        let since = watch.since.load(Ordering::Relaxed);
        if since == 0 {
            return now.saturating_add(self.stalls.timeout());
        }
        match watch.verdict(since, now, self.stalls.timeout()) {
            Verdict::Early(due) => due,
            Verdict::Reported => Nanos::MAX,
            Verdict::Due(lasted) => {
                self.report(Stalled::Service, lasted, Vec::new(), 0);
                Nanos::MAX
            }
        }
    }

    /// With nothing of the engine held: the handler may read, and so may a subscriber.
    fn report(&self, stalled: Stalled, lasted: Duration, holdouts: Vec<Holdout>, more_holdouts: usize) {
        let Waiters { threads, futures } = lock(&self.stalls.waiters).clone();
        let waiters = threads.into_iter().map(ThreadName::of).collect();
        let report = StallReport { stalled, domain: self.domain, lasted, holdouts, more_holdouts, waiters, futures };
        #[cfg(feature = "tracing")]
        self.stalls.note_panic(user_code::tell(self.domain, || {
            tracing::warn!(domain = report.domain, lasted = ?report.lasted, "{report}");
        }));
        if let Some(handler) = self.stalls.handler() {
            self.stalls.note_panic(user_code::panics(self.domain, || handler(&report)));
            self.stalls.drop_handler(handler);
        }
    }

    /// Lists a future that was made at `made_at` among those who wait, until the returned value is dropped.
    pub(crate) fn list_future(&self, made_at: &'static Location<'static>) -> Listed<'_> {
        self.stalls.list(Waiting::Future(made_at))
    }

    /// Whether the present grace period has been reported as stalled and has not ended since.
    pub(crate) fn is_stalled(&self) -> bool {
        self.stalls.grace_period.is_reported()
    }

    pub(crate) fn stalls(&self) -> u64 {
        self.stalls.grace_period.count.load(Ordering::Relaxed)
    }

    pub(crate) fn service_stalls(&self) -> u64 {
        self.stalls.service.count.load(Ordering::Relaxed)
    }

    pub(crate) fn stall_handlers_panicked(&self) -> u64 {
        self.stalls.panicked.load(Ordering::Relaxed)
    }

    pub(crate) fn set_stall_timeout(&self, timeout: Duration) {
        self.stalls.timeout.store(clock::nanos(timeout), Ordering::Relaxed);
    }

    pub(crate) fn set_stall_handler(&self, handler: Option<Handler>) {
        self.stalls.set_handler(handler);
    }
}

/// Sections that began long ago have older numbers; of the same number, guards know when they were made. Each key is taken once: a guard
/// may change hands meanwhile, and a sort whose keys change panics.
fn oldest_first(holdouts: &mut [(&Record, Seq)], goal: Seq) {
    holdouts.sort_by_cached_key(|(record, section)| (section.since(goal), record.entry().since()));
}

fn holdout(record: &Record) -> Holdout {
    let entry = record.entry();
    Holdout {
        thread: ThreadName::of(entry.tid()),
        flavour: record.flavour(),
        task: entry.name().map(|name| name.to_string()),
        made_at: entry.location(),
        held: entry.since().map(|since| Duration::from_nanos(clock::now().saturating_sub(since))),
        #[cfg(feature = "stall-backtrace")]
        entered: entry.backtrace(),
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use crate::gp::{
        engine::{BarrierMode, Shared},
        registry::Registry,
        seq::Sequence,
    };
    use crate::platform::sync::AtomicBool;

    /// The wait's end comes between a look at the clock and the verdict.
    #[test]
    fn a_wait_that_is_over_is_not_reported_and_the_next_one_is() {
        let watch = Watch::new();
        let since = watch.start(1_000);
        watch.stop();
        assert_eq!(watch.verdict(since, 5_000, 1_000), Verdict::Early(6_000), "it is over");
        assert!(!watch.is_reported());
        let next = watch.start(6_000);
        assert_eq!(watch.verdict(since, 6_500, 1_000), Verdict::Early(7_500), "and was another one");
        assert_eq!(watch.verdict(next, 6_500, 1_000), Verdict::Early(7_000));
        assert_eq!(watch.verdict(next, 7_000, 1_000), Verdict::Due(Duration::from_nanos(1_000)));
        assert_eq!(watch.verdict(next, 8_000, 1_000), Verdict::Reported, "once");
        assert_eq!(watch.verdict(watch.start(8_000), 9_000, 1_000), Verdict::Reported);
        watch.stop();
        assert_eq!((watch.is_reported(), watch.count.load(Ordering::Relaxed)), (false, 1));
    }

    #[test]
    fn readers_that_change_while_they_are_sorted_do_no_harm() {
        let seq = Cookie::from_raw(0).seq();
        let registry = Registry::new(1, BarrierMode::Fence, crate::platform::sync::Arc::new(Shared::new(Sequence::new(seq))));
        let mut holdouts = Vec::new();
        registry.claim_some(thread::token(), 0, Flavour::Owned, 500, |record| holdouts.push((record, seq)));
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut number = 1_u64;
                while !over.load(Ordering::Relaxed) {
                    for record in registry.iter() {
                        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        record.entry().note_section(Location::caller(), number);
                    }
                }
            });
            let sorts = || (0..if cfg!(miri) { 2 } else { 500 }).for_each(|_| oldest_first(&mut holdouts, seq));
            let sorted = std::panic::catch_unwind(std::panic::AssertUnwindSafe(sorts));
            over.store(true, Ordering::Relaxed);
            assert!(sorted.is_ok());
        });
    }
}
