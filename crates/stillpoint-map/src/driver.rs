//! The callback of a map that moves: on the domain's service thread, a slice after each grace period.

use crate::{core::Core, reclaim::Later};
use std::{cell::UnsafeCell, sync::Arc};
use stillpoint::{
    Domain, global,
    internal::{Kept, try_call},
};

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

/// Without memory a later change of the map asks again.
#[cold]
pub fn drive_later(domain: &Domain, shared: Arc<Shared>) {
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
