//! The callback of a map that moves: on the domain's service thread, a slice after each grace period.

use crate::{core::Core, reclaim::Later};
use std::{cell::UnsafeCell, ptr::NonNull, sync::Arc};
use stillpoint::{
    Domain, global,
    internal::{Kept, try_call},
};
use stillpoint_platform::memory::is_there_for;

/// What a map and its callback share.
#[derive(Debug)]
pub struct Shared {
    pub core: Core,
    /// `None`: the global one. Used by the callback while it drives, and taken away after the core
    /// has been closed: a callback that is queued keeps no domain open.
    pub domain: UnsafeCell<Option<Kept>>,
}

// SAFETY: the cell is used by one thread at a time, as it says.
unsafe impl Sync for Shared {}

impl Shared {
    /// Makes one of the domain (`None`: the global one), with a table for so many entries, which is
    /// the smallest that it will have if it `stays`. The caller owns it, as an `Arc` does, until
    /// [`end`](Self::end). `None` without memory.
    pub fn try_new(domain: Option<Kept>, entries: usize, stays: bool) -> Option<NonNull<Self>> {
        // `Arc::new` ends the process without it: the counts lie beside what is shared.
        if !is_there_for(size_of::<Self>() + 2 * size_of::<usize>()) {
            return None;
        }
        let made = Arc::new(Self {
            core: Core::new(entries, stays)?,
            domain: UnsafeCell::new(domain),
        });
        NonNull::new(Arc::into_raw(made).cast_mut())
    }

    /// Has the service thread move the table, if it moves.
    ///
    /// # Safety
    ///
    /// From [`try_new`](Self::try_new), and not ended; inside a section of the map's domain, which is
    /// this one.
    #[inline]
    pub unsafe fn queue_driver<'d>(this: NonNull<Self>, domain: impl FnOnce() -> &'d Domain) {
        // SAFETY: the caller's promise.
        if unsafe { this.as_ref().core.wants_driver() } {
            // SAFETY: of an `Arc` that the map owns.
            let shared = unsafe {
                Arc::increment_strong_count(this.as_ptr().cast_const());
                Arc::from_raw(this.as_ptr().cast_const())
            };
            drive_later(domain(), shared);
        }
    }

    /// Frees what the map has beside its entries, and gives it up.
    ///
    /// # Safety
    ///
    /// From [`try_new`](Self::try_new), and closed ([`crate::driving::Driving::close`]). No other
    /// thread uses the map; nor does the caller any more.
    pub unsafe fn end(this: NonNull<Self>) {
        // SAFETY: the caller's promise. A callback that may have another share is never to drive
        // again.
        unsafe {
            let shared = Arc::from_raw(this.as_ptr().cast_const());
            shared.core.free_tables();
            shared.core.close_arena();
            drop((*shared.domain.get()).take());
        }
    }
}

/// Without memory a later change of the map asks again.
#[cold]
fn drive_later(domain: &Domain, shared: Arc<Shared>) {
    let kept = Arc::clone(&shared);
    let queued = try_call(domain, move || {
        if !shared.core.driving.begin() {
            return;
        }
        /// Also if it panics: the drop of the map waits for it.
        struct End<'a>(&'a Core);
        impl Drop for End<'_> {
            fn drop(&mut self) {
                self.0.driving.end();
            }
        }
        let _end = End(&shared.core);
        // SAFETY: this drives. So the map is there, and keeps the domain open.
        let domain = unsafe { &*shared.domain.get() };
        let domain = domain.as_deref().unwrap_or_else(|| global());
        let later = Later::on(domain);
        let section = domain.read_lock();
        // SAFETY: inside a section of the map's domain, and this drives.
        let again = unsafe { shared.core.drive(&later) };
        drop(section);
        drop(later);
        if again {
            drive_later(domain, Arc::clone(&shared));
        }
    });
    if !queued {
        kept.core.driving.give_up();
    }
}
