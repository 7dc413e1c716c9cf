//! A key and its value: before a map has them, and found in one.

use crate::{
    core::New,
    section::Live,
    slab::{Arena, UsedSlot},
    slot::{Head, IN_SLAB, fits},
};
use std::{
    alloc::{Layout, alloc, handle_alloc_error},
    mem::needs_drop,
    ops::Deref,
    ptr::NonNull,
};
use stillpoint::{
    Destructor, Domain,
    internal::{retire_in_place, retire_owning},
};

/// A key and its value.
#[derive(Debug)]
#[repr(C)]
pub struct Entry<K, V> {
    head: Head,
    /// The key.
    pub key: K,
    /// The value.
    pub value: V,
}

impl<K, V> Entry<K, V> {
    /// The hash of the key, spread.
    #[inline]
    pub fn hash(&self) -> u64 {
        self.head.hash() & !IN_SLAB
    }

    /// Whether the key has this hash, but for the bit that says where the entry lies.
    #[inline(always)]
    pub fn has_hash(&self, hash: u64) -> bool {
        self.head.hash() | IN_SLAB == hash | IN_SLAB
    }

    /// Key and value.
    #[inline(always)]
    pub fn pair(&self) -> (&K, &V) {
        (&self.key, &self.value)
    }

    #[inline]
    fn is_in_slab(&self) -> bool {
        self.head.hash() & IN_SLAB != 0
    }

    /// Moves an entry out of its box or slab.
    ///
    /// # Safety
    ///
    /// It came from [`NewEntry`], and is not used any more.
    pub unsafe fn take(entry: NonNull<Self>) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            if !entry.as_ref().is_in_slab() {
                return *Box::from_raw(entry.as_ptr());
            }
            let taken = entry.read();
            UsedSlot::of(entry.cast()).free();
            taken
        }
    }

    const DROPPED: &'static Destructor = &Destructor::new(Self::drop_in_slab, size_of::<Self>());

    /// # Safety
    ///
    /// The entry is in a slab, and not used any more.
    unsafe fn drop_in_slab(entry: *mut u8) {
        /// Also if the drop panics.
        struct Free(NonNull<u8>);
        impl Drop for Free {
            #[inline(always)]
            fn drop(&mut self) {
                // SAFETY: that of `drop_in_slab`.
                unsafe { UsedSlot::of(self.0) }.free();
            }
        }
        // SAFETY: the caller's promise.
        unsafe {
            let _free = Free(NonNull::new_unchecked(entry));
            entry.cast::<Self>().drop_in_place();
        }
    }
}

impl<K: Send + 'static, V: Send + 'static> Entry<K, V> {
    /// Drops and frees an entry, which owns `heap_bytes` beside its own block, after a grace period
    /// of the domain. `None` if it is not known what it owns.
    ///
    /// # Safety
    ///
    /// It came from [`NewEntry`], and no reader from now on finds it.
    #[inline]
    pub unsafe fn retire(entry: NonNull<Self>, heap_bytes: Option<usize>, domain: &Domain) {
        // SAFETY: the caller's promise: also for its contents, which no thread changes any more.
        unsafe {
            if !entry.as_ref().is_in_slab() {
                match heap_bytes {
                    // What is not dropped owns nothing.
                    Some(heap_bytes) if needs_drop::<Self>() => {
                        domain.retire_weighed(entry, heap_bytes);
                    }
                    _ => domain.retire(entry),
                }
            } else if needs_drop::<Self>() {
                retire_owning(domain, entry.as_ptr().cast(), Self::DROPPED, heap_bytes);
            } else {
                retire_in_place(domain, entry.as_ptr().cast(), Self::DROPPED);
            }
        }
    }
}

/// An entry that no map has, in a box or a slab.
#[derive(Debug)]
pub struct NewEntry<K, V>(NonNull<Entry<K, V>>);

impl<K, V> NewEntry<K, V> {
    /// Makes an entry of a key with that hash, in a slot of the arena if there is one and its slots are for such
    /// entries. Ends the process without memory.
    #[inline]
    pub fn new(hash: u64, key: K, value: V, arena: Option<&Arena>) -> Self {
        // Else an entry in a box would be freed as one in a slab.
        let hash = hash & !IN_SLAB;
        if let Some(slot) = arena.and_then(Arena::allocate_for::<Entry<K, V>>) {
            // SAFETY: of the arena just now.
            return unsafe { Self::in_slot(slot.cast(), hash, key, value) };
        }
        let layout = Layout::new::<Entry<K, V>>();
        // SAFETY: not of size 0.
        let place = NonNull::new(unsafe { alloc(layout) });
        let entry = place.unwrap_or_else(|| handle_alloc_error(layout)).cast();
        let head = Head::new(hash);
        // SAFETY: it was allocated for one.
        unsafe { entry.write(Entry { head, key, value }) };
        assert!(
            fits(entry),
            "a map's entries lie at addresses of 48 bits: use an allocator that gives such"
        );
        Self(entry)
    }

    /// Makes an entry of a key with that hash in a slot.
    ///
    /// # Safety
    ///
    /// The slot is of an arena for such entries, and the caller's.
    #[inline]
    pub unsafe fn in_slot(slot: NonNull<u8>, hash: u64, key: K, value: V) -> Self {
        let entry = slot.cast();
        let hash = hash | IN_SLAB;
        let head = Head::new(hash);
        // SAFETY: the caller's promise.
        unsafe { entry.write(Entry { head, key, value }) };
        // Regions lie where slots' addresses do.
        debug_assert!(fits(entry));
        Self(entry)
    }

    /// Takes the key and the value out of it.
    pub fn into_entry(self) -> Entry<K, V> {
        let entry = self.0;
        std::mem::forget(self);
        // SAFETY: made by `new` or `in_slot`, and no map has it.
        unsafe { Entry::take(entry) }
    }
}

// SAFETY: made by `new` or `in_slot`, and retired by the map's store.
unsafe impl<K, V> New for NewEntry<K, V> {
    #[inline]
    fn head(&self) -> NonNull<Head> {
        self.0.cast()
    }
}

impl<K, V> Deref for NewEntry<K, V> {
    type Target = Entry<K, V>;

    fn deref(&self) -> &Entry<K, V> {
        // SAFETY: made by `new` or `in_slot`, and no map has it.
        unsafe { self.0.as_ref() }
    }
}

impl<K, V> Drop for NewEntry<K, V> {
    fn drop(&mut self) {
        // SAFETY: made by `new` or `in_slot`, and no map has it.
        drop(unsafe { Entry::take(self.0) });
    }
}

/// An entry that was found in a section, which lasts for `'g`.
#[derive(Debug)]
pub struct Found<'g, K, V>(Live<'g, Entry<K, V>>);

impl<K, V> Clone for Found<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for Found<'_, K, V> {}

impl<'g, K, V> Found<'g, K, V> {
    /// Returns the entry whose beginning was found.
    ///
    /// # Safety
    ///
    /// It is that of an [`Entry`] of these types, made by [`NewEntry`].
    #[inline]
    pub unsafe fn of(head: Live<'g, Head>) -> Self {
        // SAFETY: the caller's promise; all of the entry stays as long as its beginning.
        Self(unsafe { Live::of(head.pointer().cast()) })
    }

    /// Its beginning.
    pub(crate) fn head(self) -> Live<'g, Head> {
        // SAFETY: an entry begins with it.
        unsafe { Live::of(self.0.pointer().cast()) }
    }

    /// Where it is, as it was allocated.
    #[inline]
    pub fn pointer(self) -> NonNull<Entry<K, V>> {
        self.0.pointer()
    }

    /// The entry.
    #[inline(always)]
    pub fn get(self) -> &'g Entry<K, V> {
        self.0.get()
    }
}

impl<K, V> Deref for Found<'_, K, V> {
    type Target = Entry<K, V>;

    #[inline(always)]
    fn deref(&self) -> &Entry<K, V> {
        self.get()
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;

    /// No bit of the hash that the caller gives says where the entry lies.
    #[test]
    fn entries_of_any_hashes_are_in_boxes() {
        let entry = NewEntry::new(!0, 1, "one".to_owned(), None);
        assert!(!entry.is_in_slab());
        assert_eq!((entry.key, entry.hash()), (1, !IN_SLAB));
        assert_eq!(entry.into_entry().value, "one");
    }
}
