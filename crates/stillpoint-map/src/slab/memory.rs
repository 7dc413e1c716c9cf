//! The memory of a region: aligned to its own size, zero or not, and given back in parts.

#[cfg(all(target_os = "linux", not(miri), not(stillpoint_loom)))]
pub use mapped::Memory;
#[cfg(not(all(target_os = "linux", not(miri), not(stillpoint_loom))))]
pub use unmapped::Memory;

/// The bytes of a region: a huge page of all machines that we know.
pub const REGION: usize = if cfg!(stillpoint_loom) || cfg!(miri) {
    4 << 10
} else {
    2 << 20
};

#[cfg(all(target_os = "linux", not(miri), not(stillpoint_loom)))]
mod mapped {
    use super::REGION;
    use std::{cell::Cell, ptr::NonNull};
    use stillpoint_platform::mmap::{Advice, Backing, Mapping, advise, page_size};

    #[derive(Debug)]
    pub struct Memory {
        mapping: Mapping,
        is_huge: Cell<bool>,
    }

    impl Memory {
        /// `None` without memory. `huge`: all of it will be used.
        pub fn new(huge: bool) -> Option<Self> {
            let mapping = Mapping::reserve(REGION, REGION, Backing::Anonymous).ok()?;
            mapping.allow(0, REGION).ok()?;
            if huge {
                // SAFETY: it changes no contents. If it fails, pages are small.
                let _ = unsafe { advise(&[mapping.pages(0, REGION)], Advice::HugePages, false) };
            }
            let is_huge = Cell::new(huge);
            Some(Self { mapping, is_huge })
        }

        pub fn start(&self) -> NonNull<u8> {
            self.mapping.start()
        }

        /// Gives the whole pages of a part back, whose contents are lost.
        ///
        /// # Safety
        ///
        /// No thread uses the part, or gives another back.
        pub unsafe fn release(&self, offset: usize, end: usize) {
            let offset = offset.next_multiple_of(page_size());
            if offset < end {
                if self.is_huge.replace(false) {
                    let all = self.mapping.pages(0, REGION);
                    // Or the system makes a huge page of the rest, and so uses the memory again.
                    // SAFETY: it changes no contents.
                    let _ = unsafe { advise(&[all], Advice::SmallPages, false) };
                }
                let pages = self.mapping.pages(offset, end - offset);
                // SAFETY: the caller's promise. If it fails, the memory stays.
                let _ = unsafe { advise(&[pages], Advice::DontNeed, false) };
            }
        }
    }
}

/// From the allocator, which can take no parts back.
#[cfg(not(all(target_os = "linux", not(miri), not(stillpoint_loom))))]
mod unmapped {
    use super::REGION;
    use crate::slot::fits;
    use std::{
        alloc::{Layout, dealloc},
        ptr::NonNull,
    };
    use stillpoint_platform::memory::try_alloc;

    #[derive(Debug)]
    pub struct Memory(NonNull<u8>);

    fn layout() -> Layout {
        Layout::from_size_align(REGION, REGION).expect("it is a power of two")
    }

    impl Memory {
        pub fn new(_huge: bool) -> Option<Self> {
            // SAFETY: not of size 0.
            let memory = Self(NonNull::new(unsafe { try_alloc(layout()) })?);
            fits(memory.0).then_some(memory)
        }

        pub fn start(&self) -> NonNull<u8> {
            self.0
        }

        /// # Safety
        ///
        /// None.
        pub unsafe fn release(&self, _offset: usize, _end: usize) {}
    }

    impl Drop for Memory {
        fn drop(&mut self) {
            // SAFETY: allocated with that layout.
            unsafe {
                if cfg!(stillpoint_loom) {
                    // An access from now on, to an atomic above all, is to end the model.
                    self.0.write_bytes(0xff, REGION);
                } else {
                    dealloc(self.0.as_ptr(), layout());
                }
            }
        }
    }
}
