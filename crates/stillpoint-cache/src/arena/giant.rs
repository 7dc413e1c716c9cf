//! A value that is larger than a region: a mapping of its own, which goes with it.

use super::{Shared, Slot, class::PAGE};
use std::{mem::ManuallyDrop, ptr::NonNull, sync::Arc};

/// The head of a giant, which lies before its slot.
#[derive(Debug)]
#[repr(C, align(16))]
pub struct Giant {
    /// The arena that it is of, which it keeps alive.
    pub shared: *const Shared,
    memory: ManuallyDrop<imp::Memory>,
}

/// Returns the size of a giant whose slot has `slot` bytes.
pub fn size(slot: usize) -> Option<usize> {
    let all = slot.checked_add(size_of::<Giant>())?;
    all.checked_next_multiple_of(PAGE)
        .filter(|&bytes| bytes <= isize::MAX as usize)
}

impl Giant {
    /// Makes a place for a slot of so many bytes. `None` without memory.
    pub fn make(shared: &Arc<Shared>, slot: usize) -> Option<NonNull<Slot>> {
        let memory = imp::Memory::new(size(slot)?)?;
        let start = memory.start().cast::<Self>();
        let this = Self {
            shared: Arc::into_raw(Arc::clone(shared)),
            memory: ManuallyDrop::new(memory),
        };
        // SAFETY: the memory has space for it and the slot behind it, and is no other's.
        unsafe {
            start.write(this);
            Some(start.add(1).cast())
        }
    }

    /// Returns the giant of a slot.
    ///
    /// # Safety
    ///
    /// The slot came from [`Giant::make`].
    pub unsafe fn of(slot: NonNull<Slot>) -> NonNull<Self> {
        // SAFETY: the caller's promise.
        unsafe { slot.cast::<Self>().sub(1) }
    }

    /// Gives its memory back, and the arena up, which may go then.
    ///
    /// # Safety
    ///
    /// It came from [`Giant::make`], and is not used any more.
    pub unsafe fn delete(giant: NonNull<Self>) {
        // SAFETY: the caller's promise. The memory is moved out before this goes with it.
        unsafe {
            let shared = (*giant.as_ptr()).shared;
            let memory = ManuallyDrop::take(&mut (*giant.as_ptr()).memory);
            drop(memory);
            drop(Arc::from_raw(shared));
        }
    }
}

#[cfg(all(target_os = "linux", not(miri), not(stillpoint_loom)))]
mod imp {
    use std::ptr::NonNull;
    use stillpoint_platform::mmap::Mapping;

    #[derive(Debug)]
    pub struct Memory(Mapping);

    impl Memory {
        pub fn new(len: usize) -> Option<Self> {
            Mapping::zeroed(len).ok().map(Self)
        }

        pub fn start(&self) -> NonNull<u8> {
            self.0.start()
        }
    }
}

#[cfg(not(all(target_os = "linux", not(miri), not(stillpoint_loom))))]
mod imp {
    use std::{
        alloc::{Layout, dealloc},
        ptr::NonNull,
    };

    #[derive(Debug)]
    pub struct Memory(NonNull<u8>, Layout);

    impl Memory {
        pub fn new(len: usize) -> Option<Self> {
            let layout = Layout::from_size_align(len, 16).ok()?;
            // SAFETY: not of size 0.
            let start = NonNull::new(unsafe { std::alloc::alloc(layout) })?;
            Some(Self(start, layout))
        }

        pub fn start(&self) -> NonNull<u8> {
            self.0
        }
    }

    impl Drop for Memory {
        fn drop(&mut self) {
            // SAFETY: allocated with that layout.
            unsafe { dealloc(self.0.as_ptr(), self.1) };
        }
    }
}
