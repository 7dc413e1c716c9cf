//! The state that handles of a tenant share: its key space, which a flush replaces. How an item is stored.
//!
//! A store writes a new item, locks the bucket, checks whether the change may be made, and puts the word
//! into the index. In an item, only the expiry, the heat, the marks, and the CAS value of a stale one
//! ever change. A change that depends on the present item (`append`, `incr`, a comparison) is put only if
//! the word of that item is still in the index; otherwise it is made again. Of several threads that
//! change the same item, one always succeeds.

use super::{
    access::{STALE, WIN},
    class::Class,
    common::{Common, Owner},
    config::KEY_MAX,
    digits::Digits,
    error::{Outcome, Refused},
    flush::Flush,
    key_space::{KeySpace, Open, Put, Seen},
    layout::{RawItem, Shape},
    requests::{Condition, Mode},
    segment::SegmentRef,
    unfinished::Waiting,
};
use crate::lock::lock;
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};
use stillpoint::{Guard, Rcu, read_lock};

/// A value to be stored.
#[derive(Debug)]
pub enum Value<'a> {
    /// Two parts, joined.
    Parts([&'a [u8]; 2]),
    Number(Digits),
    /// The value, which lies in a segment for this item that is the caller's.
    InPlace(&'a SegmentRef, &'a [u8]),
}

/// What is to be stored.
#[derive(Debug)]
pub struct Plan<'a> {
    pub shape: Shape<'a>,
    pub value: Value<'a>,
    /// Whether it is stored only if the present item is the one for which the plan was made.
    pub depends: bool,
}

impl Plan<'_> {
    /// Returns the plan to store `item` again, as it is but for these.
    pub fn again(item: RawItem, exptime: u32, cas: u64, marks: u32) -> Self {
        Self {
            shape: Shape {
                key: item.key(),
                value_len: item.value_len(),
                flags: item.flags(),
                exptime,
                cas,
                marks,
                all: false,
            },
            value: Value::Parts([item.value(), &[]]),
            depends: true,
        }
    }

    fn parts(&self) -> [&[u8]; 2] {
        match &self.value {
            Value::Parts(parts) => *parts,
            Value::Number(digits) => digits.parts(),
            Value::InPlace(_, value) => [value, &[]],
        }
    }
}

/// The state that handles of a tenant share.
#[derive(Debug)]
pub struct TenantState {
    pub owner: Arc<Owner>,
    pub space: Rcu<Arc<KeySpace>>,
    flush: Flush,
    /// The key space that was flushed last, until its memory is freed.
    last: Mutex<Option<Arc<KeySpace>>>,
    /// Whether there is one.
    has_last: AtomicBool,
    /// Whether the background thread has been asked to sweep it, and has not begun. Under the lock
    /// of the signal that asks.
    pub is_queued: AtomicBool,
    /// Unfinished values of all tenants.
    pub waiting: Arc<Waiting>,
}

impl TenantState {
    pub fn new(owner: Arc<Owner>, waiting: Arc<Waiting>) -> Arc<Self> {
        let space = Rcu::new(KeySpace::new(Arc::clone(&owner)));
        Arc::new(Self {
            owner,
            space,
            flush: Flush::new(),
            last: Mutex::default(),
            has_last: AtomicBool::new(false),
            is_queued: AtomicBool::new(false),
            waiting,
        })
    }

    /// Schedules a flush in that second. If an earlier one is due, flushes now.
    pub fn flush_later(&self, at: u32, now: u32) {
        self.flushing(|begin| self.flush.later(at, now, begin));
    }

    /// Flushes now, and drops a flush that is scheduled.
    pub fn flush(&self) {
        self.flushing(|begin| self.flush.at_once(begin));
    }

    /// Flushes a tenant that has been deleted. A store that is under way finds the new key space, and
    /// with it the mark of the deletion.
    pub fn flush_deleted(&self) {
        if self.owner.has_flushed_much() {
            self.owner.common.pool.wait_until_left();
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

    /// Starts a new key space. If flushed ones take too much memory already, removes the items of the
    /// present one instead. Returns the key space that was flushed before.
    fn empty_space(&self, section: &Guard<'_>) -> Option<Arc<KeySpace>> {
        let owner = &self.owner;
        if !owner.has_flushed_much() {
            return self.begin_space(section);
        }
        let removed = self.space.load(section).clear(section);
        owner.events.flushed.fetch_add(removed, Ordering::Relaxed);
        None
    }

    /// Starts a new key space. The memory of the old one is freed later: see `background`. Returns the
    /// key space that was flushed before.
    fn begin_space(&self, _section: &Guard<'_>) -> Option<Arc<KeySpace>> {
        let new = KeySpace::new(Arc::clone(&self.owner));
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

    /// Drops the key space that was flushed last, so that misses no longer look into it. Called before
    /// its memory is freed.
    pub fn forget_flushed(&self) {
        self.has_last.store(false, Ordering::Relaxed);
        let last = lock(&self.last).take();
        drop(last);
    }

    /// Counts a read that has found nothing, if its item was flushed and is still there.
    #[inline]
    pub fn note_miss(&self, hash: u64, key: &[u8], section: &Guard<'_>) {
        if self.has_last.load(Ordering::Relaxed) {
            self.note_flushed(hash, key, section);
        }
    }

    #[cold]
    fn note_flushed(&self, hash: u64, key: &[u8], section: &Guard<'_>) {
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
        // Also one that has expired, as in memcached.
        if space.find(hash, key, section).is_some() {
            let count = &self.owner.events.get_flushed;
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the present key space. Flushes it before if that is due.
    #[inline]
    pub fn space<'g>(&self, now: u32, section: &'g Guard<'_>) -> &'g Arc<KeySpace> {
        self.flush.if_due(now, || drop(self.empty_space(section)));
        self.space.load(section)
    }

    /// Returns the present key space, also if a flush is due.
    pub fn present(&self) -> Arc<KeySpace> {
        Arc::clone(self.space.load(&read_lock()))
    }

    pub fn common(&self) -> &Common {
        &self.owner.common
    }

    /// Stores what `plan` returns for the present item. Returns the CAS value.
    ///
    /// `plan` may be called several times. It sees the present item only if `look`.
    pub fn store<'p>(
        &self,
        key: &[u8],
        look: bool,
        mut plan: impl FnMut(Option<RawItem>, &Owner) -> Result<Plan<'p>, Outcome>,
    ) -> Result<u64, Outcome> {
        let hash = self.common().hash(key);
        // A segment for the one item, where that is large.
        let mut large: Option<Open> = None;
        loop {
            let section = read_lock();
            let now = self.common().now();
            let space = self.space(now, &section);
            // One that was taken for a key space that has been flushed meanwhile is of no use.
            let large_here = large.take().filter(|open| open.segment().is_of(space));
            let found = match look {
                true => space
                    .find(hash, key, &section)
                    .filter(|found| !space.is_gone(found.item, now)),
                false => None,
            };
            // Before the plan looks: what changes from here on is seen by `put`.
            let seen = found.map(Seen::of);
            let plan = plan(found.map(|found| found.item), &self.owner)?;
            let (len, max) = (plan.shape.value_len, self.common().config.item_max);
            if len > max {
                return Err(Refused::TooLarge { len, max }.into());
            }
            let size = plan.shape.size();
            let mut open = large_here.filter(|open| open.has_room(size) && Class::is_large(size));
            let place = match plan.value {
                Value::InPlace(place, _) if place.is_of(space) => Some(place),
                _ => None,
            };
            let written = match (place, &mut open) {
                (Some(place), _) => Some(space.write_in_place(place, hash, &plan.shape, now)),
                (None, Some(open)) => open.write(hash, &plan.shape, plan.parts(), now),
                (None, None) if Class::is_large(size) => None,
                (None, None) => space.write(hash, &plan.shape, plan.parts(), now, &section),
            };
            if let Some(new) = written {
                let depends = plan.depends.then_some(seen);
                let put = space.put(hash, key, new, depends, now, &section)?;
                if put == Put::Again {
                    continue;
                }
                let placed = place.map(|place| Open::new(Arc::clone(place)));
                open.or(placed)
                    .into_iter()
                    .for_each(|open| space.seal(open));
                let cas = plan.shape.cas;
                if put == Put::Crowded {
                    let space = Arc::clone(space);
                    drop((plan, section));
                    space.table.grow(space.counts().items);
                }
                return Ok(cas);
            }
            let space = Arc::clone(space);
            // What the plan has of the section ends with it.
            drop((plan, section));
            if Class::is_large(size) {
                large = Some(Open::new(space.new_segment(Class::OWN, size)?));
            } else {
                space.refill(size)?;
            }
        }
    }

    /// Stores `value` with what `shape` says of the item, as `mode` and `condition` say. The value lies
    /// in its `place` already if there is one, a segment for this item that is the caller's. Returns the
    /// CAS value.
    pub fn set(
        &self,
        shape: Shape<'_>,
        value: &[u8],
        place: Option<&SegmentRef>,
        mode: Mode,
        condition: Condition,
    ) -> Result<u64, Outcome> {
        check_key(shape.key)?;
        let depends = mode != Mode::Set || condition.compare.is_some();
        let plan = |item: Option<RawItem>, owner: &Owner| {
            let stale = may_store(mode, &condition, item)?;
            let mut shape = Shape {
                cas: owner.next_cas(),
                ..shape
            };
            let mut parts: [&[u8]; 2] = [value, &[]];
            if let Some(old) = item {
                if matches!(mode, Mode::Append | Mode::Prepend) {
                    (shape.flags, shape.exptime) = (old.flags(), old.exptime());
                    parts[1] = old.value();
                    if mode == Mode::Append {
                        parts.reverse();
                    }
                    shape.value_len += old.value_len();
                }
                if stale {
                    shape.exptime = old.exptime();
                    shape.marks |= STALE | (old.access().marks() & WIN);
                }
            }
            let value = match place {
                Some(place) => Value::InPlace(place, value),
                None => Value::Parts(parts),
            };
            Ok(Plan {
                shape,
                value,
                depends,
            })
        };
        self.store(shape.key, depends, plan)
    }
}

pub fn check_key(key: &[u8]) -> Result<(), Refused> {
    match key.len() {
        1..=KEY_MAX => Ok(()),
        len => Err(Refused::Key { len }),
    }
}

/// Checks whether an item with the CAS value `cas` may be changed. Returns `Ok(true)` if the new item is
/// stale.
fn compare(condition: &Condition, cas: u64) -> Result<bool, Outcome> {
    match condition.compare {
        None => Ok(false),
        Some(expected) if expected == cas => Ok(false),
        Some(expected) if condition.or_stale && expected < cas => Ok(true),
        Some(_) => Err(Outcome::Exists),
    }
}

/// Checks whether `mode` and `condition` allow to store where `item` is. Returns `Ok(true)` if the new
/// item is stale.
pub fn may_store(
    mode: Mode,
    condition: &Condition,
    item: Option<RawItem>,
) -> Result<bool, Outcome> {
    match (mode, item) {
        (Mode::Add, Some(_)) => Err(Outcome::NotStored),
        (Mode::Append | Mode::Prepend, None) => Err(Outcome::NotStored),
        (_, None) if condition.compare.is_some() => Err(Outcome::NotFound),
        (Mode::Replace, None) => Err(Outcome::NotStored),
        (_, Some(old)) => compare(condition, old.cas()),
        (_, None) => Ok(false),
    }
}
