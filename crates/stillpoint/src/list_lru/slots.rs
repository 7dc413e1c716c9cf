//! An array of shared pointers that is read in sections and grows by copy, publish, deferred free.
//!
//! * [A1], the release store of the array, pairs with [A2], the acquire load of who looks something up: the copy is complete.
//! * [A3], the release store of a slot, pairs with [A4], the acquire load of who finds what is in it.
//!
//! Changes are made under a lock of the owner's, one at a time; so nothing is put into an array while it is copied. What is taken out
//! may still be in use by sections that have begun, and so may the old array: it is retired.

use crate::{
    gp::{Policy, policy::Sound},
    platform::sync::{Mutex, lock},
    rcu::{Guard, global},
};
use std::{
    alloc::{Layout, alloc_zeroed, dealloc},
    marker::PhantomData,
    ptr::{self, NonNull},
    sync::{
        Arc,
        atomic::{AtomicPtr, AtomicUsize, Ordering},
    },
};

/// There was no memory for a larger array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OutOfMemory;

/// The array's head. The slots follow it.
#[repr(C)]
struct Array<T> {
    len: usize,
    slots: [AtomicPtr<T>; 0],
}

impl<T> Array<T> {
    fn layout(len: usize) -> Option<Layout> {
        let slots = Layout::array::<AtomicPtr<T>>(len).ok()?;
        Some(Layout::new::<Self>().extend(slots).ok()?.0)
    }

    /// # Safety
    ///
    /// `this` is an array that lives for `'a`.
    #[inline(always)]
    unsafe fn slots<'a>(this: *const Self) -> &'a [AtomicPtr<T>] {
        // SAFETY: made by `reserve` with room for so many; all are null or pointers.
        unsafe { std::slice::from_raw_parts((&raw const (*this).slots).cast(), (*this).len) }
    }
}

/// The array.
#[derive(Debug)]
pub(super) struct Slots<T, P = Sound> {
    array: AtomicPtr<Array<T>>,
    owns: PhantomData<Arc<T>>,
    policy: PhantomData<fn() -> P>,
}

impl<T> std::fmt::Debug for Array<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Array").field("len", &self.len).finish()
    }
}

impl<T: Send + Sync + 'static, P: Policy> Slots<T, P> {
    pub(super) fn new() -> Self {
        Self { array: AtomicPtr::new(ptr::null_mut()), owns: PhantomData, policy: PhantomData }
    }

    /// The present array, for as long as the section.
    #[inline(always)]
    fn slots<'a>(&'a self, _section: &'a Guard<'_>) -> &'a [AtomicPtr<T>] {
        self.peek_slots()
    }

    /// The present array. It stays for as long as the caller is in a section, or holds the owner's lock.
    #[inline(always)]
    fn peek_slots(&self) -> &[AtomicPtr<T>] {
        let array = self.array.load(Ordering::Acquire); // [A2]
        // SAFETY: arrays are retired, and so stay for those that are in a section; or the lock keeps it from being replaced.
        if array.is_null() { &[] } else { unsafe { Array::slots(array) } }
    }

    /// What is at `index`, for as long as the section.
    #[inline(always)]
    pub(super) fn find<'a>(&'a self, index: usize, section: &'a Guard<'_>) -> Option<&'a T> {
        let slot = self.slots(section).get(index)?;
        // SAFETY: null, or an `Arc`'s; who takes it out keeps it for those that are in a section.
        unsafe { slot.load(Ordering::Acquire).as_ref() } // [A4]
    }

    /// As [`Slots::find`], to keep.
    pub(super) fn get(&self, index: usize, section: &Guard<'_>) -> Option<Arc<T>> {
        let found = self.slots(section).get(index)?.load(Ordering::Acquire).cast_const(); // [A4]
        // SAFETY: null, or from `put`, and whoever takes it out keeps it for those that are in a section.
        (!found.is_null()).then(|| unsafe {
            Arc::increment_strong_count(found);
            Arc::from_raw(found)
        })
    }

    /// As [`Slots::find`], outside of sections.
    ///
    /// # Safety
    ///
    /// The caller holds the owner's lock, or is the only thread.
    pub(super) unsafe fn peek(&self, index: usize) -> Option<&T> {
        // SAFETY: nobody takes anything out meanwhile, by the caller's promise.
        unsafe { self.peek_slots().get(index)?.load(Ordering::Acquire).as_ref() }
    }

    /// As [`Slots::find`], for a section of whatever kind.
    ///
    /// # Safety
    ///
    /// The calling thread is in a section of the global domain that lasts longer than what is returned.
    #[inline(always)]
    pub(super) unsafe fn find_in_section(&self, index: usize) -> Option<&T> {
        // SAFETY: as in `find`, by the caller's promise.
        unsafe { self.peek_slots().get(index)?.load(Ordering::Acquire).as_ref() } // [A4]
    }

    /// How many slots there are.
    ///
    /// # Safety
    ///
    /// As for [`Slots::peek`].
    pub(super) unsafe fn peek_len(&self) -> usize {
        self.peek_slots().len()
    }

    /// How many slots there are.
    pub(super) fn len(&self) -> usize {
        let guard = global().read_lock();
        self.slots(&guard).len()
    }

    /// Grows the array, if need be, to `len` slots. Under the owner's lock.
    pub(super) fn reserve(&self, len: usize) -> Result<(), OutOfMemory> {
        let old = self.peek_slots();
        if old.len() >= len {
            return Ok(());
        }
        let layout = Array::<T>::layout(len).ok_or(OutOfMemory)?;
        // SAFETY: the head alone is larger than nothing.
        let new = unsafe { alloc_zeroed(layout) }.cast::<Array<T>>();
        if new.is_null() {
            return Err(OutOfMemory);
        }
        // SAFETY: fresh memory of the array's layout, and nobody else's. All slots are zeroes, which is null.
        unsafe { (&raw mut (*new).len).write(len) };
        // SAFETY: complete but for what is copied now.
        for (new, old) in unsafe { Array::slots(new) }.iter().zip(old) {
            new.store(old.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        let old_len = old.len();
        let old = self.array.swap(new, Ordering::AcqRel); // [A1]
        if let Some(old) = NonNull::new(old) {
            if !P::FREES_ARRAYS {
                empty_and_leak(old);
                return Ok(());
            }
            let layout = Array::<T>::layout(old_len).expect("it has been allocated");
            // SAFETY: allocated with this layout, and unlinked just now.
            unsafe { global().retire_sized(old.cast(), layout) };
        }
        Ok(())
    }

    /// Fills an empty slot. Under the owner's lock.
    pub(super) fn put(&self, index: usize, value: Arc<T>) {
        let slot = &self.peek_slots()[index];
        assert!(slot.load(Ordering::Relaxed).is_null(), "a slot is filled twice");
        slot.store(Arc::into_raw(value).cast_mut(), Ordering::Release); // [A3]
    }

    /// Empties a slot. Under the owner's lock. What was in it must be kept until a grace period has ended.
    #[must_use = "sections that have begun may still use it: drop it after a grace period"]
    pub(super) fn take(&self, index: usize) -> Option<Arc<T>> {
        let taken = self.peek_slots().get(index)?.swap(ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: null, or from `put`, and taken by nobody else.
        (!taken.is_null()).then(|| unsafe { Arc::from_raw(taken) })
    }
}

/// For [`Policy::FREES_ARRAYS`].
fn empty_and_leak<T: Send + Sync + 'static>(old: NonNull<Array<T>>) {
    let address = old.as_ptr().expose_provenance();
    global().call(move || {
        // SAFETY: leaked, so there for ever.
        let slots = unsafe { Array::<T>::slots(ptr::with_exposed_provenance(address)) };
        slots.iter().for_each(|slot| slot.store(ptr::null_mut(), Ordering::Relaxed));
    });
}

/// An array of counts that grows as those of LRU lists do, for tortures: no part of the stable interface.
#[doc(hidden)]
pub struct GrowingArray<P: Policy> {
    slots: Slots<AtomicUsize, P>,
    change: Mutex<()>,
}

impl<P: Policy> GrowingArray<P> {
    /// An array of `len` counts, each its own index.
    pub fn new(len: usize) -> Self {
        let array = Self { slots: Slots::new(), change: Mutex::new(()) };
        array.grow(len);
        array
    }

    /// Grows it to `len` counts; those that come are their own indices.
    ///
    /// # Panics
    ///
    /// Without memory.
    pub fn grow(&self, len: usize) {
        let _change = lock(&self.change);
        let old = self.slots.peek_slots().len();
        self.slots.reserve(len).expect("there is memory for a few pages");
        (old..len).for_each(|index| self.slots.put(index, Arc::new(AtomicUsize::new(index))));
    }

    /// The count at `index`, as who counts an LRU list finds it, with `meanwhile` after the array has been found. `None` in a slot that is
    /// empty or not there.
    pub fn count(&self, index: usize, section: &Guard<'_>, meanwhile: impl FnOnce()) -> Option<usize> {
        let slots = self.slots.slots(section);
        meanwhile();
        // SAFETY: null, or from `put`; nobody takes anything out.
        unsafe { slots.get(index)?.load(Ordering::Acquire).as_ref() }.map(|count| count.load(Ordering::Relaxed))
    }

    /// The same outside of any section, which a torture must catch.
    ///
    /// # Safety
    ///
    /// The policy does not have [`Policy::FREES_ARRAYS`].
    pub unsafe fn count_outside(&self, index: usize, meanwhile: impl FnOnce()) -> Option<usize> {
        let slots = self.slots.peek_slots();
        meanwhile();
        // SAFETY: null, or from `put`; nobody takes anything out.
        unsafe { slots.get(index)?.load(Ordering::Acquire).as_ref() }.map(|count| count.load(Ordering::Relaxed))
    }
}

impl<P: Policy> std::fmt::Debug for GrowingArray<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GrowingArray").finish_non_exhaustive()
    }
}

impl<T, P> Drop for Slots<T, P> {
    fn drop(&mut self) {
        let array = *self.array.get_mut();
        if array.is_null() {
            return;
        }
        // SAFETY: nobody else knows the array any more: look-ups borrow from this.
        let slots = unsafe { Array::slots(array) };
        let layout = Array::<T>::layout(slots.len()).expect("it has been allocated");
        for slot in slots {
            let left = slot.load(Ordering::Relaxed);
            if !left.is_null() {
                // SAFETY: from `put`.
                drop(unsafe { Arc::from_raw(left) });
            }
        }
        // SAFETY: allocated with this layout.
        unsafe { dealloc(array.cast(), layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_and_keeps_what_is_in_it() {
        let slots = Slots::<_>::new();
        assert_eq!(slots.len(), 0);
        slots.reserve(2).unwrap();
        slots.put(1, Arc::new(7));
        slots.reserve(1).unwrap();
        assert_eq!(slots.len(), 2, "it does not shrink");
        slots.reserve(100).unwrap();
        let guard = global().read_lock();
        assert_eq!((slots.find(1, &guard), slots.find(0, &guard), slots.find(100, &guard)), (Some(&7), None, None));
        let kept = slots.get(1, &guard).unwrap();
        drop(guard);
        let taken = slots.take(1).unwrap();
        global().synchronize();
        assert_eq!((Arc::strong_count(&taken), *kept), (2, 7));
        slots.put(3, kept);
        drop(slots);
        assert_eq!(Arc::strong_count(&taken), 1);
    }

    #[test]
    fn what_cannot_be_had_is_refused() {
        let slots = Slots::<u32>::new();
        assert_eq!(slots.reserve(usize::MAX / 4), Err(OutOfMemory));
        assert_eq!(slots.len(), 0);
    }
}
