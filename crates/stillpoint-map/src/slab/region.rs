//! A region: runs of slots, behind a head that says which of them are free.
//!
//! It is aligned to its own size, so that a slot's address tells its region and its run.

use super::{
    Arena, Empty, Released, UsedSlot,
    list::List,
    memory::{Memory, REGION},
    run::{Link, Position, Run},
};
use crate::{memory::prefetch, slot::fits};
use std::{
    cell::Cell,
    ops::Range,
    ptr::{self, NonNull},
};
use stillpoint_platform::sync::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

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
    /// Whether it is in the arena's queue, or in the chain of those that have such runs.
    pub is_queued: AtomicBool,
    /// The next in the queue.
    pub queued: AtomicPtr<Self>,
    /// What the arena's lock is about.
    locked: Locked,
    runs: [AtomicU64; RUNS],
}

/// Read and written under the arena's lock.
#[derive(Debug)]
pub struct Locked {
    /// Where it is in the arena's chains.
    pub links: [Links; 2],
    /// The runs all of whose slots are free, but for those whose memory is being given back.
    pub empty: Cell<Runs>,
    /// Those of them that take no memory, and whose slots are in no list.
    pub released: Cell<Runs>,
}

/// The neighbours in a chain.
#[derive(Debug, Default)]
pub struct Links {
    pub before: Cell<Option<NonNull<Region>>>,
    pub after: Cell<Option<NonNull<Region>>>,
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
        #[cfg(all(test, not(stillpoint_loom)))]
        assert!(
            !super::IS_LOCKED.get(),
            "the kernel is called with the lock"
        );
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
            // The arena adds it to the chain.
            is_queued: AtomicBool::new(true),
            queued: AtomicPtr::new(ptr::null_mut()),
            locked: Locked {
                links: Default::default(),
                empty: Cell::new(ALL),
                released: Cell::new(ALL),
            },
            runs: std::array::from_fn(|_| AtomicU64::new(Run::FULL.bits())),
        };
        // SAFETY: the memory begins with space for it, and is no other's.
        unsafe { start.write(region) };
        Some(start)
    }

    /// Returns the fields that the arena's lock protects. Only the holder of the lock has a `List`.
    pub fn locked<'l>(&'l self, list: &'l List) -> &'l Locked {
        assert!(list.is_of(self.arena), "the lock is another arena's");
        &self.locked
    }

    /// The memory, which it was moved out of, and its neighbours.
    pub fn into_parts(self) -> (Memory, [Links; 2]) {
        (self.memory, self.locked.links)
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
    ///
    /// # Safety
    ///
    /// The region stays meanwhile: the caller has a slot in use, or the arena's lock.
    pub unsafe fn make_available(region: NonNull<Self>, run: usize) {
        // SAFETY: the caller's promise.
        let this = unsafe { region.as_ref() };
        // Release, pairs with `make_unavailable`: the caller has seen that no stripe owns the run, and
        // so does the thread that takes the bit away, or nothing would set it again. The exchange
        // below is not reached if the bit is there already.
        let before = this.available.fetch_or(1 << run, Ordering::Release);
        // AcqRel, pairs with `List::unlink_ready`: either that sees the run, or this queues.
        if before & 1 << run == 0 && !this.is_queued.swap(true, Ordering::AcqRel) {
            // SAFETY: the caller's promise; an arena stays while its regions do.
            let queue = unsafe { &(*this.arena.as_ptr()).queue };
            let mut first = queue.load(Ordering::Relaxed);
            loop {
                this.queued.store(first, Ordering::Relaxed);
                // Release, pairs with `List::link_queued`: the link.
                let pushed = queue.compare_exchange_weak(
                    first,
                    region.as_ptr(),
                    Ordering::Release,
                    Ordering::Relaxed,
                );
                match pushed {
                    Ok(_) => break,
                    Err(other) => first = other,
                }
            }
        }
    }

    /// Marks a run as unavailable. Called under the arena's lock.
    pub fn make_unavailable(&self, run: usize) {
        // Acquire, pairs with `make_available`: what its caller has seen of the run's word.
        self.available.fetch_and(!(1 << run), Ordering::Acquire);
    }

    pub fn available(&self) -> Runs {
        self.available.load(Ordering::Relaxed)
    }

    /// Takes a run up for a stripe, under the arena's lock.
    ///
    /// # Safety
    ///
    /// The region is in its arena's list.
    pub unsafe fn claim(
        list: &List,
        region: NonNull<Self>,
        run: usize,
        stripe: usize,
    ) -> Option<Owned> {
        // SAFETY: the caller's promise. What is made of this reference must not lead to slots.
        let this = unsafe { region.as_ref() };
        this.make_unavailable(run);
        let word = &this.runs[run];
        let is_owned = Run::from_bits(word.load(Ordering::Relaxed)).is_owned();
        // Only under the lock does a run get an owner.
        if is_owned {
            return None;
        }
        let mut owned = Owned {
            region,
            run,
            stripe,
            first: None,
            left: 0,
            fresh: 0..0,
        };
        let bit = 1 << run;
        let locked = this.locked(list);
        if locked.empty.get() & bit == 0 {
            owned.take();
        } else {
            // A list would be lost with the memory that was released: so it is made anew.
            word.store(Run::owned_by(stripe, 0).bits(), Ordering::Relaxed);
            owned.fresh = slots(run, this.size);
            owned.left = this.total(run);
            locked.empty.set(locked.empty.get() & !bit);
            locked.released.set(locked.released.get() & !bit);
        }
        Some(owned)
    }

    /// Returns the word of a run.
    pub fn word(&self, run: usize) -> Run {
        Run::from_bits(self.runs[run].load(Ordering::Relaxed))
    }
}

impl UsedSlot {
    /// Puts it into its run's list. If it is not the run's last one, the region may go away then.
    #[inline]
    pub fn push(self, pushing: Pushing<'_>) -> Pushed {
        let (region, run) = Region::of(self.0);
        let position = Position::of_offset(self.0.addr().get() % RUN);
        // SAFETY: the region stays until the push. What is plain in it is copied before. No reference
        // to all of it lasts until the push: it would say that the region stays for longer. One to an
        // atomic says no such thing.
        let (arena, total, worthwhile, word) = unsafe {
            (
                (*region.as_ptr()).arena,
                (*region.as_ptr()).totals[usize::from(run > 0)],
                (*region.as_ptr()).worthwhile,
                &(&(*region.as_ptr()).runs)[run],
            )
        };
        if let Pushing::Locked(list) | Pushing::Unchanged(list, _) = pushing {
            assert!(list.is_of(arena), "the lock is another arena's");
        }
        loop {
            // Acquire, pairs with `push`: of the slots that were freed, the stripe's count
            // knows that they were taken.
            let before = Run::from_bits(word.load(Ordering::Acquire));
            let after = before.pushed(position);
            let mut in_use = total - after.count();
            if before.is_owned() && after.count() >= before.used() {
                // SAFETY: the arena stays until the push.
                let stripe = unsafe { &(&(*arena.as_ptr()).stripes)[before.stripe()] };
                in_use = in_use.saturating_sub(stripe.left());
            }
            let is_last = in_use == 0;
            let is_refused = match pushing {
                Pushing::Unlocked => is_last,
                // Others have pushed theirs since the stripe was asked for the run.
                Pushing::Locked(_) => is_last && before.is_owned(),
                Pushing::Unchanged(_, run) => before != run,
            };
            if is_refused {
                return Pushed::Refused(self);
            }
            // Before the push: after it the region may go away.
            if !before.is_owned() && after.count() & (worthwhile - 1) == 0 {
                // SAFETY: the region stays until the push.
                unsafe { Region::make_available(region, run) };
            }
            // SAFETY: a slot has space for it, and this one is the thread's.
            unsafe { self.0.cast().write(Link::to(before.first())) };
            // Release, pairs with `Owned::take` and `push`: the slot's last use, and its link.
            // Acquire, for the last one: the other slots' last uses, after which the region goes.
            let pushed = word.compare_exchange_weak(
                before.bits(),
                after.bits(),
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            if pushed.is_ok() {
                let is_empty = is_last && !before.is_owned();
                return if is_empty {
                    Pushed::Last(Empty { region, run })
                } else {
                    Pushed::Done
                };
            }
        }
    }
}

impl Empty {
    /// Gives its memory back, without the arena's lock: the kernel may take its time.
    pub fn release(self) -> Released {
        #[cfg(all(test, not(stillpoint_loom)))]
        assert!(
            !super::IS_LOCKED.get(),
            "the kernel is called with the lock"
        );
        #[cfg(all(target_os = "linux", not(miri), not(stillpoint_loom)))]
        {
            // SAFETY: this holds the region.
            let region = unsafe { self.region.as_ref() };
            let start = self.run * RUN;
            let first = start + slots(self.run, region.size).start;
            // SAFETY: all slots are free, and no thread takes one.
            unsafe { region.memory.release(first, start + RUN) };
        }
        Released(self)
    }
}

/// Whether the caller of a push has the arena's lock, and so its list.
#[derive(Clone, Copy, Debug)]
pub enum Pushing<'l> {
    Unlocked,
    Locked(&'l List),
    /// It has, and a thread uses the stripe that has the run, whose word was this before.
    Unchanged(&'l List, Run),
}

/// What became of a push.
pub enum Pushed {
    Done,
    /// It may have been the run's last slot in use, and was not pushed: that needs the lock, and a
    /// stripe that has the run gives it up first.
    Refused(UsedSlot),
    /// It was the run's last slot in use.
    Last(Empty),
}

/// A run that the threads of a stripe allocate from.
#[derive(Debug)]
pub struct Owned {
    region: NonNull<Region>,
    run: usize,
    stripe: usize,
    /// The slots of a list.
    first: Option<Position>,
    /// Those that no list has had yet, as offsets in the run.
    fresh: Range<usize>,
    /// How many there are of both.
    left: usize,
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

    /// How many free slots it has, beside those that were freed meanwhile.
    #[inline]
    pub fn left(&self) -> usize {
        self.left
    }

    /// A free slot, which is the caller's then.
    #[inline(always)]
    pub fn pop(&mut self) -> Option<NonNull<u8>> {
        if let Some(position) = self.first {
            let slot = self.slot(position.offset());
            // SAFETY: it is in the list, which this has.
            self.first = unsafe { slot.cast::<Link>().as_mut() }.next();
            self.left -= 1;
            if let Some(next) = self.first {
                prefetch(self.slot(next.offset()).as_ptr());
            }
            return Some(slot);
        }
        let slot = (!self.fresh.is_empty()).then(|| self.slot(self.fresh.start))?;
        self.fresh.start += self.region().size;
        self.left -= 1;
        Some(slot)
    }

    /// Takes the slots that were freed meanwhile, when `pop` has found none. Returns whether there
    /// are any.
    fn take(&mut self) -> bool {
        let mut before = self.word().load(Ordering::Relaxed);
        loop {
            let taken = Run::from_bits(before);
            let used = self.region().total(self.run) - taken.count();
            // Acquire, pairs with `UsedSlot::push`: the slots' last uses, and their links.
            let exchanged = self.word().compare_exchange_weak(
                before,
                Run::owned_by(self.stripe, used).bits(),
                Ordering::Acquire,
                Ordering::Relaxed,
            );
            match exchanged {
                Ok(_) => {
                    (self.first, self.left) = (taken.first(), taken.count());
                    return self.left > 0;
                }
                Err(other) => before = other,
            }
        }
    }

    /// As [`pop`](Self::pop), also of the slots that were freed meanwhile. If there are none, the run is given up.
    pub fn pop_or_give_up(owned: &mut Option<Self>) -> Option<NonNull<u8>> {
        let run = owned.as_mut()?;
        let slot = run
            .pop()
            .or_else(|| if run.refill() { run.pop() } else { None });
        if slot.is_none() {
            *owned = None;
        }
        slot
    }

    /// Takes the slots that were freed meanwhile, or gives the run up if there are none: then
    /// returns false. Only when `pop` has found none.
    fn refill(&mut self) -> bool {
        loop {
            if self.take() {
                return true;
            }
            let all = self.region().total(self.run);
            let given_up = self.word().compare_exchange(
                Run::owned_by(self.stripe, all).bits(),
                Run::FULL.bits(),
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            if given_up.is_ok() {
                return false;
            }
        }
    }

    /// Whether it is that run, and but one of its slots is free.
    pub fn has_one_in_use(&self, region: NonNull<Region>, run: usize) -> bool {
        let free = Run::from_bits(self.word().load(Ordering::Relaxed)).count() + self.left;
        (self.region, self.run) == (region, run) && free + 1 == self.region().total(run)
    }

    /// Gives the run up, under the arena's lock, as no thread is to allocate from it before all of
    /// its slots are free. Returns it if they are.
    ///
    /// # Safety
    ///
    /// The region stays until this returns: the caller has the arena's lock, or a slot of the region in use.
    pub unsafe fn close(self) -> Option<Empty> {
        let mut before = self.word().load(Ordering::Relaxed);
        loop {
            let after = Run::from_bits(before).given_up(self.left);
            // Acquire, pairs with `UsedSlot::push`: the slots' last uses, after which the region goes.
            // Release: it carries on what pushes before have released.
            let given_up = self.word().compare_exchange_weak(
                before,
                after.bits(),
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            match given_up {
                Ok(_) => {
                    let (region, run) = (self.region, self.run);
                    let is_empty = after.count() == self.region().total(run);
                    return is_empty.then_some(Empty { region, run });
                }
                Err(other) => before = other,
            }
        }
    }
}
