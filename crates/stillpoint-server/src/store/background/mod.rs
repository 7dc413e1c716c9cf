//! The background: what is done for a store beside its requests, by one thread or by [`Store::maintain`].
//!
//! | job | due | order | a turn ends |
//! |---|---|---|---|
//! | memory of a flush, of a deleted tenant | when asked for | 1 | at its segments, or when limbo is full |
//! | a limit that falls | when asked for; after 50 ms if readers keep it | 2 | at the limit, or if nothing more goes |
//! | a search that was asked for | when asked for | 3 | at what had expired by then; it rests, and ends its rests for all else |
//! | the pass | each second | 4 | with its jobs, which follow |
//! | · a flush that is due | | for each tenant | at once |
//! | · flushed segments | | | at its segments, or when limbo is full |
//! | · expired items | | | after 64 MiB of segments, `most` items, half a second of rests for all tenants |
//! | · open segments that are too large | | | at its open segments |
//! | · sparse segments | | | after 16 MiB of segments |
//! | · an index too large for its items | | | after 2^20 buckets |
//! | · readers of what indexes give back | | once for all | after 10 ms |
//! | · segments of deleted tenants | | once | when limbo is full |
//! | · limits that fall | | once | as above |
//! | · freed memory | | once | after 10 ms of readers |
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

/// Longest rest in a pass of the search for expired items: the other work waits for it.
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
            // The rest in a second.
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
        falling.retain(|one| one.limit.is_falling());
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
