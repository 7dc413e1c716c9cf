//! A region: pages, behind a head that says which of them are free, and what the runs among them
//! have.
//!
//! It is aligned to its own size, and runs to theirs, so that a slot's address tells its region and
//! its run. What the arena's lock guards is reached by raw pointers, a field at a time: other threads
//! read [`Region::leaving`] meanwhile.

use super::{
    Shared,
    class::{PAGE, RUN, class},
};
use std::{
    mem::ManuallyDrop,
    ptr::{self, NonNull},
    sync::Arc,
};
use stillpoint_map::internal::{REGION, Region as Memory};
use stillpoint_platform::sync::AtomicBool;

const PAGES: usize = REGION / PAGE;
const RUNS: usize = REGION / RUN;

/// The pages of a run.
pub const RUN_PAGES: usize = RUN / PAGE;

/// The pages that the head takes.
const HEAD: usize = size_of::<Region>().div_ceil(PAGE);

/// The largest piece that a region can have, in pages.
pub const MOST_PAGES: usize = PAGES - HEAD;

/// A set of pages. 512 of them are eight words.
type Set = [u64; PAGES.div_ceil(64)];

/// The head of a region.
#[derive(Debug)]
#[repr(C)]
pub struct Region {
    /// The arena that it is of, which it keeps alive.
    pub shared: *const Shared,
    memory: ManuallyDrop<Memory>,
    /// The runs whose values are to be moved. Written under the lock, read without it, as hints.
    leaving: [AtomicBool; RUNS],
    /// Under the lock.
    pub table: Table,
    /// Under the lock.
    runs: [Run; RUNS],
}

/// The free pages of a region.
#[derive(Debug)]
pub struct Table {
    used: Set,
    free: usize,
    /// Among the regions of the arena that have free pages.
    pub before: *mut Region,
    pub after: *mut Region,
    pub is_listed: bool,
}

/// A run of slots of one size.
#[derive(Debug)]
pub struct Run {
    pub class: u8,
    /// Number of the list of its class that has it.
    pub list: u8,
    /// The slots in use.
    pub live: u16,
    /// The first slot that was never used.
    fresh: u16,
    /// The first free one of those that were, and 1; 0 for none.
    free: u16,
    pub before: *mut Run,
    pub after: *mut Run,
}

/// Some pages of a region.
#[derive(Debug, Clone, Copy)]
pub struct Pages {
    pub region: NonNull<Region>,
    pub first: usize,
    pub count: usize,
}

impl Region {
    /// Returns the region that contains `address`.
    pub fn of(address: NonNull<u8>) -> NonNull<Self> {
        let region = address.as_ptr().map_addr(|at| at & !(REGION - 1));
        // SAFETY: no region is at 0.
        unsafe { NonNull::new_unchecked(region.cast()) }
    }

    /// Makes one whose pages are free, but for those of the head. `None` without memory.
    pub fn new(shared: &Arc<Shared>) -> Option<NonNull<Self>> {
        let memory = Memory::new(false)?;
        let region = memory.start().cast::<Self>();
        let mut used: Set = Default::default();
        set(&mut used, 0, HEAD, true);
        let this = Self {
            shared: Arc::into_raw(Arc::clone(shared)),
            memory: ManuallyDrop::new(memory),
            leaving: std::array::from_fn(|_| AtomicBool::new(false)),
            table: Table {
                used,
                free: PAGES - HEAD,
                before: ptr::null_mut(),
                after: ptr::null_mut(),
                is_listed: false,
            },
            runs: std::array::from_fn(|_| Run {
                class: 0,
                list: 0,
                live: 0,
                fresh: 0,
                free: 0,
                before: ptr::null_mut(),
                after: ptr::null_mut(),
            }),
        };
        // SAFETY: the memory begins with space for it, and is no other's.
        unsafe { region.write(this) };
        Some(region)
    }

    /// Gives its memory back, and the arena up, which may go then.
    ///
    /// # Safety
    ///
    /// All its pages are free, and no other thread finds it.
    pub unsafe fn delete(region: NonNull<Self>) {
        // SAFETY: the caller's promise. The memory is moved out before the head goes with it.
        unsafe {
            let this = region.as_ptr();
            let shared = (*this).shared;
            let memory = ManuallyDrop::take(&mut (*this).memory);
            drop(memory);
            drop(Arc::from_raw(shared));
        }
    }

    /// Returns the run that contains `address`.
    ///
    /// # Safety
    ///
    /// It is in a region that stays.
    pub unsafe fn run(address: NonNull<u8>) -> NonNull<Run> {
        let region = Self::of(address);
        let number = address.addr().get() % REGION / RUN;
        // SAFETY: in bounds.
        unsafe { NonNull::new_unchecked(&raw mut (*region.as_ptr()).runs[number]) }
    }

    /// Returns the number of a run.
    ///
    /// # Safety
    ///
    /// It is one of a region.
    pub unsafe fn number_of(run: NonNull<Run>) -> usize {
        let region = Self::of(run.cast());
        // SAFETY: both point into the same region.
        unsafe {
            run.as_ptr()
                .offset_from_unsigned(&raw const (*region.as_ptr()).runs[0])
        }
    }

    /// Returns the flag that says whether the values of the run that contains `address` are being moved away.
    ///
    /// # Safety
    ///
    /// As for [`run`](Self::run).
    pub unsafe fn leaving<'a>(address: NonNull<u8>) -> &'a AtomicBool {
        let region = Self::of(address);
        let number = address.addr().get() % REGION / RUN;
        // SAFETY: the caller's promise; never written but as an atomic, once it is made.
        unsafe { &(&(*region.as_ptr()).leaving)[number] }
    }
}

impl Table {
    pub fn has_free_pages(&self) -> bool {
        self.free > 0
    }

    pub fn is_empty(&self) -> bool {
        self.free == PAGES - HEAD
    }

    /// Takes so many pages that lie side by side, from a multiple of `align` pages.
    pub fn take(&mut self, count: usize, align: usize) -> Option<usize> {
        if self.free < count {
            return None;
        }
        let mut first = 0;
        while first + count <= PAGES {
            match (first..first + count)
                .rev()
                .find(|&page| self.is_used(page))
            {
                None => {
                    set(&mut self.used, first, count, true);
                    self.free -= count;
                    return Some(first);
                }
                Some(page) => first = (page + 1).next_multiple_of(align),
            }
        }
        None
    }

    fn is_used(&self, page: usize) -> bool {
        self.used[page / 64] & 1 << (page % 64) != 0
    }
}

fn set(pages: &mut Set, first: usize, count: usize, to: bool) {
    for page in first..first + count {
        let bit = 1 << (page % 64);
        if to {
            pages[page / 64] |= bit;
        } else {
            pages[page / 64] &= !bit;
        }
    }
}

impl Pages {
    /// Returns the pages that begin at `start`.
    pub fn at(start: NonNull<u8>, count: usize) -> Self {
        Self {
            region: Region::of(start),
            first: start.addr().get() % REGION / PAGE,
            count,
        }
    }

    pub fn start(self) -> NonNull<u8> {
        // SAFETY: in bounds of the region.
        unsafe { self.region.cast::<u8>().add(self.first * PAGE) }
    }

    pub fn bytes(self) -> usize {
        self.count * PAGE
    }

    /// Gives their memory back to the system, without the lock.
    ///
    /// # Safety
    ///
    /// They are taken, and no thread uses them.
    pub unsafe fn release(self) {
        let start = self.first * PAGE;
        // SAFETY: the region stays while pages of it are taken. No other reference to the memory is
        // made before it is deleted.
        unsafe {
            let memory = &raw const (*self.region.as_ptr()).memory;
            (*memory).release(start, start + self.bytes());
        }
    }

    /// Marks the pages free, under the lock.
    ///
    /// # Safety
    ///
    /// They are taken, and no thread uses them.
    pub unsafe fn give_up(self) {
        // SAFETY: the region stays while they are taken; the lock is held.
        let table = unsafe { &mut (*self.region.as_ptr()).table };
        set(&mut table.used, self.first, self.count, false);
        table.free += self.count;
    }
}

impl Run {
    /// Makes it an empty run of a class.
    pub fn begin(&mut self, number: usize, list: u8) {
        (self.class, self.list) = (number as u8, list);
        (self.live, self.fresh, self.free) = (0, 0, 0);
    }

    /// Returns the number of its slots.
    pub fn slots(&self) -> usize {
        class(self.class.into()).slots
    }

    /// Takes a free slot.
    ///
    /// # Safety
    ///
    /// `run` is a run with a free slot, and the lock is held.
    pub unsafe fn take(run: NonNull<Self>, start: NonNull<u8>) -> NonNull<u8> {
        // SAFETY: the caller's promise; slots lie outside of the head.
        unsafe {
            let this = &mut *run.as_ptr();
            let size = class(this.class.into()).size;
            this.live += 1;
            let index = match this.free.checked_sub(1) {
                None => {
                    this.fresh += 1;
                    this.fresh - 1
                }
                Some(index) => index,
            };
            let slot = start.add(usize::from(index) * size);
            if this.free > 0 {
                this.free = slot.cast::<u16>().read();
            }
            slot
        }
    }

    /// Marks a slot free.
    ///
    /// # Safety
    ///
    /// It is a slot in use of that run, which is not used any more, and the lock is held.
    pub unsafe fn put(run: NonNull<Self>, slot: NonNull<u8>) {
        // SAFETY: the caller's promise.
        unsafe {
            let this = &mut *run.as_ptr();
            let size = class(this.class.into()).size;
            let index = slot.addr().get() % RUN / size;
            slot.cast::<u16>().write(this.free);
            this.free = index as u16 + 1;
            this.live -= 1;
        }
    }
}
