//! The entries of a map that is given up.

use crate::{
    count::Count, driver::Taken, entries::Entries, entry::Entry, section::Live, walk::Walk,
};
use std::{marker::PhantomData, ptr::NonNull};

/// The entries of a map that no longer exists. Those that are not taken are dropped.
#[derive(Debug)]
pub struct OwnedEntries<K, V> {
    /// `None` for a map that never had a table. Dropped after the entries.
    taken: Option<Taken>,
    walk: Walk<'static>,
    entries: PhantomData<Entry<K, V>>,
}

// SAFETY: it owns keys and values, and no other thread has the map.
unsafe impl<K: Send, V: Send> Send for OwnedEntries<K, V> {}
// SAFETY: through a reference, threads look at keys and values.
unsafe impl<K: Sync, V: Sync> Sync for OwnedEntries<K, V> {}

impl<K, V> OwnedEntries<K, V> {
    /// # Safety
    ///
    /// Its entries are of these types.
    pub(crate) unsafe fn of(taken: Option<Taken>) -> Self {
        // SAFETY: it is there until this ends, and does not move.
        let live = |taken: &Taken| unsafe { Live::of(NonNull::from(taken.pinned())) };
        let core = taken.as_ref().map(live);
        Self {
            taken,
            walk: Walk::from(core, Some(0)),
            entries: PhantomData,
        }
    }

    /// Those that are left.
    pub fn iter(&self) -> Entries<'_, K, V> {
        // SAFETY: this owns them, and they are of these types. It takes none while it is borrowed.
        unsafe { Entries::of(self.walk.clone()) }
    }

    /// How many are left.
    pub fn len(&self) -> usize {
        self.counter().map_or(0, Count::get)
    }

    fn counter(&self) -> Option<&Count> {
        Some(&self.taken.as_ref()?.pinned().count)
    }
}

impl<K, V> Iterator for OwnedEntries<K, V> {
    type Item = Entry<K, V>;

    fn next(&mut self) -> Option<Entry<K, V>> {
        let head = loop {
            if let Some(head) = self.walk.next_here() {
                break head;
            }
            self.walk.step_to_used()?;
        };
        self.counter()?.add(1_u64.wrapping_neg());
        // SAFETY: of this map alone, which no longer exists; the walk does not come back to it.
        Some(unsafe { Entry::take(head.pointer().cast()) })
    }
}

impl<K, V> Drop for OwnedEntries<K, V> {
    fn drop(&mut self) {
        /// If the drop of one entry panics, the others are dropped all the same.
        struct GoOn<'a, K, V>(&'a mut OwnedEntries<K, V>);
        impl<K, V> Drop for GoOn<'_, K, V> {
            fn drop(&mut self) {
                self.0.by_ref().for_each(drop);
            }
        }
        let rest = GoOn(self);
        rest.0.by_ref().for_each(drop);
    }
}
