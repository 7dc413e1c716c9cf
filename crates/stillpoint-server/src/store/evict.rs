//! Takes the items out of a segment: for eviction, which copies those that were used; for compaction,
//! which copies all; for expiry.
//!
//! An item is copied under the lock of its bucket, and the index's word is exchanged there if it
//! still names the item: so nothing that commands change is lost, and readers see one copy or the
//! other. The old one stays until they have left.

use super::{
    access::{FETCHED, HEAT_MAX},
    class::{Class, SEGMENT_HEADER},
    common::Owner,
    config::Evicted,
    key_space::{KeySpace, Open},
    layout::RawItem,
    segment::{Home, Segment, SegmentRef, Why},
    word::Word,
};
use crate::lock::lock;
use std::sync::{Arc, MutexGuard, atomic::Ordering};
use stillpoint::{Guard, read_lock};

/// Number of segments that freed next to nothing, after which an item needs more heat to be copied.
const STUBBORN: usize = 2;

impl Home for KeySpace {
    fn note_dead(&self, bytes: i64) {
        self.stripe().note_dead(bytes);
    }

    fn is_flushed(&self) -> bool {
        self.flushed.is_set()
    }

    fn note_leaving(&self) {
        self.is_leaving.store(true, Ordering::Relaxed);
    }

    fn seal_one(&self, segment: &SegmentRef) -> bool {
        !self
            .seal_open(|open| Arc::ptr_eq(open.segment(), segment))
            .is_empty()
    }

    fn cool_whole(&self, segment: &Segment) -> Option<u32> {
        let now = self.owner.common.now();
        let (item, _) = segment.item_at(SEGMENT_HEADER)?;
        if item.access().heat() == 0 || self.is_gone(item, now) {
            return None;
        }
        item.access().cool();
        Some(item.access().heat())
    }

    fn take_out(self: Arc<Self>, segment: &SegmentRef, why: Why) -> bool {
        let mut evacuation = Evacuation::new(&self, segment, why);
        let done = evacuation.run();
        evacuation.finish();
        done
    }
}

struct Evacuation<'a> {
    space: &'a Arc<KeySpace>,
    segment: &'a SegmentRef,
    keep: MutexGuard<'a, Option<Open>>,
    full: Vec<Open>,
    why: Why,
    /// Items of more heat are copied.
    threshold: u32,
    now: u32,
    evicted: [u64; 2],
    expired: [u64; 2],
    copied: u64,
    copied_bytes: u64,
    removed_bytes: u64,
}

impl<'a> Evacuation<'a> {
    fn new(space: &'a Arc<KeySpace>, segment: &'a SegmentRef, why: Why) -> Self {
        let stubborn = space.stubborn.load(Ordering::Relaxed) / STUBBORN;
        // A segment that is mostly dead is compacted instead.
        let why = match why {
            Why::Evict if segment.is_sparse() => Why::Compact,
            _ => why,
        };
        Self {
            keep: lock(&space.keep),
            space,
            segment,
            full: Vec::new(),
            why,
            threshold: stubborn as u32,
            now: space.owner.common.now(),
            evicted: [0; 2],
            expired: [0; 2],
            copied: 0,
            copied_bytes: 0,
            removed_bytes: 0,
        }
    }

    fn run(&mut self) -> bool {
        let mut at = SEGMENT_HEADER;
        loop {
            let section = read_lock();
            loop {
                let Some((item, next)) = self.segment.item_at(at) else {
                    return true;
                };
                if !self.step(item, &section) {
                    break;
                }
                at = next;
            }
            // Memory for copies is allocated outside of the section.
            drop(section);
            match self.space.keep_segment(self.segment) {
                Some(open) => self.full.extend(self.keep.replace(open)),
                // Nothing is copied any more.
                None if self.why == Why::Evict => self.threshold = HEAT_MAX + 1,
                None => return false,
            }
        }
    }

    /// Takes an item out. Returns false if there is no room for its copy.
    fn step(&mut self, item: RawItem, section: &Guard<'_>) -> bool {
        let hash = self.space.owner.common.hash(item.key());
        let word = Word::new(item.address(), self.segment.class(), hash);
        let mut bucket = self.space.table.index.lock(hash, section);
        let Some((slot, _)) = bucket.find(hash, |found| found == word) else {
            return true;
        };
        let size = item.size();
        let unfetched = u64::from(item.access().marks() & FETCHED == 0);
        let mut told = None;
        if self.space.is_gone(item, self.now) {
            self.expired[0] += 1;
            self.expired[1] += unfetched;
        } else if let Some(cooler) = self.copy_cooler(item) {
            let written = self
                .keep
                .as_mut()
                .and_then(|keep| keep.copy(item, hash, cooler));
            let Some(copy) = written else {
                return false;
            };
            bucket.put(slot, copy.word);
            self.copied += 1;
            self.copied_bytes += size as u64;
            self.forget(size);
            return true;
        } else {
            self.evicted[0] += 1;
            self.evicted[1] += unfetched;
            told = self.space.owner.common.config.on_evict.as_ref();
        }
        bucket.clear(slot);
        bucket.trim();
        drop(bucket);
        if let Some(hook) = told {
            hook.call(&Evicted {
                tenant: &self.space.owner.name,
                memory: &self.space.owner.limit.memcg,
                key: item.key(),
                len: item.value_len(),
                fetched: unfetched == 0,
                exptime: item.exptime(),
                last_access: item.access().last_access(self.now),
                now: self.now,
            });
        }
        self.removed_bytes += size as u64;
        self.forget(size);
        true
    }

    /// Whether the item is copied, and how much less heat the copy has.
    fn copy_cooler(&self, item: RawItem) -> Option<u32> {
        // An item with a segment of its own stays or goes: `copy_to` is not for it. A reader may
        // have come to it since `cool_whole`.
        if self.segment.class() == Class::OWN {
            return None;
        }
        match self.why {
            Why::Compact => Some(0),
            Why::Evict if item.access().heat() <= self.threshold => None,
            // All in the kept ones begin anew.
            Why::Evict if !self.segment.kept => Some(HEAT_MAX),
            Why::Evict => Some(1),
            Why::Clear => None,
        }
    }

    fn forget(&self, size: usize) {
        let space = self.space;
        let last = self
            .segment
            .stage
            .remove(size, |dead| space.note_dead(dead));
        debug_assert!(!last, "it is leaving already");
    }

    fn finish(self) {
        let Self { space, segment, .. } = self;
        drop(self.keep);
        self.full.into_iter().for_each(|full| space.seal(full));
        let gave = segment.bytes() as u64 - self.copied_bytes.min(segment.bytes() as u64);
        if gave * 8 < segment.bytes() as u64 {
            space.stubborn.fetch_add(1, Ordering::Relaxed);
        } else {
            space.stubborn.store(0, Ordering::Relaxed);
        }
        let stripe = space.stripe();
        stripe.note_removed(self.evicted[0] + self.expired[0], self.removed_bytes);
        let events = &space.owner.events;
        count(&space.owner, self.evicted, self.expired);
        events.copied.fetch_add(self.copied, Ordering::Relaxed);
    }
}

fn count(owner: &Owner, evicted: [u64; 2], expired: [u64; 2]) {
    let events = &owner.events;
    for (count, amount) in [
        (&events.evicted, evicted[0]),
        (&events.evicted_unfetched, evicted[1]),
        (&events.expired, expired[0]),
        (&events.expired_unfetched, expired[1]),
    ] {
        if amount > 0 {
            count.fetch_add(amount, Ordering::Relaxed);
        }
    }
}

/// Removes the items of a sealed segment of `space` that have expired or were forgotten, and notes when
/// the next ones expire. Returns how many items it has looked at.
pub fn expire(space: &KeySpace, segment: &SegmentRef, now: u32) -> u64 {
    if !segment.stage.is_sealed() {
        return 0;
    }
    let mut looked = 0;
    segment.forget_expiry();
    let (mut expired, mut bytes) = ([0; 2], 0);
    let mut at = SEGMENT_HEADER;
    let mut last = false;
    while let Some((item, next)) = segment.item_at(at) {
        at = next;
        looked += 1;
        if !space.is_gone(item, now) {
            segment.note_expiry(item.exptime());
            continue;
        }
        let section = read_lock();
        let hash = space.owner.common.hash(item.key());
        let word = Word::new(item.address(), segment.class(), hash);
        let mut bucket = space.table.index.lock(hash, &section);
        let found = bucket.find(hash, |found| found == word);
        let Some((slot, _)) = found else {
            continue;
        };
        if space.is_gone(item, now) {
            bucket.clear(slot);
            bucket.trim();
            expired[0] += 1;
            expired[1] += u64::from(item.access().marks() & FETCHED == 0);
            bytes += item.size() as u64;
            last |= segment
                .stage
                .remove(item.size(), |dead| space.note_dead(dead));
        } else {
            // It has been touched meanwhile.
            segment.note_expiry(item.exptime());
        }
    }
    space.stripe().note_removed(expired[0], bytes);
    count(&space.owner, [0; 2], expired);
    if last {
        space.owner.common.lists.take_away(segment);
    }
    looked
}
