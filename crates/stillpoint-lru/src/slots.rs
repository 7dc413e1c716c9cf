//! An array of shared pointers that is read in sections and grows by copy, publish, deferred free.
//!
//! * [A1], the release store of the array, pairs with [A2], the acquire load of who looks something up: the copy is complete.
//! * [A3], the release store of a slot, pairs with [A4], the acquire load of who finds what is in it.
//!
//! Changes are made under a lock of the owner's, one at a time; so nothing is put into an array while it is copied. What is taken out
//! may still be in use by sections that have begun, and so may the old array: it is retired.

use std::{
    alloc::{Layout, dealloc},
    marker::PhantomData,
    ptr::{self, NonNull},
    sync::Arc,
};
#[cfg(not(stillpoint_loom))]
use stillpoint::{Guard, global};
use stillpoint_platform::{
    memory,
    sync::{AtomicPtr, Ordering},
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
        // SAFETY: made by `filled` with so many.
        unsafe { std::slice::from_raw_parts((&raw const (*this).slots).cast(), (*this).len) }
    }

    /// An array of `len` slots: what `old` has, and empty ones.
    fn filled(old: &[AtomicPtr<T>], len: usize) -> Result<NonNull<Self>, OutOfMemory> {
        let layout = Self::layout(len).ok_or(OutOfMemory)?;
        // SAFETY: the head alone is larger than nothing.
        let array = NonNull::new(unsafe { memory::try_alloc(layout) }.cast::<Self>()).ok_or(OutOfMemory)?;
        // SAFETY: fresh memory of the array's layout, and ours alone.
        unsafe {
            (&raw mut (*array.as_ptr()).len).write(len);
            let first = (&raw mut (*array.as_ptr()).slots).cast::<AtomicPtr<T>>();
            (0..len).for_each(|index| first.add(index).write(AtomicPtr::new(ptr::null_mut())));
        }
        // SAFETY: all slots have been written just now.
        for (new, old) in unsafe { Self::slots(array.as_ptr()) }.iter().zip(old) {
            new.store(old.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        Ok(array)
    }
}

/// An array that has been replaced. Sections that have begun may use it: it is retired when this is dropped, which may wait for them, so
/// after the owner's lock.
#[cfg(not(stillpoint_loom))]
#[derive(Debug)]
#[must_use = "it is to be dropped after the lock"]
pub(super) struct Replaced(Option<(NonNull<u8>, Layout)>);

#[cfg(not(stillpoint_loom))]
impl Drop for Replaced {
    fn drop(&mut self) {
        if let Some((array, layout)) = self.0 {
            // SAFETY: from the global allocator, with this layout; unlinked by `reserve`, and ours alone.
            unsafe { global().retire_sized(array, layout) };
        }
    }
}

/// The array.
#[derive(Debug)]
pub(super) struct Slots<T> {
    array: AtomicPtr<Array<T>>,
    owns: PhantomData<Arc<T>>,
}

impl<T> std::fmt::Debug for Array<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Array").field("len", &self.len).finish()
    }
}

/// Look-ups in sections: what they find stays until these end.
#[cfg(not(stillpoint_loom))]
impl<T: Send + Sync + 'static> Slots<T> {
    /// What is at `index`, for as long as the section.
    #[inline(always)]
    pub(super) fn find<'a>(&'a self, index: usize, _section: &'a Guard<'_>) -> Option<&'a T> {
        // SAFETY: `_section` is one, and lasts as long as what is found.
        unsafe { self.find_in_section(index) }
    }

    /// As [`Slots::find`], to keep.
    pub(super) fn get(&self, index: usize, _section: &Guard<'_>) -> Option<Arc<T>> {
        // SAFETY: `_section` is one.
        unsafe { self.share(index) }
    }

    /// How many slots there are.
    ///
    /// Not under a lock: a section's end may wait, and run destructors.
    pub(super) fn len(&self) -> usize {
        let _guard = global().read_lock();
        self.slots().len()
    }

    /// Grows the array, if need be, to `len` slots. Under the owner's lock, and what is returned is dropped after it.
    pub(super) fn reserve(&self, len: usize) -> Result<Replaced, OutOfMemory> {
        let mut replaced = Replaced(None);
        self.grow(len, |old, layout| replaced.0 = Some((old, layout)))?;
        Ok(replaced)
    }

    /// As [`Slots::reserve`], but the old array is emptied where it would be freed, and stays: for tortures.
    pub(super) fn reserve_and_empty(&self, len: usize) -> Result<(), OutOfMemory> {
        self.grow(len, |old, _layout| {
            let address = old.as_ptr().expose_provenance();
            global().call(move || {
                // SAFETY: an array of this type that stays for ever.
                let slots = unsafe { Array::<T>::slots(ptr::with_exposed_provenance(address)) };
                slots.iter().for_each(|slot| slot.store(ptr::null_mut(), Ordering::Relaxed));
            });
        })
    }
}

impl<T: Send + Sync + 'static> Slots<T> {
    pub(super) fn new() -> Self {
        Self { array: AtomicPtr::new(ptr::null_mut()), owns: PhantomData }
    }

    /// The present array. It stays for as long as the caller is in a section, or holds the owner's lock.
    #[inline(always)]
    fn slots(&self) -> &[AtomicPtr<T>] {
        let array = self.array.load(Ordering::Acquire); // [A2]
        // SAFETY: arrays are retired, and so stay for those that are in a section; or the lock keeps it from being replaced.
        if array.is_null() { &[] } else { unsafe { Array::slots(array) } }
    }

    /// What is at `index`, outside of sections.
    ///
    /// # Safety
    ///
    /// The caller holds the owner's lock, or is the only thread.
    pub(super) unsafe fn peek(&self, index: usize) -> Option<&T> {
        // SAFETY: nobody takes anything out meanwhile, by the caller's promise.
        unsafe { self.slots().get(index)?.load(Ordering::Acquire).as_ref() } // Acquire [A4]: what is found is complete.
    }

    /// What is at `index`, for a section of whatever kind.
    ///
    /// # Safety
    ///
    /// The calling thread is in a section of the global domain (or whatever `grow`'s caller waits for) that lasts longer than what is
    /// returned.
    #[inline(always)]
    pub(super) unsafe fn find_in_section(&self, index: usize) -> Option<&T> {
        // SAFETY: the caller's promise.
        unsafe { self.find_after(index, || ()) }
    }

    /// As [`Slots::find_in_section`], with `meanwhile` between the array and what is in it.
    ///
    /// # Safety
    ///
    /// As there.
    #[inline(always)]
    pub(super) unsafe fn find_after(&self, index: usize, meanwhile: impl FnOnce()) -> Option<&T> {
        let slots = self.slots();
        meanwhile();
        // SAFETY: null, or an `Arc`'s; who takes it out keeps it for those that are in a section, as the caller is.
        unsafe { slots.get(index)?.load(Ordering::Acquire).as_ref() } // [A4]
    }

    /// Another reference to what is at `index`.
    ///
    /// # Safety
    ///
    /// As for [`Slots::find_in_section`] or [`Slots::peek`].
    pub(super) unsafe fn share(&self, index: usize) -> Option<Arc<T>> {
        // The pointer of `put`, and not one of a reference: the counts lie before the value.
        let found = self.slots().get(index)?.load(Ordering::Acquire).cast_const(); // [A4]
        // SAFETY: null, or from `put`, and whoever takes it out keeps it for those that are in a section; the rest is the caller's promise.
        (!found.is_null()).then(|| unsafe {
            Arc::increment_strong_count(found);
            Arc::from_raw(found)
        })
    }

    /// How many slots there are.
    ///
    /// # Safety
    ///
    /// As for [`Slots::peek`].
    pub(super) unsafe fn peek_len(&self) -> usize {
        self.slots().len()
    }

    /// Grows the array, if need be, to `len` slots. Under the owner's lock. `retire` frees the old one when no section knows it any more.
    pub(super) fn grow(&self, len: usize, retire: impl FnOnce(NonNull<u8>, Layout)) -> Result<(), OutOfMemory> {
        let old = self.slots();
        if old.len() >= len {
            return Ok(());
        }
        let new = Array::filled(old, len)?;
        let old_len = old.len();
        let old = self.array.swap(new.as_ptr(), Ordering::AcqRel); // [A1]
        if let Some(old) = NonNull::new(old) {
            retire(old.cast(), Array::<T>::layout(old_len).expect("it has been allocated"));
        }
        Ok(())
    }

    /// Fills an empty slot. Under the owner's lock.
    pub(super) fn put(&self, index: usize, value: Arc<T>) {
        let slot = &self.slots()[index];
        assert!(slot.load(Ordering::Relaxed).is_null(), "a slot is filled twice");
        slot.store(Arc::into_raw(value).cast_mut(), Ordering::Release); // [A3]
    }

    /// Empties a slot. Under the owner's lock. What was in it must be kept until a grace period has ended.
    #[must_use = "sections that have begun may still use it: drop it after a grace period"]
    pub(super) fn take(&self, index: usize) -> Option<Arc<T>> {
        // Acquire [A4]: what is taken out is complete.
        let taken = self.slots().get(index)?.swap(ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: null, or from `put`, and taken by nobody else.
        (!taken.is_null()).then(|| unsafe { Arc::from_raw(taken) })
    }
}

impl<T> Drop for Slots<T> {
    fn drop(&mut self) {
        // By a load: the model has no other way, and nobody else is there.
        let array = self.array.load(Ordering::Relaxed);
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

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;

    #[test]
    fn it_grows_and_keeps_what_is_in_it() {
        let slots = Slots::new();
        assert_eq!(slots.len(), 0);
        drop(slots.reserve(2).unwrap());
        slots.put(1, Arc::new(7));
        drop(slots.reserve(1).unwrap());
        assert_eq!(slots.len(), 2, "it does not shrink");
        drop(slots.reserve(100).unwrap());
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
        assert!(slots.reserve(usize::MAX / 4).is_err());
        assert_eq!(slots.len(), 0);
    }
}
