//! What a domain does for a map: grace periods, what is freed after them, and a callback that moves
//! tables on the service thread, a slice after each grace period.

use super::{
    core::{Core, World},
    epochs::GracePeriods,
    spill::Spill,
    table::Table,
};
use std::{
    cell::{RefCell, UnsafeCell},
    sync::Arc,
};
use stillpoint::{
    Cookie, Domain, global,
    internal::{self, Kept},
};
use stillpoint_platform::memory::is_there_for;

/// What a map and its callback share.
pub struct Shared<K, V> {
    pub core: Core<K, V, Cookie>,
    /// `None`: the global one. Used by the callback while it drives, and taken away after the map
    /// has been closed: a callback that is queued keeps no domain open.
    domain: UnsafeCell<Option<Kept>>,
}

// SAFETY: of keys and values it makes copies, on any thread; the cell is used by one thread at a
// time, as it says.
unsafe impl<K: Send, V: Send> Send for Shared<K, V> {}
// SAFETY: the same.
unsafe impl<K: Send, V: Send> Sync for Shared<K, V> {}

impl<K: Copy, V: Copy> Shared<K, V> {
    /// As [`Core::new`]; `None` without memory.
    pub fn new(entries: usize, stays: bool, domain: Option<Kept>) -> Option<Arc<Self>> {
        // `Arc::new` ends the process without it: the counts lie beside what is shared.
        if !is_there_for(size_of::<Self>() + 2 * size_of::<usize>()) {
            return None;
        }
        Some(Arc::new(Self {
            core: Core::new(entries, stays)?,
            domain: UnsafeCell::new(domain),
        }))
    }
}

impl<K, V> Shared<K, V> {
    /// Ends the map. Waits for the callback, if that is at work.
    ///
    /// # Safety
    ///
    /// No other thread uses it but the callback; nor does the caller any more. Called once.
    pub unsafe fn close(&self) {
        self.core.driving.close();
        // SAFETY: the caller's promise; the callback does not drive any more.
        unsafe {
            self.core.free_tables();
            drop((*self.domain.get()).take());
        }
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
        if let Some((block, layout)) = table.as_block() {
            // SAFETY: allocated with that layout; no reader from now on finds the table.
            unsafe { self.domain.retire_sized(block, layout) };
            return;
        }
        free_later(self.domain, table);
    }

    fn drive_later(&self) {
        // SAFETY: of an `Arc`, which is there.
        let shared = unsafe {
            Arc::increment_strong_count(self.shared);
            Arc::from_raw(self.shared)
        };
        drive_later(self.domain, shared);
    }
}

/// Without memory a later change of the map asks again.
#[cold]
fn drive_later<K, V>(domain: &Domain, shared: Arc<Shared<K, V>>)
where
    K: Copy + Eq + Send + 'static,
    V: Copy + Send + 'static,
{
    let kept = Arc::clone(&shared);
    let queued = internal::try_call(domain, move || {
        if !shared.core.driving.begin() {
            return;
        }
        /// Also if it panics: the drop of the map waits for it.
        struct End<'a, K, V>(&'a Shared<K, V>);
        impl<K, V> Drop for End<'_, K, V> {
            fn drop(&mut self) {
                self.0.core.driving.end();
            }
        }
        let _end = End(&shared);
        // SAFETY: this drives. So the map is there, and keeps the domain open.
        let domain = unsafe { &*shared.domain.get() };
        let domain = domain.as_deref().unwrap_or_else(|| global());
        let later = Later {
            world: In {
                domain,
                shared: Arc::as_ptr(&shared),
            },
            spills: RefCell::default(),
        };
        let section = domain.read_lock();
        // SAFETY: inside a section of the map's domain, and this drives.
        let again = unsafe { shared.core.drive(&later) };
        drop(section);
        drop(later);
        if again {
            drive_later(domain, Arc::clone(&shared));
        }
    });
    if !queued {
        kept.core.driving.give_up();
    }
}

/// A map's domain, for its own service thread, which must not run user code in a slice, as a retire
/// may: the drop of this map waits for the slice. One callback frees all nodes that it has left.
struct Later<'m, K, V>
where
    K: Send + 'static,
    V: Send + 'static,
{
    world: In<'m, K, V>,
    spills: RefCell<Vec<Unused<Spill<K, V>>>>,
}

/// What no thread uses after a grace period.
struct Unused<T>(T);

// SAFETY: an address.
unsafe impl<T> Send for Unused<T> {}

impl<K: Send + 'static, V: Send + 'static> GracePeriods for Later<'_, K, V> {
    type Cookie = Cookie;

    fn get_state(&self) -> Cookie {
        self.world.get_state()
    }

    fn has_ended(&self, cookie: Cookie) -> bool {
        self.world.has_ended(cookie)
    }

    fn poll(&self, cookie: Cookie) -> bool {
        self.world.poll(cookie)
    }
}

impl<K: Send + 'static, V: Send + 'static> World<K, V> for Later<'_, K, V> {
    fn retire_spill(&self, spill: Spill<K, V>) {
        let mut spills = self.spills.borrow_mut();
        if spills.try_reserve(1).is_ok() {
            spills.push(Unused(spill));
        } else {
            free_spills_later(self.world.domain, [Unused(spill)]);
        }
    }

    fn retire_table(&self, table: Table<'_, K, V>) {
        free_later(self.world.domain, table);
    }

    fn drive_later(&self) {
        // `Core::drive` returns whether there is more.
    }
}

impl<K: Send + 'static, V: Send + 'static> Drop for Later<'_, K, V> {
    fn drop(&mut self) {
        let spills = self.spills.take();
        if !spills.is_empty() {
            free_spills_later(self.world.domain, spills);
        }
    }
}

/// Without memory for the callback they are never freed.
fn free_spills_later<K: 'static, V: 'static>(
    domain: &Domain,
    spills: impl IntoIterator<Item = Unused<Spill<K, V>>> + Send + 'static,
) {
    internal::try_call(domain, move || {
        for Unused(spill) in spills {
            // SAFETY: no reader has found it since; the grace period has ended.
            unsafe { spill.free() };
        }
    });
}

/// By a callback: a large block would count against the budget. Without memory for that the table is
/// never freed: readers may still be in it.
fn free_later<K: 'static, V: 'static>(domain: &Domain, table: Table<'_, K, V>) {
    // SAFETY: it is not used before the grace period has ended.
    let old = Unused(unsafe { table.forget_lifetime() });
    internal::try_call(domain, move || {
        let old: Unused<Table<'static, K, V>> = old;
        // SAFETY: the grace period has ended.
        unsafe { old.0.free_memory() };
    });
}
