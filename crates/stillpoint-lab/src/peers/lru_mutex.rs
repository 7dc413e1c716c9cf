//! Exact LRU: the crate lru's list and table behind std's mutex.

use std::sync::{Mutex, PoisonError};

use lru::LruCache;

use crate::cache::{BuildHasher, Cache, CacheHandle, weight_of};
use crate::subject::{Peer, Registry};

/// What it takes part in.
pub fn register(to: &mut impl Registry) {
    to.caches::<LruMutex>(Peer::new("lru-mutex"));
}

/// The cache.
pub struct LruMutex {
    state: Mutex<State>,
    most: u64,
    has_weights: bool,
}

struct State {
    entries: LruCache<u64, u64, BuildHasher>,
    weight: u64,
}

impl LruMutex {
    fn new(most: u64, has_weights: bool) -> Self {
        let state = State {
            entries: LruCache::unbounded_with_hasher(BuildHasher::default()),
            weight: 0,
        };
        Self {
            state: Mutex::new(state),
            most,
            has_weights,
        }
    }

    #[inline]
    fn weight_of(&self, value: u64) -> u64 {
        if self.has_weights {
            weight_of(value).into()
        } else {
            1
        }
    }
}

impl Cache for LruMutex {
    type Handle<'c> = &'c Self;

    fn with_entries(entries: usize) -> Self {
        Self::new(entries as u64, false)
    }

    fn with_weight(weight: u64, _entries: usize) -> Self {
        Self::new(weight, true)
    }

    fn handle(&self) -> &Self {
        self
    }
}

impl CacheHandle for &LruMutex {
    #[inline]
    fn get(&mut self, key: u64) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.entries.get(&key).copied()
    }

    #[inline]
    fn insert(&mut self, key: u64, value: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State { entries, weight } = &mut *state;
        if let Some(old) = entries.put(key, value) {
            *weight -= self.weight_of(old);
        }
        *weight += self.weight_of(value);
        while *weight > self.most
            && let Some((_, old)) = entries.pop_lru()
        {
            *weight -= self.weight_of(old);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_goes_first() {
        let lru = LruMutex::with_entries(3);
        let mut cache = lru.handle();
        for key in 0..3 {
            cache.insert(key, key);
        }
        assert_eq!(cache.get(0), Some(0));
        cache.insert(3, 3);
        assert_eq!(
            [0, 1, 2, 3].map(|key| cache.get(key)),
            [Some(0), None, Some(2), Some(3)]
        );
    }

    #[test]
    fn weights_are_those_of_the_values() {
        let lru = LruMutex::with_weight(10, 4);
        let mut cache = lru.handle();
        cache.insert(1, 4);
        cache.insert(2, 4);
        cache.insert(1, 6);
        assert_eq!([1, 2].map(|key| cache.get(key)), [Some(6), Some(4)]);
        cache.insert(3, 5);
        assert_eq!(
            [1, 2, 3].map(|key| cache.get(key)),
            [None, Some(4), Some(5)]
        );
    }
}
