//! What a domain does for a map of copies: grace periods, and what [`crate::reclaim`] has.

use super::{
    core::{Core, World},
    epochs::GracePeriods,
    map::PinnedCopyMap,
};
use crate::{
    driver,
    reclaim::{InDomain, Later},
};
use std::{
    hash::{BuildHasher, Hash},
    ptr::NonNull,
};
use stillpoint::{Cookie, Domain, internal};

/// What a map and its callback share.
pub type Shared<K, V> = driver::Shared<Core<K, V, Cookie>>;

// SAFETY: both are the map's.
unsafe impl<K, V, S> InDomain for PinnedCopyMap<K, V, S> {
    type Core = Core<K, V, Cookie>;

    fn domain(&self) -> &Domain {
        (**self).domain()
    }

    fn shared(&self) -> Option<NonNull<Shared<K, V>>> {
        self.root.shared()
    }
}

// SAFETY: those of the map's domain.
unsafe impl<K, V, S> GracePeriods for &PinnedCopyMap<K, V, S> {
    type Cookie = Cookie;

    fn get_state(&self) -> Cookie {
        self.domain().get_state()
    }

    fn has_ended(&self, cookie: Cookie) -> bool {
        internal::has_ended(self.domain(), cookie)
    }

    fn poll(&self, cookie: Cookie) -> bool {
        self.domain().poll(cookie)
    }
}

impl<K, V, S> World<K, V> for &PinnedCopyMap<K, V, S>
where
    K: Copy + Hash + Eq + Send + 'static,
    V: Copy + Send + 'static,
    S: BuildHasher,
{
    #[inline(always)]
    fn hash_of(self, key: &K) -> u64 {
        self.hash(key)
    }
}

// SAFETY: those of the map's domain.
unsafe impl GracePeriods for &Later<'_> {
    type Cookie = Cookie;

    fn get_state(&self) -> Cookie {
        self.domain.get_state()
    }

    fn has_ended(&self, cookie: Cookie) -> bool {
        internal::has_ended(self.domain, cookie)
    }

    fn poll(&self, cookie: Cookie) -> bool {
        self.domain.poll(cookie)
    }
}

impl<K: Send + 'static, V: Send + 'static> World<K, V> for &Later<'_> {
    fn hash_of(self, _: &K) -> u64 {
        unreachable!("a table that does not grow hashes no keys")
    }
}
