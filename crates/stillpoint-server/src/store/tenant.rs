//! A tenant, as programs use it: reading and changing items.

use super::{
    access::{FETCHED, STALE},
    background::{
        limits::{self, Falling},
        signal::Signal,
    },
    clock::LONG_AGO,
    common::Owner,
    config::Limits,
    digits::{self, Digits},
    draft::Draft,
    error::{Outcome, Refused},
    index::Locked,
    item::Item,
    key_space::{Found, KeySpace},
    layout::{RawItem, Shape},
    requests::{Arithmetic, Condition, Cursor, Invalidate, Mode, Number, TenantStatistics},
    segment::Segment,
    state::{Plan, TenantState, Value, check_key},
    work,
};
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use stillpoint::read_lock;

/// A key space with limits. Clones are handles of the same tenant.
///
/// Reading takes no lock, and copies nothing. Writing takes two locks, which threads seldom want at
/// a time: that of a segment that few threads write into, and that of a line of the index. All
/// methods may be called on any thread, but not in signal handlers. Those that store may evict, for
/// some tens of microseconds; they wait for readers only if much memory is still being read that
/// was evicted or overwritten before, some milliseconds at most.
///
/// Made by [`Store::create_tenant`](super::Store::create_tenant).
#[derive(Clone)]
pub struct Tenant {
    pub(super) state: Arc<TenantState>,
    pub(super) signal: Arc<Signal>,
}

#[cfg(all(test, feature = "metrics"))]
thread_local! {
    /// How often the calling thread has asked for a tenant's figures.
    pub(crate) static LOOKS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

impl Tenant {
    /// Returns its name, which is empty for the default tenant.
    #[must_use]
    pub fn name(&self) -> Arc<str> {
        Arc::clone(&self.state.owner.name)
    }

    /// Returns its node of the hierarchy, to which its memory is charged.
    #[must_use]
    pub fn memory(&self) -> &stillpoint_lru::Tenant {
        &self.state.owner.limit.memcg
    }

    /// Returns whether it has been deleted: then it has no items, and stores are refused.
    #[must_use]
    pub fn is_deleted(&self) -> bool {
        self.state.owner.is_deleted()
    }

    /// Returns its limits.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.state.owner.limit.limits()
    }

    /// Changes its limits. Evicts what is above the max. Waits for readers, at most some milliseconds for
    /// each step. Returns the bytes that are still above the max: those that are pinned or being read, or
    /// without eviction all.
    pub fn set_limits(&self, limits: Limits) -> u64 {
        let (common, limit) = (self.state.common(), &self.state.owner.limit);
        if limit.ask(limits, &common.config, false) {
            let tenants = std::slice::from_ref(&self.state);
            limits::lower(common, &[Falling { limit, tenants }], None);
        }
        limit.memcg.usage().saturating_sub(limits.max)
    }

    /// Changes its limits, but leaves the eviction to the background thread of the store, as
    /// [`Store::request_limit`](super::Store::request_limit).
    pub fn request_limits(&self, limits: Limits) {
        let config = &self.state.common().config;
        if !config.has_thread() {
            self.set_limits(limits);
        } else if self.state.owner.limit.ask(limits, config, true) {
            self.signal.lower();
        }
    }

    /// Calls `f` with the item of that key, if there is one, inside a read-side critical section of the
    /// global domain. `f` should be short and make no system call. Of the store, it may call only the
    /// item's methods.
    ///
    /// The item counts as used. Takes no lock, and writes nothing but the item's access word, if
    /// that changes: once in a second for an item that is hot.
    #[inline]
    pub fn get<R>(&self, key: &[u8], f: impl FnOnce(&Item<'_>) -> R) -> Option<R> {
        self.look(key, true, f)
    }

    /// Like [`Tenant::get`], but the item does not count as used.
    pub fn peek<R>(&self, key: &[u8], f: impl FnOnce(&Item<'_>) -> R) -> Option<R> {
        self.look(key, false, f)
    }

    /// [`Tenant::get`] if `mark`, and otherwise [`Tenant::peek`].
    #[inline]
    pub(crate) fn look<R>(
        &self,
        key: &[u8],
        mark: bool,
        f: impl FnOnce(&Item<'_>) -> R,
    ) -> Option<R> {
        let common = self.state.common();
        let hash = common.hash(key);
        let section = read_lock();
        let now = common.now();
        let space = self.state.space(now, &section);
        let Some(found) = space.find(hash, key, &section) else {
            self.state.note_miss(hash, key, &section);
            return None;
        };
        if space.is_gone(found.item, now) {
            if found.item.is_expired(now) {
                let count = &self.state.owner.events.get_expired;
                count.fetch_add(1, Ordering::Relaxed);
            }
            return None;
        }
        let item = Item::new(found, hash, now, space, &section);
        if mark {
            found.item.access().touch(now);
        }
        Some(f(&item))
    }

    /// Sets the second of [`Store::now`](super::Store::now) in which the item expires, 0 for never. An
    /// item that was stored without an expiry is copied for it, and keeps its CAS value.
    ///
    /// # Errors
    ///
    /// [`Outcome::NotFound`]; [`Outcome::Refused`] where it has to be written anew.
    pub fn touch(&self, key: &[u8], exptime: u32) -> Result<(), Outcome> {
        let fits = |_: &KeySpace, found: Found| {
            let fits = found.item.set_exptime(exptime);
            if fits {
                // SAFETY: in the index, whose bucket is locked, in a section.
                unsafe { Segment::of(found.word) }.note_expiry(exptime);
            }
            fits
        };
        if self.change(key, |space, _, _, found| fits(space, found))? {
            return Ok(());
        }
        let plan = |item: Option<RawItem>, _: &_| {
            let item = item.ok_or(Outcome::NotFound)?;
            Ok(Plan::again(
                item,
                exptime,
                item.cas(),
                item.access().marks(),
            ))
        };
        self.state.store(key, true, plan).map(|_| ())
    }

    /// Deletes the item. With `compare`, only if it has that CAS value.
    ///
    /// # Errors
    ///
    /// [`Outcome::NotFound`], [`Outcome::Exists`].
    pub fn delete(&self, key: &[u8], compare: Option<u64>) -> Result<(), Outcome> {
        self.change(key, |space, bucket, slot, found| {
            if compare.is_some_and(|cas| cas != found.item.cas()) {
                return Err(Outcome::Exists);
            }
            space.remove(bucket, slot, found);
            Ok(())
        })?
    }

    /// Calls `change` with a live item, under the lock of its bucket.
    fn change<R>(
        &self,
        key: &[u8],
        change: impl FnOnce(&KeySpace, Locked<'_>, &AtomicU64, Found) -> R,
    ) -> Result<R, Outcome> {
        let common = self.state.common();
        let hash = common.hash(key);
        let section = read_lock();
        let now = common.now();
        let space = self.state.space(now, &section);
        let bucket = space.table.index.lock(hash, &section);
        let (slot, found) = KeySpace::find_locked(&bucket, hash, key)
            .filter(|(_, found)| !space.is_gone(found.item, now))
            .ok_or(Outcome::NotFound)?;
        Ok(change(space, bucket, slot, found))
    }

    /// Announces a value of `len` bytes, which arrive in parts: [`Draft::push`]. The draft keeps the
    /// tenant, and may be kept for as long as the value takes to arrive: no segment waits for it
    /// that has other items. Nothing is charged or evicted before bytes arrive. The item expires in
    /// `exptime`: a second of [`Store::now`](super::Store::now), 0 for never.
    ///
    /// For a value that is complete, [`Tenant::set`] is faster.
    ///
    /// # Errors
    ///
    /// For a key or a value that is too long, a value larger than a limit, without memory or address
    /// space, and for a tenant that has been deleted.
    pub fn prepare(
        &self,
        key: &[u8],
        flags: u32,
        exptime: u32,
        len: usize,
    ) -> Result<Draft, Refused> {
        Draft::new(&self.state, key, flags, exptime, len)
    }

    /// Stores a value. Returns its CAS value.
    ///
    /// # Errors
    ///
    /// As [`Tenant::prepare`] and [`Draft::store`].
    #[inline]
    pub fn set(
        &self,
        key: &[u8],
        flags: u32,
        exptime: u32,
        value: &[u8],
        mode: Mode,
        condition: Condition,
    ) -> Result<u64, Outcome> {
        let shape = Shape {
            key,
            value_len: value.len(),
            flags,
            exptime,
            ..Shape::default()
        };
        self.state.set(shape, value, None, mode, condition)
    }

    /// Adds to a number in decimal digits, or subtracts from it. The new value is at least as long as the
    /// old one: it is padded with spaces.
    ///
    /// # Errors
    ///
    /// [`Outcome::NotFound`] if there is no item and no initial number, [`Outcome::NotANumber`],
    /// [`Outcome::Exists`], [`Outcome::Refused`].
    pub fn arithmetic(&self, key: &[u8], what: Arithmetic) -> Result<Number, Outcome> {
        check_key(key)?;
        let mut number = 0;
        let (mut created, mut exptime) = (false, 0);
        let plan = |item: Option<RawItem>, owner: &Owner| {
            let (flags, marks, len);
            created = item.is_none();
            match item {
                None => {
                    let (initial, expires) = what.initial.ok_or(Outcome::NotFound)?;
                    number = initial;
                    (exptime, flags, marks, len) = (expires, 0, 0, 0);
                }
                Some(old) => {
                    // As in memcached, before the CAS value is compared.
                    if old.value().is_empty() {
                        return Err(Outcome::NotANumber);
                    }
                    if what.condition.compare.is_some_and(|cas| cas != old.cas()) {
                        return Err(Outcome::Exists);
                    }
                    let before = digits::parse(old.value()).ok_or(Outcome::NotANumber)?;
                    number = match what.decrement {
                        true => before.saturating_sub(what.delta),
                        false => before.wrapping_add(what.delta),
                    };
                    exptime = what.exptime.unwrap_or_else(|| old.exptime());
                    (flags, marks, len) = (old.flags(), old.access().marks(), old.value_len());
                }
            }
            let digits = Digits::new(number, len);
            Ok(Plan {
                shape: Shape {
                    key,
                    value_len: digits.len(),
                    flags,
                    exptime,
                    cas: owner.next_cas(),
                    marks,
                    all: false,
                },
                value: Value::Number(digits),
                depends: true,
            })
        };
        let cas = self.state.store(key, true, plan)?;
        Ok(Number {
            value: number,
            cas,
            exptime,
            created,
        })
    }

    /// Marks the item as stale where it lies, and may change when it expires. Returns its new CAS value.
    /// An item without room for the expiry is copied.
    ///
    /// # Errors
    ///
    /// [`Outcome::NotFound`], [`Outcome::Exists`], [`Outcome::Refused`].
    pub fn invalidate(&self, key: &[u8], what: Invalidate) -> Result<u64, Outcome> {
        let condition = &what.condition;
        let mark = |space: &KeySpace, found: Found| {
            if condition.compare.is_some_and(|cas| cas != found.item.cas()) {
                return Err(Outcome::Exists);
            }
            let (item, cas) = (found.item, space.owner.next_cas());
            let fits = what.exptime.is_none_or(|exptime| item.set_exptime(exptime));
            if let Some(exptime) = what.exptime.filter(|_| fits) {
                // SAFETY: in the index, whose bucket is locked, in a section.
                unsafe { Segment::of(found.word) }.note_expiry(exptime);
            }
            Ok((fits && item.set_stale(cas)).then_some(cas))
        };
        if let Some(cas) = self.change(key, |space, _, _, found| mark(space, found))?? {
            return Ok(cas);
        }
        self.state.store(key, true, |item, owner| {
            let old = item.ok_or(Outcome::NotFound)?;
            if condition.compare.is_some_and(|cas| cas != old.cas()) {
                return Err(Outcome::Exists);
            }
            let exptime = what.exptime.unwrap_or_else(|| old.exptime());
            let marks = old.access().marks() & FETCHED | STALE;
            Ok(Plan::again(old, exptime, owner.next_cas(), marks))
        })
    }

    /// Removes all items that are there `delay` seconds from now, or at once if that is 0. A later call
    /// replaces an earlier one that is not due yet.
    ///
    /// Takes constant time: the background frees the memory. While a reader stays, that holds for some
    /// hundreds of flushes, and for some of each tenant; further ones remove the items one by one.
    pub fn flush_all(&self, delay: u32) {
        match delay {
            0 => {
                self.state.flush();
                // Else it is done with the next pass.
                self.signal.sweep(&self.state);
            }
            _ => {
                let now = self.state.common().now();
                self.state.flush_later(now.saturating_add(delay), now);
            }
        }
    }

    /// Removes all items that are there whose keys begin with one of `prefixes`, at once and for all
    /// that use the tenant after this call has returned. Costs a look at each segment, not at the
    /// items: the background frees their memory. It may wait a moment for readers.
    ///
    /// The tenant keeps each prefix that was ever forgotten, and a look-up of an item that is older
    /// than the last of them compares its key with them: a dozen comparisons among a thousand.
    ///
    /// ```
    /// use stillpoint_server::store::{Condition, Config, Mode, Store};
    /// let store = Store::new(Config::default())?;
    /// let tenant = store.tenant("")?;
    /// for key in ["session:1", "user:1"] {
    ///     tenant.set(key.as_bytes(), 0, 0, b"value", Mode::Set, Condition::default())?;
    /// }
    /// tenant.forget([&b"session:"[..]].into_iter());
    /// assert!(tenant.get(b"session:1", |_| ()).is_none());
    /// assert!(tenant.get(b"user:1", |_| ()).is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn forget<'a>(&self, prefixes: impl Iterator<Item = &'a [u8]>) {
        let owner = &self.state.owner;
        let last = owner.last_cas();
        // Nothing was stored yet.
        if last == 0 {
            return;
        }
        owner.forgotten.add(prefixes, last);
        // The search removes them as expired.
        self.state.present().note_expired();
        let lists = &owner.common.lists;
        lists.for_each(&owner.limit.memcg, |segment| {
            segment.note_expiry(LONG_AGO);
            true
        });
    }

    /// Calls `f` with the items of some buckets, from where `cursor` has come to, in one section. Looks
    /// at `at_most` items and empty buckets, or a few more. Returns whether there may be more, also if
    /// all that it has looked at have expired. As in [`Tenant::get`], but the items do not count as
    /// used.
    ///
    /// An item that is there throughout a walk comes exactly once, also while others are stored.
    pub fn keys(&self, cursor: &mut Cursor, at_most: usize, mut f: impl FnMut(&Item<'_>)) -> bool {
        let section = read_lock();
        let now = self.state.common().now();
        let space = self.state.space(now, &section);
        let (mut words, mut count) = (Vec::new(), 0);
        loop {
            let more = space
                .table
                .index
                .walk(&mut cursor.at, &mut words, &section, |word| {
                    // SAFETY: in the index in this section.
                    let found = unsafe { Found::of(word) };
                    self.state.common().hash(found.item.key())
                });
            for &(word, hash) in &words {
                // SAFETY: as above.
                let found = unsafe { Found::of(word) };
                if !space.is_gone(found.item, now) {
                    f(&Item::new(found, hash, now, space, &section));
                }
            }
            // What is not shown takes as long.
            count += words.len().max(1);
            if !more || count >= at_most {
                work::add(count * work::LOOK);
                return more;
            }
        }
    }

    /// Returns its figures.
    #[must_use]
    pub fn statistics(&self) -> TenantStatistics {
        #[cfg(all(test, feature = "metrics"))]
        LOOKS.set(LOOKS.get() + 1);
        // Not in a section while it takes locks: what holds them may wait for readers.
        let space = {
            let section = read_lock();
            let now = self.state.common().now();
            Arc::clone(self.state.space(now, &section))
        };
        let (owner, counts) = (&self.state.owner, space.counts());
        let mut figures = owner.events.counted();
        figures.items = counts.items;
        figures.item_bytes = counts.bytes;
        figures.segment_bytes = owner.limit.memcg.usage();
        figures.segments =
            owner.common.lists.count(&owner.limit.memcg) as u64 + space.open_segments();
        figures.index_bytes = space.table.index.bytes();
        figures.pinned_bytes = owner.sum(|sums| &sums.pinned)[0];
        figures.stored += counts.stored;
        figures
    }
}

impl fmt::Debug for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tenant")
            .field("name", &self.name())
            .field("statistics", &self.statistics())
            .finish_non_exhaustive()
    }
}

impl PartialEq for Tenant {
    /// Returns true if both are handles of the same tenant.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.state, &other.state)
    }
}

impl Eq for Tenant {}
