//! The memory of a table: zeroed, fallible, and given back in slices where it is large.

use std::{
    alloc::{Layout, dealloc},
    marker::PhantomData,
    ptr::NonNull,
};

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
pub struct Memory<H, B, A>(Place, PhantomData<*mut (H, B, A)>);

#[derive(Debug)]
enum Place {
    /// A block with its layout, and the header in it.
    Allocated(NonNull<u8>, Layout, NonNull<u8>),
    Mapped(Mapped),
}

/// Pages have no larger alignment.
const MOST_ALIGNED: usize = 4096;

impl<H, B: Default, A: Default> Memory<H, B, A> {
    /// The buckets begin where the header ends, and what is before it ends where that begins.
    const IS_HEADER_ALIGNED: () = assert!(
        size_of::<H>().is_multiple_of(align_of::<B>())
            && align_of::<H>().is_multiple_of(align_of::<A>())
    );

    /// The layout of a table that uses `bits` bits of each hash. `None` if no memory can be so large.
    pub fn layout(bits: u32) -> Option<Layout> {
        Some(Self::layout_and_offset(bits)?.0)
    }

    /// That layout, and where the header is.
    fn layout_and_offset(bits: u32) -> Option<(Layout, usize)> {
        let before = Layout::array::<A>(1 << bits).ok()?;
        let buckets = Layout::array::<B>(1 << bits).ok()?;
        let (to_header, offset) = before.extend(Layout::new::<H>()).ok()?;
        Some((to_header.extend(buckets).ok()?.0, offset))
    }

    /// Room for a header, and empty buckets behind it. `None` without memory.
    pub fn of_buckets(bits: u32) -> Option<Self> {
        let () = Self::IS_HEADER_ALIGNED;
        let (layout, offset) = Self::layout_and_offset(bits)?;
        if Mapped::IS_SUPPORTED && layout.size() >= MAPPED_FROM && layout.align() <= MOST_ALIGNED {
            let mapped = Mapped::zeroed(offset, size_of::<H>(), layout.size())?;
            return Some(Self(Place::Mapped(mapped), PhantomData));
        }
        // SAFETY: not of size 0.
        let block = NonNull::new(unsafe { std::alloc::alloc(layout) })?;
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
        Some(Self(Place::Allocated(block, layout, start), PhantomData))
    }

    pub fn start(&self) -> NonNull<H> {
        match &self.0 {
            Place::Allocated(.., start) => start.cast(),
            Place::Mapped(mapped) => mapped.start().cast(),
        }
    }

    /// The block and its layout, if the allocator can free it and it is small.
    pub fn as_block(&self) -> Option<(NonNull<u8>, Layout)> {
        match &self.0 {
            Place::Allocated(block, layout, _) if layout.size() < MAPPED_FROM => {
                Some((*block, *layout))
            }
            _ => None,
        }
    }

    /// Whether its pages take memory when they are first written.
    pub fn is_mapped(&self) -> bool {
        matches!(self.0, Place::Mapped(_))
    }

    /// Makes each page that is written from now on a small one, or a huge one again where there is none yet.
    /// What is sparse would take a huge page for each entry.
    pub fn prefer_huge_pages(&self, huge: bool) {
        if let Place::Mapped(mapped) = &self.0 {
            mapped.prefer_huge_pages(huge);
        }
    }

    /// Gives it back.
    pub fn free(self) {
        match self.0 {
            // SAFETY: allocated with that layout. What the model's atomics own is dropped.
            Place::Allocated(block, layout, start) => unsafe {
                if cfg!(stillpoint_loom) {
                    let offset = start.addr().get() - block.addr().get();
                    let buckets = (layout.size() - offset - size_of::<H>()) / size_of::<B>();
                    let first = start.cast::<H>().add(1).cast::<B>();
                    for index in 0..buckets {
                        first.add(index).drop_in_place();
                        start.cast::<A>().sub(1 + index).drop_in_place();
                    }
                }
                dealloc(block.as_ptr(), layout);
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

    /// A huge page of all machines that we know, and the least that is given back at a time: the kernel
    /// keeps a lock of the process's memory meanwhile.
    const HUGE: usize = 2 << 20;

    /// A table is given back by at most this number of calls: most of a large one may have no memory.
    const MOST_SLICES: usize = 512;

    impl Mapped {
        pub const IS_SUPPORTED: bool = true;

        /// So many bytes, of which `before` are before the header. They end at a huge page's boundary:
        /// so what lies before the last 2 MiB is in huge pages, too, but for the beginning, where it does
        /// not fill one.
        pub fn zeroed(before: usize, header: usize, bytes: usize) -> Option<Self> {
            let buckets = bytes.checked_sub(before.checked_add(header)?)?;
            let buckets = buckets.checked_next_multiple_of(page_size())?;
            let bytes = before + header + buckets;
            let end = bytes.checked_next_multiple_of(HUGE)?;
            let from = end - bytes;
            let first = from / page_size() * page_size();
            // The system refuses more than it could ever give.
            let mapping = Mapping::reserve(end, HUGE, Backing::Accounted).ok()?;
            mapping.allow(first, end - first).ok()?;
            let mapped = Self {
                mapping,
                offset: from + before,
                first,
                end,
            };
            // Without huge pages a look-up in a large table misses in the TLB each time.
            mapped.prefer_huge_pages(true);
            Some(mapped)
        }

        pub fn prefer_huge_pages(&self, huge: bool) {
            let (first, end) = (self.first.next_multiple_of(HUGE), self.end);
            let advice = if huge {
                Advice::HugePages
            } else {
                Advice::SmallPages
            };
            if first < end {
                // SAFETY: it changes no contents. If it fails, pages are as the system makes them.
                let _ = unsafe { advise(&[self.mapping.pages(first, end - first)], advice, false) };
            }
        }

        pub fn start(&self) -> NonNull<u8> {
            // SAFETY: inside the mapping.
            unsafe { self.mapping.start().add(self.offset) }
        }

        pub fn free(self) {
            let slice = (self.end / MOST_SLICES).next_multiple_of(HUGE);
            let mut end = self.end;
            while end > self.first {
                let from = end.saturating_sub(slice).max(self.first);
                let pages = self.mapping.pages(from, end - from);
                end = from;
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
        pub const IS_SUPPORTED: bool = false;

        pub fn zeroed(_before: usize, _header: usize, _bytes: usize) -> Option<Self> {
            None
        }

        pub fn start(&self) -> NonNull<u8> {
            match *self {}
        }

        pub fn prefer_huge_pages(&self, _huge: bool) {
            match *self {}
        }

        pub fn free(self) {
            match self {}
        }
    }
}

// Detects no room before the header, or less memory than a mapping should have.
#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use std::fmt::Debug;

    #[derive(Clone, Copy, Default, PartialEq, Debug)]
    #[repr(C, align(64))]
    struct Line([u64; 8]);
    #[derive(Clone, Copy, Default, PartialEq, Debug)]
    #[repr(C, align(256))]
    struct Wide(u64);
    #[derive(Clone, Copy, Default, PartialEq, Debug)]
    #[repr(C, align(8192))]
    struct Wider(u64);

    /// Two of them, side by side perhaps: each is aligned, empty at first, and keeps what is written,
    /// also when the other one has gone.
    fn keeps_all<H, B, A>(bits: u32, header: H, buckets: [B; 2], ahead: [A; 2])
    where
        H: Copy + PartialEq + Debug,
        B: Copy + Default + PartialEq + Debug,
        A: Copy + Default + PartialEq + Debug,
    {
        let make = |()| Memory::<H, B, A>::of_buckets(bits).expect("memory");
        let [one, other] = [(), ()].map(make);
        let places = |start: NonNull<H>, index| {
            // SAFETY: on both sides of the header there are as many.
            unsafe {
                let ahead = start.cast::<A>().sub(1 + index);
                (start.add(1).cast::<B>().add(index), ahead)
            }
        };
        let starts = [one.start(), other.start()];
        for start in starts {
            let (bucket, before) = places(start, 0);
            let aligned = [start.is_aligned(), bucket.is_aligned(), before.is_aligned()];
            assert_eq!(aligned, [true; 3]);
            // SAFETY: no other thread knows it.
            unsafe { start.write(header) };
            for index in 0..1 << bits {
                let (bucket, before) = places(start, index);
                // SAFETY: the same.
                unsafe {
                    assert_eq!((bucket.read(), before.read()), (B::default(), A::default()));
                    bucket.write(buckets[index & 1]);
                    before.write(ahead[index & 1]);
                }
            }
        }
        let keeps = |start: NonNull<H>| {
            // SAFETY: the same.
            assert_eq!(unsafe { start.read() }, header);
            for index in 0..1 << bits {
                let (bucket, before) = places(start, index);
                // SAFETY: the same.
                let kept = unsafe { (bucket.read(), before.read()) };
                assert_eq!(kept, (buckets[index & 1], ahead[index & 1]), "{index}");
            }
        };
        starts.into_iter().for_each(keeps);
        one.free();
        keeps(other.start());
        other.free();
    }

    /// In blocks, in mappings, and in those of several huge pages.
    #[test]
    fn both_sides_of_a_header_are_kept() {
        for bits in if cfg!(miri) { 1..=4 } else { 1..=15 } {
            let (header, two) = ([Line([1; 8]); 3], |first: u64| [first, first + 1]);
            keeps_all(
                bits,
                header,
                two(2).map(|at| [at; 14]),
                two(4).map(|at| [at; 2]),
            );
            keeps_all(bits, header, two(2).map(|at| Line([at; 8])), [(); 2]);
            keeps_all(bits, Wide(1), two(2).map(Wide), [[4_u8; 3], [5; 3]]);
            keeps_all(bits, header, [(); 2], two(4));
        }
        // Pages are not aligned like that: so it is a block, which is a large one.
        let bits = if cfg!(miri) { 1 } else { 5 };
        keeps_all(bits, Wider(1), [Wider(2), Wider(3)], [[4_u64; 2], [5; 2]]);
    }

    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn a_large_one_ends_where_a_huge_page_does() {
        for bits in [10, 14, 15] {
            let memory =
                Memory::<[Line; 3], [u64; 14], [u64; 2]>::of_buckets(bits).expect("memory");
            // SAFETY: there are so many buckets behind the header.
            let end = unsafe { memory.start().add(1).cast::<[u64; 14]>().add(1 << bits) };
            assert_eq!(end.addr().get() % (2 << 20), 0, "{bits}");
            assert!(memory.as_block().is_none());
            memory.free();
        }
    }

    /// What is retired as a block is all of it.
    #[test]
    fn a_block_begins_where_what_is_before_the_header_does() {
        for bits in 1..=6 {
            let memory =
                Memory::<[Line; 3], [u64; 14], [u64; 2]>::of_buckets(bits).expect("memory");
            let (block, layout) = memory.as_block().expect("it is small");
            let start = memory.start().addr().get();
            let (first, end) = (start - (16 << bits), start + 192 + (112 << bits));
            let begin = block.addr().get();
            assert!(begin <= first && end <= begin + layout.size());
            assert!(first < begin + layout.align());
            memory.free();
        }
    }
}
