//! An emergency reserve of memory: no function that C calls ends the process because it is out of
//! memory.
//!
//! Rust ends the process where an allocation fails whose caller does not ask whether it did, in the
//! library's own code as in std's. So this crate has an allocator. It is the C library's, and
//! behind it a last resort for callers that cannot be refused:
//!
//! 1. **The reserve**, some hundred blocks in a static array, of which no page is touched before
//!    the first is taken. All that one call of the library may take without asking fits in a few
//!    blocks. A block is valid until it is freed, on any thread at any time.
//! 2. **Waiting.** When that is used up the caller sleeps and tries again. So does the kernel for
//!    allocations that must not fail.
//!
//! That this is not reached is [`check`]'s business: functions that can report an error ask it
//! before they begin. While most of the reserve is there it says yes; after that, only if the C
//! library has memory at the moment. So what an error leaves behind is what was there before, and
//! there is half a reserve for callers that cannot report one: readers, threads that end, the
//! library's own threads, calls under way.
//!
//! Allocations that can be refused, and say so (pages of deferred frees, handles, arrays that
//! grow), are: they never see the reserve.
//!
//! Taking and giving back are one atomic read-modify-write on a map of bits: no lock, which a
//! thread that a fork removed might have held. Taking a block (acquire) comes after what its last
//! owner did with it before giving it back (release). Others may take and give back in between: a
//! read-modify-write continues the release sequence. The pair is one of the language's own, so
//! there is no model of it.

use crate::log::log;
use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::UnsafeCell,
    ffi::c_int,
    hint, mem,
    ptr::{self, NonNull},
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
    thread,
    time::Duration,
};
use stillpoint::raw::{self, Need};

/// Blocks of one size, 64 of them.
struct Class {
    bytes: usize,
    /// Where the first one lies in the array.
    start: usize,
    /// A bit for each that is taken.
    taken: AtomicU64,
}

const BLOCKS: usize = 64;

const fn class(bytes: usize, start: usize) -> Class {
    Class {
        bytes,
        start,
        taken: AtomicU64::new(0),
    }
}

/// The smallest first. A record's chunk, which a reader may need, is in the third.
static CLASSES: [Class; 4] = [
    class(128, 0),
    class(512, 128 * BLOCKS),
    class(2048, 640 * BLOCKS),
    class(8192, 2688 * BLOCKS),
];

const BYTES: usize = (2688 + 8192) * BLOCKS;

/// All blocks are aligned so, or to their size if that is less.
const ALIGN: usize = 2048;

#[repr(C, align(2048))]
struct Blocks(UnsafeCell<mem::MaybeUninit<[u8; BYTES]>>);

// SAFETY: a block is used only by the caller that has taken it.
unsafe impl Sync for Blocks {}

static ARRAY: Blocks = Blocks(UnsafeCell::new(mem::MaybeUninit::uninit()));

/// How many blocks are taken, of whatever size.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

impl Class {
    fn fits(&self, layout: Layout) -> bool {
        layout.size() <= self.bytes && layout.align() <= self.bytes.min(ALIGN)
    }

    fn take(&self) -> Option<NonNull<u8>> {
        let free = |taken: u64| (taken != u64::MAX).then(|| taken | (taken + 1));
        // Acquire, pairs with `give_back`: the last owner is done with the block.
        let before = self
            .taken
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, free)
            .ok()?;
        TAKEN.fetch_add(1, Ordering::Relaxed);
        let at = self.start + before.trailing_ones() as usize * self.bytes;
        // SAFETY: in the array: there are 64 blocks from `start` on.
        NonNull::new(unsafe { ARRAY.0.get().cast::<u8>().add(at) })
    }

    fn give_back(&self, at: usize) {
        let bit = 1 << ((at - self.start) / self.bytes);
        // Release, pairs with `take`: we are done with the block.
        self.taken.fetch_and(!bit, Ordering::Release);
        TAKEN.fetch_sub(1, Ordering::Relaxed);
    }

    fn is_mostly_free(&self) -> bool {
        self.taken.load(Ordering::Relaxed).count_ones() as usize <= BLOCKS / 2
    }
}

fn take(layout: Layout) -> Option<NonNull<u8>> {
    CLASSES
        .iter()
        .filter(|class| class.fits(layout))
        .find_map(Class::take)
}

/// Where in the array, if it is a block of it.
#[inline(always)]
fn offset_of(block: *mut u8) -> Option<usize> {
    let at = block.addr().wrapping_sub(ARRAY.0.get().addr());
    (at < BYTES).then_some(at)
}

#[cold]
fn give_back(at: usize) {
    if let Some(class) = CLASSES.iter().rev().find(|class| class.start <= at) {
        class.give_back(at);
    }
}

/// For a caller that cannot be refused.
#[cold]
#[inline(never)]
fn alloc_or_block(layout: Layout) -> *mut u8 {
    let mut pause = Duration::from_millis(1);
    let mut logged = false;
    loop {
        if let Some(block) = take(layout) {
            return block.as_ptr();
        }
        if !mem::replace(&mut logged, true) {
            log(&[
                b"out of memory, and the reserve is used up: a thread blocks until there is memory",
            ]);
        }
        thread::sleep(pause);
        pause = (2 * pause).min(Duration::from_millis(100));
        // SAFETY: the size is not 0, as the caller has promised.
        let block = unsafe { System.alloc(layout) };
        if !block.is_null() {
            return block;
        }
    }
}

/// The crate's allocator.
#[derive(Debug)]
struct ReserveAllocator;

#[global_allocator]
static ALLOCATOR: ReserveAllocator = ReserveAllocator;

#[inline(always)]
fn or_reserve(block: *mut u8, layout: Layout) -> *mut u8 {
    if block.is_null() {
        alloc_from_reserve(layout)
    } else {
        block
    }
}

#[cold]
#[inline(never)]
fn alloc_from_reserve(layout: Layout) -> *mut u8 {
    match raw::need() {
        Need::Must => alloc_or_block(layout),
        // Half of it stays for callers that cannot be refused.
        Need::Now => CLASSES
            .iter()
            .filter(|class| class.fits(layout) && class.is_mostly_free())
            .find_map(Class::take)
            .map_or(ptr::null_mut(), NonNull::as_ptr),
        Need::Refusable => ptr::null_mut(),
    }
}

// SAFETY: a block is the system's or one of the array's, which stay apart by their addresses; each
// is given back to where it came from. Nothing here unwinds.
unsafe impl GlobalAlloc for ReserveAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        or_reserve(unsafe { System.alloc(layout) }, layout)
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        let block = or_reserve(unsafe { System.alloc_zeroed(layout) }, layout);
        if offset_of(block).is_some() {
            // SAFETY: a block of that size.
            unsafe { ptr::write_bytes(block, 0, layout.size()) };
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match offset_of(block) {
            Some(at) => give_back(at),
            // SAFETY: not the array's, so the system's; the rest is the caller's promise.
            None => unsafe { System.dealloc(block, layout) },
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if offset_of(block).is_none() {
            // SAFETY: the system's; the rest is the caller's promise.
            let grown = unsafe { System.realloc(block, layout, size) };
            if !grown.is_null() {
                return grown;
            }
        }
        // SAFETY: the caller's promise: the size, rounded up to the alignment, is not too large.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        // SAFETY: the caller's promise; both blocks are there, and apart.
        unsafe {
            let grown = self.alloc(new);
            if !grown.is_null() {
                ptr::copy_nonoverlapping(block, grown, layout.size().min(size));
                self.dealloc(block, layout);
            }
            grown
        }
    }
}

/// Returns true if memory has not run short, or does no longer: a load.
#[inline]
pub(crate) fn is_untouched() -> bool {
    TAKEN.load(Ordering::Relaxed) == 0
}

/// Asked before a function begins that may allocate and can report an error: whether it may. A
/// load, unless memory has been short.
#[inline]
pub(crate) fn check() -> Result<(), c_int> {
    if is_untouched() { Ok(()) } else { check_slow() }
}

#[cold]
fn check_slow() -> Result<(), c_int> {
    if CLASSES.iter().all(Class::is_mostly_free) {
        Ok(())
    } else {
        check_system()
    }
}

/// As [`check`], whatever the reserve has: for new handles, some of which take memory for each
/// processor.
pub(crate) fn check_system() -> Result<(), c_int> {
    const PROBE: Layout = match Layout::from_size_align(64 << 10, 16) {
        Ok(layout) => layout,
        Err(_) => unreachable!(),
    };
    // SAFETY: the size is not 0; given back as it was taken.
    unsafe {
        // Compilers know that a block which is not used need not be allocated.
        let probe = hint::black_box(System.alloc(PROBE));
        if probe.is_null() {
            return Err(libc::ENOMEM);
        }
        System.dealloc(probe, PROBE);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_apart_aligned_and_come_back() {
        let sizes = [1, 128, 129, 512, 2048, 2049, 8192];
        let mut taken = Vec::new();
        for _ in 0..8 {
            for size in sizes {
                let layout =
                    Layout::from_size_align(size, size.next_power_of_two().min(64)).unwrap();
                let block = take(layout).expect("a block").as_ptr();
                assert!(block.addr().is_multiple_of(layout.align()));
                // SAFETY: ours.
                unsafe { block.write_bytes(taken.len() as u8, size) };
                taken.push((block, size));
            }
        }
        assert!(
            take(Layout::from_size_align(8193, 8).unwrap()).is_none()
                && take(Layout::from_size_align(8, 4096).unwrap()).is_none()
        );
        for (number, &(block, size)) in taken.iter().enumerate() {
            // SAFETY: ours, and written.
            let bytes = unsafe { std::slice::from_raw_parts(block, size) };
            assert!(
                bytes.iter().all(|&byte| byte == number as u8),
                "no other block is there"
            );
        }
        assert!(check().is_ok(), "most of it is there");
        for (block, _) in taken {
            give_back(offset_of(block).expect("one of ours"));
        }
        assert_eq!(TAKEN.load(Ordering::Relaxed), 0);
        let all: Vec<_> = std::iter::from_fn(|| take(Layout::new::<[u8; 2048]>())).collect();
        assert_eq!(all.len(), 2 * BLOCKS, "then the larger ones");
        assert!(check().is_ok(), "the system has memory");
        all.into_iter()
            .for_each(|block| give_back(offset_of(block.as_ptr()).expect("one of ours")));
    }

    #[test]
    fn a_block_grows_out_of_the_reserve() {
        let layout = Layout::new::<[u8; 100]>();
        let block = take(layout).expect("a block").as_ptr();
        // SAFETY: ours, of that size.
        unsafe {
            block.write_bytes(7, 100);
            let grown = ALLOCATOR.realloc(block, layout, 100_000);
            assert!(offset_of(grown).is_none());
            assert!(
                std::slice::from_raw_parts(grown, 100)
                    .iter()
                    .all(|&byte| byte == 7)
            );
            ALLOCATOR.dealloc(grown, Layout::new::<[u8; 100_000]>());
        }
    }
}
