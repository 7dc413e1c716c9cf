//! For the torture program alone: a map of copies that may write slots without waiting for readers.

use super::{
    core::{Changed, Core, World},
    epochs::GracePeriods,
    fast::Cut,
    spill::Spill,
    table::Table,
    walk::Walk,
    world::{In, Shared},
};
use crate::store::Policy;
use std::{marker::PhantomData, ptr::NonNull, sync::Arc};
use stillpoint::{
    Cookie, Domain, Guard,
    internal::{self, Kept},
};

/// A map of numbers, whose hashes are what the caller says.
pub struct Copies<P> {
    shared: Arc<Shared<u64, u64>>,
    domain: Kept,
    hash_of: fn(&u64) -> u64,
    policy: PhantomData<fn() -> P>,
}

// SAFETY: it owns numbers.
unsafe impl<P> Send for Copies<P> {}
// SAFETY: through a reference, threads get copies of numbers, and move them in.
unsafe impl<P> Sync for Copies<P> {}

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
            shared: Shared::of(|| Core::new(0, false), Some(domain.into())).expect(NO_MEMORY),
            domain: domain.into(),
            hash_of,
            policy: PhantomData,
        }
    }

    /// Begins a section of the map's domain.
    pub fn read_lock(&self) -> Guard<'_> {
        self.domain.read_lock()
    }

    /// The domain that the map was made in.
    pub fn domain(&self) -> &Domain {
        &self.domain
    }

    fn core(&self) -> &Core<u64, u64, Cookie> {
        &self.shared.core
    }

    fn change(&self, key: u64, mut act: impl FnMut(&super::core::Look<'_, u64, u64>) -> Changed) {
        let _section = self.read_lock();
        loop {
            // SAFETY: inside a section of the map's domain.
            let look = unsafe {
                self.core()
                    .look((self.hash_of)(&key), |other| *other == key)
            };
            match act(&look) {
                Changed::Done => return,
                Changed::NotSame => {}
            }
        }
    }

    /// Inserts an entry, or replaces its value.
    pub fn put(&self, key: u64, value: u64) {
        let (hash, world) = ((self.hash_of)(&key), Without::<P>::of(self));
        let section = self.read_lock();
        // SAFETY: inside a section of the map's domain.
        if unsafe { self.core().add(hash, (key, value), &world, &self.hash_of) } {
            return;
        }
        drop(section);
        // SAFETY: inside the section of the look, for this hash.
        self.change(key, |look| unsafe {
            self.core()
                .put(hash, look, (key, value), &world, &self.hash_of)
        });
    }

    /// Removes an entry, if there is one.
    pub fn remove(&self, key: u64) {
        let (hash, world) = ((self.hash_of)(&key), Without::<P>::of(self));
        let (section, is_it) = (self.read_lock(), |other: &u64| *other == key);
        // SAFETY: inside a section of the map's domain.
        let cut = unsafe { self.core().cut(hash, is_it, &world, &self.hash_of) };
        drop(section);
        if cut != Cut::NotSoFast {
            return;
        }
        self.change(key, |look| match look.pair() {
            // SAFETY: inside the section of the look, for this hash.
            Some(_) => unsafe { self.core().take(hash, look, &world, &self.hash_of) },
            None => Changed::Done,
        });
    }

    fn check(&self, section: &Guard<'_>) {
        let is_ours = internal::is_of(section, Some(&self.domain));
        assert!(is_ours, "the section is of another domain");
    }

    /// The value of a key. `compared` is called for each entry with its tag, before the next is
    /// copied.
    ///
    /// # Panics
    ///
    /// If the section is of another domain.
    pub fn find(&self, key: u64, section: &Guard<'_>, mut compared: impl FnMut()) -> Option<u64> {
        self.check(section);
        let is_it = |other: &u64| {
            compared();
            *other == key
        };
        // SAFETY: inside a section of the map's domain.
        unsafe {
            self.core()
                .table()
                .find((self.hash_of)(&key), is_it, |(_, value)| value)
        }
    }

    /// Visits all entries.
    ///
    /// # Panics
    ///
    /// If the section is of another domain.
    pub fn visit(&self, section: &Guard<'_>, mut visit: impl FnMut(u64, u64)) {
        self.check(section);
        let core = Some(NonNull::from(self.core()));
        // SAFETY: inside a section of the map's domain.
        let mut walk = unsafe { Walk::from(core, Some(0)) };
        while let Some((key, value)) = walk.next(&self.hash_of) {
            visit(key, value);
        }
    }
}

impl<P> Drop for Copies<P> {
    fn drop(&mut self) {
        // SAFETY: no other thread has the map but the callback.
        unsafe {
            self.shared.core.driving.close();
            self.shared.free();
        }
    }
}

impl<P> std::fmt::Debug for Copies<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Copies").finish_non_exhaustive()
    }
}

/// The domain, without what the policy leaves out.
struct Without<'m, P>(In<'m, u64, u64>, PhantomData<P>);

impl<'m, P> Without<'m, P> {
    fn of(map: &'m Copies<P>) -> Self {
        let world = In {
            domain: &map.domain,
            shared: Arc::as_ptr(&map.shared),
        };
        Self(world, PhantomData)
    }
}

impl<P: Policy> GracePeriods for Without<'_, P> {
    type Cookie = Cookie;

    fn get_state(&self) -> Cookie {
        self.0.get_state()
    }

    fn has_ended(&self, cookie: Cookie) -> bool {
        !P::WAITS_FOR_READERS || self.0.has_ended(cookie)
    }

    fn poll(&self, cookie: Cookie) -> bool {
        !P::WAITS_FOR_READERS || self.0.poll(cookie)
    }
}

impl<P: Policy> World<u64, u64> for Without<'_, P> {
    fn retire_spill(&self, spill: Spill<u64, u64>) {
        self.0.retire_spill(spill);
    }

    fn retire_table(&self, table: Table<'_, u64, u64>) {
        self.0.retire_table(table);
    }

    fn drive_later(&self) {
        self.0.drive_later();
    }
}
