//! Changes of items: write a new item, lock the bucket, check whether the change may be made, put the
//! word into the index.
//!
//! In an item, only the expiry, the heat, the marks, and the CAS value of a stale one ever change. A
//! change that depends on the present item (`append`, `incr`, a comparison) is put only if the word of
//! that item is still in the index; otherwise it is made again. Of several threads that change the same
//! item, one always succeeds.

use super::{
    access::WIN,
    class::Class,
    digits::Digits,
    error::{Outcome, Refused},
    index::Locked,
    layout::{RawItem, Shape},
    segment::Segment,
    shared::{Owner, Shared, TenantState},
    space::{Open, Space, Written},
    word::Word,
};
use std::sync::{Arc, atomic::AtomicU64};
use stillpoint::{Guard, read_lock};

/// An item that was found in a section.
#[derive(Debug, Clone, Copy)]
pub struct Found {
    pub word: Word,
    pub item: RawItem,
}

impl Found {
    /// # Safety
    ///
    /// The word is in the index, or was in the section that the caller is in.
    pub unsafe fn of(word: Word) -> Self {
        // SAFETY: the caller's promise.
        let item = unsafe { RawItem::at(word.address()) };
        Self { word, item }
    }
}

/// What a change depends on: the item, and what commands change in place, as a plan that copies
/// them has seen them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    word: Word,
    /// Changes with the stale mark.
    cas: u64,
    exptime: u32,
    win: u32,
}

impl Seen {
    pub fn of(found: Found) -> Self {
        Self {
            word: found.word,
            cas: found.item.cas(),
            exptime: found.item.exptime(),
            win: found.item.access().marks() & WIN,
        }
    }
}

/// A value to be stored.
#[derive(Debug)]
pub enum Value<'a> {
    /// Two parts, joined.
    Parts([&'a [u8]; 2]),
    Number(Digits),
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
    fn parts(&self) -> [&[u8]; 2] {
        match &self.value {
            Value::Parts(parts) => *parts,
            Value::Number(digits) => digits.parts(),
        }
    }
}

/// How [`Space::put`] has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    Stored,
    /// It is stored in a line behind its bucket: the index may be too small.
    Crowded,
    /// The item has been replaced meanwhile, or the segment is leaving.
    Again,
}

impl Space {
    /// The item of a key, expired or not.
    #[inline]
    pub fn find(&self, hash: u64, key: &[u8], section: &Guard<'_>) -> Option<Found> {
        self.index.find(hash, section, |word| {
            // SAFETY: in the index in this section.
            let found = unsafe { Found::of(word) };
            (found.item.key() == key).then_some(found)
        })
    }

    /// Returns whether an item that the index has is gone all the same: it has expired, or its prefix
    /// was forgotten after it was stored.
    #[inline]
    pub fn is_gone(&self, item: RawItem, now: u32) -> bool {
        item.is_expired(now) || self.owner.forgotten.has(item)
    }

    /// The slot and the item of a key in its bucket.
    pub fn find_locked<'a>(
        bucket: &Locked<'a>,
        hash: u64,
        key: &[u8],
    ) -> Option<(&'a AtomicU64, Found)> {
        // SAFETY: in the index; the caller is in a section and has the bucket's lock.
        let found = |word: Word| unsafe { Found::of(word) };
        let (slot, word) = bucket.find(hash, |word| found(word).item.key() == key)?;
        Some((slot, found(word)))
    }

    /// Puts a written item into the index. With `depends`, only if the item that is there and is not
    /// gone is that one, as it was then, or none.
    pub fn put(
        &self,
        hash: u64,
        key: &[u8],
        new: Written,
        depends: Option<Option<Seen>>,
        now: u32,
        section: &Guard<'_>,
    ) -> Result<Put, Refused> {
        let mut bucket = self.index.lock(hash, section);
        let old = Self::find_locked(&bucket, hash, key);
        if let Some(expected) = depends {
            let live = old.filter(|(_, old)| !self.is_gone(old.item, now));
            if live.map(|(_, old)| Seen::of(old)) != expected {
                drop(bucket);
                self.discard(new, section);
                return Ok(Put::Again);
            }
        }
        // SAFETY: written in this section, to a segment that was open then.
        if !unsafe { Segment::of(new.word) }.is_usable() {
            drop(bucket);
            self.discard(new, section);
            return Ok(Put::Again);
        }
        let stripe = self.stripe();
        if let Some((slot, old)) = old {
            bucket.put(slot, new.word);
            drop(bucket);
            let size = old.item.size();
            stripe.note_stored(new.size, Some(size));
            // SAFETY: found in this section, and replaced by this thread.
            unsafe { self.bury(old.word, size) };
            return Ok(Put::Stored);
        }
        let inserted = bucket.insert(new.word);
        drop(bucket);
        match inserted {
            Ok(own_line) => {
                stripe.note_stored(new.size, None);
                Ok(if own_line { Put::Stored } else { Put::Crowded })
            }
            Err(_) => {
                self.discard(new, section);
                Err(Refused::OutOfMemory)
            }
        }
    }

    /// A written item is not put.
    pub fn discard(&self, new: Written, _section: &Guard<'_>) {
        // SAFETY: written in this section, to a segment that was open then.
        unsafe { self.bury(new.word, new.size) };
    }

    /// Empties the slot of an item that was found.
    pub fn remove(&self, mut bucket: Locked<'_>, slot: &AtomicU64, found: Found) {
        bucket.clear(slot);
        bucket.trim();
        drop(bucket);
        let size = found.item.size();
        self.stripe().note_removed(1, size as u64);
        // SAFETY: the caller's section, in which it was found, and removed by this thread.
        unsafe { self.bury(found.word, size) };
    }

    /// Removes all items that are there when it begins, one by one, and some that are stored meanwhile.
    /// Returns their number.
    pub fn clear(&self, section: &Guard<'_>) -> u64 {
        let (mut cursor, mut removed, mut words) = (0, 0, Vec::new());
        // SAFETY: in the index in this section.
        let found = |word: Word| unsafe { Found::of(word) };
        let hash_of = |word| self.owner.shared.hash(found(word).item.key());
        loop {
            let more = self.index.walk(&mut cursor, &mut words, section, hash_of);
            for &(word, hash) in &words {
                let bucket = self.index.lock(hash, section);
                let key = found(word).item.key();
                // It may be another one by now, or none.
                if let Some((slot, found)) = Self::find_locked(&bucket, hash, key) {
                    self.remove(bucket, slot, found);
                    removed += 1;
                }
            }
            if !more {
                return removed;
            }
        }
    }
}

impl TenantState {
    /// The present key space.
    #[inline]
    pub fn space<'g>(&self, now: u32, section: &'g Guard<'_>) -> &'g Arc<Space> {
        self.flush_if_due(now, section);
        self.space.load(section)
    }

    pub fn shared(&self) -> &Shared {
        &self.owner.shared
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
        let hash = self.shared().hash(key);
        // A segment for the one item, where that is large.
        let mut large: Option<Open> = None;
        loop {
            let section = read_lock();
            let now = self.shared().now();
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
            let (len, max) = (plan.shape.value_len, self.shared().config.item_max);
            if len > max {
                return Err(Refused::TooLarge { len, max }.into());
            }
            let size = plan.shape.size();
            let mut open = large_here.filter(|open| open.has_room(size) && Class::is_large(size));
            let written = match &mut open {
                Some(open) => open.write(hash, &plan.shape, plan.parts(), now),
                None if Class::is_large(size) => None,
                None => space.write(hash, &plan.shape, plan.parts(), now, &section),
            };
            if let Some(new) = written {
                let depends = plan.depends.then_some(seen);
                let put = space.put(hash, key, new, depends, now, &section)?;
                if put == Put::Again {
                    continue;
                }
                open.into_iter().for_each(|open| space.seal(open));
                let cas = plan.shape.cas;
                if put == Put::Crowded {
                    let space = Arc::clone(space);
                    drop((plan, section));
                    space.grow_table();
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
}
