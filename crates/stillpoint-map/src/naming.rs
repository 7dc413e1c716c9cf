//! Names of hashed maps and sets, for the statistics page ([`crate::shown`]). `copy::naming` and
//! `tree::naming` have those of the other maps.

use crate::{
    core::Core,
    load::references::capacity,
    map::HashMap,
    nodes::{Exhausted, Nodes},
    set::HashSet,
    slab::Arena,
    store::{Policy, Store, no_memory},
};
use std::{ptr::NonNull, sync::atomic::Ordering};
use stillpoint_platform::sync::AtomicPtr;

/// # Safety
///
/// No other thread uses the map that has it.
pub unsafe fn arena_in(place: &AtomicPtr<Arena>) -> Option<&Arena> {
    // SAFETY: it is there until `close_arena`.
    NonNull::new(place.load(Ordering::Relaxed)).map(|arena| unsafe { arena.as_ref() })
}

impl Core {
    /// Has the map shown by this name. Returns false without memory.
    ///
    /// # Safety
    ///
    /// No other thread uses the map, but the service thread.
    pub unsafe fn show(&self, name: Box<str>) -> bool {
        self.driving.apart(|| {
            // SAFETY: the caller's promise, here and below; the service thread does not drive.
            if self.count.shown().is_some() || !unsafe { self.count.show(name, false) } {
                return self.count.shown().is_some();
            }
            // SAFETY: as above.
            let (table, arena) = unsafe { (self.table(), arena_in(&self.arena)) };
            let next = table.next().map(|next| next.bytes());
            let room = capacity(table.bits());
            self.count.show_tables(table.bytes(), room, next);
            if let (Some(arena), Some(shown)) = (arena, self.count.shown()) {
                arena.show(shown);
            }
            true
        })
    }
}

impl<K, V, P: Policy> Store<K, V, P> {
    /// Has it shown by this name. Ends the process without memory.
    fn show(&mut self, name: Box<str>) {
        self.make_room(0, false);
        // SAFETY: no other thread uses the map, by `&mut`.
        if !self.core().is_some_and(|core| unsafe { core.show(name) }) {
            no_memory();
        }
    }
}

impl Nodes {
    /// Has the map shown by this name, if it has none yet.
    ///
    /// # Errors
    ///
    /// Without memory.
    ///
    /// # Safety
    ///
    /// No other thread uses the map meanwhile.
    pub unsafe fn show(&self, name: Box<str>) -> Result<(), Exhausted> {
        // SAFETY: the caller's promise.
        let is_shown = unsafe { self.core().show(name) };
        is_shown.then_some(()).ok_or(Exhausted)
    }
}

impl<K, V, S> HashMap<K, V, S> {
    /// Returns this map with a name, by which it is in the statistics page
    /// ([`stillpoint::publish_statistics`]), until it is dropped: `stillpoint top` shows its first
    /// 80 bytes. Names need not differ. A map has one name, and keeps its first.
    ///
    /// The page has how many entries it has, the bytes of its table and of the runs that entries
    /// lie in, and how often it has grown or shrunk. Look-ups and updates do as before; an insert
    /// and a removal copy a number, some nanoseconds, while there is a page. A map with a name
    /// allocates its first table and a counter for each processor at once. The first hundred maps
    /// of a process are shown.
    ///
    /// Without memory the process ends.
    ///
    /// ```
    /// use std::sync::LazyLock;
    /// use stillpoint_map::HashMap;
    ///
    /// static SESSIONS: LazyLock<HashMap<u64, String>> =
    ///     LazyLock::new(|| HashMap::new().named("sessions"));
    /// SESSIONS.pin().insert(1, "ada".to_owned());
    /// ```
    #[must_use]
    pub fn named(mut self, name: impl Into<Box<str>>) -> Self {
        self.store.show(name.into());
        self
    }
}

impl<T, S> HashSet<T, S> {
    /// Returns this set with a name, by which it is in the statistics page, as
    /// [`HashMap::named`] does.
    #[must_use]
    pub fn named(mut self, name: impl Into<Box<str>>) -> Self {
        self.map = self.map.named(name);
        self
    }
}
