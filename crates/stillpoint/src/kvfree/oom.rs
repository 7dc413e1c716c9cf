//! Retiring, and reclaiming, when there is no memory.
//!
//! | there is no memory for | so |
//! |---|---|
//! | a page to append to | outside of sections, the retiring thread waits for a grace period and frees the object itself |
//! | the same, where it may not wait | a callback frees it; or the caller, if it prefers ([`OnNoPage`]): an object that embeds a head is queued by that |
//! | the same, where objects are freed on demand | a callback frees it, as the service thread frees a page there |
//! | that callback | the object is leaked, and counted |
//! | a page to adopt an idle thread's objects into | the last one in [reserve](super::page::Reserve) is used, which is allocated before a thread opens its first |
//! | a thread's buffer, or its entry in the list of buffers | the thread gets no page, as in the first lines |
//!
//! No thread waits for memory inside a section, because the threads that could give memory back may
//! wait for that section.

use super::{
    around::call_around,
    buffer::ThreadBuffer,
    heap::{Heap, OomCallbacks},
    page::Slot,
    policy::Policy,
    request::RetireRequest,
};
use crate::{
    gp::{Engine, Haste, Record, Waited},
    platform::{
        fork,
        sync::{Arc, Ordering},
        thread, user_code,
    },
};

/// What happens to a retired object if there is no memory for a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnNoPage {
    /// Give it back at once: the caller has another way to free it.
    Fail,
    /// Wait for a grace period and free it, or give it back where waiting is impossible: as the
    /// single-argument `kvfree_rcu()` does.
    Block,
    /// The caller waits if it may; where it may not, a callback frees the object. Never gives it
    /// back.
    BlockOrCall,
}

/// The object was not retired, and is still the caller's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoPage;

/// The size of a callback that frees an object, in bytes, without the object.
const CALLBACK_BYTES: usize = 96;

impl Heap {
    /// Retires an object for which there is no page.
    ///
    /// # Safety
    ///
    /// As for [`Heap::retire_slow`].
    #[cold]
    pub(super) unsafe fn retire_without_page<P: Policy>(
        &self,
        engine: &Engine<P>,
        record: Option<&Record>,
        buffer: Option<&ThreadBuffer>,
        object: RetireRequest,
        on_no_page: OnNoPage,
    ) -> Result<(), NoPage> {
        // A thread without a record may still be inside a section.
        let may_block = on_no_page != OnNoPage::Fail && !self.frees_on_demand();
        if may_block && record.is_some() && self.waits_for_grace_period(engine) {
            // SAFETY: the grace period has ended, the object is the caller's, and nothing else will
            // free it.
            unsafe { self.free_one(object.slot) };
            return Ok(());
        }
        if on_no_page != OnNoPage::BlockOrCall {
            return Err(NoPage);
        }
        // SAFETY: the caller's promise.
        let bytes = unsafe { self.free_by_callback(engine, object) };
        if let (Some(record), Some(buffer)) = (record, buffer) {
            self.charge_section_for_callback(buffer, record, bytes);
        }
        Ok(())
    }

    /// Waits for a grace period, if the calling thread may. Returns whether it has done so.
    fn waits_for_grace_period<P: Policy>(&self, engine: &Engine<P>) -> bool {
        self.may_wait(engine)
            && engine.wait_for(engine.start(), thread::token(), None, Haste::Normal)
                == Waited::Ended
    }

    /// # Safety
    ///
    /// There are no readers of the object, which is the caller's.
    unsafe fn free_one(&self, object: Slot) {
        self.inline_waits.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        let panicked = user_code::panics(self.domain, || unsafe { object.free() });
        self.panicked
            .fetch_add(u64::from(panicked), Ordering::Relaxed);
        self.freed_inline.fetch_add(1, Ordering::Relaxed);
    }

    /// Frees an object by a callback, or leaks it if there is no memory for that either. Returns
    /// the bytes that are then unreclaimed.
    ///
    /// # Safety
    ///
    /// As for [`Heap::retire_slow`].
    unsafe fn free_by_callback<P: Policy>(
        &self,
        engine: &Engine<P>,
        object: RetireRequest,
    ) -> usize {
        let bytes = object.bytes.saturating_add(CALLBACK_BYTES);
        let object = object.slot;
        let around = self.on_demand.get().copied();
        self.callbacks.note_queued(bytes);
        let callbacks = Arc::clone(&self.callbacks);
        let run = move |engine: &Engine<P>| {
            let mut left = Some(object);
            let mut free = || {
                let Some(object) = left.take() else { return };
                let _done = Done {
                    callbacks: &callbacks,
                    process: fork::process(),
                    bytes,
                };
                // SAFETY: a grace period after the retire, once, and on a thread that may free it,
                // by the caller's promise.
                unsafe { object.free() };
            };
            match around {
                Some(around) => call_around(engine, around, &mut free),
                None => free(),
            }
            if left.is_some() {
                callbacks.note_left(bytes);
            }
        };
        // SAFETY: the engine of a domain stays where it is.
        let queued = unsafe { engine.try_call(run) };
        if !queued {
            self.callbacks.note_gone(bytes);
            self.leaked.fetch_add(1, Ordering::Relaxed);
            #[cfg(feature = "tracing")]
            user_code::tell(self.domain, || {
                tracing::error!(
                    "out of memory for tracking a retired object, and waiting is impossible here: the object is never freed"
                );
            });
        }
        bytes
    }
}

/// Counts an object as freed by its callback, even if its destructor panics. If the destructor
/// forks, nothing is counted in the child.
struct Done<'a> {
    callbacks: &'a OomCallbacks,
    process: fork::Process,
    bytes: usize,
}

impl Drop for Done<'_> {
    fn drop(&mut self) {
        if fork::process() == self.process {
            self.callbacks.note_freed(self.bytes);
        }
    }
}
