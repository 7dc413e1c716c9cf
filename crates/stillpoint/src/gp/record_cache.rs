//! Records that a thread keeps for its next owned guards.
//!
//! A guard that may be dropped on any thread has a record that no thread owns. The thread that makes the
//! guard takes the record from its cache, and the thread that drops the guard puts it into its own,
//! without a lock or an atomic read-modify-write. If guards end on other threads than they began, one in
//! [`BATCH`] guards needs the registry.

use super::{IN_MODEL, engine::Engine, flavour::Flavour, policy::Policy, record::Record};
use crate::platform::thread::Token;
use std::cell::Cell;

/// Number of records that come from the registry, or go back to it, at a time.
const BATCH: usize = if IN_MODEL { 1 } else { 16 };

/// Number of records that a thread keeps at most.
const KEPT: usize = 2 * BATCH;

/// Quiescent records of one engine, owned by the calling thread. The caller gives them back before
/// it drops this ([`RecordCache::give_back`]).
#[derive(Debug)]
pub(crate) struct RecordCache {
    records: [Cell<*const Record>; KEPT],
    count: Cell<usize>,
    /// The thread's kernel id, if there are records.
    tid: Cell<u32>,
}

impl RecordCache {
    pub(crate) fn new() -> Self {
        Self {
            records: std::array::from_fn(|_| Cell::new(std::ptr::null())),
            count: Cell::new(0),
            tid: Cell::new(0),
        }
    }

    /// Records the thread's kernel id, by its record `own`. Called before there are cached records,
    /// and in the child of a fork.
    pub(crate) fn note_tid(&self, own: &Record) {
        self.tid.set(own.tid());
    }

    /// Returns a quiescent record of `engine`, for the calling thread to give to a guard. `own` is
    /// the thread's own record there.
    #[inline]
    pub(crate) fn take<'e, P: Policy>(
        &self,
        engine: &'e Engine<P>,
        token: Token,
        own: &Record,
    ) -> &'e Record {
        if self.count.get() == 0 {
            self.refill(engine, token, own);
        }
        let left = self.count.get() - 1;
        self.count.set(left);
        // SAFETY: a record of the engine.
        unsafe { &*self.records[left].get() }
    }

    #[cold]
    #[inline(never)]
    fn refill<P: Policy>(&self, engine: &Engine<P>, token: Token, own: &Record) {
        self.note_tid(own);
        engine
            .registry
            .claim_some(token, self.tid.get(), Flavour::Owned, BATCH, |record| {
                self.push(record)
            });
    }

    fn push(&self, record: &Record) {
        let count = self.count.get();
        self.records[count].set(record);
        self.count.set(count + 1);
    }

    /// Keeps the quiescent record of a guard that ends on the calling thread, whose own record is
    /// `own`.
    #[inline]
    pub(crate) fn keep(&self, record: &Record, token: Token, own: &Record) {
        match self.count.get() {
            0 => self.note_tid(own),
            KEPT => self.give_back(BATCH),
            _ => {}
        }
        record.take_back(token, self.tid.get());
        self.push(record);
    }

    /// Gives records back to the registry until `left` remain.
    #[cold]
    #[inline(never)]
    pub(crate) fn give_back(&self, left: usize) {
        while self.count.get() > left {
            let last = self.count.get() - 1;
            self.count.set(last);
            // SAFETY: a record of an engine that the owner of this keeps alive.
            unsafe { &*self.records[last].get() }.vacate();
        }
    }
}
