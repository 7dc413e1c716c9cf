//! What a domain does for a map: grace periods, what is freed after them, and a callback that moves
//! tables on the service thread, a slice after each grace period.

use super::{
    core::{Core, World},
    epochs::GracePeriods,
    spill::Spill,
    table::{InPlace, Table},
};
use crate::{
    driver::{self, Driven},
    reclaim::{Later, free_table_later, retire_table},
};
use stillpoint::{Cookie, Domain, internal};

/// What a map and its callback share.
pub type Shared<K, V> = driver::Shared<Core<K, V, Cookie>>;

impl<K, V> Driven for Core<K, V, Cookie>
where
    K: Copy + Eq + Send + 'static,
    V: Copy + Send + 'static,
{
    type Kind = InPlace<K, V>;

    unsafe fn move_slice(&self, later: &Later<'_>) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.drive(later) }
    }
}

/// A map's domain.
pub struct In<'m, K, V> {
    pub domain: &'m Domain,
    /// Of an `Arc`, which is there for as long as this. No reference: that would not reach the
    /// `Arc`'s counts.
    pub shared: *const Shared<K, V>,
}

impl<K, V> GracePeriods for In<'_, K, V> {
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

impl<K, V> World<K, V> for In<'_, K, V>
where
    K: Copy + Eq + Send + 'static,
    V: Copy + Send + 'static,
{
    fn retire_spill(&self, spill: Spill<K, V>) {
        // SAFETY: allocated with that layout; no reader from now on finds it. It needs no drop.
        unsafe {
            let (block, layout) = spill.block();
            self.domain.retire_sized(block, layout);
        }
    }

    fn retire_table(&self, table: Table<'_, K, V>) {
        // SAFETY: no reader from now on finds the table.
        unsafe { retire_table(self.domain, table) };
    }

    fn drive_later(&self) {
        // SAFETY: of an `Arc`, which is there.
        unsafe { Shared::queue_driver_of(self.shared, self.domain) };
    }
}

impl GracePeriods for Later<'_> {
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

impl<K: Send + 'static, V: Send + 'static> World<K, V> for Later<'_> {
    fn retire_spill(&self, spill: Spill<K, V>) {
        let (block, layout) = spill.block();
        // SAFETY: allocated with that layout; no reader from now on finds it. It needs no drop.
        unsafe { self.block(block, layout) };
    }

    fn retire_table(&self, table: Table<'_, K, V>) {
        // SAFETY: no reader from now on finds the table.
        unsafe { free_table_later(self.domain, table) };
    }

    fn drive_later(&self) {
        // `Core::drive` returns whether there is more.
    }
}
