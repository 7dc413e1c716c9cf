//! The background thread. Each second it handles flushes that are due, segments of flushed key spaces,
//! expired items, segments that are mostly dead, indexes too large for their items, and freed memory. At
//! once it handles what takes too long for the thread that asks: limits that fall, and the memory of
//! flushes and deleted tenants.

use super::{
    crawler,
    evict::{self, Why},
    fall::{self, Limit},
    shared::{Shared, TenantState, lock},
    store::Inner,
};
use std::{
    io, mem, process,
    sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, Weak, atomic::Ordering},
    thread::{self as std_thread, ThreadId},
    time::{Duration, Instant},
};
use stillpoint::read_lock;
use stillpoint_platform::thread::{self, Handle};

/// Time between two passes.
const EACH: Duration = Duration::from_secs(1);

/// Time after which a limit is tried again that readers have kept from falling.
const SOON: Duration = Duration::from_millis(50);

/// Longest rest in a pass of the search for expired items: the other work waits for it.
const RESTED: Duration = Duration::from_millis(500);

/// Least part of a tenant's usage that is dead before its sparse segments are compacted.
const DEAD_PART: u64 = 8;

/// Bytes of segments that a pass compacts, for each tenant.
const COMPACTED: u64 = 16 << 20;

/// What the background thread is to do, and does not wait for the next second with.
#[derive(Debug, Default)]
pub struct Signal {
    asked: Mutex<Asked>,
    wake: Condvar,
    /// The thread, once it runs.
    thread: OnceLock<ThreadId>,
}

#[derive(Debug, Default)]
struct Asked {
    stop: bool,
    /// A limit was lowered.
    lower: bool,
    /// All is to be searched for expired items.
    search: bool,
    /// Tenants that were flushed or deleted.
    sweep: Vec<Arc<TenantState>>,
}

impl Asked {
    fn is_something(&self) -> bool {
        self.stop || self.lower || self.search || !self.sweep.is_empty()
    }
}

impl Signal {
    /// Limits were lowered.
    pub fn lower(&self) {
        lock(&self.asked).lower = true;
        self.wake.notify_one();
    }

    /// All is to be searched for expired items.
    pub fn search(&self) {
        lock(&self.asked).search = true;
        self.wake.notify_one();
    }

    /// Rests, until `latest` at most. Ends early if something else is asked for. Returns false if there is
    /// something else to do.
    fn rest(&self, time: Duration, latest: Instant) -> bool {
        let until = Instant::now().checked_add(time);
        let until = until.map_or(latest, |until| until.min(latest));
        let mut asked = lock(&self.asked);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if asked.is_something() {
                return false;
            }
            if left.is_zero() {
                return until < latest;
            }
            let waited = self.wake.wait_timeout(asked, left);
            asked = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// A tenant was flushed or deleted. Returns false without memory, and where the thread has
    /// ended.
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

    /// Waits until something is asked for, or until that time. Takes what was asked for.
    fn wait(&self, until: Instant) -> Asked {
        let mut asked = lock(&self.asked);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || asked.is_something() {
                let stop = asked.stop;
                // Before they are looked at: what is flushed from here on is asked for again.
                for tenant in &asked.sweep {
                    tenant.is_queued.store(false, Ordering::Relaxed);
                }
                return mem::replace(
                    &mut *asked,
                    Asked {
                        stop,
                        ..Asked::default()
                    },
                );
            }
            let waited = self.wake.wait_timeout(asked, left);
            asked = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Makes the thread end. What it has not done is dropped.
    pub fn stop(&self) {
        let left = {
            let mut asked = lock(&self.asked);
            asked.stop = true;
            mem::take(&mut asked.sweep)
        };
        drop(left);
        self.wake.notify_one();
    }
}

/// The background thread.
#[derive(Debug)]
pub struct Maintenance {
    signal: Arc<Signal>,
    thread: Handle,
    /// The process that has the thread.
    process: u32,
}

impl Maintenance {
    /// None for a clock that stands still.
    pub fn start(shared: &Shared, store: Weak<Inner>) -> io::Result<Option<Self>> {
        if !shared.config.has_thread() {
            return Ok(None);
        }
        let signal = Arc::clone(&shared.signal);
        let ours = Arc::clone(&signal);
        let run = move || {
            let _ = ours.thread.set(std_thread::current().id());
            run(&store, &ours);
        };
        let thread = thread::spawn("stillcache/tidy".to_owned(), run)?;
        Ok(Some(Self {
            signal,
            thread,
            process: process::id(),
        }))
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

fn run(store: &Weak<Inner>, signal: &Signal) {
    let mut pass = Instant::now() + EACH;
    let mut waits = false;
    // A search that was asked for goes on between its rests: for what had expired by then.
    let mut searches: Option<u32> = None;
    loop {
        let until = match (searches, waits) {
            (Some(_), _) => Instant::now(),
            (_, true) => Instant::now() + SOON,
            _ => pass,
        };
        let asked = signal.wait(until.min(pass));
        if asked.stop {
            return;
        }
        let Some(store) = store.upgrade() else {
            searches = None;
            continue;
        };
        if asked.search {
            searches = Some(store.shared.now());
        }
        asked.sweep.iter().for_each(sweep_asked);
        if asked.lower || waits {
            waits = lower(&store, true);
        }
        if let Some(then) = searches
            && crawler::search_all(&store, then, |time| signal.rest(time, pass))
        {
            searches = None;
        }
        if Instant::now() >= pass {
            waits = run_once(&store, Some(signal));
            pass = Instant::now() + EACH;
        }
    }
}

/// A pass over all tenants. The background thread, which is asked by `signal`, takes its time for
/// limits that fall and for what has expired. Returns whether readers keep a limit from it.
pub fn run_once(store: &Arc<Inner>, signal: Option<&Signal>) -> bool {
    let (mut tenants, crawler) = (store.all_tenants(), &store.shared.crawler);
    crawler.take_turns(&mut tenants);
    let mut joined = false;
    let mut pass = crawler.pass();
    let latest = Instant::now() + RESTED;
    let rest =
        |time: Duration| time.is_zero() || signal.is_none_or(|signal| signal.rest(time, latest));
    for (number, tenant) in tenants.iter().enumerate() {
        let now = store.shared.now();
        tenant.state.flush_if_due(now, &read_lock());
        sweep(&tenant.state);
        if let Some(search) = &pass
            && !search.search(&tenant.state, now, rest)
        {
            // The rest in a second.
            pass = None;
            crawler.end_at(number);
        }
        seal_idle(&tenant.state);
        compact(&tenant.state);
        let space = tenant.space();
        space.shrink_table(false);
        joined |= space.index.bytes() > space.index.bytes_released();
    }
    if joined {
        // Once for all.
        store.shared.pool.wait_until_left();
    }
    for tenant in &tenants {
        tenant.space().settle_table(false);
    }
    drop((pass, tenants));
    sweep_deleted(&store.shared);
    let waits = lower(store, signal.is_some());
    store.shared.pool.tidy();
    waits
}

/// Continues with limits that fall. Returns whether readers keep one from falling.
fn lower(store: &Arc<Inner>, pace: bool) -> bool {
    let shared = &store.shared;
    let tenants = store.all_tenants();
    if !shared.config.evict {
        // What was asked for holds at once: stores are refused until enough has been deleted.
        for owner in tenants.iter().map(|tenant| &tenant.state.owner) {
            if owner.ceiling.is_falling() {
                owner.follow_limits(false);
            }
        }
        if shared.ceiling.is_falling() {
            shared.follow_limit(false);
        }
    }
    let falling = tenants
        .iter()
        .filter(|tenant| tenant.state.owner.ceiling.is_falling());
    let mut limits: Vec<_> = falling.map(Limit::Tenant).collect();
    if shared.ceiling.is_falling() {
        limits.push(Limit::Store(shared, &tenants));
    }
    if limits.is_empty() {
        return false;
    }
    // A store that ends does not wait for this.
    let waits = fall::lower(shared, &limits, pace, || store.is_ending());
    shared.pool.empty();
    waits
}

/// Frees the memory of flushed key spaces of a tenant, and all memory of a deleted one.
fn sweep_asked(state: &Arc<TenantState>) {
    match state.owner.deleted.load(Ordering::Relaxed) {
        true => remove(state),
        false => sweep(state),
    }
}

/// Removes what is left of a tenant that is deleted.
pub fn remove(state: &TenantState) {
    sweep(state);
    // Its lists are empty, but for what another thread is sealing, and what had to wait for readers;
    // that goes to the root's. It has no children, so this does not fail.
    let _ = state.owner.memcg.delete();
}

/// Frees the segments of key spaces that were flushed.
pub fn sweep(state: &TenantState) {
    let (owner, lists) = (&state.owner, &state.owner.shared.lists);
    state.forget_flushed();
    lists.for_each(&owner.memcg, |segment| {
        // The key space is loaded behind the segment, which was made after its own was published:
        // so that which is not the present one has been flushed, and is not a newer one.
        let flushed = !segment.is_of(state.space.load(&read_lock()));
        // No reader that begins now comes to the old index, and limbo waits for those that have.
        if flushed && segment.leave() {
            evict::free_flushed(lists, segment);
        }
        // What is more waits for the next pass, rather than each one for readers.
        !owner.shared.pool.is_full()
    });
}

/// Frees segments that threads sealed for tenants that were being deleted: these are the root's.
fn sweep_deleted(shared: &Shared) {
    shared.lists.for_each(shared.hierarchy.root(), |segment| {
        if evict::is_flushed(segment) {
            evict::evacuate(&shared.lists, segment, Why::Clear);
        }
        !shared.pool.is_full()
    });
}

/// Gives back what open segments take beyond the need of a tenant that has become small.
fn seal_idle(state: &TenantState) {
    let space = Arc::clone(state.space.load(&read_lock()));
    for segment in space.seal_idle() {
        evict::evacuate(&state.owner.shared.lists, &segment, Why::Compact);
    }
}

/// Compacts sparse segments.
fn compact(state: &TenantState) {
    let usage = state.owner.memcg.usage();
    let space = Arc::clone(state.space.load(&read_lock()));
    if space.counts().dead < usage / DEAD_PART {
        return;
    }
    let mut left = COMPACTED;
    let lists = &state.owner.shared.lists;
    lists.for_each(&state.owner.memcg, |segment| {
        if evict::is_sparse(segment) && evict::evacuate(lists, segment, Why::Compact) {
            left = left.saturating_sub(segment.bytes() as u64);
        }
        left > 0
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever thread creates the store: here, one with a scheduling policy of low precedence.
    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn the_thread_has_the_policy_of_the_main_thread() {
        use super::super::{Config, Store};
        use std::fs;
        let starter = std_thread::spawn(|| {
            let param = libc::sched_param { sched_priority: 0 };
            // SAFETY: changes the policy of this thread alone.
            let set = unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const param) };
            assert_eq!(set, 0);
            let store = Store::new(Config::default()).unwrap();
            let signal = Arc::clone(&store.tenant("").unwrap().state.shared().signal);
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
        let signal = Signal::default();
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
