//! What a thread keeps: its number, the slots that it used last, and which collectors' reclaimers
//! it is running.
//!
//! A thread has a number from its first use on, until it has ended and no guard of it is open any
//! more: thread-local destructors may drop guards after ours has run, and make new ones. A guard
//! that is leaked keeps the number for ever, as it keeps its section.

use crate::{ids, slot::Slot};
use std::{
    cell::Cell,
    ptr,
    sync::atomic::{AtomicU64, Ordering},
};

/// How many collectors' slots a thread finds at once.
const RECENT: usize = 16;

/// No number.
const NONE: usize = usize::MAX;

struct Thread {
    id: Cell<usize>,
    /// No other thread has this, now or later; nor has this one once it has given its number back.
    life: Cell<u64>,
    /// Open sections, calls that are under way, and one until the thread's end.
    uses: Cell<usize>,
    /// Slots of this number, by the low bits of their collectors' numbers. Never followed but for a
    /// collector of that number, which is alive then.
    recent: [Cell<(u64, *const Slot)>; RECENT],
    /// The innermost of what is running.
    running: Cell<*const Running>,
}

thread_local! {
    static THREAD: Thread = const {
        Thread {
            id: Cell::new(NONE),
            life: Cell::new(0),
            uses: Cell::new(0),
            recent: [const { Cell::new((0, ptr::null())) }; RECENT],
            running: Cell::new(ptr::null()),
        }
    };
    static END: End = const { End };
}

/// The use that a thread has for its number while it lives.
struct End;

impl Drop for End {
    fn drop(&mut self) {
        finish();
    }
}

/// One use more: the number, if there is one, stays the thread's until [`finish`].
#[inline(always)]
pub(crate) fn begin() {
    THREAD.with(|thread| thread.uses.set(thread.uses.get() + 1));
}

/// One use less.
#[inline(always)]
pub(crate) fn finish() {
    THREAD.with(|thread| {
        let uses = thread.uses.get() - 1;
        thread.uses.set(uses);
        if uses == 0 {
            give_back(thread);
        }
    });
}

#[cold]
fn give_back(thread: &Thread) {
    let id = thread.id.replace(NONE);
    for slot in &thread.recent {
        slot.set((0, ptr::null()));
    }
    if id != NONE {
        ids::give_back(id);
    }
}

/// The thread's number and life. Inside a use.
pub(crate) fn identity() -> (usize, u64) {
    THREAD.with(|thread| {
        debug_assert!(thread.uses.get() > 0, "in a use");
        if thread.id.get() == NONE {
            static LIVES: AtomicU64 = AtomicU64::new(1);
            thread.id.set(ids::take());
            thread.life.set(LIVES.fetch_add(1, Ordering::Relaxed));
            // Not where the thread is past it: then each use has a number of its own.
            if END.try_with(|_| ()).is_ok() {
                thread.uses.set(thread.uses.get() + 1);
            }
        }
        (thread.id.get(), thread.life.get())
    })
}

/// The life of the calling thread, or the last that it has had; 0 if it had none.
pub(crate) fn life() -> u64 {
    THREAD.with(|thread| thread.life.get())
}

/// The slot that was noted for the collector of this number, or null.
#[inline(always)]
pub(crate) fn recent(collector: u64) -> *const Slot {
    THREAD.with(|thread| {
        let (known, slot) = thread.recent[collector as usize % RECENT].get();
        if known == collector {
            slot
        } else {
            ptr::null()
        }
    })
}

/// Notes the thread's slot of a collector.
pub(crate) fn note_recent(collector: u64, slot: *const Slot) {
    THREAD.with(|thread| thread.recent[collector as usize % RECENT].set((collector, slot)));
}

/// That the thread is running reclaimers of a collector, until this is dropped. What these have to
/// free is freed by the loop that runs them, not inside of them: so the stack stays flat.
pub(crate) struct Running {
    collector: u64,
    outer: *const Running,
    /// There is something to be looked for.
    asked: Cell<bool>,
}

impl Running {
    /// Calls `run` while the thread counts as running reclaimers of that collector. `run` does not
    /// unwind.
    pub(crate) fn with<R>(collector: u64, run: impl FnOnce(&Self) -> R) -> R {
        /// Takes it back also if `run` should unwind after all.
        struct Back(*const Running);
        impl Drop for Back {
            fn drop(&mut self) {
                THREAD.with(|thread| thread.running.set(self.0));
            }
        }
        let outer = THREAD.with(|thread| thread.running.get());
        let this = Self {
            collector,
            outer,
            asked: Cell::new(false),
        };
        let _back = Back(outer);
        THREAD.with(|thread| thread.running.set(&raw const this));
        run(&this)
    }

    /// Whether something was asked for since the last call.
    pub(crate) fn take_asked(&self) -> bool {
        self.asked.take()
    }

    /// Asks the loop that runs reclaimers of that collector on this thread to look for more. Whether
    /// there is such a loop.
    pub(crate) fn ask(collector: u64) -> bool {
        THREAD.with(|thread| {
            let mut at = thread.running.get();
            // SAFETY: it is on this thread's stack, further down, until it is taken out.
            while let Some(running) = unsafe { at.as_ref() } {
                if running.collector == collector {
                    running.asked.set(true);
                    return true;
                }
                at = running.outer;
            }
            false
        })
    }
}
