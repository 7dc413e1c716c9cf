//! The memory of a table: zeroed, fallible, and given back in slices where it is large.

use crate::{bucket::Bucket, table::Header};
use std::{
    alloc::{Layout, dealloc},
    marker::PhantomData,
    ptr::NonNull,
};
use stillpoint_platform::memory::try_alloc;

#[cfg(all(target_os = "linux", not(miri), not(stillpoint_loom)))]
use mapped::Mapped;
#[cfg(not(all(target_os = "linux", not(miri), not(stillpoint_loom))))]
use unmapped::Mapped;

/// Tables of at least so many bytes are mapped: their pages take memory when they are first
/// written, so that a resize costs no insert more than its own few buckets.
const MAPPED_FROM: usize = 128 << 10;

/// A header `H`, behind which there are buckets `B`, of which zeroes are empty ones.
#[derive(Debug)]
pub struct Memory<H = Header, B = Bucket>(Place, PhantomData<*mut (H, B)>);

#[derive(Debug)]
enum Place {
    Allocated(NonNull<u8>, Layout),
    Mapped(Mapped),
}

/// Pages have no larger alignment.
const MOST_ALIGNED: usize = 4096;

impl<H, B: Default> Memory<H, B> {
    /// The buckets begin where the header ends.
    const IS_HEADER_ALIGNED: () = assert!(size_of::<H>().is_multiple_of(align_of::<B>()));

    fn layout(bits: u32) -> Option<Layout> {
        let buckets = Layout::array::<B>(1 << bits).ok()?;
        Some(Layout::new::<H>().extend(buckets).ok()?.0)
    }

    /// Room for a header, and empty buckets behind it. `None` without memory.
    pub fn of_buckets(bits: u32) -> Option<Self> {
        let () = Self::IS_HEADER_ALIGNED;
        let layout = Self::layout(bits)?;
        if layout.size() >= MAPPED_FROM
            && layout.align() <= MOST_ALIGNED
            && let Some(mapped) = Mapped::zeroed(size_of::<H>(), layout.size() - size_of::<H>())
        {
            return Some(Self(Place::Mapped(mapped), PhantomData));
        }
        // SAFETY: not of size 0.
        let start = NonNull::new(unsafe { try_alloc(layout) })?;
        // SAFETY: room for a header, and behind it for that many buckets.
        unsafe {
            let buckets = start.cast::<H>().add(1).cast::<B>();
            (0..1 << bits).for_each(|index| buckets.add(index).write(B::default()));
        }
        Some(Self(Place::Allocated(start, layout), PhantomData))
    }

    pub fn start(&self) -> NonNull<H> {
        match &self.0 {
            Place::Allocated(start, _) => start.cast(),
            Place::Mapped(mapped) => mapped.start().cast(),
        }
    }

    /// The block and its layout, if the allocator can free it and it is small.
    pub fn as_block(&self) -> Option<(NonNull<u8>, Layout)> {
        match &self.0 {
            Place::Allocated(start, layout) if layout.size() < MAPPED_FROM => {
                Some((*start, *layout))
            }
            _ => None,
        }
    }

    /// Gives it back.
    pub fn free(self) {
        match self.0 {
            // SAFETY: allocated with that layout. What the model's atomics own is dropped.
            Place::Allocated(start, layout) => unsafe {
                if cfg!(stillpoint_loom) {
                    let buckets = (layout.size() - size_of::<H>()) / size_of::<B>();
                    let first = start.cast::<H>().add(1).cast::<B>();
                    (0..buckets).for_each(|index| first.add(index).drop_in_place());
                }
                dealloc(start.as_ptr(), layout);
            },
            Place::Mapped(mapped) => mapped.free(),
        }
    }
}

/// Has what lies there in the cache when it is used.
#[inline(always)]
pub fn prefetch<T>(at: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri), not(stillpoint_loom)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: it reads nothing as far as the program can see, from any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
    let _ = at;
}

#[cfg(all(target_os = "linux", not(miri), not(stillpoint_loom)))]
mod mapped {
    use std::ptr::NonNull;
    use stillpoint_platform::mmap::{Advice, Backing, Mapping, advise, page_size};

    #[derive(Debug)]
    pub struct Mapped {
        mapping: Mapping,
        /// Where the header is.
        offset: usize,
        /// From there to the end.
        bytes: usize,
    }

    /// A huge page of all machines that we know, and what is given back at a time: the kernel keeps
    /// a lock of the process's memory meanwhile.
    const HUGE: usize = 2 << 20;

    impl Mapped {
        /// A header of so many bytes, and buckets behind it, which begin at a huge page's boundary.
        pub fn zeroed(header: usize, buckets: usize) -> Option<Self> {
            let buckets = buckets.checked_next_multiple_of(page_size())?;
            let mapping = Mapping::reserve(HUGE + buckets, HUGE, Backing::Anonymous).ok()?;
            let before = header.next_multiple_of(page_size());
            mapping.allow(HUGE - before, before + buckets).ok()?;
            // Without huge pages a look-up in a large table misses in the TLB each time.
            let huge = buckets / HUGE * HUGE;
            if huge > 0 {
                // SAFETY: it changes no contents. If it fails, pages are small.
                let _ = unsafe { advise(&[mapping.pages(HUGE, huge)], Advice::HugePages, false) };
            }
            Some(Self {
                mapping,
                offset: HUGE - header,
                bytes: header + buckets,
            })
        }

        pub fn start(&self) -> NonNull<u8> {
            // SAFETY: inside the mapping.
            unsafe { self.mapping.start().add(self.offset) }
        }

        pub fn free(self) {
            for from in (HUGE..self.offset + self.bytes).step_by(HUGE) {
                let pages = self
                    .mapping
                    .pages(from, HUGE.min(self.offset + self.bytes - from));
                // SAFETY: no thread uses the table any more. If it fails, the unmapping below does
                // it.
                let _ = unsafe { advise(&[pages], Advice::DontNeed, false) };
            }
        }
    }
}

/// Without mappings.
#[cfg(not(all(target_os = "linux", not(miri), not(stillpoint_loom))))]
mod unmapped {
    use std::ptr::NonNull;

    #[derive(Debug)]
    pub enum Mapped {}

    impl Mapped {
        pub fn zeroed(_header: usize, _buckets: usize) -> Option<Self> {
            None
        }

        pub fn start(&self) -> NonNull<u8> {
            match *self {}
        }

        pub fn free(self) {
            match self {}
        }
    }
}
