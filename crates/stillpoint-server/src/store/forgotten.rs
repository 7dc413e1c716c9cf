//! Prefixes whose items are gone: an item that was stored before its prefix was forgotten is dead at
//! look-up, without a walk.

use super::{layout::RawItem, prefixes::Prefixes};
use crate::lock::lock;
use std::sync::{
    Mutex,
    atomic::{AtomicU64, Ordering},
};
use stillpoint::{Rcu, read_lock};

/// The prefixes of a tenant that were ever forgotten: as many as an operator's files have named.
#[derive(Debug, Default)]
pub struct Forgotten {
    /// Highest CAS value in `prefixes`. Each store takes the next CAS value, so an item with a higher one
    /// was stored later.
    last: AtomicU64,
    /// Each prefix with the last CAS value that was given before it was forgotten.
    prefixes: Rcu<Prefixes<u64>>,
    /// Held while they are changed.
    changing: Mutex<()>,
}

impl Forgotten {
    /// Forgets what was stored under `prefixes` with CAS values up to `last`.
    pub fn add<'a>(&self, prefixes: impl Iterator<Item = &'a [u8]>, last: u64) {
        let _changing = lock(&self.changing);
        let new: Prefixes<u64> = prefixes.map(|prefix| (prefix.into(), last)).collect();
        let all = {
            let section = read_lock();
            // Prefixes that a new one covers are removed, so that the longest prefix of a key is the
            // one that was forgotten last.
            let before = self.prefixes.load(&section).iter();
            let rest = before.filter(|(prefix, _)| new.longest(prefix).is_none());
            let all = new.iter().chain(rest);
            all.map(|(prefix, last)| (prefix.into(), *last)).collect()
        };
        self.prefixes.store(all);
        // needs no partner: a thread that does not see it yet has not been told of the change that
        // it is for, and one that sees it before the prefixes finds the item as it was.
        self.last.store(last, Ordering::Relaxed);
    }

    /// Returns whether `item` was stored before its prefix was forgotten.
    #[inline]
    pub fn has(&self, item: RawItem) -> bool {
        let last = self.last.load(Ordering::Relaxed);
        last != 0 && item.cas() <= last && self.has_prefix_of(item)
    }

    #[cold]
    fn has_prefix_of(&self, item: RawItem) -> bool {
        let section = read_lock();
        let last = self.prefixes.load(&section).longest(item.key());
        last.is_some_and(|&last| item.cas() <= last)
    }
}
