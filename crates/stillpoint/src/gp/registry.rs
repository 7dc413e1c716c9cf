//! The records of one engine: claimed by threads, walked by scans, never unmapped while a thread may touch them.
//!
//! A list of chunks that only grows. A record that its thread has given back stays in place, quiescent, until another thread
//! claims it; so the list is as long as the largest number of threads that were registered at a time. Walking it takes no
//! lock.
//!
//! A new chunk may be missed by a scan that has already read the head: it was then pushed after that scan's heavy
//! barrier, and whoever reads through it has seen the push before R2, which is the same as entering its section after the barrier:
//! such a reader is none of the scan's business (`engine.rs`, R2+R3 with W3+W4).

use super::{
    engine::{Readers, Shared},
    record::Record,
    stall::Flavour,
};
use crate::platform::{
    sync::{Arc, AtomicPtr, Mutex, Ordering, lock},
    thread::{self, Token},
};
use std::{iter, ptr};

#[cfg(not(stillpoint_loom))]
const RECORDS_PER_CHUNK: usize = 31;
#[cfg(stillpoint_loom)]
const RECORDS_PER_CHUNK: usize = 2;

#[derive(Debug)]
struct Chunk {
    next: *mut Chunk,
    records: [Record; RECORDS_PER_CHUNK],
}

#[derive(Debug)]
pub(super) struct Registry {
    head: AtomicPtr<Chunk>,
    /// Held while the list grows, so that a burst of new threads does not grow it by a chunk each.
    growing: Mutex<()>,
    domain: u64,
    readers: Readers,
    /// Keeps alive what every record points to.
    shared: Arc<Shared>,
}

impl Registry {
    /// An empty registry. Its records point into `shared`, which the registry keeps alive for as long as it lives itself.
    pub(super) fn new(domain: u64, readers: Readers, shared: Arc<Shared>) -> Self {
        Self { head: AtomicPtr::new(ptr::null_mut()), growing: Mutex::new(()), domain, readers, shared }
    }

    /// A record for the calling thread, whose token is `token`. Allocates when all are taken.
    pub(super) fn claim(&self, token: Token, flavour: Flavour) -> &Record {
        let claimed = || self.iter().find(|record| record.claim(token, flavour));
        if let Some(record) = claimed() {
            return record;
        }
        let _growing = lock(&self.growing);
        loop {
            // Another thread may have grown the list in the meantime, or may take what this one has just added.
            if let Some(record) = claimed() {
                return record;
            }
            self.grow();
        }
    }

    fn grow(&self) {
        let shared = Arc::as_ptr(&self.shared);
        let chunk = Box::into_raw(Box::new(Chunk {
            next: self.head.load(Ordering::Relaxed),
            // SAFETY: the registry keeps `shared` alive, and frees its chunks before it lets go.
            records: std::array::from_fn(|_| unsafe { Record::new(self.domain, self.readers, shared) }),
        }));
        // Release, the partner of the acquire in `iter`: the chunk is complete before it can be found.
        self.head.store(chunk, Ordering::Release);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Record> {
        // SAFETY: a chunk in the list was made by `grow` and lives as long as the registry, which `self` borrows.
        let chunk = |at: *mut Chunk| unsafe { at.as_ref() };
        iter::successors(chunk(self.head.load(Ordering::Acquire)), move |last| chunk(last.next)).flat_map(|chunk| &chunk.records)
    }

    /// # Safety
    ///
    /// As for [`fork::InChild::in_child`](crate::platform::fork::InChild::in_child); `me` is the calling thread.
    #[cfg(not(stillpoint_loom))]
    pub(super) unsafe fn in_child(&self, me: Token) {
        let tid = thread::tid();
        // SAFETY: the caller's promise, for all of them; foreign code does not run while the list grows.
        unsafe {
            self.growing.renew(());
            self.iter().for_each(|record| record.in_child(me, tid));
        }
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let mut at = self.head.load(Ordering::Relaxed);
        while !at.is_null() {
            // SAFETY: made by `Box::into_raw` in `grow`, and nobody holds a reference any more: `self` is unique.
            at = unsafe { Box::from_raw(at) }.next;
        }
    }
}

// SAFETY: the list is reached through the atomic head; a chunk's `next` is written before the chunk is published and never
// again; records are Sync.
unsafe impl Send for Registry {}
// SAFETY: as for Send.
unsafe impl Sync for Registry {}
