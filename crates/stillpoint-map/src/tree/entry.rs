//! A key and its value: before a tree has them, and found in one.
//!
//! A key may be needed for longer than its entry is in the tree: as a fence between two nodes. Then
//! the value is dropped after the entry was taken out, and the key after the fence is gone, each
//! after a grace period; what comes last frees the memory.

use super::node::{Head, Item};
use crate::slab::Arena;
use std::{
    alloc::{Layout, alloc, handle_alloc_error},
    marker::PhantomData,
    mem::needs_drop,
    ptr::NonNull,
    sync::atomic::{AtomicU32, Ordering},
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
                Arena::free(self.0.cast());
            } else {
                std::alloc::dealloc(self.0.as_ptr().cast(), Layout::new::<Entry<K, V>>());
            }
        }
    }
}

impl<K, V> Entry<K, V> {
    const ALL: &'static Destructor = &Destructor::new(Self::drop_all, size_of::<Self>());
    const VALUE: &'static Destructor = &Destructor::new(Self::drop_value, size_of::<Self>());
    const KEY: &'static Destructor = &Destructor::new(Self::drop_key, size_of::<Self>());

    /// # Safety
    ///
    /// The entry is whole, and not used any more.
    unsafe fn drop_all(entry: *mut u8) {
        let entry = entry.cast::<Self>();
        // SAFETY: the caller's promise.
        unsafe {
            let _free = Free(NonNull::new_unchecked(entry));
            entry.drop_in_place();
        }
    }

    /// # Safety
    ///
    /// The value is there, and not used any more. The key is dropped by another call.
    unsafe fn drop_value(entry: *mut u8) {
        let entry = entry.cast::<Self>();
        // SAFETY: the caller's promise.
        unsafe {
            let _half = Half(NonNull::new_unchecked(entry));
            (&raw mut (*entry).value).drop_in_place();
        }
    }

    /// # Safety
    ///
    /// As for `drop_value`, the other way round.
    unsafe fn drop_key(entry: *mut u8) {
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

    /// Drops an entry, and leaves its memory: broken on purpose, for torture alone.
    ///
    /// # Safety
    ///
    /// No reader uses what the drop does not leave.
    pub unsafe fn drop_at_once(entry: NonNull<Self>) {
        // SAFETY: the caller's promise.
        unsafe { entry.as_ptr().drop_in_place() };
    }

    /// Drops the key of an entry whose value has been retired, at once.
    ///
    /// # Safety
    ///
    /// No reader uses the key.
    pub unsafe fn end_fence(entry: NonNull<Self>) {
        // SAFETY: the caller's promise.
        unsafe { Self::drop_key(entry.as_ptr().cast()) };
    }

    /// The key of an entry, whose value may have been dropped.
    ///
    /// # Safety
    ///
    /// The key is there for as long as `'g`.
    #[inline(always)]
    pub unsafe fn key_of<'g>(entry: NonNull<Head>) -> &'g K {
        // SAFETY: the caller's promise.
        unsafe { &(*entry.as_ptr().cast::<Self>()).key }
    }
}

/// Notes that half of an entry has been dropped; the second half frees it.
struct Half<K, V>(NonNull<Entry<K, V>>);

impl<K, V> Drop for Half<K, V> {
    fn drop(&mut self) {
        // SAFETY: the memory is there until both halves have been dropped.
        let state = unsafe { &(*self.0.as_ptr()).head.state };
        // Release, pairs with itself, and Acquire: the thread that frees it comes after the drop of
        // the other half.
        if state.fetch_or(HALF, Ordering::AcqRel) & HALF != 0 {
            drop(Free(self.0));
        }
    }
}

impl<K: Send + 'static, V: Send + 'static> Entry<K, V> {
    /// Drops and frees an entry, which owns `heap_bytes` beside its own memory, after a grace period
    /// of the domain: all of it, or only its value, if its key stays as a fence. `None` if it is not
    /// known what it owns.
    ///
    /// # Safety
    ///
    /// It came from [`NewEntry`], and no reader from now on finds it.
    #[inline]
    pub unsafe fn retire(
        entry: NonNull<Self>,
        stays: bool,
        heap_bytes: Option<usize>,
        domain: &Domain,
    ) {
        let object = entry.as_ptr().cast();
        // SAFETY: the caller's promise: also for its contents, which no thread changes any more.
        unsafe {
            if stays {
                // In any case: the second half frees the memory.
                retire_owning(domain, object, Self::VALUE, owned::<V>(heap_bytes));
            } else if needs_drop::<Self>() {
                retire_owning(domain, object, Self::ALL, heap_bytes);
            } else {
                retire_in_place(domain, object, Self::ALL);
            }
        }
    }

    /// Drops the key of an entry, whose value has been retired, after a grace period. What it owns has
    /// been counted with the value if the map `is_weighed`.
    ///
    /// # Safety
    ///
    /// As for `retire`, of the key.
    pub unsafe fn retire_key(entry: NonNull<Self>, is_weighed: bool, domain: &Domain) {
        let heap_bytes = owned::<K>(is_weighed.then_some(0));
        // SAFETY: the caller's promise.
        unsafe { retire_owning(domain, entry.as_ptr().cast(), Self::KEY, heap_bytes) };
    }
}

/// Returns what half of an entry, a `T`, owns: nothing if it is not dropped.
fn owned<T>(heap_bytes: Option<usize>) -> Option<usize> {
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
    ///
    /// # Safety
    ///
    /// The arena is for entries of this layout.
    #[inline]
    pub unsafe fn new(hint: u64, key: K, value: V, arena: Option<&Arena>) -> Self {
        let layout = Layout::new::<Entry<K, V>>();
        let (place, state) = match arena.and_then(Arena::allocate) {
            Some(slot) => (slot, IN_SLAB),
            None => {
                // SAFETY: not of size 0.
                let place = NonNull::new(unsafe { alloc(layout) });
                (place.unwrap_or_else(|| handle_alloc_error(layout)), 0)
            }
        };
        let entry = place.cast::<Entry<K, V>>();
        let head = Head {
            state: AtomicU32::new(state),
        };
        // SAFETY: the place is this thread's, and large enough, by the caller's promise.
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
        // SAFETY: made by `try_new`, and no tree has it.
        unsafe { &(*self.entry.as_ptr()).key }
    }

    pub fn hint(&self) -> u64 {
        self.hint
    }

    /// It is in a tree now.
    ///
    /// # Safety
    ///
    /// It is, and has been put there in a section of its domain that lasts for `'g`.
    pub unsafe fn publish<'g>(self) -> Found<'g, K, V> {
        let entry = self.entry;
        std::mem::forget(self);
        // SAFETY: made by `try_new`; the caller's promise.
        unsafe { Found::of(entry.cast()) }
    }

    /// Takes the key and the value out of it.
    pub fn into_pair(self) -> (K, V) {
        let entry = self.entry;
        std::mem::forget(self);
        // SAFETY: made by `try_new`, and no tree has it.
        unsafe { Entry::take(entry) }
    }
}

impl<K, V> Drop for NewEntry<K, V> {
    fn drop(&mut self) {
        // SAFETY: made by `try_new`, and no tree has it.
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
        unsafe { Entry::<K, V>::key_of(self.entry.cast()) }
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
