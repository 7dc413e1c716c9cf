//! The records of one engine: assigned to threads and guards, walked by scans, never unmapped while
//! a thread may access them.
//!
//! The records are a list of chunks that only grows. A record without an owner stays in place,
//! quiescent, for the next owner, so the list is as long as the largest number of owners at a time.
//! Walking it takes no lock.
//!
//! A new chunk may be missed by a scan that has already read the head: it was then pushed after
//! that scan's heavy barrier, and a reader that uses it has seen the push before R2. That is the
//! same as entering its section after the barrier: the scan need not wait for such a reader
//! (`README.md`, "No reader is missed").
//!
//! # Records without an owner
//!
//! They are in one of two lists, chained through the records. An owner that gives its record back
//! pushes it onto the [`Stack`](super::stack::Stack) in [`Shared`], which a signal handler may do
//! too. A thread that needs a record locks the other list; if that is empty, it takes all records
//! from the stack. The push releases and the take acquires: the new owner finds the record as the
//! old one left it.

use super::{
    IN_MODEL, barrier_mode::BarrierMode, entry::Entry, flavour::Flavour, record::Record,
    shared::Shared,
};
use crate::platform::{
    sync::{Arc, AtomicPtr, Mutex, Ordering, lock},
    thread::{self, Token},
};
use std::{iter, ptr};

/// Number of records in the first chunk: most domains have one reader, or none.
const SMALLEST_CHUNK: usize = if IN_MODEL { 2 } else { 1 };

/// Largest number of records in a chunk. Up to that, each chunk doubles the number of records.
const LARGEST_CHUNK: usize = 32;

#[derive(Debug)]
struct Chunk {
    next: *mut Chunk,
    records: Box<[Record]>,
    /// Came out of a box. Each record points to one of them.
    entries: *mut [Entry],
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // SAFETY: it came out of a box in `grow`, and no record is used any more that points there.
        drop(unsafe { Box::from_raw(self.entries) });
    }
}

#[derive(Debug)]
pub(super) struct Registry {
    head: AtomicPtr<Chunk>,
    /// Records without an owner, and the right to grow.
    pub(super) free: Mutex<FreeList>,
    domain: u64,
    readers: BarrierMode,
    /// Keeps alive what every record points to.
    pub(super) shared: Arc<Shared>,
}

/// Records without an owner, chained.
#[derive(Debug)]
pub(super) struct FreeList(*const Record);

// SAFETY: the records are Sync, and only the owner of the list follows it.
unsafe impl Send for FreeList {}

impl FreeList {
    pub(super) const fn new() -> Self {
        Self(ptr::null())
    }

    fn pop(&mut self) -> Option<*const Record> {
        let first = self.0;
        // SAFETY: null, or a record of the registry that owns the list.
        self.0 = unsafe { first.as_ref() }?
            .next
            .load(Ordering::Relaxed)
            .cast();
        Some(first)
    }

    pub(super) fn push(&mut self, record: &Record) {
        record
            .next
            .store(self.0.cast_mut().cast(), Ordering::Relaxed);
        self.0 = record;
    }
}

impl Registry {
    /// Makes an empty registry. Its records point into `shared`, which the registry keeps alive for
    /// as long as it lives itself.
    pub(super) fn new(domain: u64, readers: BarrierMode, shared: Arc<Shared>) -> Self {
        let free = Mutex::new(FreeList::new());
        Self {
            head: AtomicPtr::new(ptr::null_mut()),
            free,
            domain,
            readers,
            shared,
        }
    }

    /// Returns a record for the calling thread, whose token is `token`. Allocates when all are taken.
    pub(super) fn claim(&self, token: Token, flavour: Flavour) -> &Record {
        let mut claimed = None;
        self.claim_some(token, thread::tid(), flavour, 1, |record| {
            claimed = Some(record)
        });
        claimed.expect("one was asked for")
    }

    /// Takes `count` records, under one lock; `tid` is the thread's kernel id.
    pub(super) fn claim_some<'r>(
        &'r self,
        token: Token,
        tid: u32,
        flavour: Flavour,
        count: usize,
        give: impl FnMut(&'r Record),
    ) {
        self.shared.owners.come(count);
        self.hand_out(token, tid, flavour, count, give);
    }

    /// Takes `count` records, which are counted as owned already.
    pub(super) fn hand_out<'r>(
        &'r self,
        token: Token,
        tid: u32,
        flavour: Flavour,
        count: usize,
        mut give: impl FnMut(&'r Record),
    ) {
        let mut free = lock(&self.free);
        for _ in 0..count {
            let record = free.pop().unwrap_or_else(|| self.refill(&mut free));
            // SAFETY: a record of this registry, which `self` borrows.
            let record = unsafe { &*record };
            record.assign(token, tid, flavour);
            give(record);
        }
    }

    /// Returns a record when `free` is empty.
    fn refill(&self, free: &mut FreeList) -> *const Record {
        free.0 = self.shared.given_back.take_all().cast();
        free.pop().unwrap_or_else(|| {
            self.grow(free);
            free.pop().expect("just grown")
        })
    }

    fn grow(&self, free: &mut FreeList) {
        let records = self.iter().count().clamp(SMALLEST_CHUNK, LARGEST_CHUNK);
        let shared = Arc::as_ptr(&self.shared);
        let entries: Box<[Entry]> = (0..records).map(|_| Entry::new()).collect();
        let entries = Box::into_raw(entries);
        let record = |n| {
            // SAFETY: in the box.
            let entry = unsafe { entries.cast::<Entry>().add(n) };
            // SAFETY: the registry keeps `shared` alive, and frees its chunks, and with each its
            // entries, before it lets go.
            unsafe { Record::new(self.domain, self.readers, shared, entry) }
        };
        let next = self.head.load(Ordering::Relaxed);
        let chunk = Box::into_raw(Box::new(Chunk {
            next,
            records: (0..records).map(record).collect(),
            entries,
        }));
        // Release, pairs with the acquire in `iter`: the chunk is complete before it can be found.
        self.head.store(chunk, Ordering::Release);
        // SAFETY: it is freed with the registry.
        unsafe { &(*chunk).records }
            .iter()
            .for_each(|record| free.push(record));
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Record> {
        // SAFETY: a chunk in the list was made by `grow` and lives as long as the registry, which
        // `self` borrows.
        let chunk = |at: *mut Chunk| unsafe { at.as_ref() };
        // Acquire, pairs with `grow`: a chunk that is found is complete.
        iter::successors(chunk(self.head.load(Ordering::Acquire)), move |last| {
            chunk(last.next)
        })
        .flat_map(|chunk| &*chunk.records)
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let mut at = self.head.load(Ordering::Relaxed);
        while !at.is_null() {
            // SAFETY: made by `Box::into_raw` in `grow`, and no reference to it is left: `self` is
            // unique.
            at = unsafe { Box::from_raw(at) }.next;
        }
    }
}

// SAFETY: the list is reached through the atomic head; a chunk's `next` and `entries` are written
// before the chunk is published and never again; records and entries are Sync.
unsafe impl Send for Registry {}
// SAFETY: as for Send.
unsafe impl Sync for Registry {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gp::seq::{Cookie, Sequence};

    fn registry() -> Registry {
        let shared = Shared::new(Sequence::new(Cookie::from_raw(0).seq()));
        Registry::new(1, BarrierMode::Membarrier, Arc::new(shared))
    }

    #[test]
    fn a_record_that_was_given_back_is_used_again() {
        let registry = registry();
        for _ in 0..1000 {
            let record = registry.claim(thread::token(), Flavour::Thread);
            record.depart();
        }
        assert_eq!(registry.iter().count(), 1);
    }

    #[test]
    fn threads_that_come_and_go_have_a_record_each_and_lose_none() {
        let registry = registry();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..if cfg!(miri) { 20 } else { 200 } {
                        let mut mine = Vec::new();
                        registry.claim_some(thread::token(), 0, Flavour::Owned, 8, |record| {
                            mine.push(record)
                        });
                        for record in &mine {
                            record.lock();
                        }
                        assert!(mine.iter().all(
                            |record| record.is_owned_by(thread::token()) && record.is_reading()
                        ));
                        for record in mine {
                            record.unlock();
                            record.depart();
                        }
                    }
                });
            }
        });
        assert!(
            registry.iter().count() <= 8 * 8 + LARGEST_CHUNK,
            "no more than were in use at a time"
        );
        let mut all = Vec::new();
        registry.claim_some(
            thread::token(),
            0,
            Flavour::Thread,
            registry.iter().count(),
            |record| all.push(record),
        );
        assert_eq!(
            all.len(),
            registry.iter().count(),
            "none was lost, or the registry would have grown"
        );
    }
}
