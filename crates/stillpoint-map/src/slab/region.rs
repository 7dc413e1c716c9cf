//! A region: runs of slots, behind a head that says which of them are free.
//!
//! It is aligned to its own size, so that a slot's address tells its region and its run.

use super::{
    Arena,
    memory::{Memory, REGION},
    run::{Link, Position, Run},
};
use crate::{memory::prefetch, slot::fits};
use std::{cell::Cell, ops::Range, ptr::NonNull};
use stillpoint_platform::sync::{AtomicU64, Ordering};

/// The runs of a region. A run is a page at least, or giving it back would give nothing: these
/// processors may have pages of 64 KiB.
pub const RUNS: usize = if cfg!(stillpoint_loom) {
    2
} else if cfg!(miri) {
    4
} else if cfg!(any(
    target_arch = "aarch64",
    target_arch = "loongarch64",
    target_arch = "mips64",
    target_arch = "powerpc64"
)) {
    32
} else {
    64
};

/// The bytes of a run.
pub const RUN: usize = REGION / RUNS;

/// A set of runs.
pub type Runs = u64;

/// All of them.
pub const ALL: Runs = u64::MAX >> (64 - RUNS);

/// What stands at the beginning of a region.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Region {
    pub arena: NonNull<Arena>,
    memory: Memory,
    /// The bytes of a slot.
    size: usize,
    /// The slots of the first run, which is behind this, and of the others.
    totals: [usize; 2],
    /// See [`worthwhile`].
    worthwhile: usize,
    /// Which runs have so many free slots that it is worth to own them; and perhaps others.
    available: AtomicU64,
    /// What the arena's lock is about.
    pub locked: Locked,
    runs: [AtomicU64; RUNS],
}

/// Read and written under the arena's lock.
#[derive(Debug)]
pub struct Locked {
    pub before: Cell<Option<NonNull<Region>>>,
    pub after: Cell<Option<NonNull<Region>>>,
    /// The runs all of whose slots are free.
    pub empty: Cell<Runs>,
    /// Those of them that take no memory, and whose slots are in no list.
    pub released: Cell<Runs>,
}

/// The slots of a run.
fn slots(run: usize, size: usize) -> Range<usize> {
    let start = if run == 0 { size_of::<Region>() } else { 0 };
    start..start + (RUN - start) / size * size
}

/// A run in use has at least so many free slots before it is taken up again: a power of two. Each
/// take-up costs a lock.
fn worthwhile(size: usize) -> usize {
    ((RUN / size / 8).next_power_of_two() / 2).max(1)
}

impl Region {
    /// Makes a region of slots of this size, all of them free. `None` without memory.
    pub fn new(arena: NonNull<Arena>, size: usize, huge: bool) -> Option<NonNull<Self>> {
        let memory = Memory::new(huge)?;
        let start = memory.start().cast::<Self>();
        if !fits(start) {
            return None;
        }
        let region = Self {
            arena,
            memory,
            size,
            totals: [0, 1].map(|run| slots(run, size).len() / size),
            worthwhile: worthwhile(size),
            available: AtomicU64::new(ALL),
            locked: Locked {
                before: Cell::new(None),
                after: Cell::new(None),
                empty: Cell::new(ALL),
                released: Cell::new(ALL),
            },
            runs: std::array::from_fn(|_| AtomicU64::new(Run::FULL.bits())),
        };
        // SAFETY: the memory begins with space for it, and is no other's.
        unsafe { start.write(region) };
        Some(start)
    }

    /// Gives its memory back.
    ///
    /// # Safety
    ///
    /// It came from `new`, all its slots are free, and no other thread finds it.
    pub unsafe fn delete(region: NonNull<Self>) {
        // SAFETY: the caller's promise. The memory is moved out of itself, and ends last.
        drop(unsafe { region.read() }.memory);
    }

    /// How many slots a run has.
    #[inline]
    fn total(&self, run: usize) -> usize {
        self.totals[usize::from(run > 0)]
    }

    /// The region and the run that a slot is in.
    #[inline]
    pub fn of(slot: NonNull<u8>) -> (NonNull<Self>, usize) {
        let address = slot.addr().get();
        let start = slot.as_ptr().map_addr(|address| address & !(REGION - 1));
        let region = NonNull::new(start.cast()).expect("no region begins at 0");
        (region, address % REGION / RUN)
    }

    /// Has a run taken up when its time comes.
    pub fn make_available(&self, run: usize) {
        // Relaxed: the run's word tells what is in it.
        self.available.fetch_or(1 << run, Ordering::Relaxed);
    }

    pub fn available(&self) -> Runs {
        self.available.load(Ordering::Relaxed)
    }

    /// Takes a run up, under the arena's lock.
    ///
    /// # Safety
    ///
    /// The region is in its arena's list.
    pub unsafe fn claim(region: NonNull<Self>, run: usize) -> Option<Owned> {
        // SAFETY: the caller's promise. What is made of this reference must not lead to slots.
        let this = unsafe { region.as_ref() };
        this.available.fetch_and(!(1 << run), Ordering::Relaxed);
        let word = &this.runs[run];
        let is_owned = Run::from_bits(word.load(Ordering::Relaxed)).is_owned();
        // Only under the lock does a run get an owner.
        if is_owned {
            return None;
        }
        let mut owned = Owned {
            region,
            run,
            first: None,
            listed: 0,
            fresh: 0..0,
        };
        let bit = 1 << run;
        if this.locked.empty.get() & bit == 0 {
            owned.take();
        } else {
            // A list would be lost with the memory that was released: so it is made anew.
            word.store(Run::OWNED.bits(), Ordering::Relaxed);
            owned.fresh = slots(run, this.size);
            this.locked.empty.set(this.locked.empty.get() & !bit);
            this.locked.released.set(this.locked.released.get() & !bit);
        }
        Some(owned)
    }

    /// Puts a slot into its run's list.
    ///
    /// # Safety
    ///
    /// The slot is the caller's, in use, and in that run of the region. From the push on it is not,
    /// and if that is not the run's last one, the region may go away.
    #[inline]
    pub unsafe fn push(
        region: NonNull<Self>,
        run: usize,
        slot: NonNull<u8>,
        pushing: Pushing,
    ) -> Pushed {
        let position = Position::of_offset(slot.addr().get() % RUN);
        let region = region.as_ptr();
        // SAFETY: the region stays until the push. What is plain in it is copied before. No reference
        // to all of it lasts until the push: it would say that the region stays for longer. One to an
        // atomic says no such thing.
        let (total, worthwhile, word) = unsafe {
            (
                (*region).totals[usize::from(run > 0)],
                (*region).worthwhile,
                &(&(*region).runs)[run],
            )
        };
        loop {
            let before = Run::from_bits(word.load(Ordering::Relaxed));
            let after = before.pushed(position);
            let is_last = !before.is_owned() && after.count() == total;
            if is_last && pushing == Pushing::Unlocked {
                return Pushed::Refused;
            }
            // Before the push: after it the region may go away.
            if !before.is_owned() && after.count() & (worthwhile - 1) == 0 {
                // SAFETY: the region stays until the push.
                unsafe { (*region).make_available(run) };
            }
            // SAFETY: the caller's promise.
            unsafe { Link::write(slot, before.first()) };
            // Release, pairs with `Owned::take` and itself: the slot's last use, and its link.
            // Acquire, for the last one: the other slots' last uses, after which the region goes.
            let pushed = word.compare_exchange_weak(
                before.bits(),
                after.bits(),
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            if pushed.is_ok() {
                return if is_last { Pushed::Last } else { Pushed::Done };
            }
        }
    }

    /// Gives an empty run's memory back, under the arena's lock.
    pub fn release(&self, run: usize) {
        debug_assert!(self.locked.empty.get() & 1 << run != 0);
        let slots = slots(run, self.size);
        let start = run * RUN;
        // SAFETY: under the lock it is not taken up, and all its slots are free.
        unsafe { self.memory.release(start + slots.start, start + RUN) };
        self.locked
            .released
            .set(self.locked.released.get() | 1 << run);
    }
}

/// Whether the caller of a push has the arena's lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pushing {
    Unlocked,
    Locked,
}

/// What became of a push.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pushed {
    Done,
    /// It would have been the run's last slot in use, and was not pushed, because that needs the lock.
    Refused,
    /// It was the run's last slot in use.
    Last,
}

/// A run that a thread allocates from.
#[derive(Debug)]
pub struct Owned {
    region: NonNull<Region>,
    run: usize,
    /// The slots of a list.
    first: Option<Position>,
    listed: usize,
    /// Those that no list has had yet, as offsets in the run.
    fresh: Range<usize>,
}

impl Owned {
    #[inline]
    fn region(&self) -> &Region {
        // SAFETY: a region with a run that is owned stays.
        unsafe { self.region.as_ref() }
    }

    #[inline]
    fn slot(&self, offset: usize) -> NonNull<u8> {
        // SAFETY: inside the region.
        unsafe { self.region.cast::<u8>().add(self.run * RUN + offset) }
    }

    fn word(&self) -> &AtomicU64 {
        &self.region().runs[self.run]
    }

    /// A free slot, which is the caller's then.
    #[inline]
    pub fn pop(&mut self) -> Option<NonNull<u8>> {
        if let Some(position) = self.first {
            let slot = self.slot(position.offset());
            // SAFETY: it is in the list, which this has.
            self.first = unsafe { Link::read(slot) };
            self.listed -= 1;
            if let Some(next) = self.first {
                prefetch(self.slot(next.offset()).as_ptr());
            }
            return Some(slot);
        }
        let slot = (!self.fresh.is_empty()).then(|| self.slot(self.fresh.start))?;
        self.fresh.start += self.region().size;
        Some(slot)
    }

    /// Takes the slots that were freed meanwhile. Returns whether there are any.
    fn take(&mut self) -> bool {
        // Acquire, pairs with `Region::push`: the slots' last uses, and their links.
        let word = self.word().swap(Run::OWNED.bits(), Ordering::Acquire);
        let taken = Run::from_bits(word);
        (self.first, self.listed) = (taken.first(), taken.count());
        self.first.is_some()
    }

    /// Takes the slots that were freed meanwhile, or gives the run up if there are none: then
    /// returns false. Only when `pop` has found none.
    pub fn refill(&mut self) -> bool {
        loop {
            if self.take() {
                return true;
            }
            let given_up = self.word().compare_exchange(
                Run::OWNED.bits(),
                Run::FULL.bits(),
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            if given_up.is_ok() {
                return false;
            }
        }
    }

    /// Gives the run up for good, under the arena's lock. Returns its number in the region if all
    /// its slots are free.
    pub fn close(self) -> Option<(NonNull<Region>, usize)> {
        let region = self.region();
        let left = self.listed + self.fresh.len() / region.size;
        loop {
            let before = Run::from_bits(self.word().load(Ordering::Relaxed));
            let after = before.given_up(left);
            // Acquire, pairs with `Region::push`: the slots' last uses, after which the region goes.
            // Release: it carries on what pushes before have released.
            let given_up = self.word().compare_exchange_weak(
                before.bits(),
                after.bits(),
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            if given_up.is_ok() {
                let is_empty = after.count() == region.total(self.run);
                return is_empty.then_some((self.region, self.run));
            }
        }
    }
}
