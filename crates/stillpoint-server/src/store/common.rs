//! What all tenants of a store share, and what a tenant keeps across flushes.

use super::{
    config::{Config, Limits},
    error::Refused,
    forgotten::Forgotten,
    limit::Limit,
    lists::Lists,
    pool::Pool,
    requests::Events,
};
use crossbeam_utils::CachePadded;
use foldhash::quality::RandomState;
use std::{
    hash::{BuildHasher, Hasher},
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};
use stillpoint::{internal::can_wait, read_lock};
use stillpoint_lru::{Charge, ChargeError, Hierarchy};

/// Number of attempts of a charge to evict something at a limit before it is refused.
const ATTEMPTS: u32 = 4;

/// Most bytes of a tenant's pins, and the part of its max and of the store's limit that bounds them.
const PINNED_MAX: u64 = 64 << 20;
const PINNED_PART: u64 = 8;

/// The part of the limit that bounds the pins of all tenants.
const PINNED_ALL: u64 = 2;

/// Cap in bytes on flushed key spaces that readers may still use. It is neither charged to a tenant nor
/// part of limbo. At the cap, a flush removes items one by one.
pub const FLUSHED_MAX: u64 = if cfg!(miri) { 16 << 10 } else { 1 << 20 };

/// Bytes of flushed key spaces that each tenant may have beyond that cap, so that it does not pay for the
/// flushes of others.
const FLUSHED_OWN: u64 = 16 << 10;

/// What all tenants of a store share.
#[derive(Debug)]
pub struct Common {
    pub config: Config,
    /// The keys of the hash are random: what collides cannot be known outside.
    hasher: RandomState,
    pub hierarchy: Hierarchy,
    pub lists: Arc<Lists>,
    pub pool: Arc<Pool>,
    pub limit: Limit,
    /// Of all tenants.
    sums: Sums,
    /// The last CAS value of all tenants that were deleted: a tenant that is created later, perhaps
    /// with the same name, has higher ones.
    last_cas: AtomicU64,
}

impl Common {
    pub fn new(config: Config) -> io::Result<Self> {
        let no_memory = || io::Error::from(io::ErrorKind::OutOfMemory);
        let hierarchy = Hierarchy::try_new().ok_or_else(no_memory)?;
        let pool = Arc::new(Pool::new(config.limit)?);
        let lists =
            Lists::new(&hierarchy, config.evict, Arc::clone(&pool)).ok_or_else(no_memory)?;
        let common = Self {
            hasher: RandomState::default(),
            limit: Limit::new(hierarchy.root().clone()),
            sums: Sums::default(),
            last_cas: AtomicU64::new(0),
            hierarchy,
            lists: Arc::new(lists),
            pool,
            config,
        };
        common.ask_limit(common.config.limit, false);
        Ok(common)
    }

    #[inline]
    pub fn hash(&self, key: &[u8]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(key);
        hasher.finish()
    }

    #[inline]
    pub fn now(&self) -> u32 {
        self.config.clock.now()
    }

    /// Returns the bytes of freed memory that readers may still use.
    pub fn unreclaimed(&self) -> u64 {
        self.pool.limbo_bytes() + self.sums.flushed.load(Ordering::Relaxed)
    }

    /// Changes the limit: see [`Limit::ask`].
    pub fn ask_limit(&self, max: u64, later: bool) -> bool {
        let limits = Limits::max(max);
        self.limit.ask(limits, &self.config, later)
    }
}

impl Drop for Common {
    fn drop(&mut self) {
        // Tenants may have outlived the store. What is in limbo refers to the pool that it is in.
        self.pool.end_limbo();
    }
}

/// What a tenant takes, or all do, in bytes. Relaxed, needs no partner: sums.
#[derive(Debug, Default)]
pub struct Sums {
    /// Segments of unfinished values.
    pub announced: AtomicU64,
    /// The part of them that is charged.
    pub charged: AtomicU64,
    /// Segments that are pinned.
    pub pinned: AtomicU64,
    /// Key spaces that were flushed and are not freed.
    pub flushed: AtomicU64,
}

/// One of the sums.
pub type Sum = fn(&Sums) -> &AtomicU64;

/// Between the CAS values that a deleted tenant has given and those that it may still give.
const CAS_GAP: u64 = 1 << 40;

/// A tenant, whatever its key space.
#[derive(Debug)]
pub struct Owner {
    pub name: Arc<str>,
    pub common: Arc<Common>,
    pub limit: Limit,
    deleted: AtomicBool,
    pub forgotten: Forgotten,
    /// Counts of the tenant. `stored` has those of key spaces that were flushed; the present one counts
    /// its own.
    pub events: Events,
    sums: Sums,
    /// The last CAS value. Every store writes it.
    cas: CachePadded<AtomicU64>,
}

impl Owner {
    pub fn new(name: Arc<str>, common: Arc<Common>, memcg: stillpoint_lru::Tenant) -> Arc<Self> {
        let last_cas = common.last_cas.load(Ordering::Relaxed);
        Arc::new(Self {
            name,
            common,
            limit: Limit::new(memcg),
            deleted: AtomicBool::new(false),
            forgotten: Forgotten::default(),
            events: Events::default(),
            sums: Sums::default(),
            cas: CachePadded::new(AtomicU64::new(last_cas)),
        })
    }

    /// Marks it as deleted: it stores nothing any more.
    pub fn delete(&self) {
        // A thread that comes to the new key space, which is published behind this, sees it.
        self.deleted.store(true, Ordering::Relaxed);
        // A store that is under way takes one far above those of the next tenant of that name.
        let last = self.cas.fetch_add(CAS_GAP, Ordering::Relaxed);
        self.common.last_cas.fetch_max(last, Ordering::Relaxed);
    }

    pub fn is_deleted(&self) -> bool {
        self.deleted.load(Ordering::Relaxed)
    }

    /// Returns the last CAS value that was given.
    pub fn last_cas(&self) -> u64 {
        self.cas.load(Ordering::Relaxed)
    }

    /// Returns a CAS value that was not used before.
    #[inline]
    pub fn next_cas(&self) -> u64 {
        self.cas.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn both(&self, sum: Sum) -> [&AtomicU64; 2] {
        [&self.sums, &self.common.sums].map(sum)
    }

    /// Adds to a sum of this tenant, and to that of all.
    pub fn add(&self, sum: Sum, bytes: u64) {
        for count in self.both(sum) {
            count.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Subtracts from a sum of this tenant, and from that of all.
    pub fn subtract(&self, sum: Sum, bytes: u64) {
        for count in self.both(sum) {
            count.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Returns a sum of this tenant, and that of all.
    pub fn sum(&self, sum: Sum) -> [u64; 2] {
        self.both(sum).map(|count| count.load(Ordering::Relaxed))
    }

    /// Counts a pinned segment. Returns whether that is allowed; it is to be subtracted anyway.
    pub fn add_pinned(&self, bytes: u64) -> bool {
        let count = |count: &AtomicU64| count.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let [own, all] = self.both(|sums| &sums.pinned).map(count);
        let limit = self.common.limit.max();
        let max = self.common.config.pinned_max.unwrap_or_else(|| {
            let least = limit.min(self.limit.max());
            PINNED_MAX.min(least / PINNED_PART)
        });
        // One at least: a value that is larger than the limits can be read.
        (own <= max || own == bytes) && (all <= limit / PINNED_ALL || all == bytes)
    }

    /// Returns whether flushed key spaces take so much that none of this tenant may be added.
    pub fn has_flushed_much(&self) -> bool {
        let [own, all] = self.sum(|sums| &sums.flushed);
        own >= FLUSHED_OWN && all >= FLUSHED_MAX
    }

    /// Charges a segment. May evict.
    pub fn charge(&self, bytes: usize) -> Result<Charge, Refused> {
        self.charge_if_possible(bytes)
            .map_err(|error| self.refused(error, bytes))
    }

    /// Returns the refusal of the limit that has refused a charge of `bytes`.
    pub fn refused(&self, error: ChargeError, bytes: usize) -> Refused {
        self.events.refused.fetch_add(1, Ordering::Relaxed);
        let (own, total) = (&self.limit, &self.common.limit);
        let is_own = match error {
            ChargeError::OverLimit { max, .. } if own.in_force() != total.in_force() => {
                max == own.in_force()
            }
            // Charges in a section do not say which.
            _ => false,
        };
        self.over(is_own || self.limit.memcg.usage() + bytes as u64 > own.in_force())
    }

    /// Returns the refusal of the tenant's limit, or of the store's.
    pub fn over(&self, is_own: bool) -> Refused {
        match is_own {
            true => Refused::Limit {
                tenant: Arc::clone(&self.name),
                limit: self.limit.max(),
            },
            false => Refused::Limit {
                tenant: "".into(),
                limit: self.common.limit.max(),
            },
        }
    }

    /// Counts a value that was ended for another unfinished one. Returns the refusal of the lower limit, of
    /// the tenant or of the store.
    pub fn ended_unfinished(&self) -> Refused {
        self.events.refused.fetch_add(1, Ordering::Relaxed);
        self.over(self.limit.max() < self.common.limit.max())
    }

    /// Charges as [`Owner::charge`] does, where nothing is refused if that fails.
    pub fn charge_if_possible(&self, bytes: usize) -> Result<Charge, ChargeError> {
        self.charging(bytes, || self.limit.memcg.charge(bytes))
    }

    /// Charges `bytes` by `charge`, which is called until it succeeds or nothing can make room. In a
    /// section, a charge neither reclaims nor waits.
    pub fn charging<T>(
        &self,
        bytes: usize,
        mut charge: impl FnMut() -> Result<T, ChargeError>,
    ) -> Result<T, ChargeError> {
        let charge = || {
            let _section = read_lock();
            charge()
        };
        match self.common.config.evict {
            true => self.charge_evicting(bytes, charge),
            false => self.charge_compacting(charge),
        }
    }

    /// Evicts to make room. Waits for no reader, as evicted memory is uncharged at once: so a store that is
    /// refused does not block its thread.
    fn charge_evicting<T>(
        &self,
        bytes: usize,
        mut charge: impl FnMut() -> Result<T, ChargeError>,
    ) -> Result<T, ChargeError> {
        let wanted = bytes as u64;
        let mut left = ATTEMPTS;
        loop {
            let charged = charge();
            let (own, total) = (&self.limit, &self.common.limit);
            let fits = wanted <= own.max().min(total.max());
            // In a section nothing is evicted: what holds the locks for it may wait for that one.
            if charged.is_ok() || left == 0 || !fits || !can_wait() {
                return charged;
            }
            let over = match self.limit.memcg.usage() + wanted > own.in_force() {
                true => &self.limit.memcg,
                false => self.common.hierarchy.root(),
            };
            let gone = over.reclaim_while(wanted, || true);
            // As many rounds as it takes while something goes, here or on another thread: others have
            // stored in its place.
            if gone.objects == 0 && gone.bytes == 0 {
                left -= 1;
                // Another one may hold what would go, or be about to give back its room.
                thread::yield_now();
            }
        }
    }

    /// Charges without eviction: compacts what makes room at once.
    fn charge_compacting<T>(
        &self,
        mut charge: impl FnMut() -> Result<T, ChargeError>,
    ) -> Result<T, ChargeError> {
        loop {
            let charged = charge();
            if charged.is_ok() || !self.common.lists.compact_one(&self.limit.memcg) {
                return charged;
            }
        }
    }
}
