//! Allocating and freeing, in the shapes of the kernel's test_vmalloc, and giving memory back.
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
use stillpoint_vmap::{Area, Arena};

use crate::run::Sample;

const PAGE: usize = 4096;

/// Allocations of a measurement.
const ALLOCATIONS: usize = 40_000;

/// Pages that are purged.
const PURGED: usize = 8192;

/// Someone who hands out pages.
pub trait Allocator: Sized {
    /// Pages; dropped, they are freed.
    type Pages;

    /// With nothing handed out.
    fn new() -> Result<Self>;

    /// Allocates as many bytes, at a multiple of `align`.
    fn alloc(&self, size: usize, align: usize) -> Result<Self::Pages>;

    /// Does what was put off.
    fn settle(&self) -> Result<()>;
}

/// An arena.
pub struct Pooled(Arena);

impl Allocator for Pooled {
    type Pages = Area;

    fn new() -> Result<Self> {
        Ok(Self(super::arena()?))
    }

    #[inline(always)]
    fn alloc(&self, size: usize, align: usize) -> Result<Area> {
        Ok(self.0.alloc(size, align)?)
    }

    fn settle(&self) -> Result<()> {
        Ok(self.0.drain()?)
    }
}

/// A mapping each.
pub struct Mmap;

/// A mapping.
pub struct Mapped {
    at: *mut c_void,
    len: usize,
}

impl Mapped {
    fn new(len: usize) -> Result<Self> {
        // SAFETY: a new mapping, wherever the kernel likes.
        let at = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )?
        };
        Ok(Self { at, len })
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: ours. It can run out of map entries only where it would split one.
        let _ = unsafe { munmap(self.at, self.len) };
    }
}

impl Allocator for Mmap {
    type Pages = Mapped;

    fn new() -> Result<Self> {
        Ok(Self)
    }

    #[inline(always)]
    fn alloc(&self, size: usize, align: usize) -> Result<Mapped> {
        let len = size.next_multiple_of(PAGE);
        if align <= PAGE {
            return Mapped::new(len);
        }
        // More than is needed, and both ends given back.
        let mut mapped = Mapped::new(len + align)?;
        let before = mapped.at.addr().next_multiple_of(align) - mapped.at.addr();
        // SAFETY: inside the mapping, whose middle is kept.
        unsafe {
            if before > 0 {
                munmap(mapped.at, before)?;
            }
            mapped.at = mapped.at.byte_add(before);
            mapped.len = len;
            munmap(mapped.at.byte_add(len), align - before)?;
        }
        Ok(mapped)
    }

    fn settle(&self) -> Result<()> {
        Ok(())
    }
}

/// Pages and alignment of an allocation.
type Shape = fn(&mut fastrand::Rng) -> (usize, usize);

/// The scenarios.
pub const SHAPES: [(&str, Shape); 4] = [
    ("alloc-pool", |_| (4, 1)),
    ("fix-size", |_| (1, 1)),
    ("random-size", |random| (random.usize(1..=100), 1)),
    ("fix-align", |_| (5, 32 << 10)),
];

/// Measures one allocation and free at a time.
pub fn measure<A: Allocator>(shape: Shape) -> Result<Sample> {
    let allocator = A::new()?;
    let mut random = fastrand::Rng::with_seed(1);
    let begun = Instant::now();
    for _ in 0..ALLOCATIONS {
        let (pages, align) = shape(&mut random);
        drop(black_box(allocator.alloc(pages * PAGE, align)?));
    }
    allocator.settle()?;
    let each = begun.elapsed().as_nanos() as f64 / ALLOCATIONS as f64;
    Ok(Sample::of([("alloc_free_ns", each)]))
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

fn per_page(begun: Instant, pages: usize) -> Sample {
    Sample::of([(
        "purge_ns_per_page",
        begun.elapsed().as_nanos() as f64 / pages as f64,
    )])
}

/// Measures a drain of areas of `pages` pages. The frees themselves are part of `alloc_free_ns`.
pub fn drain(pages: usize) -> Result<Sample> {
    let arena = Arena::builder()
        .domain(stillpoint::global())
        .lazy_limit(1 << 40)
        .build()?;
    let count = PURGED / pages;
    let mut areas = (0..2 * count)
        .map(|_| arena.alloc(pages * PAGE, 1))
        .collect::<Result<Vec<_>, _>>()?;
    // SAFETY: the areas are ours.
    areas
        .iter()
        .for_each(|area| unsafe { touch(area.as_ptr(), area.len()) });
    let mut stays = false;
    areas.retain(|_| {
        stays = !stays;
        stays
    });
    let begun = Instant::now();
    arena.drain()?;
    Ok(per_page(begun, PURGED))
}

/// The same by an unmapping for each.
pub fn unmap(pages: usize) -> Result<Sample> {
    let mut mapped = (0..2 * (PURGED / pages))
        .map(|_| Mapped::new(pages * PAGE))
        .collect::<Result<Vec<_>>>()?;
    // SAFETY: the mappings are ours.
    mapped
        .iter()
        .for_each(|mapped| unsafe { touch(mapped.at.cast(), mapped.len) });
    let (mut gone, mut number) = (Vec::new(), 0);
    while let Some(one) = mapped.pop() {
        number += 1;
        if number % 2 == 0 {
            gone.push(one)
        } else {
            std::mem::forget(one)
        }
    }
    let begun = Instant::now();
    drop(gone);
    Ok(per_page(begun, PURGED))
}

/// Purges as many pages in one piece, by one call.
pub fn one_call(_pages: usize) -> Result<Sample> {
    let mapped = Mapped::new(PURGED * PAGE)?;
    // SAFETY: the mapping is ours.
    unsafe { touch(mapped.at.cast(), mapped.len) };
    let begun = Instant::now();
    // SAFETY: its contents are not needed.
    unsafe { madvise(mapped.at, mapped.len, Advice::LinuxDontNeed)? };
    Ok(per_page(begun, PURGED))
}
