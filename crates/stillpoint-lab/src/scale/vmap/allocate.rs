//! Allocating and freeing, in shapes of the kernel's test_vmalloc, and giving memory back.
//!
//! `alloc_free_ns` is the time of one allocation and its free. The pages are not touched, by any
//! subject; what Stillpoint puts off to its drains is part of the time, down to the last one.
//! `purge_ns_per_page` is the time of taking the memory out of touched pages: every second of many
//! areas is freed and drained, so that no two ranges can be made one; beside it an unmapping for
//! each, and one large `MADV_DONTNEED` as the limit.

use std::ffi::c_void;
use std::hint::black_box;
use std::ptr;
use std::time::Instant;

use anyhow::Result;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use stillpoint_vmap::Arena;

use crate::run::Sample;

const PAGE: usize = 4096;

/// Allocations of a measurement.
const ALLOCATIONS: usize = 40_000;

/// Pages that are purged.
const PURGED: usize = 8192;

/// Returns the pages of an allocation.
pub type Shape = fn(&mut fastrand::Rng) -> usize;

/// The scenarios.
pub const SHAPES: [(&str, Shape); 2] = [
    ("alloc-pool", |_| 4),
    ("random-size", |random| random.usize(1..=100)),
];

/// Measures an area each.
pub fn areas(shape: Shape) -> Result<Sample> {
    let arena = super::arena()?;
    measure(
        shape,
        |size| Ok(arena.alloc(size, 1)?),
        || Ok(arena.drain()?),
    )
}

/// Measures a mapping each.
pub fn mappings(shape: Shape) -> Result<Sample> {
    measure(shape, Mapped::new, || Ok(()))
}

/// Measures one allocation and free at a time. `settle` does what was put off.
fn measure<P>(
    shape: Shape,
    alloc: impl Fn(usize) -> Result<P>,
    settle: impl FnOnce() -> Result<()>,
) -> Result<Sample> {
    let mut random = fastrand::Rng::with_seed(1);
    let begun = Instant::now();
    for _ in 0..ALLOCATIONS {
        drop(black_box(alloc(shape(&mut random) * PAGE)?));
    }
    settle()?;
    let each = begun.elapsed().as_nanos() as f64 / ALLOCATIONS as f64;
    Ok(Sample::of([("alloc_free_ns", each)]))
}

/// A mapping.
struct Mapped {
    at: *mut c_void,
    len: usize,
}

impl Mapped {
    fn new(len: usize) -> Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, wherever the kernel likes.
        let at = unsafe { mmap_anonymous(ptr::null_mut(), len, protection, MapFlags::PRIVATE)? };
        Ok(Self { at, len })
    }

    fn touched(len: usize) -> Result<Self> {
        let mapped = Self::new(len)?;
        // SAFETY: the mapping is ours.
        unsafe { touch(mapped.at.cast(), len) };
        Ok(mapped)
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: ours. It can run out of map entries only where it would split one.
        let _ = unsafe { munmap(self.at, self.len) };
    }
}

/// # Safety
///
/// `len` bytes from `at` may be written.
unsafe fn touch(at: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    (0..len)
        .step_by(PAGE)
        .for_each(|offset| unsafe { at.add(offset).write_volatile(1) });
}

/// Returns every second of `all`, and the others.
fn halves<T>(all: Vec<T>) -> (Vec<T>, Vec<T>) {
    let mut number = 0;
    all.into_iter().partition(|_| {
        number += 1;
        number % 2 == 0
    })
}

fn purge(purge: impl FnOnce() -> Result<()>) -> Result<Sample> {
    let begun = Instant::now();
    purge()?;
    let each = begun.elapsed().as_nanos() as f64 / PURGED as f64;
    Ok(Sample::of([("purge_ns_per_page", each)]))
}

/// Measures a drain of areas of `pages` pages. The frees themselves are part of `alloc_free_ns`.
pub fn drain(pages: usize) -> Result<Sample> {
    let arena = Arena::builder()
        .domain(stillpoint::global())
        .lazy_limit(1 << 40)
        .build()?;
    let area = |_| {
        let area = arena.alloc(pages * PAGE, 1)?;
        // SAFETY: the area is ours.
        unsafe { touch(area.as_ptr(), area.len()) };
        anyhow::Ok(area)
    };
    let areas = (0..2 * PURGED / pages).map(area).collect::<Result<_>>()?;
    let (gone, _kept) = halves(areas);
    drop(gone);
    purge(|| Ok(arena.drain()?))
}

/// The same by an unmapping for each.
pub fn unmap(pages: usize) -> Result<Sample> {
    let mappings = (0..2 * PURGED / pages).map(|_| Mapped::touched(pages * PAGE));
    let (gone, _kept) = halves(mappings.collect::<Result<_>>()?);
    purge(|| {
        drop(gone);
        Ok(())
    })
}

/// Purges as many pages in one piece, by one call.
pub fn one_call(_pages: usize) -> Result<Sample> {
    let mapped = Mapped::touched(PURGED * PAGE)?;
    // SAFETY: its contents are not needed.
    purge(|| unsafe { madvise(mapped.at, mapped.len, Advice::LinuxDontNeed) }.map_err(Into::into))
}
