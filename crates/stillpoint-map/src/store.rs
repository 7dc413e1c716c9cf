//! A map with the types of its entries, and without a hasher: what the maps and sets of this crate
//! are made of. Its callers bring hashes, and comparisons.

use crate::{
    bucket::Bucket,
    core::{self, Core},
    driver::{Shared, drive_later},
    entry::{Entry, Found, NewEntry},
    owned::OwnedEntries,
    reclaim::To,
    slab::has_slots,
    walk::Walk,
};
use std::{
    alloc::{Layout, handle_alloc_error},
    cell::UnsafeCell,
    fmt,
    marker::PhantomData,
    ptr::{self, NonNull},
    sync::{
        Arc,
        atomic::{AtomicPtr, Ordering},
    },
};
use stillpoint::{Domain, Guard, Section, global, internal::Kept, read_lock};

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

/// A map of entries.
pub struct Store<K, V, P: Policy = Sound> {
    /// Null until there is an entry: it allocates nothing before.
    shared: AtomicPtr<Shared>,
    /// `None`: the global one.
    domain: Option<Kept>,
    /// Owns entries, and is not variant: a reference is enough to insert.
    entries: PhantomData<(*mut Entry<K, V>, P)>,
}

// SAFETY: it owns keys and values.
unsafe impl<K: Send, V: Send, P: Policy> Send for Store<K, V, P> {}
// SAFETY: through a reference, threads get references to keys and values, and move them in and out.
unsafe impl<K: Send + Sync, V: Send + Sync, P: Policy> Sync for Store<K, V, P> {}

impl<K, V, P: Policy> Store<K, V, P> {
    /// An empty one of the domain; `None` for the global one.
    pub const fn new(domain: Option<Kept>) -> Self {
        Self {
            shared: AtomicPtr::new(ptr::null_mut()),
            domain,
            entries: PhantomData,
        }
    }

    /// An empty one of the same domain.
    pub fn new_alike(&self) -> Self {
        Self::new(self.domain.clone())
    }

    /// Begins a section of the map's domain.
    #[inline(always)]
    pub fn read_lock(&self) -> Guard<'_> {
        match &self.domain {
            Some(domain) => domain.read_lock(),
            None => read_lock(),
        }
    }

    /// The domain that the map was made in.
    pub fn domain(&self) -> &Domain {
        match &self.domain {
            Some(domain) => domain,
            None => global(),
        }
    }

    /// Panics if `section` is of another domain: it would protect nothing.
    #[inline(always)]
    #[track_caller]
    pub fn check(&self, section: &impl Section) {
        if !stillpoint::internal::is_of(section, self.domain.as_ref()) {
            wrong_domain();
        }
    }

    #[inline(always)]
    fn shared(&self) -> Option<NonNull<Shared>> {
        // Acquire, pairs with `make_core`: it is complete.
        NonNull::new(self.shared.load(Ordering::Acquire))
    }

    #[inline(always)]
    fn core(&self) -> Option<&Core> {
        // SAFETY: an `Arc`'s, which this owns.
        Some(unsafe { &self.shared()?.as_ref().core })
    }

    /// The core, with a table for `entries` if there was none, which is the smallest if it `stays`.
    /// `None` without memory.
    #[inline]
    fn core_for(&self, entries: usize, stays: bool) -> Option<&Core> {
        match self.core() {
            Some(core) => Some(core),
            None => self.make_core(entries, stays),
        }
    }

    #[cold]
    fn make_core(&self, entries: usize, stays: bool) -> Option<&Core> {
        let made = Arc::into_raw(Arc::new(Shared {
            core: Core::new(entries, stays)?,
            domain: UnsafeCell::new(self.domain.clone()),
        }));
        // Release, pairs with `shared`: it is complete. Acquire: so is the faster thread's.
        let set = self.shared.compare_exchange(
            ptr::null_mut(),
            made.cast_mut(),
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        if set.is_err() {
            // SAFETY: from an `Arc` just now, and no other thread knows it.
            drop(unsafe { Arc::from_raw(made) });
        }
        self.core()
    }

    #[inline]
    fn to(&self) -> To<'_> {
        To(self.domain())
    }

    /// How many entries there are; exact while no thread changes it.
    #[allow(clippy::len_without_is_empty, reason = "maps and sets have it")]
    pub fn len(&self) -> usize {
        self.core().map_or(0, |core| core.count.get())
    }

    /// How many entries the table has room for before it grows.
    pub fn capacity(&self, section: &impl Section) -> usize {
        self.check(section);
        // SAFETY: inside a section of the map's domain.
        self.core().map_or(0, |core| unsafe { core.capacity() })
    }

    /// The entry that `is_it` accepts, of those with this hash.
    #[inline(always)]
    #[track_caller]
    pub fn find<'g>(
        &'g self,
        hash: u64,
        section: &'g impl Section,
        mut is_it: impl FnMut(&K) -> bool,
    ) -> Option<Found<'g, K, V>> {
        self.check(section);
        // SAFETY: inside a section of the map's domain.
        let table = unsafe { self.core()?.table() };
        let found = table.find(hash, |head| {
            let entry = Found::<K, V>::of(head);
            entry.has_hash(hash) && is_it(&entry.key)
        });
        found.map(Found::of)
    }

    /// A walk over all entries.
    #[track_caller]
    pub fn iter<'g>(&'g self, section: &'g impl Section) -> Entries<'g, K, V> {
        self.iter_from(Some(0), section)
    }

    /// A walk over the entries from a position.
    #[track_caller]
    pub fn iter_from<'g>(
        &'g self,
        position: Option<u64>,
        section: &'g impl Section,
    ) -> Entries<'g, K, V> {
        self.check(section);
        Entries {
            // SAFETY: inside a section of the map's domain for as long as `'g`.
            walk: unsafe { Walk::from(self.core().map(NonNull::from), position) },
            entries: PhantomData,
        }
    }
}

impl<K: Send + 'static, V: Send + 'static, P: Policy> Store<K, V, P> {
    /// Puts an entry in, and returns it, and the one with its key that it has replaced.
    ///
    /// # Errors
    ///
    /// The entry that is there, and the new one, if that was not to replace it.
    #[track_caller]
    pub fn insert<'g>(
        &'g self,
        mut new: NewEntry<K, V>,
        replace: bool,
        section: &'g impl Section,
        mut is_same: impl FnMut(&K, &K) -> bool,
    ) -> Result<Inserted<'g, K, V>, Occupied<'g, K, V>> {
        self.check(section);
        let core = self.core_for(0, false).unwrap_or_else(|| no_memory());
        loop {
            let mut unequal = Vec::new();
            // SAFETY: inside a section of the map's domain.
            let found = unsafe { core.table() }.find(new.hash(), |head| {
                let other = Found::<K, V>::of(head);
                let same = other.has_hash(new.hash()) && is_same(&other.key, &new.key);
                if !same {
                    unequal.push(head);
                }
                same
            });
            if let Some(old) = found.map(Found::of) {
                if !replace {
                    return Err(Occupied { old, new });
                }
                match self.replace(old, new, section) {
                    Ok(new) => {
                        let old = Some(old);
                        return Ok(Inserted { new, old });
                    }
                    Err(refused) => new = refused,
                }
                continue;
            }
            // SAFETY: inside a section since before they were found; the entry is complete.
            match unsafe { core.insert(new.head(), &unequal, &self.to()) } {
                core::Inserted::Done => {
                    let new = new.publish();
                    self.queue_driver();
                    return Ok(Inserted { new, old: None });
                }
                core::Inserted::Changed => {}
                core::Inserted::NoMemory => no_memory(),
            }
        }
    }

    /// Replaces `old` by an entry with an equal key and the same hash, and returns that.
    ///
    /// # Errors
    ///
    /// The new entry, if the old one is not in this map, or no longer.
    #[inline]
    pub fn replace<'g>(
        &'g self,
        old: Found<'g, K, V>,
        new: NewEntry<K, V>,
        section: &'g impl Section,
    ) -> Result<Found<'g, K, V>, NewEntry<K, V>> {
        self.check(section);
        debug_assert_eq!(old.hash(), new.hash());
        let Some(core) = self.core() else {
            return Err(new);
        };
        // SAFETY: inside the section in which it was found; the new one is complete.
        if !unsafe { core.replace(old.head(), new.head()) } {
            return Err(new);
        }
        let new = new.publish();
        // SAFETY: taken out just now, by this thread.
        unsafe { self.retire(old.pointer()) };
        Ok(new)
    }

    /// Takes `entry` out. Returns whether it was in this map.
    #[inline]
    pub fn remove<'g>(&'g self, entry: Found<'g, K, V>, section: &'g impl Section) -> bool {
        self.check(section);
        let Some(core) = self.core() else {
            return false;
        };
        // SAFETY: inside the section in which it was found.
        let removed = unsafe { core.remove(entry.head(), &self.to()) };
        if removed {
            // SAFETY: taken out just now, by this thread.
            unsafe { self.retire(entry.pointer()) };
            self.queue_driver();
        }
        removed
    }

    /// Makes an entry, of a key with that hash, for this map. Ends the process without memory.
    #[inline]
    pub fn new_entry(&self, hash: u64, key: K, value: V, section: &impl Section) -> NewEntry<K, V> {
        self.check(section);
        let arena = if const { has_slots(Layout::new::<Entry<K, V>>()) } {
            // SAFETY: inside a section of the map's domain.
            self.core()
                .and_then(|core| unsafe { core.arena(Layout::new::<Entry<K, V>>()) })
        } else {
            None
        };
        NewEntry::new(hash, key, value, arena)
    }

    /// # Safety
    ///
    /// The calling thread has taken the entry out of the map.
    #[inline]
    unsafe fn retire(&self, entry: NonNull<Entry<K, V>>) {
        if P::WAITS_FOR_READERS {
            // SAFETY: no reader from now on finds it.
            unsafe { Entry::retire(entry, self.domain()) };
        } else {
            // SAFETY: broken on purpose. The block stays: a reader that still has the entry sees what
            // the drop has left.
            unsafe { entry.as_ptr().drop_in_place() };
        }
    }
}

impl<K, V, P: Policy> Store<K, V, P> {
    /// Makes a table for so many entries, if there is none, which is the smallest if it `stays`. Ends
    /// the process without memory.
    pub fn make_room(&self, entries: usize, stays: bool) {
        if self.core_for(entries, stays).is_none() {
            no_memory();
        }
    }

    /// Makes room for so many more entries. Returns false without memory.
    pub fn reserve(&self, entries: usize, section: &impl Section) -> bool {
        self.check(section);
        let Some(core) = self.core_for(entries, true) else {
            return false;
        };
        // SAFETY: inside a section of the map's domain.
        let reserved = unsafe { core.reserve(entries) };
        self.queue_driver();
        reserved
    }

    /// Lets the table shrink to what its entries need.
    pub fn shrink_to_fit(&self, section: &impl Section) {
        self.check(section);
        if let Some(core) = self.core() {
            // SAFETY: inside a section of the map's domain.
            unsafe { core.shrink_to_fit() };
            self.queue_driver();
        }
    }

    /// Has the service thread move the table, if it moves. Inside a section of the map's domain.
    #[inline]
    fn queue_driver(&self) {
        if let Some(shared) = self.shared()
            // SAFETY: the `Arc`'s, which this owns; the caller's section.
            && unsafe { shared.as_ref().core.wants_driver() }
        {
            // SAFETY: of the `Arc` that this owns.
            let shared = unsafe {
                Arc::increment_strong_count(shared.as_ptr().cast_const());
                Arc::from_raw(shared.as_ptr().cast_const())
            };
            drive_later(self.domain(), shared);
        }
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
        let shared = std::mem::replace(self.shared.get_mut(), ptr::null_mut());
        OwnedEntries::of(NonNull::new(shared))
    }
}

impl<K, V, P: Policy> fmt::Debug for Store<K, V, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

/// What an insert has done.
#[derive(Debug)]
pub struct Inserted<'g, K, V> {
    /// The entry that is in the map now.
    pub new: Found<'g, K, V>,
    /// What it has replaced.
    pub old: Option<Found<'g, K, V>>,
}

/// An insert that was not to replace anything.
#[derive(Debug)]
pub struct Occupied<'g, K, V> {
    pub old: Found<'g, K, V>,
    pub new: NewEntry<K, V>,
}

/// A walk over a map's entries.
#[derive(Debug)]
pub struct Entries<'g, K, V> {
    walk: Walk<'g>,
    entries: PhantomData<&'g Entry<K, V>>,
}

impl<'g, K, V> Entries<'g, K, V> {
    /// Where another walk would go on, once this one is through with its bucket.
    pub fn position(&self) -> Option<u64> {
        self.walk.position()
    }

    /// Another walk, from a hash on, in the same section.
    #[cfg(feature = "rayon")]
    pub fn at(&self, first: u64) -> Self {
        Self {
            walk: self.walk.at(first),
            entries: PhantomData,
        }
    }

    /// The entries of the next home, if there is one.
    pub fn next_home(&mut self) -> impl Iterator<Item = Found<'g, K, V>> {
        self.walk.next_home().map(Found::of)
    }
}

impl<K, V> Clone for Entries<'_, K, V> {
    fn clone(&self) -> Self {
        Self {
            walk: self.walk.clone(),
            entries: PhantomData,
        }
    }
}

impl<'g, K, V> Iterator for Entries<'g, K, V> {
    type Item = Found<'g, K, V>;

    #[inline]
    fn next(&mut self) -> Option<Found<'g, K, V>> {
        self.walk.next().map(Found::of)
    }

    #[inline]
    fn fold<B, F: FnMut(B, Found<'g, K, V>) -> B>(self, init: B, mut visit: F) -> B {
        self.walk
            .fold(init, |folded, head| visit(folded, Found::of(head)))
    }
}

#[cold]
pub fn no_memory() -> ! {
    handle_alloc_error(Layout::new::<Bucket>())
}

#[cold]
#[track_caller]
fn wrong_domain() -> ! {
    panic!(
        "the guard is of another domain than the map, or offline, and would protect nothing: use \
         one of `HashMap::pin`, or of the domain that the map was made in"
    )
}
