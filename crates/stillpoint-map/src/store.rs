//! A map with the types of its entries, and without a hasher: what the maps and sets of this crate
//! are made of. Its callers bring hashes, and comparisons.

mod change;

use crate::{
    core::Core,
    driver::Shared,
    entries::Entries,
    entry::{Entry, Found, NewEntry},
    owned::OwnedEntries,
    pinned::view,
    reclaim::InDomain,
    root::Root,
    section::{Pinned, Writer},
    table::Seen,
    walk::Walk,
};
pub use change::{Inserted, Occupied};
use std::{alloc::Layout, fmt, marker::PhantomData, mem::needs_drop, ptr::NonNull};
use stillpoint::{Domain, Guard, Section, internal::Kept};

/// What a torture program may leave out. The real one leaves nothing out.
///
/// # Safety
///
/// With a policy that breaks something, the program must survive what that does.
pub unsafe trait Policy: 'static {
    /// Whether an entry that was taken out is freed after a grace period, or at once.
    const WAITS_FOR_READERS: bool = true;
}

/// The policy of all maps but a torture program's.
#[derive(Debug)]
pub enum Sound {}

// SAFETY: it breaks nothing.
unsafe impl Policy for Sound {}

/// A map of entries. Its [`PinnedStore`] has what needs a section of its domain.
pub struct Store<K, V, P: Policy = Sound> {
    pub(crate) root: Root,
    /// Tells what a key and its value own beside their entry.
    weigh: Option<fn(&K, &V) -> usize>,
    /// Owns entries, and is not variant: a reference is enough to insert.
    entries: PhantomData<(*mut Entry<K, V>, P)>,
}

view! {
    /// A [`Store`] in a section of its domain: what [`Store::with_guard`] returns.
    #[derive(Debug)]
    PinnedStore<K, V, P: Policy> of Store
}

// SAFETY: it owns keys and values.
unsafe impl<K: Send, V: Send, P: Policy> Send for Store<K, V, P> {}
// SAFETY: through a reference, threads get references to keys and values, and move them in and out.
unsafe impl<K: Send + Sync, V: Send + Sync, P: Policy> Sync for Store<K, V, P> {}

impl<K, V, P: Policy> Store<K, V, P> {
    /// An empty one of the domain; `None` for the global one.
    pub const fn new(domain: Option<Kept>) -> Self {
        Self {
            root: Root::new(domain),
            weigh: None,
            entries: PhantomData,
        }
    }

    /// Creates an empty one in the same domain, with the same weigher.
    pub fn new_alike(&self) -> Self {
        Self {
            root: self.root.new_alike(),
            weigh: self.weigh,
            entries: PhantomData,
        }
    }

    /// Has entries weighed when they are retired.
    pub const fn set_weigher(&mut self, weigh: fn(&K, &V) -> usize) {
        self.weigh = Some(weigh);
    }

    /// Begins a section of the map's domain.
    #[inline(always)]
    pub fn read_lock(&self) -> Guard<'_> {
        self.root.home.read_lock()
    }

    /// The domain that the map was made in.
    pub fn domain(&self) -> &Domain {
        self.root.home.domain()
    }

    /// Returns the map in the section of a guard. Panics if that is of another domain: it would protect
    /// nothing.
    #[inline(always)]
    #[track_caller]
    pub fn with_guard<'g>(&'g self, section: &'g impl Section) -> &'g PinnedStore<K, V, P> {
        self.root.home.check(section);
        // SAFETY: in the guard's section, which lasts as long as the guard. A `QsbrReader`'s may end
        // earlier, but only by methods that take `&mut`, which this borrow excludes.
        unsafe { self.pinned_unchecked() }
    }

    /// Returns the map in a section that is open already.
    ///
    /// # Safety
    ///
    /// A section of the map's domain is open while the reference is used.
    #[inline(always)]
    pub unsafe fn pinned_unchecked(&self) -> &PinnedStore<K, V, P> {
        // SAFETY: the caller's promise.
        unsafe { PinnedStore::of(self) }
    }

    /// How many entries there are; exact while no thread changes it.
    #[allow(clippy::len_without_is_empty, reason = "maps and sets have it")]
    pub fn len(&self) -> usize {
        self.root.len()
    }
}

// SAFETY: both are the map's.
unsafe impl<K, V, P: Policy> InDomain for PinnedStore<K, V, P> {
    type Core = Core;

    fn domain(&self) -> &Domain {
        self.0.domain()
    }

    fn shared(&self) -> Option<NonNull<Shared>> {
        self.0.root.shared()
    }
}

impl<K, V, P: Policy> PinnedStore<K, V, P> {
    #[inline(always)]
    fn core(&self) -> Option<&Pinned<Core>> {
        // SAFETY: inside a section of the map's domain while this is borrowed.
        Some(unsafe { Pinned::of(self.0.root.core()?) })
    }

    #[inline(always)]
    fn writer(&self) -> Option<Writer<'_, Core, &Self>> {
        // SAFETY: the domain is the map's.
        Some(unsafe { Writer::of(self.core()?, self) })
    }

    /// As [`writer`](Self::writer). If there was no table, creates one with room for `entries`. If `stays`, it
    /// never shrinks below that. Returns `None` without memory.
    #[inline]
    fn writer_for(&self, entries: usize, stays: bool) -> Option<Writer<'_, Core, &Self>> {
        // SAFETY: inside a section of the map's domain while this is borrowed.
        let core = unsafe { Pinned::of(self.root.core_for(entries, stays)?) };
        // SAFETY: the domain is the map's.
        Some(unsafe { Writer::of(core, self) })
    }

    /// How many entries the table has room for before it grows.
    pub fn capacity(&self) -> usize {
        self.core().map_or(0, |core| core.capacity())
    }

    /// The entry that `is_it` accepts, of those with this hash.
    #[inline(always)]
    pub fn find(&self, hash: u64, is_it: impl FnMut(&K) -> bool) -> Option<Found<'_, K, V>> {
        Some(self.find_seen(hash, is_it)?.0)
    }

    /// The entry that `is_it` accepts, of those with this hash; where comparing keys costs no more than
    /// comparing hashes, perhaps of others in their bucket. That is for a look-up alone: what is
    /// changed must have the hash that the caller knows, also if `Hash` tells of one key now this and
    /// now that.
    #[inline(always)]
    pub fn look_up(&self, hash: u64, mut is_it: impl FnMut(&K) -> bool) -> Option<Found<'_, K, V>> {
        let is_plain = const { !needs_drop::<K>() && size_of::<K>() <= size_of::<u64>() };
        let (head, _) = self.core()?.table().look(hash, move |head| {
            // SAFETY: this map's entries are of these types.
            let entry = unsafe { Found::<K, V>::of(head) }.get();
            (is_plain || entry.has_hash(hash)) && is_it(&entry.key)
        })?;
        // SAFETY: the same.
        Some(unsafe { Found::of(head) })
    }

    /// As [`find`](Self::find); also where it is, if that is all that a removal asks.
    #[inline(always)]
    fn find_seen(
        &self,
        hash: u64,
        mut is_it: impl FnMut(&K) -> bool,
    ) -> Option<(Found<'_, K, V>, Option<Seen<'_>>)> {
        let (head, seen) = self.core()?.table().look(hash, move |head| {
            // SAFETY: this map's entries are of these types.
            let entry = unsafe { Found::<K, V>::of(head) }.get();
            entry.has_hash(hash) && is_it(&entry.key)
        })?;
        // SAFETY: the same.
        Some((unsafe { Found::of(head) }, seen))
    }

    /// A walk over all entries.
    pub fn iter(&self) -> Entries<'_, K, V> {
        self.iter_from(Some(0))
    }

    /// A walk over the entries from a position.
    pub fn iter_from(&self, position: Option<u64>) -> Entries<'_, K, V> {
        let walk = Walk::from(self.core().map(Pinned::live), position);
        // SAFETY: its entries are of these types.
        unsafe { Entries::of(walk) }
    }

    /// Makes room for `entries` more entries. Returns false without memory.
    pub fn reserve(&self, entries: usize) -> bool {
        let writer = self.writer_for(entries, true);
        writer.is_some_and(|writer| writer.reserve(entries))
    }

    /// Lets the table shrink to what its entries need.
    pub fn shrink_to_fit(&self) {
        if let Some(writer) = self.writer() {
            writer.shrink_to_fit();
        }
    }

    /// Puts an entry in whose key is new.
    fn add_new(&self, hash: u64, key: K, value: V) {
        let writer = self.writer_or_end();
        let arena = writer.arena(Layout::new::<Entry<K, V>>());
        let new = NewEntry::new(hash, key, value, arena);
        let added = writer.insert(new, None);
        debug_assert!(added.is_ok(), "it is put in whatever is there");
    }

    /// Returns the [`writer`](Self::writer), with a table. Ends the process without memory.
    #[inline]
    fn writer_or_end(&self) -> Writer<'_, Core, &Self> {
        self.writer_for(0, false)
            .unwrap_or_else(|| self.root.no_room(0))
    }
}

impl<K: Clone, V: Clone, P: Policy> Store<K, V, P> {
    /// Clones the entries, with their hashes, into a store of the same domain.
    pub fn cloned(&self) -> Self {
        let clone = self.new_alike();
        let section = self.read_lock();
        let Some(core) = self.with_guard(&section).core() else {
            return clone;
        };
        clone.root.make_room(self.len(), false);
        let pinned = clone.with_guard(&section);
        let (mut position, mut found) = (Some(0), Vec::new());
        while let Some(from) = position {
            position = core.home_at_once(from, &mut found);
            for head in found.drain(..) {
                // SAFETY: this map's entries are of these types.
                let entry = unsafe { Found::<K, V>::of(head) }.get();
                let (key, value) = (entry.key.clone(), entry.value.clone());
                pinned.add_new(entry.hash(), key, value);
            }
        }
        drop(section);
        clone
    }
}

impl<K, V, P: Policy> Drop for Store<K, V, P> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

impl<K, V, P: Policy> Store<K, V, P> {
    /// Takes out all entries at once, and the table.
    pub fn take(&mut self) -> OwnedEntries<K, V> {
        // SAFETY: of a map of these types.
        unsafe { OwnedEntries::of(self.root.take()) }
    }

    /// Takes out all entries at once. The table that is left has the capacity that was asked for, if there
    /// is memory for it.
    pub fn drain(&mut self) -> OwnedEntries<K, V> {
        // SAFETY: as in `take`.
        unsafe { OwnedEntries::of(self.root.replace()) }
    }
}

impl<K, V, P: Policy> fmt::Debug for Store<K, V, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}
