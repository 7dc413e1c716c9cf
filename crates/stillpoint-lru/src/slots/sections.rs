//! Look-ups in sections of the global domain, and arrays that are freed after its grace periods.
//! The model does not have them.

use super::{Array, OutOfMemory, Slots};
use std::{
    alloc::Layout,
    ptr::{self, NonNull},
    sync::Arc,
};
use stillpoint::{
    Guard, Section, global,
    internal::{is_global, try_call},
    read_lock,
};
use stillpoint_platform::sync::Ordering;

/// A section of the global domain, in which arrays and what is in them are retired.
pub(crate) struct Global<S>(S);

impl Global<Guard<'static>> {
    /// Begins a section.
    #[inline(always)]
    pub(crate) fn begin() -> Self {
        Self(read_lock())
    }
}

impl<S: Section> Global<S> {
    /// Returns `None` if `section` is not one of the global domain.
    #[inline(always)]
    pub(crate) fn of(section: S) -> Option<Self> {
        is_global(&section).then_some(Self(section))
    }
}

/// An array that has been replaced. Open sections may use it, so it is retired when this is dropped,
/// after the owner's lock is released, as that may wait for them.
#[derive(Debug)]
#[must_use = "it is to be dropped after the lock"]
pub(crate) struct Replaced(Option<(NonNull<u8>, Layout)>);

impl Drop for Replaced {
    fn drop(&mut self) {
        if let Some((array, layout)) = self.0 {
            // SAFETY: from the global allocator, with this layout; unlinked by `reserve`, and ours
            // alone.
            unsafe { global().retire_sized(array, layout) };
        }
    }
}

/// Look-ups in sections: what they find stays until these end.
impl<T: Send + Sync + 'static> Slots<T> {
    /// Returns what is at `index`, for as long as the section.
    #[inline(always)]
    pub(crate) fn find<'a, S>(&'a self, index: usize, _section: &'a Global<S>) -> Option<&'a T> {
        // SAFETY: `_section` is open, is one of the global domain, and lasts as long as what is found.
        unsafe { self.find_after(index, || ()) }
    }

    /// Returns a reference to what is at `index`, which may be kept after the section.
    pub(crate) fn get<S>(&self, index: usize, _section: &Global<S>) -> Option<Arc<T>> {
        // SAFETY: `_section` is open, and one of the global domain.
        unsafe { self.share(index) }
    }

    /// Returns the number of slots. Not called under a lock: a section's end may wait, and run
    /// destructors.
    pub(crate) fn len(&self) -> usize {
        let _guard = global().read_lock();
        self.slots().len()
    }

    /// Grows the array, if need be, to `len` slots. Called under the owner's lock; the caller drops
    /// what is returned after it.
    pub(crate) fn reserve(&self, len: usize) -> Result<Replaced, OutOfMemory> {
        let mut replaced = Replaced(None);
        self.grow(len, |old, layout| replaced.0 = Some((old, layout)))?;
        Ok(replaced)
    }

    /// Like [`Slots::reserve`], but when the old array would be freed, it is emptied, and stays: for
    /// torture tests.
    pub(crate) fn reserve_and_empty(&self, len: usize) -> Result<(), OutOfMemory> {
        self.grow(len, |old, _layout| {
            let address = old.as_ptr().expose_provenance();
            let is_queued = try_call(global(), move || {
                // SAFETY: an array of this type that stays for ever.
                let slots = unsafe { Array::<T>::slots(ptr::with_exposed_provenance(address)) };
                slots
                    .iter()
                    .for_each(|slot| slot.store(ptr::null_mut(), Ordering::Relaxed));
            });
            assert!(is_queued, "memory for a callback");
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grow_keeps_the_slots() {
        let slots = Slots::new();
        assert_eq!(slots.len(), 0);
        drop(slots.reserve(2).unwrap());
        slots.put(1, Arc::new(7));
        drop(slots.reserve(1).unwrap());
        assert_eq!(slots.len(), 2, "it does not shrink");
        drop(slots.reserve(100).unwrap());
        let guard = Global::begin();
        assert_eq!(
            (
                slots.find(1, &guard),
                slots.find(0, &guard),
                slots.find(100, &guard)
            ),
            (Some(&7), None, None)
        );
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
    fn grow_without_memory_is_refused() {
        let slots = Slots::<u32>::new();
        assert!(slots.reserve(usize::MAX / 4).is_err());
        assert_eq!(slots.len(), 0);
    }
}
