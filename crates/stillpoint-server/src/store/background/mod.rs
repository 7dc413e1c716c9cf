//! Background work of a store, done by one thread or by [`Store::maintain`].
//!
//! | job | due | order | a turn ends |
//! |---|---|---|---|
//! | free the memory of a flushed or deleted tenant | on request | 1 | after all its segments, or when limbo is full |
//! | lower a limit | on request; again after 50 ms if readers hold it up | 2 | at the limit, or when all that is left is pinned; after a segment for other requests and for the pass |
//! | search for expired items | on request | 3 | after all that had expired at the request; pauses for other requests and for the pass |
//! | the pass | each second | 4 | after the jobs below |
//! | · a flush that is due | | for each tenant | at once |
//! | · flushed segments | | | after all segments, or when limbo is full |
//! | · expired items | | | after 64 MiB of segments or `most` items of a tenant; half a second after the pass began; if it rests, also for a request |
//! | · open segments that are too large | | | after all open segments |
//! | · sparse segments | | | after 16 MiB of segments |
//! | · an index too large for its items | | | after 2^20 buckets |
//! | · wait for readers of memory that indexes give back | | once for all | after 10 ms |
//! | · segments of deleted tenants | | once | after all of them, or when limbo is full |
//! | · limits that fall | | once | as above, or half a second after the pass began |
//! | · freed memory | | once | after 10 ms of waiting for readers |
//!
//! [`Store::maintain`]: super::Store::maintain

pub mod limits;
pub mod search;
pub mod signal;

use super::{common::Common, inner::Inner, segment::Why, state::TenantState};
use limits::{Falling, Lowered, Pace};
use signal::{Signal, Thread, Turn};
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

/// Time from the start of a pass until its search for expired items ends, for which other work waits, and its
/// fall of limits.
const TURN: Duration = Duration::from_millis(500);

/// Least part of a tenant's usage that is dead before its sparse segments are compacted.
const DEAD_PART: u64 = 8;

/// Bytes of segments that a pass compacts, for each tenant.
const COMPACTED: u64 = 16 << 20;

/// Starts the thread, which ends with the store.
pub fn start(signal: &Arc<Signal>, store: Weak<Inner>) -> io::Result<Thread> {
    let ours = Arc::clone(signal);
    Thread::start(signal, move || run(&store, &ours))
}

fn run(store: &Weak<Inner>, signal: &Signal) {
    let mut pass_at = Instant::now() + EACH;
    let mut lower_at = None;
    // A search that was asked for, until all that had expired by then is gone.
    let mut searches: Option<u32> = None;
    loop {
        let search_at = searches.map(|_| Instant::now());
        let due = [search_at, lower_at]
            .into_iter()
            .flatten()
            .fold(pass_at, Instant::min);
        let asked = signal.wait(due);
        if asked.stop {
            return;
        }
        let Some(store) = store.upgrade() else {
            searches = None;
            continue;
        };
        if asked.search {
            searches = Some(store.common.now());
        }
        asked.sweep.iter().for_each(sweep_asked);
        // A store that ends waits for none.
        let is_ending = || store.is_ending();
        let turn = |ends| Turn {
            signal,
            ends,
            is_ending: &is_ending,
        };
        if asked.lower || lower_at.is_some_and(|at| at <= Instant::now()) {
            lower_at = lower(&store, &store.states(), Some(turn(pass_at)));
        }
        let turn_at_search = turn(lower_at.map_or(pass_at, |at| at.min(pass_at)));
        if let Some(then) = searches
            && !turn_at_search.is_late()
            && search::search_all(&store.crawler, &store.states(), then, |time| {
                turn_at_search.rest(time)
            })
        {
            searches = None;
        }
        if Instant::now() >= pass_at {
            lower_at = pass(&store, Some(turn(Instant::now() + TURN)));
            pass_at = Instant::now() + EACH;
        }
    }
}

/// Runs a pass over all tenants. The background thread, which has a `turn`, takes its time for limits that
/// fall and for what has expired. Returns when to continue with limits that fall, if any do.
pub fn pass(store: &Arc<Inner>, turn: Option<Turn<'_>>) -> Option<Instant> {
    let (common, crawler, mut tenants) = (&store.common, &store.crawler, store.states());
    crawler.take_turns(&mut tenants);
    let mut joined = false;
    let mut search = crawler.pass();
    // Without rests, requests do not end it: one client's would keep it from the tenants of others.
    let rest = |time: Duration| {
        turn.is_none_or(|turn| match time.is_zero() {
            true => !turn.is_late(),
            false => turn.rest(time),
        })
    };
    for (number, tenant) in tenants.iter().enumerate() {
        let now = common.now();
        // Flushes it if that is due.
        _ = tenant.space(now, &read_lock());
        sweep(tenant);
        if let Some(pass) = &search
            && !pass.search(tenant, now, rest)
        {
            // The next pass continues behind this tenant.
            search = None;
            crawler.end_at(number);
        }
        seal_idle(tenant);
        compact(tenant);
        let space = tenant.present();
        space.shrink_table(false, || {});
        joined |= space.table.index.bytes() > space.table.index.bytes_released();
    }
    if joined {
        // Once for all.
        common.pool.wait_until_left();
    }
    for tenant in &tenants {
        tenant.present().table.settle(false);
    }
    drop((search, tenants));
    sweep_deleted(common);
    // Tenants that were created meanwhile too.
    let lower_at = lower(store, &store.states(), turn);
    common.pool.tidy();
    lower_at
}

/// Continues with limits that fall. Returns when to try again: at once if the turn has ended before, later
/// if readers keep a limit from falling.
fn lower(
    store: &Arc<Inner>,
    tenants: &[Arc<TenantState>],
    turn: Option<Turn<'_>>,
) -> Option<Instant> {
    let common = &store.common;
    let own = tenants.iter().map(|tenant| Falling {
        limit: &tenant.owner.limit,
        tenants: std::slice::from_ref(tenant),
    });
    let of_store = Falling {
        limit: &common.limit,
        tenants,
    };
    let mut falling: Vec<_> = own.chain([of_store]).collect();
    falling.retain(|one| one.limit.is_falling());
    if !common.config.evict {
        // What was asked for holds at once: stores are refused until enough has been deleted.
        for one in &falling {
            one.limit.follow(false, &common.config);
        }
        return None;
    }
    if falling.is_empty() {
        return None;
    }
    let pace = turn.map(|turn| Pace::begin(common, &falling, turn));
    let lowered = limits::lower(common, &falling, pace.as_ref());
    common.pool.empty();
    match lowered {
        Lowered::AsFarAsPossible => None,
        Lowered::Waits => Some(Instant::now() + SOON),
        Lowered::InPart => Some(Instant::now()),
    }
}

/// Frees the memory of flushed key spaces of a tenant, and all memory of a deleted one.
fn sweep_asked(state: &Arc<TenantState>) {
    match state.owner.is_deleted() {
        true => remove(state),
        false => sweep(state),
    }
}

/// Removes what is left of a tenant that is deleted.
pub fn remove(state: &TenantState) {
    sweep(state);
    // Segments that another thread is sealing, or that wait for readers, move to the root's lists.
    // Deleting a tenant without children does not fail.
    let _ = state.owner.limit.memcg.delete();
}

/// Frees the segments of key spaces that were flushed.
pub fn sweep(state: &TenantState) {
    let (owner, lists) = (&state.owner, &state.owner.common.lists);
    state.forget_flushed();
    lists.for_each(&owner.limit.memcg, |segment| {
        // A segment is made after its key space is published, and the present key space is loaded
        // after the segment is seen. So a segment of another key space is of an older one, which was
        // flushed.
        let flushed = !segment.is_of(state.space.load(&read_lock()));
        // No reader that begins now comes to the old index, and limbo waits for those that have.
        if flushed && segment.leave() {
            lists.free_flushed(segment);
        }
        // If limbo is full, leave the rest to the next pass: here each segment would wait for readers.
        !owner.common.pool.is_full()
    });
}

/// Frees segments that threads sealed for tenants that were being deleted: these are the root's.
fn sweep_deleted(common: &Common) {
    common.lists.for_each(common.hierarchy.root(), |segment| {
        if segment.is_flushed() {
            common.lists.evacuate(segment, Why::Clear);
        }
        !common.pool.is_full()
    });
}

/// Seals open segments that are too large for a tenant that has become small, and moves their items.
fn seal_idle(state: &TenantState) {
    let space = state.present();
    for segment in space.seal_idle() {
        state.owner.common.lists.evacuate(&segment, Why::Compact);
    }
}

/// Compacts sparse segments.
fn compact(state: &TenantState) {
    let usage = state.owner.limit.memcg.usage();
    let space = state.present();
    if space.counts().dead < usage / DEAD_PART {
        return;
    }
    let mut left = COMPACTED;
    let lists = &state.owner.common.lists;
    lists.for_each(&state.owner.limit.memcg, |segment| {
        if segment.is_sparse() && lists.evacuate(segment, Why::Compact) {
            left = left.saturating_sub(segment.bytes() as u64);
        }
        left > 0
    });
}
