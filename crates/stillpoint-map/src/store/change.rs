//! Changes of a store's entries.

use super::{PinnedStore, Policy, Store};
use crate::{
    core::Core,
    entry::{Entry, Found, NewEntry},
    memory::prefetch,
    section::Writer,
    slab::has_slots,
};
use std::{alloc::Layout, mem::needs_drop, ptr::NonNull};
use stillpoint::internal;

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

impl<K, V, P: Policy> PinnedStore<K, V, P> {
    /// Takes `entry` out, and leaves it to the caller, which retires or owns it. Returns whether it was in
    /// this map.
    #[inline]
    pub(crate) fn unlink(&self, entry: Found<'_, K, V>) -> bool {
        let writer = self.writer();
        writer.is_some_and(|writer| writer.remove(entry.head()))
    }
}

impl<K: Send + 'static, V: Send + 'static, P: Policy> PinnedStore<K, V, P> {
    /// Puts an entry in, and returns it, and the one with its key that it has replaced.
    ///
    /// # Errors
    ///
    /// The entry that is there, and the new one, if that was not to replace it.
    #[inline(never)]
    pub fn insert<'g>(
        &'g self,
        new: NewEntry<K, V>,
        replace: bool,
        is_same: impl FnMut(&K, &K) -> bool,
    ) -> Result<Inserted<'g, K, V>, Occupied<'g, K, V>> {
        self.add(self.writer_or_end(), new, replace, is_same)
    }

    #[inline(always)]
    fn add<'g>(
        &'g self,
        writer: Writer<'g, Core, &'g Self>,
        new: NewEntry<K, V>,
        replace: bool,
        is_same: impl FnMut(&K, &K) -> bool,
    ) -> Result<Inserted<'g, K, V>, Occupied<'g, K, V>> {
        match writer.core().add_at_once(new) {
            Ok(new) => {
                writer.help();
                // SAFETY: it is of these types.
                let new = unsafe { Found::of(new) };
                Ok(Inserted { new, old: None })
            }
            Err(new) => self.add_or_replace(writer, new, replace, is_same),
        }
    }

    #[inline(never)]
    fn add_or_replace<'g>(
        &'g self,
        writer: Writer<'g, Core, &'g Self>,
        mut new: NewEntry<K, V>,
        replace: bool,
        mut is_same: impl FnMut(&K, &K) -> bool,
    ) -> Result<Inserted<'g, K, V>, Occupied<'g, K, V>> {
        loop {
            let is_same = |new: &NewEntry<K, V>, head| {
                // SAFETY: this map's entries are of these types.
                let other = unsafe { Found::<K, V>::of(head) };
                other.has_hash(new.hash()) && is_same(&other.key, &new.key)
            };
            let (old, refused) = match writer.add_after_looking(new, is_same) {
                Ok(new) => {
                    // SAFETY: it is of these types.
                    let new = unsafe { Found::of(new) };
                    return Ok(Inserted { new, old: None });
                }
                Err(found) => found,
            };
            // SAFETY: this map's entries are of these types.
            let old = unsafe { Found::of(old) };
            if !replace {
                return Err(Occupied { old, new: refused });
            }
            match self.replace(old, refused) {
                Ok(new) => {
                    let old = Some(old);
                    return Ok(Inserted { new, old });
                }
                Err(refused) => new = refused,
            }
        }
    }

    /// Makes an entry of a key with that hash, and puts it in, as [`insert`](Self::insert) does.
    ///
    /// # Errors
    ///
    /// As there.
    #[inline(always)]
    pub(crate) fn put<'g>(
        &'g self,
        hash: u64,
        key: K,
        value: V,
        replace: bool,
        is_same: impl FnMut(&K, &K) -> bool,
    ) -> Result<Inserted<'g, K, V>, Occupied<'g, K, V>> {
        // Of a large map most inserts need a slot and a bucket with room, and nothing else. The fewer
        // instructions they are, the more of the next one's the processor begins while it waits for
        // the bucket.
        if const { has_slots(Layout::new::<Entry<K, V>>()) }
            && let Some(writer) = self.writer()
            && let Some(arena) = writer.made_arena()
        {
            // While it is on its way, the entry is made.
            prefetch(writer.table().home_of(hash));
            if let Some(slot) = arena.allocate() {
                // SAFETY: of the map's arena, just now.
                let new = unsafe { NewEntry::in_slot(slot, hash, key, value) };
                return self.add(writer, new, replace, is_same);
            }
        }
        self.put_after_making(hash, key, value, replace, is_same)
    }

    #[inline(never)]
    fn put_after_making<'g>(
        &'g self,
        hash: u64,
        key: K,
        value: V,
        replace: bool,
        is_same: impl FnMut(&K, &K) -> bool,
    ) -> Result<Inserted<'g, K, V>, Occupied<'g, K, V>> {
        self.fetch(hash);
        let new = self.new_entry(hash, key, value);
        self.insert(new, replace, is_same)
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
    ) -> Result<Found<'g, K, V>, NewEntry<K, V>> {
        let new = self.swap(old, new)?;
        // SAFETY: taken out just now, by this thread.
        unsafe { self.retire(old.pointer(), None) };
        Ok(new)
    }

    /// As [`replace`](Self::replace), but leaves the old one to the caller, which retires it
    /// ([`Store::retire_swapped`]), or it is leaked.
    ///
    /// # Errors
    ///
    /// As there.
    #[inline]
    pub fn swap<'g>(
        &'g self,
        old: Found<'g, K, V>,
        new: NewEntry<K, V>,
    ) -> Result<Found<'g, K, V>, NewEntry<K, V>> {
        let Some(core) = self.core() else {
            return Err(new);
        };
        let new = core.replace(old.head(), new)?;
        // SAFETY: it is of these types.
        Ok(unsafe { Found::of(new) })
    }

    /// Takes `entry` out. Returns whether it was in this map.
    #[inline]
    pub fn remove(&self, entry: Found<'_, K, V>) -> bool {
        self.remove_weighed(entry, None)
    }

    /// Takes the entry out that `is_it` accepts, of those with this hash, if `condition` does, too, which
    /// is asked again if another thread has replaced the entry meanwhile. `None` if there is none.
    ///
    /// # Errors
    ///
    /// The entry, if the condition was false.
    pub(crate) fn remove_if(
        &self,
        hash: u64,
        mut is_it: impl FnMut(&K) -> bool,
        mut condition: impl FnMut(&K, &V) -> bool,
    ) -> Result<Option<Found<'_, K, V>>, Found<'_, K, V>> {
        loop {
            let Some((found, seen)) = self.find_seen(hash, &mut is_it) else {
                return Ok(None);
            };
            let (key, value) = found.get().pair();
            if !condition(key, value) {
                return Err(found);
            }
            if let Some(seen) = seen
                && let Some(writer) = self.writer()
                // SAFETY: found in this map.
                && unsafe { writer.remove_seen(found.head(), hash, seen) }
            {
                // SAFETY: taken out just now, by this thread.
                unsafe { self.retire(found.pointer(), None) };
                return Ok(Some(found));
            }
            if self.remove(found) {
                return Ok(Some(found));
            }
        }
    }

    /// As [`remove`](Self::remove), of one that owns `heap_bytes` beside its own block.
    #[inline]
    pub fn remove_owning(&self, entry: Found<'_, K, V>, heap_bytes: usize) -> bool {
        self.remove_weighed(entry, Some(heap_bytes))
    }

    #[inline]
    fn remove_weighed(&self, entry: Found<'_, K, V>, heap_bytes: Option<usize>) -> bool {
        let removed = self.unlink(entry);
        if removed {
            // SAFETY: taken out just now, by this thread.
            unsafe { self.retire(entry.pointer(), heap_bytes) };
        }
        removed
    }

    /// As [`remove`](Self::remove), but drops the entry at once, and leaves its memory: broken on
    /// purpose, for torture alone.
    ///
    /// # Safety
    ///
    /// No reader uses what the drop does not leave.
    pub unsafe fn drop_at_once(&self, entry: Found<'_, K, V>) {
        if self.unlink(entry) {
            // SAFETY: taken out just now, by this thread; the rest is the caller's promise.
            unsafe { entry.pointer().as_ptr().drop_in_place() };
        }
    }

    /// Fetches the bucket of a hash, which the caller is about to use.
    #[inline]
    pub fn fetch(&self, hash: u64) {
        if let Some(core) = self.core() {
            prefetch(core.table().home_of(hash));
        }
    }

    /// Makes an entry, of a key with that hash, for this map. Ends the process without memory.
    #[inline]
    pub fn new_entry(&self, hash: u64, key: K, value: V) -> NewEntry<K, V> {
        let arena = if const { has_slots(Layout::new::<Entry<K, V>>()) } {
            self.core()
                .and_then(|core| core.arena(Layout::new::<Entry<K, V>>()))
        } else {
            None
        };
        NewEntry::new(hash, key, value, arena)
    }
}

impl<K: Send + 'static, V: Send + 'static, P: Policy> Store<K, V, P> {
    /// Retires an entry that [`swap`](PinnedStore::swap) has taken out, which owns `heap_bytes` beside its
    /// own block.
    ///
    /// # Safety
    ///
    /// The calling thread has taken it out so, of this map, and calls this once.
    #[inline]
    pub unsafe fn retire_swapped(&self, old: Found<'_, K, V>, heap_bytes: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.retire(old.pointer(), Some(heap_bytes)) };
    }

    /// # Safety
    ///
    /// The calling thread has taken the entry out of the map.
    #[inline(always)]
    unsafe fn retire(&self, entry: NonNull<Entry<K, V>>, heap_bytes: Option<usize>) {
        if P::WAITS_FOR_READERS {
            let heap_bytes = match self.weigh {
                Some(weigh) if needs_drop::<Entry<K, V>>() => {
                    // SAFETY: it is not retired yet.
                    let (key, value) = unsafe { entry.as_ref() }.pair();
                    Some(internal::weigh(self.domain(), || weigh(key, value)))
                }
                _ => heap_bytes,
            };
            // SAFETY: no reader from now on finds it.
            unsafe { Entry::retire(entry, heap_bytes, self.domain()) };
        } else {
            // SAFETY: broken on purpose. The block stays: a reader that still has the entry sees what
            // the drop has left.
            unsafe { entry.as_ptr().drop_in_place() };
        }
    }
}
