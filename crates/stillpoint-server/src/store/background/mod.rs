//! Background work of a store, done by one thread or by [`Store::maintain`].
//!
//! | job | due | order | a turn ends |
//! |---|---|---|---|
//! | free the memory of a flushed or deleted tenant | on request | 1 | after all its segments, or when limbo is full |
//! | lower a limit | on request; again after 50 ms if readers hold it up | 2 | at the limit, or when nothing more can be evicted |
//! | search for expired items | on request | 3 | after all that had expired at the request; pauses for other requests and for the pass |
//! | the pass | each second | 4 | after the jobs below |
//! | · a flush that is due | | for each tenant | at once |
//! | · flushed segments | | | after all segments, or when limbo is full |
//! | · expired items | | | after 64 MiB of segments or `most` items of a tenant; if it rests, also half a second after the pass began, or for a request |
//! | · open segments that are too large | | | after all open segments |
//! | · sparse segments | | | after 16 MiB of segments |
//! | · an index too large for its items | | | after 2^20 buckets |
//! | · wait for readers of memory that indexes give back | | once for all | after 10 ms |
//! | · segments of deleted tenants | | once | after all of them, or when limbo is full |
//! | · limits that fall | | once | as above |
//! | · freed memory | | once | after 10 ms of waiting for readers |
//!
//! [`Store::maintain`]: super::Store::maintain

pub mod limits;
pub mod search;
pub mod signal;
pub mod sweep;

use super::{inner::Inner, state::TenantState};
use limits::{Falling, Pace};
use signal::{Signal, Thread};
use std::{
    io,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};
use stillpoint::read_lock;

/// Time between two passes.
const EACH: Duration = Duration::from_secs(1);

/// Time after which a limit is tried again that readers have kept from falling.
const SOON: Duration = Duration::from_millis(50);

/// Time from the start of a pass after which its search for expired items rests no longer, but ends: the
/// other work waits for it.
const RESTED: Duration = Duration::from_millis(500);

/// Starts the thread, which ends with the store.
pub fn start(signal: &Arc<Signal>, store: Weak<Inner>) -> io::Result<Thread> {
    let ours = Arc::clone(signal);
    Thread::start(signal, move || run(&store, &ours))
}

fn run(store: &Weak<Inner>, signal: &Signal) {
    let mut pass_at = Instant::now() + EACH;
    let mut waits = false;
    // A search that was asked for goes on between its rests: for what had expired by then.
    let mut searches: Option<u32> = None;
    loop {
        let until = match (searches, waits) {
            (Some(_), _) => Instant::now(),
            (_, true) => Instant::now() + SOON,
            _ => pass_at,
        };
        let asked = signal.wait(until.min(pass_at));
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
        asked.sweep.iter().for_each(sweep::sweep_asked);
        if asked.lower || waits {
            waits = lower(&store, &store.states(), true);
        }
        if let Some(then) = searches
            && search::search_all(&store.crawler, &store.states(), then, |time| {
                signal.rest(time, pass_at)
            })
        {
            searches = None;
        }
        if Instant::now() >= pass_at {
            waits = pass(&store, Some(signal));
            pass_at = Instant::now() + EACH;
        }
    }
}

/// Runs a pass over all tenants. The background thread, which is asked by `signal`, takes its time for
/// limits that fall and for what has expired. Returns whether readers keep a limit from falling.
pub fn pass(store: &Arc<Inner>, signal: Option<&Signal>) -> bool {
    let (shared, crawler, mut tenants) = (&store.shared, &store.crawler, store.states());
    crawler.take_turns(&mut tenants);
    let mut joined = false;
    let mut search = crawler.pass();
    let latest = Instant::now() + RESTED;
    let rest =
        |time: Duration| time.is_zero() || signal.is_none_or(|signal| signal.rest(time, latest));
    for (number, tenant) in tenants.iter().enumerate() {
        let now = shared.now();
        tenant.flush_if_due(now, &read_lock());
        sweep::sweep(tenant);
        if let Some(pass) = &search
            && !pass.search(tenant, now, rest)
        {
            // The next pass continues behind this tenant.
            search = None;
            crawler.end_at(number);
        }
        sweep::seal_idle(tenant);
        sweep::compact(tenant);
        let space = tenant.present();
        space.shrink_table(false, || {});
        joined |= space.table.index.bytes() > space.table.index.bytes_released();
    }
    if joined {
        // Once for all.
        shared.pool.wait_until_left();
    }
    for tenant in &tenants {
        tenant.present().table.settle(false);
    }
    drop((search, tenants));
    sweep::sweep_deleted(shared);
    // Tenants that were created meanwhile too.
    let waits = lower(store, &store.states(), signal.is_some());
    shared.pool.tidy();
    waits
}

/// Continues with limits that fall. Returns whether readers keep one from falling.
fn lower(store: &Arc<Inner>, tenants: &[Arc<TenantState>], paced: bool) -> bool {
    let shared = &store.shared;
    let own = tenants.iter().map(|tenant| Falling {
        limit: &tenant.owner.limit,
        tenants: std::slice::from_ref(tenant),
    });
    let of_store = Falling {
        limit: &shared.limit,
        tenants,
    };
    let mut falling: Vec<_> = own.chain([of_store]).collect();
    falling.retain(|one| one.limit.is_falling());
    if !shared.config.evict {
        // What was asked for holds at once: stores are refused until enough has been deleted.
        for one in &falling {
            one.limit.follow(false, &shared.config);
        }
        return false;
    }
    if falling.is_empty() {
        return false;
    }
    let pace = paced.then(|| Pace::begin(shared, &falling));
    // A store that ends does not wait for this.
    let waits = limits::lower(shared, &falling, pace.as_ref(), || store.is_ending());
    shared.pool.empty();
    waits
}
