//! What a collector keeps for each thread, by the thread's number.
//!
//! A slot is used by the thread that has its number, and by no other; it passes to the next thread
//! of that number with what has been retired into it. So neither a thread's end nor a collector's
//! has anything to look for in the other.

use crate::{Collector, ids, thread};
use std::{
    cell::{Cell, UnsafeCell},
    mem, ptr,
    sync::atomic::{AtomicPtr, Ordering},
};
use stillpoint::internal::batches::{self, Process, Reader};

/// The function of a retired object, whatever the object's type.
pub(crate) type Reclaim = unsafe fn(*mut (), &Collector);

/// An object that is to be freed.
pub(crate) struct Retired {
    object: *mut (),
    reclaim: Reclaim,
}

// SAFETY: the caller that retired it has promised that any thread that uses the collector may free it.
unsafe impl Send for Retired {}

impl Retired {
    pub(crate) fn new<T>(object: *mut T, reclaim: unsafe fn(*mut T, &Collector)) -> Self {
        Self {
            object: object.cast(),
            // SAFETY: functions that differ in the type that a thin pointer points to have one ABI.
            reclaim: unsafe { mem::transmute::<unsafe fn(*mut T, &Collector), Reclaim>(reclaim) },
        }
    }

    /// # Safety
    ///
    /// No thread uses the object any more, and the promise with which it was retired holds.
    pub(crate) unsafe fn free(self, collector: &Collector) {
        // SAFETY: the caller's promise.
        unsafe { (self.reclaim)(self.object, collector) }
    }
}

/// What one thread has in one collector.
#[repr(align(128))]
pub(crate) struct Slot {
    pub(crate) id: usize,
    /// The thread that uses it: its life.
    life: Cell<u64>,
    /// The process in which that thread has begun to.
    process: Cell<Process>,
    reader: UnsafeCell<Option<Reader>>,
    /// Open guards.
    pub(crate) guards: Cell<usize>,
    /// A batch has been pushed since the thread swept last.
    pub(crate) pushed: Cell<bool>,
    retired: UnsafeCell<Vec<Retired>>,
}

impl Slot {
    fn new(id: usize) -> Self {
        Self {
            id,
            life: Cell::new(0),
            process: Cell::new(batches::process()),
            reader: UnsafeCell::new(None),
            guards: Cell::new(0),
            pushed: Cell::new(false),
            retired: UnsafeCell::new(Vec::new()),
        }
    }

    /// The thread of this life uses it from now on.
    ///
    /// # Safety
    ///
    /// It has the slot's number, and is the calling one.
    pub(crate) unsafe fn adopt(&self, life: u64, collection: &crate::collector::Collection) {
        if self.life.replace(life) == life {
            return;
        }
        let process = batches::process();
        debug_assert_eq!(self.guards.get(), 0, "a number with guards is kept");
        // SAFETY: the slot is the calling thread's.
        let reader = unsafe { &mut *self.reader.get() };
        let before = reader.replace(Reader::new(collection));
        let made_here = self.process.replace(process) == process;
        if let Some(before) = before
            && made_here
        {
            // SAFETY: its thread has given its number up, outside of sections; the collection is
            // the one that is borrowed here. Of before a fork, the record is free already.
            unsafe { before.depart() };
        }
    }

    /// The reader of the thread that has adopted the slot.
    ///
    /// # Safety
    ///
    /// The calling thread has.
    #[inline(always)]
    pub(crate) unsafe fn reader(&self) -> &Reader {
        // SAFETY: `adopt` has made it, and no thread but this one looks or changes it.
        unsafe { (*self.reader.get()).as_ref().unwrap_unchecked() }
    }

    /// Adds an object. How many there are now.
    ///
    /// # Safety
    ///
    /// The calling thread has adopted the slot.
    #[inline(always)]
    pub(crate) unsafe fn retire(&self, object: Retired) -> usize {
        // SAFETY: the thread's own, and no user code runs meanwhile.
        let retired = unsafe { &mut *self.retired.get() };
        retired.push(object);
        retired.len()
    }

    /// Takes the objects out.
    ///
    /// # Safety
    ///
    /// The calling thread has adopted the slot.
    pub(crate) unsafe fn take(&self) -> Vec<Retired> {
        // SAFETY: the caller's promise; no user code runs meanwhile.
        let retired = unsafe { &mut *self.retired.get() };
        let room = retired.len().min(MOST_ROOM);
        mem::replace(retired, Vec::with_capacity(room))
    }

    /// Takes the objects out, and leaves no room. In the child of a fork none where a thread may have
    /// been changing them that the fork has removed: those are forgotten.
    ///
    /// # Safety
    ///
    /// No other thread uses the collector.
    pub(crate) unsafe fn take_all(&self) -> Vec<Retired> {
        if self.is_lost() {
            // SAFETY: the caller's promise. What is there may be half changed: it is not looked at.
            unsafe { self.retired.get().write(Vec::new()) };
        }
        // SAFETY: the caller's promise; no user code runs meanwhile.
        mem::take(unsafe { &mut *self.retired.get() })
    }

    /// Whether a fork has removed the thread that has the number, and this process is the child.
    fn is_lost(&self) -> bool {
        self.process.get() != batches::process()
            && self.life.get() != thread::life()
            && ids::is_taken(self.id)
    }

    /// Whether [`Slot::take`] would take any.
    ///
    /// # Safety
    ///
    /// As there.
    pub(crate) unsafe fn has_retired(&self) -> bool {
        // SAFETY: as there.
        !unsafe { &*self.retired.get() }.is_empty()
    }
}

/// For how many objects at most there is room before they come.
const MOST_ROOM: usize = 256;

/// For all numbers below 2^32, less one: a system has fewer threads.
const BUCKETS: usize = 32;

/// The slots of a collector. Bucket n has 2^n; both buckets and slots are made when they are needed.
pub(crate) struct Slots([AtomicPtr<AtomicPtr<Slot>>; BUCKETS]);

// SAFETY: a slot is accessed by the thread that has its number, and else by a caller that has
// promised to be the only one.
unsafe impl Send for Slots {}
// SAFETY: as for Send.
unsafe impl Sync for Slots {}

impl Slots {
    pub(crate) const fn new() -> Self {
        Self([const { AtomicPtr::new(ptr::null_mut()) }; BUCKETS])
    }

    /// The slot of a number; it lives as long as these.
    pub(crate) fn get(&self, id: usize) -> &Slot {
        let (bucket, at) = place(id);
        let slots = found_or_made(
            &self.0[bucket],
            || {
                let slots: Box<[AtomicPtr<Slot>]> = (0..1_usize << bucket)
                    .map(|_| AtomicPtr::new(ptr::null_mut()))
                    .collect();
                Box::into_raw(slots).cast()
            },
            // SAFETY: as it was made.
            |made| unsafe { free_bucket(made, bucket) },
        );
        // SAFETY: a bucket has so many.
        let slot = unsafe { &*slots.add(at) };
        let slot = found_or_made(
            slot,
            || Box::into_raw(Box::new(Slot::new(id))),
            // SAFETY: out of a box just now, and nothing else knows it.
            |made| drop(unsafe { Box::from_raw(made) }),
        );
        // SAFETY: it is freed with these.
        unsafe { &*slot }
    }

    /// All that there are. Others may be made meanwhile.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(&Slot)) {
        for (bucket, slots) in self.0.iter().enumerate() {
            // Acquire, pairs with `found_or_made`: what is found is complete.
            let slots = slots.load(Ordering::Acquire);
            if slots.is_null() {
                continue;
            }
            for at in 0..1_usize << bucket {
                // Acquire, pairs with `found_or_made`: as above.
                // SAFETY: a bucket has so many; each is null or a slot, which is freed with these.
                let slot = unsafe { (*slots.add(at)).load(Ordering::Acquire).as_ref() };
                if let Some(slot) = slot {
                    visit(slot);
                }
            }
        }
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        for (bucket, slots) in self.0.iter_mut().enumerate() {
            let slots = *slots.get_mut();
            if slots.is_null() {
                continue;
            }
            for at in 0..1_usize << bucket {
                // SAFETY: a bucket has so many; this is the only reference.
                let slot = unsafe { *(*slots.add(at)).get_mut() };
                if !slot.is_null() {
                    // SAFETY: out of a box in `get`.
                    drop(unsafe { Box::from_raw(slot) });
                }
            }
            // SAFETY: made in `get`.
            unsafe { free_bucket(slots, bucket) };
        }
    }
}

/// # Safety
///
/// `slots` came out of a box of 2^`bucket`, and is not used afterwards.
unsafe fn free_bucket(slots: *mut AtomicPtr<Slot>, bucket: usize) {
    // SAFETY: the caller's promise.
    drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(slots, 1 << bucket)) });
}

/// The bucket of a number, and the place in it.
const fn place(id: usize) -> (usize, usize) {
    let bucket = (id + 1).ilog2();
    (bucket as usize, id + 1 - (1 << bucket))
}

/// What `at` points to, made by the first thread that asks.
pub(crate) fn found_or_made<T>(
    at: &AtomicPtr<T>,
    make: impl FnOnce() -> *mut T,
    unmake: impl FnOnce(*mut T),
) -> *mut T {
    // Acquire, pairs with the exchange below, in `found_or_made`: what is found is complete.
    let found = at.load(Ordering::Acquire);
    if !found.is_null() {
        return found;
    }
    let made = make();
    // AcqRel, pairs with the load above, in `found_or_made`: ours is complete before it is found,
    // and so is the faster thread's.
    match at.compare_exchange(
        ptr::null_mut(),
        made,
        Ordering::AcqRel,
        Ordering::Acquire, // As above: the faster thread's is complete.
    ) {
        Ok(_) => made,
        Err(faster) => {
            unmake(made);
            faster
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_has_a_place_of_its_own() {
        assert_eq!(
            [place(0), place(1), place(2), place(3)],
            [(0, 0), (1, 0), (1, 1), (2, 0)]
        );
        assert_eq!(place(6), (2, 3));
        let last = u32::MAX as usize - 1;
        assert_eq!(place(last), (BUCKETS - 1, (1 << (BUCKETS - 1)) - 1));
    }

    #[test]
    fn a_slot_stays_where_it_is() {
        let slots = Slots::new();
        let first: *const Slot = slots.get(0);
        let far: *const Slot = slots.get(100);
        assert!(ptr::eq(first, slots.get(0)) && ptr::eq(far, slots.get(100)));
        let mut ids = Vec::new();
        slots.for_each(|slot| ids.push(slot.id));
        assert_eq!(ids, [0, 100]);
    }
}
