//! An array of shared pointers that is read in sections and grows by copy, publish, deferred free.
//!
//! A look-up reads the array, then a slot in it. `grow` stores the array and `put` the slot with
//! release, and look-ups load both with acquire: the copy, and what is in the slot, are complete
//! when they are found.
//!
//! Changes are made under a lock of the owner's, one at a time; so nothing is put into an array
//! while it is copied. Open sections may still use what is taken out, and the old array, which is
//! therefore retired.

#[cfg(not(stillpoint_loom))]
pub(crate) mod sections;

use std::{
    alloc::{Layout, dealloc},
    marker::PhantomData,
    ptr::{self, NonNull},
    sync::Arc,
};
use stillpoint_platform::sync::{AtomicPtr, Ordering};

/// There was no memory for a larger array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OutOfMemory;

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
        // SAFETY: `filled` made it with that many slots.
        unsafe { std::slice::from_raw_parts((&raw const (*this).slots).cast(), (*this).len) }
    }

    /// Creates an array of `len` slots: those of `old`, and empty ones.
    fn filled(old: &[AtomicPtr<T>], len: usize) -> Result<NonNull<Self>, OutOfMemory> {
        let layout = Self::layout(len).ok_or(OutOfMemory)?;
        // SAFETY: the head alone is larger than nothing.
        let array =
            NonNull::new(unsafe { std::alloc::alloc(layout) }.cast::<Self>()).ok_or(OutOfMemory)?;
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

/// The array.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    array: AtomicPtr<Array<T>>,
    owns: PhantomData<Arc<T>>,
}

impl<T> std::fmt::Debug for Array<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Array").field("len", &self.len).finish()
    }
}

impl<T: Send + Sync + 'static> Slots<T> {
    pub(crate) fn new() -> Self {
        Self {
            array: AtomicPtr::new(ptr::null_mut()),
            owns: PhantomData,
        }
    }

    /// Returns the present array. It stays as long as the caller is in a section or holds the owner's
    /// lock.
    #[inline(always)]
    fn slots(&self) -> &[AtomicPtr<T>] {
        // Acquire, pairs with `grow`: the array that is found is complete.
        let array = self.array.load(Ordering::Acquire);
        if array.is_null() {
            &[]
        } else {
            // SAFETY: the array is retired after a grace period, so it stays for a section; or the
            // lock keeps it from being replaced.
            unsafe { Array::slots(array) }
        }
    }

    /// Returns what is at `index`, outside of sections.
    ///
    /// # Safety
    ///
    /// The caller holds the owner's lock, or is the only thread.
    pub(crate) unsafe fn peek(&self, index: usize) -> Option<&T> {
        // SAFETY: nothing is taken out meanwhile, by the caller's promise. Acquire, pairs with
        // `put`: what is found is complete.
        unsafe { self.slots().get(index)?.load(Ordering::Acquire).as_ref() }
    }

    /// Returns what is at `index`; calls `meanwhile` between the loads of the array and of the slot.
    ///
    /// # Safety
    ///
    /// The calling thread is in a section of the global domain (or whatever `grow`'s caller waits
    /// for) that lasts longer than what is returned.
    #[inline(always)]
    pub(crate) unsafe fn find_after(&self, index: usize, meanwhile: impl FnOnce()) -> Option<&T> {
        let slots = self.slots();
        meanwhile();
        // SAFETY: null, or an `Arc`'s; what is taken out is kept until sections such as the
        // caller's have ended. Acquire, pairs with `put`: what is found is complete.
        unsafe { slots.get(index)?.load(Ordering::Acquire).as_ref() }
    }

    /// Returns a reference to what is at `index`.
    ///
    /// # Safety
    ///
    /// See [`Slots::find_after`] or [`Slots::peek`].
    pub(crate) unsafe fn share(&self, index: usize) -> Option<Arc<T>> {
        // The pointer of `put`, and not one of a reference: the counts lie before the value.
        // Acquire, pairs with `put`: what is found is complete.
        let found = self
            .slots()
            .get(index)?
            .load(Ordering::Acquire)
            .cast_const();
        // SAFETY: null, or from `put`, and what is taken out is kept until open sections have
        // ended; the rest is the caller's promise.
        (!found.is_null()).then(|| unsafe {
            Arc::increment_strong_count(found);
            Arc::from_raw(found)
        })
    }

    /// Returns the number of slots.
    ///
    /// # Safety
    ///
    /// See [`Slots::peek`].
    pub(crate) unsafe fn peek_len(&self) -> usize {
        self.slots().len()
    }

    /// Grows the array, if need be, to `len` slots. Called under the owner's lock. `retire` frees the
    /// old array once no section knows it.
    pub(crate) fn grow(
        &self,
        len: usize,
        retire: impl FnOnce(NonNull<u8>, Layout),
    ) -> Result<(), OutOfMemory> {
        let old = self.slots();
        if old.len() >= len {
            return Ok(());
        }
        let new = Array::filled(old, len)?;
        let old_len = old.len();
        // Release, pairs with `slots`: the copy is complete before it is found. Acquire: so was the
        // array that is retired.
        let old = self.array.swap(new.as_ptr(), Ordering::AcqRel);
        if let Some(old) = NonNull::new(old) {
            retire(
                old.cast(),
                Array::<T>::layout(old_len).expect("it has been allocated"),
            );
        }
        Ok(())
    }

    /// Fills an empty slot. Called under the owner's lock.
    pub(crate) fn put(&self, index: usize, value: Arc<T>) {
        let slot = &self.slots()[index];
        assert!(
            slot.load(Ordering::Relaxed).is_null(),
            "a slot is filled twice"
        );
        // Release, pairs with `find_after`, `share` and `peek`: the value is complete before it is
        // found.
        slot.store(Arc::into_raw(value).cast_mut(), Ordering::Release);
    }

    /// Empties a slot. Called under the owner's lock. The caller keeps what was in it until a grace
    /// period has ended.
    #[must_use = "sections that have begun may still use it: drop it after a grace period"]
    pub(crate) fn take(&self, index: usize) -> Option<Arc<T>> {
        // Acquire, pairs with `put`: what is taken out is complete.
        let taken = self
            .slots()
            .get(index)?
            .swap(ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: null, or from `put`, and only this call takes it.
        (!taken.is_null()).then(|| unsafe { Arc::from_raw(taken) })
    }
}

impl<T> Drop for Slots<T> {
    fn drop(&mut self) {
        // By a load: loom has no `get_mut` here, and no other thread is left.
        let array = self.array.load(Ordering::Relaxed);
        if array.is_null() {
            return;
        }
        // SAFETY: the array is no longer shared: look-ups borrow from this.
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
