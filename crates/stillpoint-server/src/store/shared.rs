//! What all tenants of a store share, and what a tenant keeps across flushes.

use super::{
    ceiling::{Ceiling, with_headroom},
    config::{Config, Limits},
    crawler::Crawler,
    error::Refused,
    flush::Flush,
    forgotten::Forgotten,
    lists::Lists,
    maintenance::Signal,
    pace,
    pool::Pool,
    space::Space,
    unfinished::{Sums, Waiting},
};
use crossbeam_utils::CachePadded;
use foldhash::quality::RandomState;
use std::{
    hash::{BuildHasher, Hasher},
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};
use stillpoint::{Guard, Rcu, internal::can_wait, read_lock};
use stillpoint_lru::{Charge, ChargeError, Hierarchy};

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

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
pub struct Shared {
    pub config: Config,
    /// The keys of the hash are random: what collides cannot be known outside.
    hasher: RandomState,
    pub hierarchy: Hierarchy,
    pub lists: Arc<Lists>,
    pub pool: Arc<Pool>,
    pub ceiling: Ceiling,
    /// Held while the limit is changed.
    limiting: Mutex<()>,
    /// Work for the background thread that does not wait for the next second.
    pub signal: Arc<Signal>,
    pub crawler: Crawler,
    /// Bytes of segments that are pinned, of all tenants.
    pinned: AtomicU64,
    pub unfinished: Sums,
    pub waiting: Waiting,
    /// Bytes of key spaces that were flushed and are not freed. Relaxed, needs no partner: a sum.
    flushed_bytes: AtomicU64,
    /// The last CAS value of all tenants that were deleted: a tenant that is created later, perhaps
    /// with the same name, has higher ones.
    last_cas: AtomicU64,
}

impl Shared {
    pub fn new(config: Config) -> io::Result<Self> {
        let no_memory = || io::Error::from(io::ErrorKind::OutOfMemory);
        let hierarchy = Hierarchy::try_new().ok_or_else(no_memory)?;
        let pool = Arc::new(Pool::new(config.limit)?);
        let lists =
            Lists::new(&hierarchy, config.evict, Arc::clone(&pool)).ok_or_else(no_memory)?;
        let shared = Self {
            hasher: RandomState::default(),
            ceiling: Ceiling::none(),
            limiting: Mutex::default(),
            signal: Arc::default(),
            crawler: Crawler::default(),
            pinned: AtomicU64::new(0),
            unfinished: Sums::default(),
            waiting: Waiting::default(),
            flushed_bytes: AtomicU64::new(0),
            last_cas: AtomicU64::new(0),
            hierarchy,
            lists: Arc::new(lists),
            pool,
            config,
        };
        shared.ask_limit(shared.config.limit);
        Ok(shared)
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
        self.pool.limbo_bytes() + self.flushed_bytes.load(Ordering::Relaxed)
    }

    pub fn limit(&self) -> u64 {
        self.ceiling.asked()
    }

    /// Changes the limit. If it falls, it holds once enough has been evicted: see `fall.rs`.
    pub fn ask_limit(&self, bytes: u64) {
        let limiting = lock(&self.limiting);
        self.ask(bytes);
        self.follow(true, &limiting);
    }

    /// As [`Shared::ask_limit`], for a limit that falls where nothing is evicted: it holds once the
    /// background thread has come to it, which compacts for it.
    pub fn note_limit(&self, bytes: u64) {
        let _limiting = lock(&self.limiting);
        self.ask(bytes);
    }

    fn ask(&self, bytes: u64) {
        let root = self.hierarchy.root();
        self.ceiling.ask(bytes, |bytes| _ = root.set_max(bytes));
    }

    /// Has the limit that holds follow the usage.
    pub fn follow_limit(&self, room: bool) {
        self.follow(room, &lock(&self.limiting));
    }

    fn follow(&self, room: bool, _limiting: &MutexGuard<'_, ()>) {
        let root = self.hierarchy.root();
        let holds = self.ceiling.follow(root.usage(), room, &self.config);
        if self.config.evicts_ahead() {
            root.set_high(with_headroom(holds));
        }
        root.set_max(holds);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Tenants may have outlived the store. What is in limbo refers to the pool that it is in.
        self.pool.end_limbo();
    }
}

/// Counts of events.
#[derive(Debug, Default)]
pub struct Events {
    /// In key spaces that were flushed.
    pub stored: AtomicU64,
    pub evicted: AtomicU64,
    pub evicted_unfetched: AtomicU64,
    pub expired: AtomicU64,
    pub expired_unfetched: AtomicU64,
    pub flushed: AtomicU64,
    pub get_expired: AtomicU64,
    pub get_flushed: AtomicU64,
    /// Items that the search for expired ones has looked at.
    pub searched: AtomicU64,
    pub copied: AtomicU64,
    pub refused: AtomicU64,
}

/// Between the CAS values that a deleted tenant has given and those that it may still give.
const CAS_GAP: u64 = 1 << 40;

/// A tenant, whatever its key space.
#[derive(Debug)]
pub struct Owner {
    pub name: Arc<str>,
    pub shared: Arc<Shared>,
    pub memcg: stillpoint_lru::Tenant,
    limits: Mutex<Limits>,
    pub deleted: AtomicBool,
    pub forgotten: Forgotten,
    pub events: Events,
    pub pinned: AtomicU64,
    pub unfinished: Sums,
    /// Its part of the bytes of key spaces that were flushed.
    flushed_bytes: AtomicU64,
    /// Its max as in `limits`, for readers, which must not wait for the lock.
    pub ceiling: Ceiling,
    /// The last CAS value. Every store writes it.
    cas: CachePadded<AtomicU64>,
}

impl Owner {
    pub fn new(name: Arc<str>, shared: Arc<Shared>, memcg: stillpoint_lru::Tenant) -> Arc<Self> {
        let last_cas = shared.last_cas.load(Ordering::Relaxed);
        Arc::new(Self {
            name,
            shared,
            memcg,
            limits: Mutex::default(),
            deleted: AtomicBool::new(false),
            forgotten: Forgotten::default(),
            events: Events::default(),
            pinned: AtomicU64::new(0),
            unfinished: Sums::default(),
            flushed_bytes: AtomicU64::new(0),
            ceiling: Ceiling::none(),
            cas: CachePadded::new(AtomicU64::new(last_cas)),
        })
    }

    /// It stores nothing any more.
    pub fn delete(&self) {
        // A thread that comes to the new key space, which is published behind this, sees it.
        self.deleted.store(true, Ordering::Relaxed);
        // A store that is under way takes one far above those of the next tenant of that name.
        let last = self.cas.fetch_add(CAS_GAP, Ordering::Relaxed);
        self.shared.last_cas.fetch_max(last, Ordering::Relaxed);
    }

    /// The last CAS value that was given.
    pub fn last_cas(&self) -> u64 {
        self.cas.load(Ordering::Relaxed)
    }

    /// A CAS value that was not used before.
    #[inline]
    pub fn next_cas(&self) -> u64 {
        self.cas.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub fn limits(&self) -> Limits {
        *lock(&self.limits)
    }

    /// Changes the limits. If the max falls, it holds once enough has been evicted: see `fall.rs`.
    pub fn ask_limits(&self, limits: Limits) {
        let mut now = lock(&self.limits);
        *now = limits;
        self.memcg.set_min(limits.min);
        self.memcg.set_low(limits.low);
        self.ask(limits.max);
        self.follow(true, &now);
    }

    /// As [`Owner::ask_limits`], where nothing is evicted: a max that falls holds once the
    /// background thread has come to it, which compacts for it.
    pub fn note_limits(&self, limits: Limits) {
        let mut now = lock(&self.limits);
        *now = limits;
        self.memcg.set_min(limits.min);
        self.memcg.set_low(limits.low);
        self.ask(limits.max);
        if !self.ceiling.is_falling() {
            self.follow(true, &now);
        }
    }

    fn ask(&self, max: u64) {
        self.ceiling.ask(max, |max| _ = self.memcg.set_max(max));
    }

    /// Has the max that holds follow the usage.
    pub fn follow_limits(&self, room: bool) {
        self.follow(room, &lock(&self.limits));
    }

    fn follow(&self, room: bool, limits: &Limits) {
        let config = &self.shared.config;
        let max = self.ceiling.follow(self.memcg.usage(), room, config);
        if config.evicts_ahead() {
            let high = match max {
                u64::MAX => limits.high,
                max => limits.high.min(with_headroom(max)),
            };
            self.memcg.set_high(high);
        }
        self.memcg.set_max(max);
    }

    /// Counts a pinned segment. Returns whether that is allowed; it is to be taken back anyway.
    pub fn add_pinned(&self, bytes: u64) -> bool {
        let shared = &self.shared;
        let own = self.pinned.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let all = shared.pinned.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let limit = shared.limit();
        let max = shared.config.pinned_max.unwrap_or_else(|| {
            let least = limit.min(self.ceiling.asked());
            PINNED_MAX.min(least / PINNED_PART)
        });
        // One at least: a value that is larger than the limits can be read.
        (own <= max || own == bytes) && (all <= limit / PINNED_ALL || all == bytes)
    }

    pub fn take_back_pinned(&self, bytes: u64) {
        self.pinned.fetch_sub(bytes, Ordering::Relaxed);
        self.shared.pinned.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Whether key spaces that were flushed take so much that none of this tenant may be added.
    pub fn has_flushed_much(&self) -> bool {
        let (own, all) = (&self.flushed_bytes, &self.shared.flushed_bytes);
        own.load(Ordering::Relaxed) >= FLUSHED_OWN && all.load(Ordering::Relaxed) >= FLUSHED_MAX
    }

    pub fn add_flushed(&self, bytes: u64) {
        self.flushed_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.shared
            .flushed_bytes
            .fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn free_flushed(&self, bytes: u64) {
        self.flushed_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.shared
            .flushed_bytes
            .fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Charges a segment. May evict.
    pub fn charge(&self, bytes: usize) -> Result<Charge, Refused> {
        self.charge_if_possible(bytes)
            .map_err(|error| self.refused(error, bytes))
    }

    /// Returns the refusal of the limit that has refused a charge of `bytes`.
    pub fn refused(&self, error: ChargeError, bytes: usize) -> Refused {
        self.events.refused.fetch_add(1, Ordering::Relaxed);
        let (own, total) = (&self.ceiling, &self.shared.ceiling);
        let is_own = match error {
            ChargeError::OverLimit { max, .. } if own.holds() != total.holds() => {
                max == own.holds()
            }
            // Charges in a section do not say which.
            _ => false,
        };
        self.over(is_own || self.memcg.usage() + bytes as u64 > own.holds())
    }

    /// Returns the refusal of the tenant's limit, or of the store's.
    pub fn over(&self, is_own: bool) -> Refused {
        match is_own {
            true => Refused::Limit {
                tenant: Arc::clone(&self.name),
                limit: self.ceiling.asked(),
            },
            false => Refused::Limit {
                tenant: "".into(),
                limit: self.shared.ceiling.asked(),
            },
        }
    }

    /// Counts a value that was ended for another unfinished one. Returns the refusal of the lower limit, of
    /// the tenant or of the store.
    pub fn ended_unfinished(&self) -> Refused {
        self.events.refused.fetch_add(1, Ordering::Relaxed);
        self.over(self.ceiling.asked() < self.shared.limit())
    }

    /// The same as [`Owner::charge`], where nothing is refused if that fails.
    pub fn charge_if_possible(&self, bytes: usize) -> Result<Charge, ChargeError> {
        self.charging(bytes, || self.memcg.charge(bytes))
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
        match self.shared.config.evict {
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
            let (own, total) = (&self.ceiling, &self.shared.ceiling);
            let fits = wanted <= own.asked().min(total.asked());
            // In a section nothing is evicted: what holds the locks for it may wait for that one.
            if charged.is_ok() || left == 0 || !fits || !can_wait() {
                return charged;
            }
            let over = match self.memcg.usage() + wanted > own.holds() {
                true => &self.memcg,
                false => self.shared.hierarchy.root(),
            };
            let mut less = 0;
            let gone = pace::evicted_by(|| less = over.reclaim(wanted));
            // As many rounds as it takes while something goes, here or on another thread: others have
            // stored in its place.
            if gone == 0 && less == 0 {
                left -= 1;
                // Another one may hold what would go, or be about to give back its room.
                thread::yield_now();
            }
        }
    }

    /// Without eviction: what makes room at once is done.
    fn charge_compacting<T>(
        &self,
        mut charge: impl FnMut() -> Result<T, ChargeError>,
    ) -> Result<T, ChargeError> {
        loop {
            let charged = charge();
            if charged.is_ok() || !self.shared.lists.compact_one(&self.memcg) {
                return charged;
            }
        }
    }
}

/// What handles of a tenant refer to.
#[derive(Debug)]
pub struct TenantState {
    pub owner: Arc<Owner>,
    pub space: Rcu<Arc<Space>>,
    flush: Flush,
    /// The key space that was flushed last, until its memory is freed.
    last: Mutex<Option<Arc<Space>>>,
    /// Whether there is one.
    has_last: AtomicBool,
    /// Whether the background thread has been asked to sweep it, and has not begun. Under the lock
    /// of the signal that asks.
    pub is_queued: AtomicBool,
}

impl TenantState {
    pub fn new(owner: Arc<Owner>) -> Arc<Self> {
        let space = Rcu::new(Space::new(Arc::clone(&owner)));
        Arc::new(Self {
            owner,
            space,
            flush: Flush::new(),
            last: Mutex::default(),
            has_last: AtomicBool::new(false),
            is_queued: AtomicBool::new(false),
        })
    }

    /// Schedules a flush in that second. If an earlier one is due, flushes now.
    pub fn flush_later(&self, at: u32, now: u32) {
        self.flushing(|begin| self.flush.later(at, now, begin));
    }

    /// Flushes it at once, instead of later.
    pub fn flush(&self) {
        self.flushing(|begin| self.flush.at_once(begin));
    }

    /// The same for a tenant that has been deleted: a store that is under way finds another key
    /// space, and sees that there.
    pub fn flush_deleted(&self) {
        if self.owner.has_flushed_much() {
            self.owner.shared.pool.wait_until_left();
        }
        let mut gone = None;
        let section = read_lock();
        self.flush.at_once(|| gone = self.begin_space(&section));
        drop(section);
        drop(gone);
    }

    /// Runs `flush` in a section: readers wait for the lock that it holds, so what it retires waits
    /// for none of them, also if too much is unreclaimed.
    fn flushing(&self, flush: impl FnOnce(&mut dyn FnMut())) {
        let mut gone = None;
        let section = read_lock();
        flush(&mut || gone = self.empty_space(&section));
        drop(section);
        // Behind the section and the lock: it may have much to free.
        drop(gone);
    }

    /// Asks the background thread to free flushed memory. Returns whether it will.
    pub fn sweep_soon(self: &Arc<Self>) -> bool {
        let shared = &self.owner.shared;
        shared.config.has_thread() && shared.signal.sweep(self)
    }

    /// Starts a new key space. If flushed ones take too much memory already, removes the items of the
    /// present one instead. Returns the key space that was flushed before.
    fn empty_space(&self, section: &Guard<'_>) -> Option<Arc<Space>> {
        let owner = &self.owner;
        if !owner.has_flushed_much() {
            return self.begin_space(section);
        }
        let removed = self.space.load(section).clear(section);
        owner.events.flushed.fetch_add(removed, Ordering::Relaxed);
        None
    }

    /// Starts a new key space. The memory of the old one is freed later: see `maintenance.rs`. Returns the
    /// key space that was flushed before.
    fn begin_space(&self, _section: &Guard<'_>) -> Option<Arc<Space>> {
        let new = Space::new(Arc::clone(&self.owner));
        let old = self.space.swap(new);
        old.flushed.set();
        old.note_flushed();
        let (counts, events) = (old.counts(), &self.owner.events);
        events.stored.fetch_add(counts.stored, Ordering::Relaxed);
        events.flushed.fetch_add(counts.items, Ordering::Relaxed);
        let before = lock(&self.last).replace(Arc::clone(&old));
        // needs no partner: a miss more or less is counted.
        self.has_last.store(true, Ordering::Relaxed);
        before
    }

    /// Before what was flushed is freed: it is looked at no longer.
    pub fn forget_flushed(&self) {
        self.has_last.store(false, Ordering::Relaxed);
        let last = lock(&self.last).take();
        drop(last);
    }

    /// Counts a read that has found nothing, if its item was flushed and is still there.
    #[inline]
    pub fn note_miss(&self, hash: u64, key: &[u8], now: u32, section: &Guard<'_>) {
        if self.has_last.load(Ordering::Relaxed) {
            self.note_flushed(hash, key, now, section);
        }
    }

    #[cold]
    fn note_flushed(&self, hash: u64, key: &[u8], now: u32, section: &Guard<'_>) {
        // Held while it is looked at, so that its index stays. Its items: if a thread that frees
        // some sets the flag after this look at it, limbo waits for this section; if before, it is
        // seen.
        let last = lock(&self.last);
        let Some(space) = last.as_ref() else {
            return;
        };
        if space.is_leaving.load(Ordering::Relaxed) {
            return;
        }
        let found = space.find(hash, key, section);
        if found.is_some_and(|found| !found.item.is_expired(now)) {
            let count = &self.owner.events.get_flushed;
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Flushes if a flush is due.
    #[inline]
    pub fn flush_if_due(&self, now: u32, section: &Guard<'_>) {
        self.flush.if_due(now, || drop(self.empty_space(section)));
    }
}
