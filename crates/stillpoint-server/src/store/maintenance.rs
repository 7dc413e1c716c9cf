//! What is done in the background, each second: flushes that are due, segments of key spaces that
//! were flushed, items that have expired, segments that are mostly dead, indexes that have become
//! large for their items, memory that was freed.

use super::{
    clock::Clock,
    config::Config,
    evict::{self, Why},
    shared::{Shared, TenantState, lock},
    store::Inner,
};
use std::{
    io, process,
    sync::{Arc, Condvar, Mutex, PoisonError, Weak},
    thread,
    time::Duration,
};
use stillpoint::read_lock;
use stillpoint_platform::thread::without_signals;

/// How often.
const EACH: Duration = Duration::from_secs(1);

/// What a tenant's dead bytes are of its usage, at least, before its sparse segments are compacted.
const DEAD_PART: u64 = 8;

/// Bytes of segments that are searched for expired items in a pass, for each tenant.
const SEARCHED: u64 = 64 << 20;

/// Bytes of segments that are compacted in a pass, for each tenant.
const COMPACTED: u64 = 16 << 20;

#[derive(Debug, Default)]
struct Signal {
    stop: Mutex<bool>,
    wake: Condvar,
}

/// The background thread.
#[derive(Debug)]
pub struct Maintenance {
    signal: Arc<Signal>,
    thread: thread::JoinHandle<()>,
    /// The process that has the thread.
    process: u32,
}

impl Maintenance {
    /// None for a clock that stands still.
    pub fn start(config: &Config, store: Weak<Inner>) -> io::Result<Option<Self>> {
        if let Clock::Manual(_) = config.clock {
            return Ok(None);
        }
        let signal = Arc::<Signal>::default();
        let ours = Arc::clone(&signal);
        let spawn = || {
            thread::Builder::new()
                .name("stillcache/tidy".to_owned())
                .spawn(move || run(&store, &ours))
        };
        let thread = without_signals(spawn)?;
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
        *lock(&self.signal.stop) = true;
        self.signal.wake.notify_one();
        // It may be the one that drops the last handle.
        if self.thread.thread().id() != thread::current().id() {
            let _ = self.thread.join();
        }
    }
}

fn run(store: &Weak<Inner>, signal: &Signal) {
    let mut stop = lock(&signal.stop);
    while !*stop {
        let waited = signal.wake.wait_timeout(stop, EACH);
        stop = waited.unwrap_or_else(PoisonError::into_inner).0;
        if *stop {
            return;
        }
        drop(stop);
        if let Some(store) = store.upgrade() {
            run_once(&store);
        }
        stop = lock(&signal.stop);
    }
}

/// A pass over all tenants.
pub fn run_once(store: &Inner) {
    for tenant in store.all_tenants() {
        tenant.state.flush_if_due(store.shared.now());
        sweep(&tenant.state);
        expire(&tenant.state);
        seal_idle(&tenant.state);
        compact(&tenant.state);
        tenant.space().tidy_table();
    }
    sweep_deleted(&store.shared);
    store.shared.pool.tidy();
}

/// Frees the segments of key spaces that were flushed.
pub fn sweep(state: &TenantState) {
    let (owner, lists) = (&state.owner, &state.owner.shared.lists);
    lists.for_each(&owner.memcg, |segment| {
        // The key space is loaded behind the segment, which was made after its own was published:
        // so that which is not the present one has been flushed, and is not a newer one.
        let flushed = !segment.is_of(state.space.load(&read_lock()));
        // No reader that begins now comes to the old index, and limbo waits for those that have.
        if flushed && segment.leave() {
            lists.take_away(segment);
        }
        true
    });
}

/// Frees what threads have sealed for tenants that were being deleted: it is the root's.
fn sweep_deleted(shared: &Shared) {
    shared.lists.for_each(shared.hierarchy.root(), |segment| {
        if evict::is_flushed(segment) {
            evict::evacuate(&shared.lists, segment, Why::Clear);
        }
        true
    });
}

/// Removes items that have expired.
fn expire(state: &TenantState) {
    let now = state.shared().now();
    let space = Arc::clone(state.space.load(&read_lock()));
    space.seal_expired(now);
    let mut left = SEARCHED;
    let lists = &state.owner.shared.lists;
    lists.for_each(&state.owner.memcg, |segment| {
        if segment.has_expired(now) {
            left = left.saturating_sub(segment.bytes() as u64);
            evict::expire(segment, now);
        }
        left > 0
    });
}

/// Gives back what open segments take beyond the need of a tenant that has become small.
fn seal_idle(state: &TenantState) {
    let space = Arc::clone(state.space.load(&read_lock()));
    for segment in space.seal_idle() {
        evict::evacuate(&state.owner.shared.lists, &segment, Why::Compact);
    }
}

/// Copies what is alive in sparse segments together.
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
