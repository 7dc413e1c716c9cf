//! Names of maps, for the statistics page ([`crate::shown`]).

use super::{map::CopyMap, world::Shared};
use crate::{load::copies::capacity, store::no_memory};

impl<K: Copy, V: Copy> Shared<K, V> {
    /// As [`Core::show`].
    ///
    /// # Safety
    ///
    /// As there.
    unsafe fn show(&self, name: Box<str>) -> bool {
        let core = &self.core;
        core.driving.apart(|| {
            // SAFETY: the caller's promise, here and below; the service thread does not drive.
            if core.count.shown().is_some() || !unsafe { core.count.show(name, false) } {
                return core.count.shown().is_some();
            }
            // SAFETY: as above.
            let table = unsafe { core.table() };
            let next = table.next().map(|next| next.bytes());
            let room = capacity(table.bits());
            core.count.show_tables(table.bytes(), room, next);
            true
        })
    }
}

impl<K: Copy, V: Copy, S> CopyMap<K, V, S> {
    /// Returns this map with a name, by which it is in the statistics page, as
    /// [`HashMap::named`](crate::HashMap::named) does. Its entries are in its table.
    ///
    /// ```
    /// let next_hop = stillpoint_map::CopyMap::<u32, u32>::new().named("next hop");
    /// next_hop.pin().insert(1, 2);
    /// ```
    #[must_use]
    pub fn named(self, name: impl Into<Box<str>>) -> Self {
        let shared = self.shared_for(0, false);
        // SAFETY: no other thread uses the map, which is the caller's.
        if !shared.is_some_and(|shared| unsafe { shared.show(name.into()) }) {
            no_memory();
        }
        self
    }
}
