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

/// A header `H`, behind which there are buckets `B`, of which zeroes are empty ones. Before the header
/// there are as many `A`, the same: the last of them ends where the header begins.
#[derive(Debug)]
pub struct Memory<H = Header, B = Bucket, A = ()>(Place, PhantomData<*mut (H, B, A)>);

#[derive(Debug)]
enum Place {
    /// The header, the block's layout, and where in it the header is.
    Allocated(NonNull<u8>, Layout, usize),
    Mapped(Mapped),
}

impl Place {
    /// The block that was allocated.
    fn block(header: NonNull<u8>, offset: usize) -> NonNull<u8> {
        // SAFETY: the header is that far behind the block's beginning.
        unsafe { header.sub(offset) }
    }
}

/// Pages have no larger alignment.
const MOST_ALIGNED: usize = 4096;

impl<H, B: Default, A: Default> Memory<H, B, A> {
    /// The buckets begin where the header ends, and what is before it ends where that begins.
    const IS_HEADER_ALIGNED: () = assert!(
        size_of::<H>().is_multiple_of(align_of::<B>())
            && align_of::<H>().is_multiple_of(align_of::<A>())
    );

    /// The layout of all, and where the header is.
    fn layout(bits: u32) -> Option<(Layout, usize)> {
        let before = Layout::array::<A>(1 << bits).ok()?;
        let buckets = Layout::array::<B>(1 << bits).ok()?;
        let (to_header, offset) = before.extend(Layout::new::<H>()).ok()?;
        Some((to_header.extend(buckets).ok()?.0, offset))
    }

    /// Room for a header, and empty buckets behind it. `None` without memory.
    pub fn of_buckets(bits: u32) -> Option<Self> {
        let () = Self::IS_HEADER_ALIGNED;
        let (layout, offset) = Self::layout(bits)?;
        if layout.size() >= MAPPED_FROM
            && layout.align() <= MOST_ALIGNED
            && let Some(mapped) = Mapped::zeroed(offset, size_of::<H>(), layout.size())
        {
            return Some(Self(Place::Mapped(mapped), PhantomData));
        }
        // SAFETY: not of size 0.
        let block = NonNull::new(unsafe { try_alloc(layout) })?;
        // SAFETY: room for a header, and on both sides of it for that many.
        let start = unsafe {
            let start = block.add(offset);
            let buckets = start.cast::<H>().add(1).cast::<B>();
            let before = start.cast::<A>();
            for index in 0..1 << bits {
                buckets.add(index).write(B::default());
                before.sub(1 + index).write(A::default());
            }
            start
        };
        Some(Self(Place::Allocated(start, layout, offset), PhantomData))
    }

    pub fn start(&self) -> NonNull<H> {
        match &self.0 {
            Place::Allocated(start, ..) => start.cast(),
            Place::Mapped(mapped) => mapped.start().cast(),
        }
    }

    /// The block and its layout, if the allocator can free it and it is small.
    pub fn as_block(&self) -> Option<(NonNull<u8>, Layout)> {
        match &self.0 {
            Place::Allocated(start, layout, offset) if layout.size() < MAPPED_FROM => {
                Some((Place::block(*start, *offset), *layout))
            }
            _ => None,
        }
    }

    /// Gives it back.
    pub fn free(self) {
        match self.0 {
            // SAFETY: allocated with that layout. What the model's atomics own is dropped.
            Place::Allocated(start, layout, offset) => unsafe {
                if cfg!(stillpoint_loom) {
                    let buckets = (layout.size() - offset - size_of::<H>()) / size_of::<B>();
                    let first = start.cast::<H>().add(1).cast::<B>();
                    for index in 0..buckets {
                        first.add(index).drop_in_place();
                        start.cast::<A>().sub(1 + index).drop_in_place();
                    }
                }
                dealloc(Place::block(start, offset).as_ptr(), layout);
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
        /// Where memory begins, which goes on to the end.
        first: usize,
        end: usize,
    }

    /// A huge page of all machines that we know, and what is given back at a time: the kernel keeps
    /// a lock of the process's memory meanwhile.
    const HUGE: usize = 2 << 20;

    impl Mapped {
        /// So many bytes, of which `before` are before the header. They end at a huge page's boundary:
        /// so what lies before the last 2 MiB is in huge pages, too, but for the first few bytes.
        pub fn zeroed(before: usize, header: usize, bytes: usize) -> Option<Self> {
            let buckets = (bytes - before - header).checked_next_multiple_of(page_size())?;
            let bytes = before + header + buckets;
            let end = bytes.checked_next_multiple_of(HUGE)?;
            let from = end - bytes;
            let first = from / page_size() * page_size();
            let mapping = Mapping::reserve(end, HUGE, Backing::Anonymous).ok()?;
            mapping.allow(first, end - first).ok()?;
            // Without huge pages a look-up in a large table misses in the TLB each time.
            let huge = first.next_multiple_of(HUGE);
            if huge < end {
                // SAFETY: it changes no contents. If it fails, pages are small.
                let _ =
                    unsafe { advise(&[mapping.pages(huge, end - huge)], Advice::HugePages, false) };
            }
            Some(Self {
                mapping,
                offset: from + before,
                first,
                end,
            })
        }

        pub fn start(&self) -> NonNull<u8> {
            // SAFETY: inside the mapping.
            unsafe { self.mapping.start().add(self.offset) }
        }

        pub fn free(self) {
            for from in (self.first / HUGE * HUGE..self.end).step_by(HUGE) {
                let from = from.max(self.first);
                let bytes = HUGE - from % HUGE;
                let pages = self.mapping.pages(from, bytes);
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
        pub fn zeroed(_before: usize, _header: usize, _bytes: usize) -> Option<Self> {
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
