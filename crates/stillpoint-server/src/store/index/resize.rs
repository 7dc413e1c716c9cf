//! Growth and shrinking of the table: a bucket at a time, and the memory behind the last one.

use super::{
    super::{
        class::PAGE,
        memory::Memory,
        rcu::{Cookie, Guard, global},
        word::Word,
    },
    FIRST, FIRST_LEVEL, Index, NoMemory,
    bucket::Bucket,
};
use std::{mem, ptr};
use stillpoint_platform::sync::{AtomicU64, MutexGuard, Ordering};

/// Average number of items of a bucket above which the index grows: with seven slots, a quarter of the
/// buckets then have a second line.
pub(super) const LOAD: u64 = 6;

/// Average below which the index shrinks, until the average is one higher.
const LEAST_LOAD: u64 = 4;

/// Most buckets that one call splits.
const SPLITS: u64 = if cfg!(stillpoint_loom) { 1 } else { 4 };

/// Buckets that are joined in one section.
pub const JOINS: usize = if cfg!(stillpoint_loom) { 1 } else { 64 };

const LINE: u64 = mem::size_of::<Bucket>() as u64;

/// First part with memory of its own; those before share a page.
const FIRST_OWN: u32 = (PAGE / mem::size_of::<Bucket>()).ilog2();

/// State of the thread that changes the number of buckets.
#[derive(Debug, Default)]
pub struct Resize {
    /// The memory of parts, in order: of the first ones together, then of one each.
    pub(super) memory: Vec<Memory>,
    /// Whether the last change was a join.
    shrinks: bool,
    /// Grace period of the last change.
    last: Option<Cookie>,
}

impl Resize {
    /// Returns whether all readers of the time of the last change have left.
    fn is_settled(&self) -> bool {
        self.last.is_none_or(|cookie| global().poll(cookie))
    }

    /// Whether buckets may be split now, or joined.
    fn may(&mut self, shrink: bool) -> bool {
        if self.shrinks != shrink && !self.is_settled() {
            return false;
        }
        self.shrinks = shrink;
        true
    }

    fn note_change(&mut self) {
        self.last = Some(global().get_state());
    }
}

/// What so many buckets take of the system's memory.
fn pages_of(buckets: u64) -> u64 {
    if buckets <= FIRST as u64 {
        return 0;
    }
    (buckets * LINE).next_multiple_of(PAGE as u64)
}

impl Index {
    /// Whether it has too few buckets for so many items.
    pub fn is_small(&self, items: u64) -> bool {
        items > self.buckets.load(Ordering::Relaxed) * LOAD
    }

    /// How many buckets are enough for so many items, if it has more: far more, or `tightly` any.
    pub fn enough(&self, items: u64, tightly: bool) -> Option<u64> {
        let buckets = self.buckets.load(Ordering::Relaxed);
        let wanted = (items / (LEAST_LOAD + 1)).max(FIRST as u64);
        let suits = tightly || items < buckets * LEAST_LOAD;
        (suits && wanted < buckets).then_some(wanted)
    }

    /// Returns its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes_with(self.used.load(Ordering::Relaxed))
    }

    /// Returns its size in bytes once readers have left joined buckets and their memory is given back.
    pub fn bytes_released(&self) -> u64 {
        self.bytes_with(self.buckets.load(Ordering::Relaxed))
    }

    /// Returns its size in bytes after one more call of growth.
    pub fn bytes_grown(&self) -> u64 {
        let used = self.used.load(Ordering::Relaxed);
        let grown = self.buckets.load(Ordering::Relaxed) + SPLITS;
        self.bytes_with(used.max(grown))
    }

    fn bytes_with(&self, used: u64) -> u64 {
        pages_of(used) + self.bytes_of_lines()
    }

    /// Returns the bytes of the lines behind its buckets.
    pub fn bytes_of_lines(&self) -> u64 {
        self.lines.load(Ordering::Relaxed) * LINE
    }

    /// Takes the lock for a change of the number of buckets. Returns `None` if another thread has it.
    fn try_resize(&self) -> Option<MutexGuard<'_, Resize>> {
        self.resize.try_lock().ok()
    }

    /// Splits some buckets if there are too many items. Without memory, and while readers are there
    /// that have seen a join, it stays as it is.
    pub fn grow(&self, items: u64, section: &Guard<'_>, hash_of: impl Fn(Word) -> u64) {
        let Some(mut resize) = self.try_resize() else {
            return;
        };
        for _ in 0..SPLITS {
            if !self.is_small(items)
                || !resize.may(false)
                || self.split(&mut resize, section, &hash_of).is_err()
            {
                break;
            }
        }
    }

    fn split(
        &self,
        resize: &mut Resize,
        _section: &Guard<'_>,
        hash_of: &impl Fn(Word) -> u64,
    ) -> Result<(), NoMemory> {
        let new = self.buckets.load(Ordering::Relaxed);
        let level = new.ilog2();
        self.make_part(level, &mut resize.memory)?;
        let mut old = self.bucket(new - (1 << level)).lock(&self.lines);
        let bucket = self.bucket(new);
        bucket.init(level + 1, true);
        let used = self.used.load(Ordering::Relaxed).max(new + 1);
        self.used.store(used, Ordering::Relaxed);
        let mut to = bucket.made_locked(&self.lines);
        for slot in old.slots() {
            if let Some(word) = moves(slot, level, hash_of)
                && to.insert(word).is_err()
            {
                // No reader knows it yet.
                to.slots().for_each(to_none);
                to.take_lines();
                return Err(NoMemory);
            }
        }
        old.set_depth(level + 1);
        // Release, pairs with `find` and `lock`.
        self.buckets.store(new + 1, Ordering::Release);
        for slot in old.slots() {
            if moves(slot, level, hash_of).is_some() {
                old.clear(slot);
            }
        }
        old.trim();
        resize.note_change();
        Ok(())
    }

    /// Joins some of the last buckets to those that they were split from, until there are `wanted`.
    /// Returns whether that may go on: not without memory, and while readers are there that have seen
    /// a split.
    pub fn shrink(&self, wanted: u64, section: &Guard<'_>, hash_of: impl Fn(Word) -> u64) -> bool {
        let Some(mut resize) = self.try_resize() else {
            return false;
        };
        for _ in 0..JOINS {
            if self.buckets.load(Ordering::Relaxed) <= wanted
                || !resize.may(true)
                || self.join(&mut resize, section, &hash_of).is_err()
            {
                return false;
            }
        }
        true
    }

    fn join(
        &self,
        resize: &mut Resize,
        _section: &Guard<'_>,
        hash_of: &impl Fn(Word) -> u64,
    ) -> Result<(), NoMemory> {
        let last = self.buckets.load(Ordering::Relaxed) - 1;
        debug_assert!(last >= FIRST as u64);
        let level = last.ilog2();
        let mut to = self.bucket(last - (1 << level)).lock(&self.lines);
        let mut from = self.bucket(last).lock(&self.lines);
        let words = |slot: &AtomicU64| Word::from_bits(slot.load(Ordering::Relaxed));
        for word in from.slots().filter_map(words) {
            if to.insert(word).is_err() {
                // A reader that comes there does not look for these: its depth says so.
                for slot in to.slots() {
                    if moves(slot, level, hash_of).is_some() {
                        to.clear(slot);
                    }
                }
                to.trim();
                return Err(NoMemory);
            }
        }
        to.set_depth(level);
        // Release, pairs with `first_bucket`: who goes to that bucket at once finds there what was moved.
        // Its depth alone would not send a reader on that has passed the slots before.
        self.buckets.store(last, Ordering::Release);
        // Who still comes here goes back, and what it found before was there.
        from.set_depth(level);
        for slot in from.slots() {
            from.clear(slot);
        }
        from.take_lines();
        resize.note_change();
        Ok(())
    }

    /// Gives the memory behind the last bucket back, if no reader may be there any more: the caller
    /// has waited for those, of many indexes at a time.
    pub fn release(&self) {
        let Some(mut resize) = self.try_resize() else {
            return;
        };
        let buckets = self.buckets.load(Ordering::Relaxed);
        if pages_of(buckets) == pages_of(self.used.load(Ordering::Relaxed)) {
            return;
        }
        if !resize.is_settled() {
            return;
        }
        let mut used = self.used.load(Ordering::Relaxed);
        while used > buckets {
            let part = (used - 1).ilog2();
            let begin = 1 << part;
            if buckets > begin {
                used = self.discard(&resize.memory, part, buckets, used);
                break;
            }
            // Its last reader has left, and none comes.
            #[cfg(stillpoint_loom)]
            (begin..used).for_each(|number| self.bucket(number).note_free());
            self.parts[part as usize].store(ptr::null_mut(), Ordering::Relaxed);
            if part >= FIRST_OWN || part == FIRST_LEVEL {
                drop(resize.memory.pop());
            }
            used = begin;
        }
        self.used.store(used, Ordering::Relaxed);
    }

    /// Gives the pages of a part back that have only buckets behind the last one. Returns how many
    /// buckets have memory then.
    fn discard(&self, memory: &[Memory], part: u32, buckets: u64, used: u64) -> u64 {
        // The first ones share a page, which some bucket is in.
        let number = part.checked_sub(FIRST_OWN);
        let Some(part_memory) = number.and_then(|number| memory.get(number as usize + 1)) else {
            return used;
        };
        let begin = 1 << part;
        #[cfg(stillpoint_loom)]
        (buckets..used).for_each(|number| self.bucket(number).note_free());
        let [from, to] = [buckets, used].map(|end| pages_of(end) - pages_of(begin));
        // SAFETY: pages of its own, in which no bucket is in use and no reader is any more.
        match unsafe { part_memory.discard(from as usize, to as usize) } {
            true => begin + from / LINE,
            false => used,
        }
    }

    /// Allocates the part that has the buckets from 2^part on.
    pub(super) fn make_part(&self, part: u32, memory: &mut Vec<Memory>) -> Result<(), NoMemory> {
        let slot = self.parts.get(part as usize).ok_or(NoMemory)?;
        if !slot.load(Ordering::Relaxed).is_null() {
            return Ok(());
        }
        let bytes = mem::size_of::<Bucket>() << part;
        memory.try_reserve(1).map_err(|_| NoMemory)?;
        // Parts of less than a page share the first one.
        let start = match memory.first() {
            Some(page) if part < FIRST_OWN => page.base().as_ptr().wrapping_add(bytes),
            _ => {
                let area = self
                    .pool
                    .take(bytes.max(PAGE), PAGE, None)
                    .ok_or(NoMemory)?;
                let start = area.base().as_ptr();
                memory.push(area);
                if part < FIRST_OWN {
                    start.wrapping_add(bytes)
                } else {
                    start
                }
            }
        };
        #[cfg(stillpoint_loom)]
        for number in 0..1 << part {
            // SAFETY: its memory has that many. The model's words are not zeros.
            unsafe { start.cast::<Bucket>().add(number).write(Bucket::default()) };
        }
        // It is known once `split` has stored the number of buckets.
        slot.store(start.cast(), Ordering::Relaxed);
        Ok(())
    }
}

/// Returns the word of a slot if bit `level` of its hash is set: a split copies it to the new bucket.
fn moves(slot: &AtomicU64, level: u32, hash_of: &impl Fn(Word) -> u64) -> Option<Word> {
    let word = Word::from_bits(slot.load(Ordering::Relaxed))?;
    (hash_of(word) >> level & 1 == 1).then_some(word)
}

fn to_none(slot: &AtomicU64) {
    slot.store(Word::NONE, Ordering::Relaxed);
}
