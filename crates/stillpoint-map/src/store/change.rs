//! Changes of a store's entries.

use super::{Policy, Store, no_room};
use crate::{
    adding::Added,
    core::Core,
    entry::{Entry, Found, NewEntry},
    memory::prefetch,
    slab::has_slots,
    table::Seen,
};
use std::{alloc::Layout, mem::needs_drop, ptr::NonNull};
use stillpoint::{Section, internal};

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

impl<K: Send + 'static, V: Send + 'static, P: Policy> Store<K, V, P> {
    /// Puts an entry in, and returns it, and the one with its key that it has replaced.
    ///
    /// # Errors
    ///
    /// The entry that is there, and the new one, if that was not to replace it.
    #[inline(never)]
    #[track_caller]
    pub fn insert<'g>(
        &'g self,
        mut new: NewEntry<K, V>,
        replace: bool,
        section: &'g impl Section,
        mut is_same: impl FnMut(&K, &K) -> bool,
    ) -> Result<Inserted<'g, K, V>, Occupied<'g, K, V>> {
        self.check(section);
        let core = self
            .core_for(0, false)
            .unwrap_or_else(|| no_room(self.layout_for(0)));
        loop {
            let is_same = |head| {
                // SAFETY: found in the caller's section, and this map's entries are of these types.
                let other = unsafe { Found::<K, V>::of(head) };
                other.has_hash(new.hash()) && is_same(&other.key, &new.key)
            };
            // SAFETY: inside a section of the map's domain; the entry is complete.
            match unsafe { core.add_unless(new.head(), new.hash(), &self.to(), is_same) } {
                Added::Done => {
                    // SAFETY: it is, since this section.
                    let new = unsafe { new.publish() };
                    self.queue_driver();
                    return Ok(Inserted { new, old: None });
                }
                Added::Found(old) => {
                    // SAFETY: found in the caller's section.
                    let old = unsafe { Found::of(old) };
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
                }
            }
        }
    }

    /// Makes an entry of a key with that hash, and puts it in, as [`insert`](Self::insert) does.
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Safety
    ///
    /// The section is one of the map's domain.
    #[inline(always)]
    #[track_caller]
    pub(crate) unsafe fn put<'g>(
        &'g self,
        hash: u64,
        key: K,
        value: V,
        replace: bool,
        section: &'g impl Section,
        is_same: impl FnMut(&K, &K) -> bool,
    ) -> Result<Inserted<'g, K, V>, Occupied<'g, K, V>> {
        // Of a large map most inserts need a slot and a bucket with room, and nothing else. The fewer
        // instructions they are, the more of the next one's the processor begins while it waits for
        // the bucket.
        if const { has_slots(Layout::new::<Entry<K, V>>()) }
            && let Some(core) = self.core()
            && let Some(arena) = core.made_arena()
        {
            // SAFETY: inside a section of the map's domain.
            let table = unsafe { core.table() };
            // While it is on its way, the entry is made.
            prefetch(table.home_of(hash));
            if let Some(slot) = arena.allocate() {
                // SAFETY: of the map's arena, just now.
                let new = unsafe { NewEntry::in_slot(slot, hash, key, value) };
                if table.add_at_once(new.head(), new.hash()) {
                    core.note_added();
                    if table.next().is_some() {
                        self.help_to_move(core);
                    }
                    // SAFETY: it is in the map, since this section.
                    let new = unsafe { new.publish() };
                    return Ok(Inserted { new, old: None });
                }
                return self.insert(new, replace, section, is_same);
            }
        }
        self.put_after_making(hash, key, value, replace, section, is_same)
    }

    /// Does a change's part of a move. Inside a section of the map's domain.
    #[cold]
    fn help_to_move(&self, core: &Core) {
        // SAFETY: the caller's section.
        unsafe { core.help(&self.to()) };
        self.queue_driver();
    }

    #[inline(never)]
    #[track_caller]
    fn put_after_making<'g>(
        &'g self,
        hash: u64,
        key: K,
        value: V,
        replace: bool,
        section: &'g impl Section,
        is_same: impl FnMut(&K, &K) -> bool,
    ) -> Result<Inserted<'g, K, V>, Occupied<'g, K, V>> {
        self.fetch(hash, section);
        let new = self.new_entry(hash, key, value, section);
        self.insert(new, replace, section, is_same)
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
        let new = self.swap(old, new, section)?;
        // SAFETY: taken out just now, by this thread.
        unsafe { self.retire(old.pointer(), None) };
        Ok(new)
    }

    /// As [`replace`](Self::replace), but leaves the old one to the caller, which retires it
    /// ([`retire_swapped`](Self::retire_swapped)), or it is leaked.
    ///
    /// # Errors
    ///
    /// As there.
    #[inline]
    pub fn swap<'g>(
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
        // SAFETY: it is, since this section.
        Ok(unsafe { new.publish() })
    }

    /// Retires an entry that [`swap`](Self::swap) has taken out, which owns `heap_bytes` beside its
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

    /// Takes `entry` out. Returns whether it was in this map.
    #[inline]
    pub fn remove<'g>(&'g self, entry: Found<'g, K, V>, section: &'g impl Section) -> bool {
        self.remove_weighed(entry, None, section)
    }

    /// As [`remove`](Self::remove), of an entry with that hash that was seen there.
    ///
    /// # Safety
    ///
    /// Inside the section of the map's domain in which it was.
    #[inline]
    pub(crate) unsafe fn remove_seen<'g>(
        &'g self,
        (entry, seen): (Found<'g, K, V>, Option<Seen<'g>>),
        hash: u64,
        section: &'g impl Section,
    ) -> bool {
        if let Some(seen) = seen
            && let Some(core) = self.core()
            // SAFETY: the caller's promise.
            && let Some(may_move) = unsafe { core.remove_seen(entry.head(), hash, seen) }
        {
            // SAFETY: taken out just now, by this thread.
            unsafe { self.retire(entry.pointer(), None) };
            if may_move {
                self.queue_driver();
            }
            return true;
        }
        self.remove(entry, section)
    }

    /// As [`remove`](Self::remove), of one that owns `heap_bytes` beside its own block.
    #[inline]
    pub fn remove_owning<'g>(
        &'g self,
        entry: Found<'g, K, V>,
        heap_bytes: usize,
        section: &'g impl Section,
    ) -> bool {
        self.remove_weighed(entry, Some(heap_bytes), section)
    }

    #[inline]
    fn remove_weighed<'g>(
        &'g self,
        entry: Found<'g, K, V>,
        heap_bytes: Option<usize>,
        section: &'g impl Section,
    ) -> bool {
        self.check(section);
        let Some(core) = self.core() else {
            return false;
        };
        // SAFETY: inside the section in which it was found.
        let removed = unsafe { core.remove(entry.head(), &self.to()) };
        if removed {
            // SAFETY: taken out just now, by this thread.
            unsafe { self.retire(entry.pointer(), heap_bytes) };
            self.queue_driver();
        }
        removed
    }

    /// As [`remove`](Self::remove), but drops the entry at once, and leaves its memory: broken on
    /// purpose, for torture alone.
    ///
    /// # Safety
    ///
    /// No reader uses what the drop does not leave.
    pub unsafe fn drop_at_once(&self, entry: Found<'_, K, V>, section: &impl Section) {
        self.check(section);
        if let Some(core) = self.core()
            // SAFETY: inside the section in which it was found.
            && unsafe { core.remove(entry.head(), &self.to()) }
        {
            // SAFETY: taken out just now, by this thread; the rest is the caller's promise.
            unsafe { entry.pointer().as_ptr().drop_in_place() };
        }
    }

    /// Fetches the bucket of a hash, which the caller is about to use.
    #[inline]
    #[track_caller]
    pub fn fetch(&self, hash: u64, section: &impl Section) {
        self.check(section);
        if let Some(core) = self.core() {
            // SAFETY: inside a section of the map's domain.
            prefetch(unsafe { core.table() }.home_of(hash));
        }
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
    #[inline(always)]
    unsafe fn retire(&self, entry: NonNull<Entry<K, V>>, heap_bytes: Option<usize>) {
        if P::WAITS_FOR_READERS {
            let heap_bytes = match self.weigh {
                // SAFETY: it is not retired yet.
                Some(weigh) if needs_drop::<Entry<K, V>>() => unsafe {
                    Some(self.weighed(entry, weigh))
                },
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

    /// # Safety
    ///
    /// As for `retire`.
    #[cold]
    unsafe fn weighed(&self, entry: NonNull<Entry<K, V>>, weigh: fn(&K, &V) -> usize) -> usize {
        // SAFETY: the caller's promise.
        let (key, value) = unsafe { entry.as_ref() }.pair();
        internal::weigh(self.domain(), || weigh(key, value))
    }
}
