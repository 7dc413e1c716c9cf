//! Deferred frees in the child of a fork: what waited is the parent's, and forgotten.
//!
//! The child looks at nothing that a lock guards (`stillpoint-platform/src/fork.rs`): it replaces
//! the locks, and what they guard by empty values. So pages and the buffers of other threads are
//! leaked. The thread that forks may read its own buffer. That is emptied, and listed again at its
//! next append, which finds no open page and so takes the slow path. Of what other threads have
//! freed, the child counts what they had published (`account.rs`).
//!
//! A destructor may be what forks. The loops over what is to be freed compare
//! [`process`](crate::platform::fork::process) after each call of one, and then forget the rest.

use super::{
    buffer::{Queue, ThreadBuffer},
    heap::Heap,
    page::PageList,
    pending::Pending,
};
use crate::platform::{fork::ForkReset, sync::Ordering};
use std::ptr::{self, NonNull};

impl ForkReset for Heap {
    unsafe fn reset_in_child(&self) {
        self.reset_counts();
        self.shared.reset_in_child();
        self.flushes.reset();
        // SAFETY: the caller's promise, for all of them; user code does not run under these locks.
        unsafe {
            self.buffers.reinit(Vec::new());
            self.threads_end.reinit(None);
            self.line.pending.reinit(Pending::new());
            self.line.reserve.0.reinit(PageList::new());
        }
    }
}

impl Heap {
    /// Takes over the counts of the thread that forks, and resets its account.
    pub(crate) fn keep_counts_of(&self, own: &ThreadBuffer) {
        self.shared.keep(&own.account);
    }
}

/// The buffer of the forking thread.
impl ForkReset for ThreadBuffer {
    unsafe fn reset_in_child(&self) {
        let mut spares = PageList::new();
        for open in &self.open {
            if let Some(page) = NonNull::new(open.swap(ptr::null_mut(), Ordering::Relaxed)) {
                // SAFETY: taken out of the buffer just now, so ours.
                unsafe { page.as_ref() }.forget_objects();
                spares.push_back(page);
            }
        }
        self.reset();
        // SAFETY: the caller's promise; user code does not run under this lock.
        unsafe { self.queue.reinit(Queue::new(spares)) };
        // SAFETY: the caller's promise. The owner may be in the middle of reclaiming, and stays so.
        unsafe { self.freeing.reset_in_child() };
    }
}
