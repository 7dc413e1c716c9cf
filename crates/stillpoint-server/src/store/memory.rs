//! Memory of segments and of the index: areas of one `stillpoint_vmap` arena, whose memory goes
//! back to the system some megabytes at a time, in one call. Under Miri, which has no such address
//! space, and in models, the allocator's.
//!
//! A mapping of its own for each segment would cost a system call to make and one to free, and the
//! kernel allows some 65,000 of them: with segments of 4 KiB that is 256 MiB. An arena is one
//! mapping, hands areas out from pools, and gives freed ones back together.
//!
//! This file waits for no reader: before it drops memory, the caller has waited (`pool.rs`), or the
//! arena does, in the global domain.

use std::ptr::NonNull;

/// A piece of memory, zeroed at first and aligned as requested.
#[derive(Debug)]
pub struct Memory {
    base: NonNull<u8>,
    len: usize,
    /// The length in bytes before it was cut.
    whole: usize,
    // Freed by its drop.
    _area: imp::Area,
}

// SAFETY: it is memory, which no thread owns; the code that makes references into it says why it may.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Takes `len` bytes, a multiple of a page, from a multiple of `align`. Returns `None` if the system has
    /// none.
    pub fn take(source: &Source, len: usize, align: usize) -> Option<Self> {
        let (area, base) = source.area(len, align)?;
        // Items are found by their addresses: `layout.rs`.
        base.as_ptr().expose_provenance();
        Some(Self {
            base,
            len,
            whole: len,
            _area: area,
        })
    }

    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether it can be cut to `len` bytes: it has at most `most`, and three quarters of its
    /// addresses stay in use.
    pub fn can_be_cut(&self, len: usize, most: usize) -> bool {
        (len..=most).contains(&self.len) && len >= self.whole / 4 * 3
    }

    /// Shortens it to `len` bytes, and gives the pages behind them back to the system. No thread uses it.
    pub fn cut(&mut self, len: usize) {
        if len < self.len {
            // SAFETY: inside the area, which is ours alone; nothing is expected there.
            unsafe { self.discard(len, self.len) };
            self.len = len;
        }
    }

    /// Gives the pages between two offsets back to the system, so that they read zero again. Returns
    /// whether the system has taken them; if not, they are as before.
    ///
    /// # Safety
    ///
    /// Both are multiples of a page. No other thread accesses what is between them, and zeros are
    /// what is expected there.
    pub unsafe fn discard(&self, from: usize, to: usize) -> bool {
        debug_assert!(from <= to && to <= self.len);
        // SAFETY: inside the area, and the caller's promise.
        unsafe { imp::discard(self.base.add(from), to - from) }
    }
}

pub use imp::Source;

#[cfg(not(any(miri, stillpoint_loom)))]
mod imp {
    use super::super::word::ADDRESS_END;
    use std::{io, ops::Range, ptr::NonNull};
    pub use stillpoint_vmap::Area;
    use stillpoint_vmap::Arena;

    /// Least and most address space in bytes. It is reserved, and costs no memory.
    const LEAST: u64 = 64 << 30;
    const LIMITED: u64 = 1 << 30;
    const MOST: u64 = 16 << 40;

    /// Dropped memory is kept until it is half of this part of the limit, or until [`Source::shrink`].
    const LAZY_PART: u64 = 32;
    const LAZY: std::ops::RangeInclusive<u64> = 1 << 20..=32 << 20;

    /// Where memory comes from.
    #[derive(Debug)]
    pub struct Source(Arena);

    /// Whether the index's words have room for such addresses. Where user space has 48 bits
    /// (AArch64), the system may give others.
    fn check_end(end: usize) -> io::Result<()> {
        if end > ADDRESS_END {
            let error = "the system gave addresses of more than 47 bits; set a lower limit";
            return Err(io::Error::other(error));
        }
        Ok(())
    }

    /// Advises against huge pages: memory is charged, cut and given back by small ones, and where the
    /// system uses huge pages everywhere, the first byte of each announced value would take 2 MiB.
    fn use_small_pages(addresses: Range<usize>) {
        let from = std::ptr::without_provenance_mut(addresses.start);
        // SAFETY: this is advice about the arena's own mapping, and changes no contents. A kernel
        // without huge pages refuses it, and has none to use.
        unsafe { libc::madvise(from, addresses.len(), libc::MADV_NOHUGEPAGE) };
    }

    impl Source {
        /// Creates the source of a store with that limit, which may grow to some times that.
        pub fn new(limit: u64) -> io::Result<Self> {
            let lazy = (limit / LAZY_PART).clamp(*LAZY.start(), *LAZY.end());
            let capacity = |times: u64, least: u64| {
                let bytes = limit.saturating_mul(times).clamp(least, MOST) as usize;
                let arena = Arena::builder()
                    .capacity(bytes)
                    .lazy_limit(lazy as usize)
                    // Segments are aligned to their size: a page behind each would double that.
                    .guards(false)
                    .domain(stillpoint::global())
                    .build();
                let arena = arena.map_err(io::Error::other)?;
                let addresses = arena.addresses();
                check_end(addresses.end)?;
                use_small_pages(addresses);
                Ok(Self(arena))
            };
            // With less where the process may not have more (`ulimit -v`, valgrind).
            capacity(4, LEAST).or_else(|_| capacity(2, LIMITED))
        }

        /// Returns the size of its address space, in bytes.
        pub fn address_space(&self) -> u64 {
            self.0.addresses().len() as u64
        }

        pub fn area(&self, len: usize, align: usize) -> Option<(Area, NonNull<u8>)> {
            let area = self.0.alloc(len, align).ok()?;
            let base = NonNull::new(area.as_ptr())?;
            Some((area, base))
        }

        /// Gives what has been dropped back to the system, but for what readers may be in. Waits for
        /// none.
        pub fn shrink(&self) {
            self.0.shrink();
        }

        /// Returns about how many bytes that would give back without readers.
        pub fn reclaimable(&self) -> u64 {
            self.0.reclaimable()
        }
    }

    /// As [`super::Memory::discard`].
    pub unsafe fn discard(from: NonNull<u8>, len: usize) -> bool {
        // SAFETY: the caller's promise. An arena's mapping is private and of no file, so that its
        // pages read zero afterwards.
        unsafe { libc::madvise(from.as_ptr().cast(), len, libc::MADV_DONTNEED) == 0 }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn addresses_that_no_word_has_room_for_are_refused() {
            assert!(check_end(1 << 47).is_ok());
            assert!(check_end((1 << 47) + 1).is_err());
            let source = Source::new(1 << 20).unwrap();
            assert!(source.0.addresses().end <= ADDRESS_END);
        }

        /// Where the system uses huge pages everywhere, a byte would take 2 MiB.
        #[test]
        fn memory_is_used_in_small_pages() {
            let source = Source::new(1 << 20).unwrap();
            let start = source.0.addresses().start;
            let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
            // The system may show it together with a neighbour.
            let holds_start = |line: &&str| {
                let (range, _) = line.split_once(' ')?;
                let (from, to) = range.split_once('-')?;
                let number = |text| usize::from_str_radix(text, 16).ok();
                Some((number(from)?..number(to)?).contains(&start))
            };
            let mut of_arena = maps
                .lines()
                .skip_while(|line| holds_start(line) != Some(true));
            let flags = of_arena.find(|line| line.starts_with("VmFlags:"));
            // A kernel without huge pages does not note the advice.
            let has_huge_pages =
                std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists();
            assert!(
                !has_huge_pages || flags.unwrap().contains(" nh"),
                "{flags:?}"
            );
        }
    }
}

#[cfg(any(miri, stillpoint_loom))]
mod imp {
    use std::{
        alloc::{Layout, alloc_zeroed, dealloc},
        io,
        ptr::NonNull,
    };

    #[derive(Debug)]
    pub struct Area(NonNull<u8>, Layout);

    #[derive(Debug)]
    pub struct Source;

    impl Source {
        pub fn new(_: u64) -> io::Result<Self> {
            Ok(Self)
        }

        pub fn address_space(&self) -> u64 {
            u64::MAX
        }

        pub fn area(&self, len: usize, align: usize) -> Option<(Area, NonNull<u8>)> {
            let layout = Layout::from_size_align(len, align.max(4096)).ok()?;
            // SAFETY: the length is not 0.
            let base = NonNull::new(unsafe { alloc_zeroed(layout) })?;
            Some((Area(base, layout), base))
        }

        pub fn shrink(&self) {}

        pub fn reclaimable(&self) -> u64 {
            0
        }
    }

    /// As [`super::Memory::discard`].
    pub unsafe fn discard(from: NonNull<u8>, len: usize) -> bool {
        // SAFETY: the caller's promise.
        unsafe { from.write_bytes(0, len) };
        true
    }

    impl Drop for Area {
        fn drop(&mut self) {
            // Models see who comes to what has been freed.
            if cfg!(not(stillpoint_loom)) {
                // SAFETY: from `alloc_zeroed` with that layout. Readers have left: `pool.rs` and
                // `index` wait for them.
                unsafe { dealloc(self.0.as_ptr(), self.1) };
            }
        }
    }
}
