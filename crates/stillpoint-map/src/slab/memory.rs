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
    use std::{hint, mem::ManuallyDrop, ptr::NonNull};
    use stillpoint_platform::{
        mmap::{Advice, Mapping, advise, page_size},
        sync::{AtomicBool, AtomicUsize, Ordering},
    };

    /// Where the next region is to lie: where one has been, or beside the last one. The kernel counts
    /// neighbours with the same advice as one mapping, of which a process may have 65,530
    /// (`vm.max_map_count`). Relaxed throughout: these are only hints. Those beyond [`HOLES`] are
    /// lost.
    #[derive(Debug)]
    struct Places {
        next: AtomicUsize,
        /// A stack of addresses of regions that went, and how many were pushed and not popped.
        holes: [AtomicUsize; HOLES],
        top: AtomicUsize,
        /// Holes that could not be mapped when they were pushed.
        #[cfg(test)]
        mapped: AtomicUsize,
    }

    const HOLES: usize = 4096;

    /// For regions of small and of huge pages.
    static PLACES: [Places; 2] = [const { Places::new() }; 2];

    impl Places {
        const fn new() -> Self {
            Self {
                next: AtomicUsize::new(0),
                holes: [const { AtomicUsize::new(0) }; HOLES],
                top: AtomicUsize::new(0),
                #[cfg(test)]
                mapped: AtomicUsize::new(0),
            }
        }

        fn push(&self, hole: usize) {
            #[cfg(test)]
            self.mapped
                .fetch_add(usize::from(tests::is_mapped(hole)), Ordering::Relaxed);
            let top = self.top.fetch_add(1, Ordering::Relaxed);
            self.holes[top % HOLES].store(hole, Ordering::Relaxed);
        }

        fn pop(&self) -> Option<usize> {
            let less = |top: usize| top.checked_sub(1);
            let top = self
                .top
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
            let hole = &self.holes[less(top.ok()?)? % HOLES];
            // The thread that pushes may be between its two steps; or a fork has removed it.
            (0..1000).find_map(|_| {
                let hole = hole.swap(0, Ordering::Relaxed);
                if hole == 0 {
                    hint::spin_loop();
                }
                (hole != 0).then_some(hole)
            })
        }

        fn map(&self) -> Option<Mapping> {
            if let Some(hole) = self.pop() {
                let mapping = Mapping::zeroed_near(hole, REGION, REGION);
                return mapping.map_err(|_| self.push(hole)).ok();
            }
            let hint = self.next.load(Ordering::Relaxed);
            let mapping = Mapping::zeroed_near(hint, REGION, REGION).ok()?;
            let start = mapping.start().addr().get();
            self.next.store(start - REGION, Ordering::Relaxed);
            Some(mapping)
        }
    }

    /// Regions of huge pages that have small ones now. Each splits a mapping.
    static SPLIT: AtomicUsize = AtomicUsize::new(0);
    const MOST_SPLIT: usize = 8192;

    /// A region.
    #[derive(Debug)]
    pub struct Memory {
        /// Until the drop.
        mapping: ManuallyDrop<Mapping>,
        places: &'static Places,
        was_huge: bool,
        is_huge: AtomicBool,
    }

    impl Memory {
        /// `None` without memory. `huge`: all of it will be used.
        pub fn new(huge: bool) -> Option<Self> {
            Self::new_in(&PLACES[usize::from(huge)], huge)
        }

        fn new_in(places: &'static Places, huge: bool) -> Option<Self> {
            let memory = Self {
                mapping: ManuallyDrop::new(places.map()?),
                places,
                was_huge: huge,
                is_huge: AtomicBool::new(huge),
            };
            // Where huge pages are for all memory, the first entry of a small map would take one.
            memory.advise_all(if huge {
                Advice::HugePages
            } else {
                Advice::SmallPages
            });
            Some(memory)
        }

        /// The first byte.
        pub fn start(&self) -> NonNull<u8> {
            self.mapping.start()
        }

        fn advise_all(&self, advice: Advice) {
            // SAFETY: it changes no contents. If it fails, pages are as the system makes them.
            let _ = unsafe { advise(&[self.mapping.pages(0, REGION)], advice, false) };
        }

        /// Gives the whole pages of a part back, whose contents are lost.
        ///
        /// # Safety
        ///
        /// No thread uses the part.
        pub unsafe fn release(&self, offset: usize, end: usize) {
            let offset = offset.next_multiple_of(page_size());
            // The system takes the page that the end is in, too, whose rest may be another run's.
            let end = end / page_size() * page_size();
            if offset < end {
                // Or the system makes a huge page of the rest, and so uses the memory again.
                if self.is_huge.swap(false, Ordering::Relaxed)
                    && SPLIT.fetch_add(1, Ordering::Relaxed) < MOST_SPLIT
                {
                    self.advise_all(Advice::SmallPages);
                }
                let pages = self.mapping.pages(offset, end - offset);
                // SAFETY: the caller's promise. If it fails, the memory stays.
                let _ = unsafe { advise(&[pages], Advice::DontNeed, false) };
            }
        }
    }

    impl Drop for Memory {
        fn drop(&mut self) {
            let is_huge = self.is_huge.load(Ordering::Relaxed);
            if is_huge != self.was_huge {
                SPLIT.fetch_sub(1, Ordering::Relaxed);
            }
            let place = self.start().addr().get();
            // SAFETY: it is not used again.
            unsafe { ManuallyDrop::drop(&mut self.mapping) };
            // Only now can it be mapped again.
            self.places.push(place);
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use std::{collections::HashSet, fs, thread};

        /// Of the pages that a part begins and ends in, the rest may be in use.
        #[test]
        fn only_whole_pages_are_given_back() {
            let memory = Memory::new(false).expect("memory");
            let page = page_size();
            // SAFETY: no other thread knows the memory, which is larger.
            unsafe {
                memory.start().write_bytes(0xa5, 4 * page);
                memory.release(1, 2 * page - 1);
                let is_there = |offset| memory.start().add(offset).read() == 0xa5;
                assert!((0..4 * page).all(is_there));
                memory.release(1, 3 * page - 1);
                assert!((0..4 * page).all(|offset| is_there(offset) != (offset / page == 1)));
            }
        }

        /// Whether a page is mapped.
        pub fn is_mapped(at: usize) -> bool {
            let mut is_resident = 0;
            let at = std::ptr::without_provenance_mut(at);
            // SAFETY: the kernel writes one byte for one page, and looks at no contents.
            unsafe { libc::mincore(at, page_size(), &raw mut is_resident) == 0 }
        }

        /// A place is offered when it can be mapped, and not before: so two threads that make and drop
        /// regions by turns use few.
        #[test]
        fn places_are_used_again() {
            static PLACES: Places = Places::new();
            const ROUNDS: usize = 2000;
            let use_some = || {
                let addresses = (0..ROUNDS).map(|_| {
                    let memory = Memory::new_in(&PLACES, false).expect("memory");
                    memory.start().addr().get()
                });
                addresses.collect::<HashSet<_>>()
            };
            let places = thread::scope(|scope| {
                let threads = [(); 2].map(|()| scope.spawn(use_some));
                threads.map(|thread| thread.join().unwrap())
            });
            let places = &places[0] | &places[1];
            // Those of the threads, and some that other tests have mapped in between.
            assert!(places.len() < ROUNDS / 4, "{}", places.len());
            let mapped = PLACES.mapped.load(Ordering::Relaxed);
            assert!(mapped < ROUNDS / 4, "{mapped}");
        }

        /// Where huge pages are for all memory they are not for maps that may stay small.
        #[test]
        fn first_regions_have_small_pages() {
            if !fs::exists("/sys/kernel/mm/transparent_hugepage").unwrap() {
                return;
            }
            for (huge, flag) in [(false, " nh"), (true, " hg")] {
                let memory = Memory::new(huge).expect("memory");
                let at = memory.start().addr().get();
                let mut is_there = false;
                let maps = fs::read_to_string("/proc/self/smaps").unwrap();
                let flags = maps.lines().find(|line| {
                    let range = line
                        .split(' ')
                        .next()
                        .and_then(|range| range.split_once('-'));
                    let number = |text| usize::from_str_radix(text, 16).ok();
                    if let Some((from, to)) = range
                        && let (Some(from), Some(to)) = (number(from), number(to))
                    {
                        is_there = (from..to).contains(&at);
                    }
                    is_there && line.starts_with("VmFlags")
                });
                assert!(flags.is_some_and(|flags| flags.contains(flag)), "{flags:?}");
            }
        }
    }
}

/// From the allocator, which can take no parts back.
#[cfg(not(all(target_os = "linux", not(miri), not(stillpoint_loom))))]
mod unmapped {
    use super::REGION;
    use std::{
        alloc::{Layout, dealloc},
        ptr::NonNull,
    };

    /// A region.
    #[derive(Debug)]
    pub struct Memory(NonNull<u8>);

    fn layout() -> Layout {
        Layout::from_size_align(REGION, REGION).expect("it is a power of two")
    }

    impl Memory {
        /// `None` without memory.
        pub fn new(_huge: bool) -> Option<Self> {
            // SAFETY: not of size 0.
            NonNull::new(unsafe { std::alloc::alloc(layout()) }).map(Self)
        }

        /// The first byte.
        pub fn start(&self) -> NonNull<u8> {
            self.0
        }

        /// Does nothing.
        ///
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
