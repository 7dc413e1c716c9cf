//! A key and its value: before a tree has them, and found in one.
//!
//! A key may be needed for longer than its entry is in the tree: as a fence between two nodes. Then
//! the value is dropped after the entry was taken out, and the key after the fence is gone, each
//! after a grace period; what comes last frees the memory.

use super::node::{Head, Item};
use crate::slab::{Arena, UsedSlot};
use std::{
    alloc::{Layout, alloc, handle_alloc_error},
    marker::PhantomData,
    mem::{self, needs_drop},
    ptr::NonNull,
    sync::atomic::{AtomicU32, Ordering},
};
use stillpoint::Destructor;

/// A key and its value.
#[derive(Debug)]
#[repr(C)]
pub struct Entry<K, V> {
    head: Head,
    pub key: K,
    pub value: V,
}

/// It lies in a slab, and not in a box.
const IN_SLAB: u32 = 1;
/// Its key or its value has been dropped.
const HALF: u32 = 2;

/// Frees the memory of an entry at its end, also if a drop panics.
struct Free<K, V>(NonNull<Entry<K, V>>);

impl<K, V> Drop for Free<K, V> {
    fn drop(&mut self) {
        // SAFETY: the entry is there, and not used any more; that of the functions that make this.
        unsafe {
            let state = (*self.0.as_ptr()).head.state.load(Ordering::Relaxed);
            if state & IN_SLAB != 0 {
                UsedSlot::of(self.0.cast()).free();
            } else {
                std::alloc::dealloc(self.0.as_ptr().cast(), Layout::new::<Entry<K, V>>());
            }
        }
    }
}

impl<K, V> Entry<K, V> {
    /// Drops an entry that is whole.
    pub const ALL: &'static Destructor = &Destructor::new(
        |entry| {
            let entry = entry.cast::<Self>();
            // SAFETY: the promise of a retire: it is not used any more.
            unsafe {
                let _free = Free(NonNull::new_unchecked(entry));
                entry.drop_in_place();
            }
        },
        size_of::<Self>(),
    );

    /// Drops the value, and leaves the key to [`KEY`](Self::KEY).
    pub const VALUE: &'static Destructor = &Destructor::new(
        |entry| {
            let entry = entry.cast::<Self>();
            // SAFETY: as above.
            unsafe {
                let _half = Half(NonNull::new_unchecked(entry));
                (&raw mut (*entry).value).drop_in_place();
            }
        },
        size_of::<Self>(),
    );

    /// Drops the key, and leaves the value to [`VALUE`](Self::VALUE).
    pub const KEY: &'static Destructor = &Destructor::new(Self::drop_key, size_of::<Self>());

    /// Drops the key of an entry whose value its taker drops, or retires in a section that is still open.
    ///
    /// # Safety
    ///
    /// The key is there, and not used any more.
    pub unsafe fn drop_key(entry: *mut u8) {
        let entry = entry.cast::<Self>();
        // SAFETY: the caller's promise.
        unsafe {
            let _half = Half(NonNull::new_unchecked(entry));
            (&raw mut (*entry).key).drop_in_place();
        }
    }

    /// Moves an entry out of its memory.
    ///
    /// # Safety
    ///
    /// It came from [`NewEntry`], is whole, and is not used any more.
    pub unsafe fn take(entry: NonNull<Self>) -> (K, V) {
        // SAFETY: the caller's promise.
        unsafe {
            let _free = Free(entry);
            (
                (&raw const (*entry.as_ptr()).key).read(),
                (&raw const (*entry.as_ptr()).value).read(),
            )
        }
    }
}

/// Notes that half of an entry has been dropped; the second half frees it.
struct Half<K, V>(NonNull<Entry<K, V>>);

impl<K, V> Drop for Half<K, V> {
    fn drop(&mut self) {
        // SAFETY: the memory is there until both halves have been dropped.
        let state = unsafe { &(*self.0.as_ptr()).head.state };
        // AcqRel, pairs with `drop`: the thread that frees it comes after the drop of the other half.
        if state.fetch_or(HALF, Ordering::AcqRel) & HALF != 0 {
            drop(Free(self.0));
        }
    }
}

/// Returns what half of an entry, a `T`, owns: nothing if it is not dropped.
pub fn owned<T>(heap_bytes: Option<usize>) -> Option<usize> {
    if needs_drop::<T>() {
        heap_bytes
    } else {
        heap_bytes.or(Some(0))
    }
}

/// An entry that no tree has, and its key's hint.
#[derive(Debug)]
pub struct NewEntry<K, V> {
    entry: NonNull<Entry<K, V>>,
    hint: u64,
}

impl<K, V> NewEntry<K, V> {
    /// Makes one, in a slot of the arena if there is one.
    /// Ends the process without memory.
    #[inline]
    pub fn new(hint: u64, key: K, value: V, arena: Option<&Arena>) -> Self {
        let layout = Layout::new::<Entry<K, V>>();
        let (entry, state) = match arena.and_then(Arena::allocate_for::<Entry<K, V>>) {
            Some(slot) => (slot, IN_SLAB),
            None => {
                // SAFETY: not of size 0.
                let place = NonNull::new(unsafe { alloc(layout) }.cast());
                (place.unwrap_or_else(|| handle_alloc_error(layout)), 0)
            }
        };
        let head = Head {
            state: AtomicU32::new(state),
        };
        // SAFETY: the place is this thread's, and large enough.
        unsafe { entry.write(Entry { head, key, value }) };
        Self { entry, hint }
    }

    /// As leaves have it.
    pub fn item(&self) -> Item {
        Item {
            hint: self.hint,
            entry: self.entry.cast(),
        }
    }

    pub fn key(&self) -> &K {
        // SAFETY: made by `new`, and no tree has it.
        unsafe { &(*self.entry.as_ptr()).key }
    }

    pub fn hint(&self) -> u64 {
        self.hint
    }

    /// Leaves it to a tree.
    pub fn into_head(self) -> NonNull<Head> {
        mem::ManuallyDrop::new(self).entry.cast()
    }

    /// Takes the key and the value out of it.
    pub fn into_pair(self) -> (K, V) {
        // SAFETY: made by `new`, and no tree has it.
        unsafe { Entry::take(self.into_head().cast()) }
    }
}

impl<K, V> Drop for NewEntry<K, V> {
    fn drop(&mut self) {
        // SAFETY: made by `new`, and no tree has it.
        drop(unsafe { Entry::take(self.entry) });
    }
}

/// An entry that was found in a section, which lasts for `'g`.
#[derive(Debug)]
pub struct Found<'g, K, V> {
    /// As it was allocated: a reference would not do to free it.
    entry: NonNull<Entry<K, V>>,
    found: PhantomData<&'g Entry<K, V>>,
}

impl<K, V> Clone for Found<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for Found<'_, K, V> {}

impl<'g, K, V> Found<'g, K, V> {
    /// # Safety
    ///
    /// It is the beginning of an [`Entry`] of these types, made by [`NewEntry`], and was found in a
    /// leaf in a section of its tree's domain that lasts for `'g`.
    #[inline(always)]
    pub unsafe fn of(head: NonNull<Head>) -> Self {
        Self {
            entry: head.cast(),
            found: PhantomData,
        }
    }

    /// Where it is, as it was allocated.
    #[inline]
    pub fn pointer(self) -> NonNull<Entry<K, V>> {
        self.entry
    }

    #[inline(always)]
    pub fn key(self) -> &'g K {
        // SAFETY: found in a section that lasts for `'g`, before whose end nothing of it is dropped.
        unsafe { &(*self.entry.as_ptr()).key }
    }

    #[inline(always)]
    pub fn value(self) -> &'g V {
        // SAFETY: as in `key`.
        unsafe { &(*self.entry.as_ptr()).value }
    }

    /// Key and value.
    #[inline(always)]
    pub fn pair(self) -> (&'g K, &'g V) {
        (self.key(), self.value())
    }
}
