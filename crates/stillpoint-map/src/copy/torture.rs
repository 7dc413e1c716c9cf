//! For the torture program alone: a map of copies that may write slots without waiting for readers.

use super::{
    core::{self, Changed, Core, World},
    epochs::GracePeriods,
    fast::Cut,
    walk::Walk,
    world::Shared,
};
use crate::{
    domain::Home,
    driver::Taken,
    reclaim::InDomain,
    section::{Pinned, Writer},
    store::Policy,
};
use std::{marker::PhantomData, ptr::NonNull, sync::Arc};
use stillpoint::{Cookie, Domain, Guard, internal};

type Numbers = Core<u64, u64, Cookie>;
type Look<'g, P> = core::Look<'g, u64, u64, Cookie, &'g Copies<P>>;

/// A map of numbers, whose hashes are what the caller says.
pub struct Copies<P> {
    shared: Arc<Shared<u64, u64>>,
    home: Home,
    hash_of: fn(&u64) -> u64,
    policy: PhantomData<fn() -> P>,
}

/// Why there is no table.
const NO_MEMORY: &str = "no memory for a map of copies";

impl<P: Policy> Copies<P> {
    /// An empty one.
    ///
    /// # Panics
    ///
    /// Without memory.
    pub fn new(domain: &Domain, hash_of: fn(&u64) -> u64) -> Self {
        Self {
            shared: Shared::of(Some(domain.into()), 0, false).expect(NO_MEMORY),
            home: Home(Some(domain.into())),
            hash_of,
            policy: PhantomData,
        }
    }

    /// Begins a section of the map's domain.
    pub fn read_lock(&self) -> Guard<'_> {
        self.home.read_lock()
    }

    /// The domain that the map was made in.
    pub fn domain(&self) -> &Domain {
        self.home.domain()
    }

    /// The map, in a section that its caller has begun.
    fn writer<'g>(&'g self, section: &'g Guard<'_>) -> Writer<'g, Numbers, &'g Self> {
        self.home.check(section);
        // SAFETY: inside a section of the map's domain. The policy is broken on purpose.
        unsafe { Writer::of(Pinned::of(&self.shared.core), self) }
    }

    fn change(&self, key: u64, mut act: impl FnMut(&Look<'_, P>) -> Changed) {
        let section = self.read_lock();
        let writer = self.writer(&section);
        loop {
            let look = writer.look((self.hash_of)(&key), |other| *other == key);
            match act(&look) {
                Changed::Done => return,
                Changed::NotSame => {}
            }
        }
    }

    /// Inserts an entry, or replaces its value.
    pub fn put(&self, key: u64, value: u64) {
        let section = self.read_lock();
        let added = self
            .writer(&section)
            .add((self.hash_of)(&key), (key, value));
        drop(section);
        if !added {
            self.change(key, |look| look.put((key, value)));
        }
    }

    /// Removes an entry, if there is one.
    pub fn remove(&self, key: u64) {
        let section = self.read_lock();
        let cut = self
            .writer(&section)
            .cut((self.hash_of)(&key), |other| *other == key);
        drop(section);
        if cut != Cut::NotSoFast {
            return;
        }
        self.change(key, |look| match look.pair() {
            Some(_) => look.take(),
            None => Changed::Done,
        });
    }

    /// The value of a key. `compared` is called for each entry with its tag, before the next is
    /// copied.
    ///
    /// # Panics
    ///
    /// If the section is of another domain.
    pub fn find(&self, key: u64, section: &Guard<'_>, mut compared: impl FnMut()) -> Option<u64> {
        let is_it = |other: &u64| {
            compared();
            *other == key
        };
        let table = self.writer(section).core().table();
        table.find((self.hash_of)(&key), is_it, |(_, value)| value)
    }

    /// Visits all entries.
    ///
    /// # Panics
    ///
    /// If the section is of another domain.
    pub fn visit(&self, section: &Guard<'_>, mut visit: impl FnMut(u64, u64)) {
        let core = self.writer(section).core();
        let mut walk = Walk::from(Some(core.live()), Some(0));
        while let Some((key, value)) = walk.next(&self.hash_of) {
            visit(key, value);
        }
    }
}

impl<P> Drop for Copies<P> {
    fn drop(&mut self) {
        // SAFETY: no other thread has the map but the callback.
        drop(unsafe { Taken::of(Arc::clone(&self.shared)) });
    }
}

impl<P> std::fmt::Debug for Copies<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Copies").finish_non_exhaustive()
    }
}

// SAFETY: both are the map's.
unsafe impl<P> InDomain for Copies<P> {
    type Core = Numbers;

    fn domain(&self) -> &Domain {
        self.home.domain()
    }

    fn shared(&self) -> Option<NonNull<Shared<u64, u64>>> {
        NonNull::new(Arc::as_ptr(&self.shared).cast_mut())
    }
}

/// Those of the domain, without what the policy leaves out.
// SAFETY: those of the domain; the caller lets a policy leave them out.
unsafe impl<P: Policy> GracePeriods for &Copies<P> {
    type Cookie = Cookie;

    fn get_state(&self) -> Cookie {
        self.home.domain().get_state()
    }

    fn has_ended(&self, cookie: Cookie) -> bool {
        !P::WAITS_FOR_READERS || internal::has_ended(self.home.domain(), cookie)
    }

    fn poll(&self, cookie: Cookie) -> bool {
        !P::WAITS_FOR_READERS || self.home.domain().poll(cookie)
    }
}

impl<P: Policy> World<u64, u64> for &Copies<P> {
    fn hash_of(self, key: &u64) -> u64 {
        (self.hash_of)(key)
    }
}
