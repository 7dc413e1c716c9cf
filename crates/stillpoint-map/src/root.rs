//! The root of a hash map: its domain, and the core that it shares with the service thread, which exists once there
//! is a table.

use crate::{
    core::Core,
    domain::Home,
    driver::{Shared, Taken},
    growth::HasTables,
    table::{FEWEST_BITS, Kind, Table},
};
use std::{alloc::handle_alloc_error, ptr::NonNull, sync::Arc};
use stillpoint::internal::Kept;
use stillpoint_platform::race::RaceCell;

/// The domain of a map, and its core once there is a table.
#[derive(Debug)]
pub struct Root<C = Core> {
    /// Empty until there is a table: an empty map allocates nothing.
    shared: RaceCell<Arc<Shared<C>>>,
    pub home: Home,
}

impl<C> Root<C> {
    /// Creates one in `domain` (`None`: the global one). Does not allocate.
    pub const fn new(domain: Option<Kept>) -> Self {
        Self {
            shared: RaceCell::new(),
            home: Home(domain),
        }
    }

    /// Creates an empty one in the same domain.
    pub fn new_alike(&self) -> Self {
        Self::new(self.home.0.clone())
    }

    /// Returns what is shared with the service thread, if there is a table. The map owns one
    /// reference of the `Arc`.
    #[inline(always)]
    pub fn shared(&self) -> Option<NonNull<Shared<C>>> {
        self.shared.pointer()
    }

    #[inline(always)]
    pub fn core(&self) -> Option<&C> {
        Some(&self.shared.get()?.core)
    }
}

impl<C: HasTables> Root<C> {
    /// Returns how many entries there are. Exact while no thread changes the map.
    #[inline]
    pub fn len(&self) -> usize {
        self.core().map_or(0, |core| core.count.get())
    }

    /// Returns the core. If there was none, creates one with room for `entries`. If `stays`, it never shrinks
    /// below that. Returns `None` without memory.
    #[inline]
    pub fn core_for(&self, entries: usize, stays: bool) -> Option<&C> {
        match self.core() {
            Some(core) => Some(core),
            None => self.make(entries, stays),
        }
    }

    #[cold]
    fn make(&self, entries: usize, stays: bool) -> Option<&C> {
        let made = Shared::of(self.home.0.clone(), entries, stays)?;
        Some(&self.shared.put(made).core)
    }

    /// If there is no table, creates one with room for `entries`. If `stays`, it never shrinks below that.
    /// Ends the process without memory, and panics if no table can be that large.
    #[track_caller]
    pub fn make_room(&self, entries: usize, stays: bool) {
        if entries > 0 && self.core_for(entries, stays).is_none() {
            self.no_room(entries);
        }
    }

    /// Ends the process, as there is no memory for a table with room for `more` more entries. Panics if no
    /// table can be so large.
    #[cold]
    #[track_caller]
    pub fn no_room(&self, more: usize) -> ! {
        let entries = self.len().checked_add(more);
        match entries
            .and_then(C::Kind::bits_for)
            .and_then(Table::<C::Kind>::layout)
        {
            Some(layout) => handle_alloc_error(layout),
            None => panic!("capacity overflow"),
        }
    }

    /// Takes the core out.
    pub fn take(&mut self) -> Option<Taken<C>> {
        // SAFETY: the map is borrowed mutably, and what it has shared is no longer found.
        self.shared
            .take()
            .map(|shared| unsafe { Taken::of(shared) })
    }

    /// Takes the core out, as [`take`](Self::take) does. The table that is left has the capacity that was asked
    /// for, if there is memory for it.
    pub fn replace(&mut self) -> Option<Taken<C>> {
        let floor = self.core().map(|core| core.floor.state().bits());
        let taken = self.take();
        if let Some(bits) = floor.filter(|bits| *bits > FEWEST_BITS) {
            // Without memory the first insert tries again.
            let _ = self.core_for(C::Kind::capacity(bits), true);
        }
        taken
    }
}
