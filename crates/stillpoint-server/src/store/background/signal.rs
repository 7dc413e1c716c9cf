//! The background thread, and the requests to it.

use crate::{lock::lock, store::state::TenantState};
use std::{
    io, mem, process,
    sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, atomic::Ordering},
    thread::{self as std_thread, ThreadId},
    time::{Duration, Instant},
};
use stillpoint_platform::thread::{self, Handle};

/// Requests to the background thread, which it does not leave to the pass of the next second.
#[derive(Debug)]
pub struct Signal {
    asked: Mutex<Asked>,
    wake: Condvar,
    /// The thread, once it runs.
    thread: OnceLock<ThreadId>,
}

/// What was asked for.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// The store ends, or there is no thread.
    pub(super) stop: bool,
    /// A limit was lowered.
    pub(super) lower: bool,
    /// All is to be searched for expired items.
    pub(super) search: bool,
    /// Tenants that were flushed or deleted.
    pub(super) sweep: Vec<Arc<TenantState>>,
}

impl Asked {
    fn is_something(&self) -> bool {
        self.stop || self.lower || self.search || !self.sweep.is_empty()
    }
}

impl Signal {
    /// Creates the signal of a store that has a background thread, or has none.
    pub fn new(has_thread: bool) -> Self {
        let asked = Asked {
            stop: !has_thread,
            ..Asked::default()
        };
        Self {
            asked: Mutex::new(asked),
            wake: Condvar::new(),
            thread: OnceLock::new(),
        }
    }

    /// Asks the thread to bring limits down to what was asked for.
    pub fn lower(&self) {
        lock(&self.asked).lower = true;
        self.wake.notify_one();
    }

    /// Asks the thread to search all tenants for expired items.
    pub fn search(&self) {
        lock(&self.asked).search = true;
        self.wake.notify_one();
    }

    /// Waits until there is a request, or until `until`.
    fn asked(&self, until: Instant) -> MutexGuard<'_, Asked> {
        let mut asked = lock(&self.asked);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || asked.is_something() {
                return asked;
            }
            let waited = self.wake.wait_timeout(asked, left);
            asked = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Rests for `time`. Returns false, at once, if there is a request, or at `latest` if that comes first.
    fn rest(&self, time: Duration, latest: Instant) -> bool {
        let until = Instant::now().checked_add(time);
        let until = until.map_or(latest, |until| until.min(latest));
        !self.asked(until).is_something() && until < latest
    }

    /// Asks the thread to free the memory of a tenant that was flushed or deleted. Returns false if out of
    /// memory, or if there is no thread.
    pub fn sweep(&self, tenant: &Arc<TenantState>) -> bool {
        let mut asked = lock(&self.asked);
        if asked.stop {
            return false;
        }
        if tenant.is_queued.load(Ordering::Relaxed) {
            return true;
        }
        let is_room = asked.sweep.try_reserve(1).is_ok();
        if is_room {
            tenant.is_queued.store(true, Ordering::Relaxed);
            asked.sweep.push(Arc::clone(tenant));
            self.wake.notify_one();
        }
        is_room
    }

    /// Waits for a request, at most until `until`. Takes the requests.
    pub(super) fn wait(&self, until: Instant) -> Asked {
        let mut asked = self.asked(until);
        // Before they are looked at: what is flushed from here on is asked for again.
        for tenant in &asked.sweep {
            tenant.is_queued.store(false, Ordering::Relaxed);
        }
        let fresh = Asked {
            stop: asked.stop,
            ..Asked::default()
        };
        mem::replace(&mut asked, fresh)
    }

    /// Asks the thread to end. Drops the requests that it has not begun.
    pub fn stop(&self) {
        let mut asked = lock(&self.asked);
        asked.stop = true;
        let left = mem::take(&mut asked.sweep);
        drop(asked);
        drop(left);
        self.wake.notify_one();
    }
}

/// The background thread.
#[derive(Debug)]
pub struct Thread {
    signal: Arc<Signal>,
    thread: Handle,
    /// The process that has the thread.
    process: u32,
}

impl Thread {
    /// Starts the thread, which calls `run`.
    pub(super) fn start(
        signal: &Arc<Signal>,
        run: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        let ours = Arc::clone(signal);
        let run = move || {
            let _ = ours.thread.set(std_thread::current().id());
            run();
        };
        Ok(Self {
            signal: Arc::clone(signal),
            thread: thread::spawn("stillcache/tidy", run)?,
            process: process::id(),
        })
    }

    /// Ends the thread, and waits for it.
    pub fn stop(self) {
        // A child has no such thread, and perhaps a lock that nothing will release.
        if self.process != process::id() {
            return;
        }
        self.signal.stop();
        // The thread itself may drop the last handle.
        if self.signal.thread.get() != Some(&std_thread::current().id()) {
            self.thread.join();
        }
    }
}

/// A turn of the background thread at a job that it can put off.
#[derive(Clone, Copy)]
pub struct Turn<'a> {
    pub signal: &'a Signal,
    /// When it ends even if nothing else is asked for.
    pub ends: Instant,
    /// Whether it ends now, as the store does.
    pub is_ending: &'a dyn Fn() -> bool,
}

impl Turn<'_> {
    pub fn is_late(&self) -> bool {
        Instant::now() >= self.ends
    }

    /// Rests for `time`. Returns false, at once, if the turn is over or there is a request.
    pub fn rest(&self, time: Duration) -> bool {
        self.signal.rest(time, self.ends) && !(self.is_ending)()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever thread creates the store: here, one with a scheduling policy of low precedence.
    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn the_thread_has_the_policy_of_the_main_thread() {
        use crate::store::{Config, Store};
        use std::fs;
        let starter = std_thread::spawn(|| {
            let param = libc::sched_param { sched_priority: 0 };
            // SAFETY: changes the policy of this thread alone.
            let set = unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const param) };
            assert_eq!(set, 0);
            let store = Store::new(Config::default()).unwrap();
            let signal = store.tenant("").unwrap().signal;
            while signal.thread.get().is_none() {
                std_thread::yield_now();
            }
            store
        });
        let store = starter.join().unwrap();
        // SAFETY: only reads.
        let policy = |thread| unsafe { libc::sched_getscheduler(thread) };
        let main = policy(process::id().cast_signed());
        let mut threads = 0;
        for task in fs::read_dir("/proc/self/task").unwrap() {
            let task = task.unwrap();
            // Another test's may have ended.
            let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
            if name == "stillcache/tidy\n" {
                let thread = task.file_name().into_string().unwrap().parse().unwrap();
                let policy = policy(thread);
                assert!(policy == main || policy < 0, "{policy} instead of {main}");
                threads += 1;
            }
        }
        assert!(threads > 0);
        drop(store);
    }

    #[test]
    fn a_rest_ends_for_what_is_asked_for_and_at_its_latest() {
        let signal = Signal::new(true);
        let (short, long) = (Duration::from_millis(1), Duration::from_secs(10));
        let at = |time| Instant::now() + time;
        assert!(signal.rest(short, at(long)));
        assert!(signal.rest(Duration::ZERO, at(long)));
        assert!(!signal.rest(long, at(short)));
        assert!(!signal.rest(Duration::MAX, at(short)));
        for ask in [Signal::lower, Signal::search] {
            ask(&signal);
            assert!(!signal.rest(long, at(2 * long)));
            assert!(!signal.rest(Duration::ZERO, at(long)));
            // It is left to the loop to do.
            assert!(signal.wait(at(long)).is_something());
        }
        assert!(signal.rest(short, at(long)));
    }
}
