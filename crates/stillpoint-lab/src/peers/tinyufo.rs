//! Cloudflare's TinyUFO in its fast form. It hashes with ahash and cannot be told otherwise.

use tinyufo::TinyUfo;

use crate::cache::{Cache, weight_of};
use crate::subject::{Peer, Registry};

/// What it takes part in.
pub fn register(to: &mut impl Registry) {
    to.caches::<Tinyufo>(Peer::new("tinyufo"));
}

/// The cache.
pub struct Tinyufo {
    cache: TinyUfo<u64, u64>,
    has_weights: bool,
}

impl Cache for Tinyufo {
    fn with_entries(entries: usize) -> Self {
        Self {
            cache: TinyUfo::new(entries, entries),
            has_weights: false,
        }
    }

    fn with_weight(weight: u64, entries: usize) -> Self {
        Self {
            cache: TinyUfo::new(weight as usize, entries),
            has_weights: true,
        }
    }

    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.cache.get(&key)
    }

    /// The crate keeps weights in 16 bits: a heavier entry weighs as much as fits.
    #[inline]
    fn insert(&self, key: u64, value: u64) {
        let weight = if self.has_weights {
            u16::try_from(weight_of(value)).unwrap_or(u16::MAX)
        } else {
            1
        };
        self.cache.put(key, value, weight);
    }
}
