//! The search for expired items: its settings, its state and its counts.

use crate::{
    lock::lock,
    store::{evict, state::TenantState},
};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

/// Bytes of segments that a second's pass searches, for each tenant.
const SEARCHED: u64 = 64 << 20;

/// How expired items are searched for.
///
/// A segment without an item that may have expired is passed over. Without the search, an expired
/// item stays until it is overwritten, evicted, or in a segment that is compacted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Search {
    /// Whether the background searches each second. True by default.
    pub on: bool,
    /// How long the background rests after each segment that it has searched. Zero by default.
    pub rest: Duration,
    /// Number of items of each tenant after which a pass ends, at the end of the segment. 0, the default:
    /// no limit.
    pub most: u32,
}

impl Default for Search {
    fn default() -> Self {
        Self {
            on: true,
            rest: Duration::ZERO,
            most: 0,
        }
    }
}

/// What was searched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SearchStatistics {
    /// Whether a pass is under way, or asked for.
    pub is_running: bool,
    /// Passes that have begun, or were asked for.
    pub passes: u64,
}

/// The search of a store.
#[derive(Debug, Default)]
pub struct Crawler {
    pub search: Mutex<Search>,
    /// Passes under way.
    pub running: AtomicU32,
    pub passes: AtomicU64,
    /// Whether a pass was asked for that has not ended.
    pub asked: AtomicBool,
    /// The tenant that the pass of the next second begins with.
    first: AtomicUsize,
}

impl Crawler {
    /// Begins the pass of a second, if the search is on.
    pub fn pass(&self) -> Option<Pass<'_>> {
        let search = *lock(&self.search);
        search.on.then(|| {
            self.passes.fetch_add(1, Ordering::Relaxed);
            self.begin(search, SEARCHED)
        })
    }

    /// Rotates the tenants, so that a pass begins behind the one where the last pass ended. Otherwise a
    /// tenant that always has much to search would keep the search from the others.
    pub fn take_turns<T>(&self, tenants: &mut [T]) {
        if !tenants.is_empty() {
            tenants.rotate_left(self.first.load(Ordering::Relaxed) % tenants.len());
        }
    }

    /// Records the tenant at which a pass has ended.
    pub fn end_at(&self, tenant: usize) {
        self.first.fetch_add(tenant + 1, Ordering::Relaxed);
    }

    fn begin(&self, search: Search, bytes: u64) -> Pass<'_> {
        self.running.fetch_add(1, Ordering::Relaxed);
        Pass {
            crawler: self,
            search,
            bytes,
        }
    }
}

/// Runs a pass that was asked for. It removes what had expired by `then`, and so ends however much
/// expires meanwhile. Returns false if `rest` ended it: then call it again for the rest.
pub fn search_all(
    crawler: &Crawler,
    tenants: &[Arc<TenantState>],
    then: u32,
    mut rest: impl FnMut(Duration) -> bool,
) -> bool {
    let search = *lock(&crawler.search);
    let pass = crawler.begin(search, u64::MAX);
    let mut tenants = tenants.iter();
    let done = tenants.all(|tenant| pass.search(tenant, then, &mut rest));
    if done {
        crawler.asked.store(false, Ordering::Relaxed);
    }
    done
}

/// A pass over the items of tenants.
pub struct Pass<'a> {
    crawler: &'a Crawler,
    search: Search,
    bytes: u64,
}

impl Pass<'_> {
    /// Removes the items of a tenant that have expired by `now`. Calls `rest` after each segment, also if
    /// the pause is zero. If that returns false, ends the pass and returns false.
    pub fn search(
        &self,
        state: &TenantState,
        now: u32,
        mut rest: impl FnMut(Duration) -> bool,
    ) -> bool {
        let space = state.present();
        space.seal_expired(now);
        let mut bytes = self.bytes;
        let mut items = match self.search.most {
            0 => u64::MAX,
            most => most.into(),
        };
        let mut goes_on = true;
        let lists = &state.owner.common.lists;
        lists.for_each(&state.owner.limit.memcg, |segment| {
            // Those of a key space that was flushed are swept.
            if segment.has_expired(now) && segment.is_of(&space) {
                bytes = bytes.saturating_sub(segment.bytes() as u64);
                let looked = evict::expire(&space, segment, now);
                items = items.saturating_sub(looked);
                let looked_at = &state.owner.events.searched;
                looked_at.fetch_add(looked, Ordering::Relaxed);
                goes_on = rest(self.search.rest);
            }
            goes_on && bytes > 0 && items > 0
        });
        goes_on
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        self.crawler.running.fetch_sub(1, Ordering::Relaxed);
    }
}
