//! Memory between two uses: segments whose readers have to leave first (limbo), and spare memory
//! for the next segments, so that a store in its steady state asks the system for nothing.
//!
//! A segment in limbo is charged to no tenant: its tenant may use the bytes again at once, with
//! other memory. So a write waits for no grace period. What is in limbo and what is spare come on top
//! of the limit, and are bounded here, together.
//!
//! Memory that was given back to the system costs a page fault for each page when it is used again:
//! more than everything else that it takes to store a large value. So memory that readers have left
//! becomes spare, as far as the bound allows. Some of it is lent to unfinished values, which are charged
//! as they arrive: until then it counts as spare.

use super::{
    class::Class,
    memory::{Memory, Source},
};
use crate::lock::lock;
use std::{
    collections::VecDeque,
    fmt::Debug,
    io, mem,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use stillpoint::{
    Cookie, global,
    internal::{can_wait, wait_until},
};
use stillpoint_platform::clock;

/// The bound of limbo, beyond which a thread that adds to it waits for readers, and of limbo and spare
/// memory together, beyond which memory is given back: this part of the store's first limit, within
/// `LIMBO`.
const LIMBO_PART: u64 = 16;
const LIMBO: std::ops::RangeInclusive<u64> = 2 << 20..=32 << 20;

/// Time that such a thread waits: a reader that stays longer costs memory, not progress.
const PATIENCE: Duration = Duration::from_millis(10);

/// Number of freed bytes from which on they are given back to the system while a limit falls.
const GIVEN_BACK: u64 = 2 << 20;

/// Number of classes of segments, including that of single items.
const CLASSES: usize = 6;

/// The part of that bound that unfinished values may be lent. The rest is for values that are stored.
const LENT_PART: u64 = 2;

/// Spare memory is cut for a segment if it is longer by at most this part.
const SMALLER_PART: usize = 16;

/// The byte that fills freed memory, with debug assertions.
const FREED: u8 = 0xdb;

/// A segment in limbo. Dropping it frees it, unless a pin has another reference.
#[derive(Debug)]
struct Retired {
    cookie: Cookie,
    bytes: u64,
    _segment: Arc<dyn Debug + Send + Sync>,
}

/// Limbo and spare memory of a store.
#[derive(Debug)]
pub struct Pool {
    source: Source,
    limbo: Mutex<VecDeque<Retired>>,
    limbo_bytes: AtomicU64,
    /// In the order in which it was freed.
    spare: [Mutex<VecDeque<Memory>>; CLASSES],
    /// Bytes in `spare`, and those that were lent.
    spare_bytes: AtomicU64,
    /// Bytes that unfinished values were lent and that no tenant is charged for yet.
    lent_bytes: AtomicU64,
    max_limbo: u64,
    /// Whether a test pretends that the system has no memory.
    #[cfg(test)]
    pub refuse: std::sync::atomic::AtomicBool,
    /// The address space that a test pretends to have, in bytes.
    #[cfg(test)]
    pub seeming_space: std::sync::OnceLock<u64>,
    /// Number of times that a thread has waited for readers.
    #[cfg(test)]
    pub waits: AtomicU64,
    /// Bytes of segments that were not spare.
    #[cfg(test)]
    pub fresh: AtomicU64,
}

impl Pool {
    pub fn new(limit: u64) -> io::Result<Self> {
        Ok(Self {
            source: Source::new(limit)?,
            limbo: Mutex::default(),
            limbo_bytes: AtomicU64::new(0),
            spare: Default::default(),
            spare_bytes: AtomicU64::new(0),
            lent_bytes: AtomicU64::new(0),
            max_limbo: (limit / LIMBO_PART).clamp(*LIMBO.start(), *LIMBO.end()),
            #[cfg(test)]
            refuse: Default::default(),
            #[cfg(test)]
            seeming_space: Default::default(),
            #[cfg(test)]
            waits: Default::default(),
            #[cfg(test)]
            fresh: Default::default(),
        })
    }

    /// Returns the size in bytes of the address space that all memory comes from.
    pub fn address_space(&self) -> u64 {
        #[cfg(test)]
        if let Some(&bytes) = self.seeming_space.get() {
            return bytes;
        }
        self.source.address_space()
    }

    /// Returns memory for a segment, or for a part of an index, which must read zero.
    pub fn take(&self, bytes: usize, align: usize, class: Option<Class>) -> Option<Memory> {
        #[cfg(test)]
        if self.refuse.load(Ordering::Relaxed) {
            return None;
        }
        if let Some(class) = class
            && let Some(memory) = self.take_spare(bytes, class)
        {
            self.spare_bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
            return Some(memory);
        }
        self.take_fresh(bytes, align, class.is_some())
    }

    /// Returns memory for a segment that is charged later, and how many of its bytes were lent: these are
    /// resident, and count as spare until [`Pool::settle`].
    pub fn lend(&self, bytes: usize, class: Class) -> Option<(Memory, u64)> {
        #[cfg(test)]
        if self.refuse.load(Ordering::Relaxed) {
            return None;
        }
        let lent = bytes as u64;
        let before = self.lent_bytes.fetch_add(lent, Ordering::Relaxed);
        if before + lent <= self.max_limbo / LENT_PART
            && let Some(memory) = self.take_spare(bytes, class)
        {
            return Some((memory, lent));
        }
        self.lent_bytes.fetch_sub(lent, Ordering::Relaxed);
        let memory = self.take_fresh(bytes, class.alignment(), true)?;
        Some((memory, 0))
    }

    /// Notes that `bytes` that were lent have been charged, or are about to be given back.
    pub fn settle(&self, bytes: u64) {
        self.lent_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.spare_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Returns the class in which a segment for items of `size` bytes is taken from spare memory, if
    /// `class` has none and the next smaller one has: what was written while the tenant was smaller is
    /// used again, instead of being given back.
    pub fn suit(&self, class: Class, size: usize) -> Class {
        let has_spare = |class: Class| !lock(&self.spare[usize::from(class.number())]).is_empty();
        let smaller = class.smaller(size).filter(|_| !has_spare(class));
        smaller
            .filter(|&smaller| has_spare(smaller))
            .unwrap_or(class)
    }

    fn take_fresh(&self, bytes: usize, align: usize, _for_segment: bool) -> Option<Memory> {
        #[cfg(test)]
        if _for_segment {
            self.fresh.fetch_add(bytes as u64, Ordering::Relaxed);
        }
        Memory::take(&self.source, bytes, align).or_else(|| {
            self.empty();
            Memory::take(&self.source, bytes, align)
        })
    }

    /// Returns spare memory of `bytes`; or some that is a little longer, without its end. Its bytes
    /// stay counted.
    fn take_spare(&self, bytes: usize, class: Class) -> Option<Memory> {
        // To ask whether readers have left costs a barrier of all threads: once for all that is in
        // limbo, when there is nothing else.
        self.find_spare(bytes, class).or_else(|| {
            self.release();
            self.find_spare(bytes, class)
        })
    }

    fn find_spare(&self, bytes: usize, class: Class) -> Option<Memory> {
        let most = bytes + bytes / SMALLER_PART;
        let mut spare = lock(&self.spare[usize::from(class.number())]);
        let same = spare.iter().rposition(|memory| memory.len() == bytes);
        let at = same.or_else(|| {
            spare
                .iter()
                .rposition(|memory| memory.can_be_cut(bytes, most))
        });
        let mut memory = spare.remove(at?)?;
        drop(spare);
        let cut = (memory.len() - bytes) as u64;
        memory.cut(bytes);
        self.spare_bytes.fetch_sub(cut, Ordering::Relaxed);
        Some(memory)
    }

    /// Gives spare memory back until it and limbo are within their bound, first what was freed first.
    fn trim_spare(&self) {
        for spare in self.spare.iter().rev() {
            while self.spare_bytes() > 0 && self.spare_bytes() + self.limbo_bytes() > self.max_limbo
            {
                let Some(memory) = lock(spare).pop_front() else {
                    break;
                };
                self.spare_bytes
                    .fetch_sub(memory.len() as u64, Ordering::Relaxed);
            }
        }
    }

    /// Takes memory that no thread uses any more.
    pub fn recycle(&self, memory: Memory, class: Class) {
        if cfg!(debug_assertions) {
            // Should a reader be there against the rules, it finds nothing that was stored.
            // SAFETY: inside the memory, which no other thread uses.
            unsafe { memory.base().write_bytes(FREED, memory.len()) };
        }
        let bytes = memory.len() as u64;
        if self.spare_bytes() + self.limbo_bytes() + bytes <= self.max_limbo {
            let mut spare = lock(&self.spare[usize::from(class.number())]);
            if spare.try_reserve(1).is_ok() {
                spare.push_back(memory);
                self.spare_bytes.fetch_add(bytes, Ordering::Relaxed);
            }
        }
        // Memory that is not kept goes back to the arena.
    }

    /// Drops a segment of `bytes`, none of whose items is in the index, once readers have left.
    pub fn retire(&self, segment: Arc<dyn Debug + Send + Sync>, bytes: u64) {
        let cookie = global().get_state();
        let waiting = {
            let mut limbo = lock(&self.limbo);
            if limbo.try_reserve(1).is_err() {
                // Without memory to note it: it is leaked, rather than freed under a reader.
                mem::forget(segment);
                return;
            }
            limbo.push_back(Retired {
                cookie,
                bytes,
                _segment: segment,
            });
            // Under the lock, so that it is counted before another thread releases it.
            self.limbo_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes
        };
        if waiting + self.spare_bytes() > self.max_limbo {
            self.trim_spare();
        }
        if waiting > self.max_limbo {
            self.wait_for_readers();
        }
    }

    /// Returns whether a thread that adds to limbo has to wait.
    pub fn is_full(&self) -> bool {
        self.limbo_bytes.load(Ordering::Relaxed) > self.max_limbo
    }

    /// Waits for readers if too much is in limbo. A thread calls this before it takes memory, because it
    /// retires overwritten and deleted items in sections, where it cannot wait.
    pub fn wait_if_full(&self) {
        if self.is_full() {
            self.wait_for_readers();
        }
    }

    fn wait_for_readers(&self) {
        self.release();
        if !self.is_full() || !can_wait() {
            return;
        }
        let last = lock(&self.limbo).back().map(|last| last.cookie);
        if let Some(cookie) = last {
            self.wait_for(cookie);
            self.release();
        }
    }

    /// Waits some milliseconds for present readers to leave, if the caller may wait.
    pub fn wait_until_left(&self) {
        if can_wait() {
            self.wait_for(global().get_state());
        }
    }

    fn wait_for(&self, cookie: Cookie) {
        #[cfg(test)]
        self.waits.fetch_add(1, Ordering::Relaxed);
        wait_until(global(), cookie, clock::now() + clock::nanos(PATIENCE));
    }

    /// Frees what readers have left.
    pub fn release(&self) {
        if self.limbo_bytes.load(Ordering::Relaxed) == 0 {
            return;
        }
        loop {
            let due = {
                let mut limbo = lock(&self.limbo);
                let due = limbo.front().map(|first| global().poll(first.cookie));
                if due == Some(true) {
                    limbo.pop_front()
                } else {
                    None
                }
            };
            let Some(retired) = due else {
                return;
            };
            self.limbo_bytes.fetch_sub(retired.bytes, Ordering::Relaxed);
            drop(retired);
        }
    }

    /// Gives all memory that can be given back to the system, and waits for readers for it where
    /// that is possible, for a tenth of a second at most.
    pub fn empty(&self) {
        let last = lock(&self.limbo).back().map(|last| last.cookie);
        if let Some(cookie) = last
            && can_wait()
        {
            wait_until(global(), cookie, clock::now() + clock::nanos(PATIENCE * 10));
        }
        self.release();
        self.drop_spare();
        self.drain();
    }

    /// Gives freed memory back to the system. Called each second.
    pub fn tidy(&self) {
        self.release();
        self.drain();
    }

    /// Gives what was freed back to the system, if it is much, and readers have left it.
    pub fn drain_much(&self) {
        if self.source.reclaimable() > GIVEN_BACK {
            self.source.shrink();
        }
    }

    /// Gives what was freed back to the system. Waits some milliseconds for its readers.
    fn drain(&self) {
        self.source.shrink();
        if self.source.reclaimable() > 0 && can_wait() {
            self.wait_for(global().get_state());
            self.source.shrink();
        }
    }

    /// The end of the store: as [`Pool::empty`] and [`Pool::end_limbo`].
    pub fn close(&self) {
        self.empty();
        self.end_limbo();
    }

    /// Nothing waits here any more. Readers are waited for, however long they take; where that is
    /// impossible, what they are in is leaked.
    pub fn end_limbo(&self) {
        self.release();
        let left = mem::take(&mut *lock(&self.limbo));
        let Some(cookie) = left.back().map(|last| last.cookie) else {
            return;
        };
        let bytes = left.iter().map(|retired| retired.bytes).sum();
        self.limbo_bytes.fetch_sub(bytes, Ordering::Relaxed);
        if can_wait() {
            global().cond_synchronize(cookie);
            drop(left);
        } else {
            mem::forget(left);
        }
    }

    fn drop_spare(&self) {
        for spare in &self.spare {
            let memory = mem::take(&mut *lock(spare));
            let bytes: usize = memory.iter().map(Memory::len).sum();
            self.spare_bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
        }
    }

    /// Bytes that are spare, or lent.
    pub fn spare_bytes(&self) -> u64 {
        self.spare_bytes.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub fn lent_bytes(&self) -> u64 {
        self.lent_bytes.load(Ordering::Relaxed)
    }

    pub fn limbo_bytes(&self) -> u64 {
        self.limbo_bytes.load(Ordering::Relaxed)
    }
}
