//! The callback of a map that moves: on the domain's service thread, a slice after each grace period.

use crate::{
    core::Core,
    growth::{HasTables, Moves},
    reclaim::Later,
    section::{Pinned, Writer},
};
use std::{cell::UnsafeCell, ptr::NonNull, sync::Arc};
use stillpoint::{
    Domain, global,
    internal::{Kept, try_call},
};
use stillpoint_platform::memory::is_there_for;

/// A map without its domain, whose tables the service thread moves.
pub trait Driven: HasTables + for<'a> Moves<&'a Later<'a>> + Send + Sync + 'static {}

impl<C: HasTables + for<'a> Moves<&'a Later<'a>> + Send + Sync + 'static> Driven for C {}

/// What a map and its callback share.
#[derive(Debug)]
pub struct Shared<C = Core> {
    pub core: C,
    /// `None`: the global one. Used by the callback while it drives, and taken away after the core
    /// has been closed: a callback that is queued keeps no domain open.
    pub domain: UnsafeCell<Option<Kept>>,
}

// SAFETY: the cell is used by one thread at a time, as it says.
unsafe impl<C: Sync> Sync for Shared<C> {}

impl<C: HasTables> Shared<C> {
    /// Creates one in `domain` (`None`: the global one) whose table has room for `entries`. If `stays`, it
    /// never shrinks below that. Returns `None` without memory.
    pub fn of(domain: Option<Kept>, entries: usize, stays: bool) -> Option<Arc<Self>> {
        let core = C::new(entries, stays)?;
        let domain = UnsafeCell::new(domain);
        // `Arc::new` ends the process without memory; its two counts lie beside what is shared.
        is_there_for(size_of::<Self>() + 2 * size_of::<usize>())
            .then(|| Arc::new(Self { core, domain }))
    }
}

/// The state of a map that has been dropped: no other thread uses it. Dropping this frees the tables and releases the
/// domain, even if a queued callback shares the state.
#[derive(Debug)]
pub struct Taken<C: HasTables = Core>(Arc<Shared<C>>);

impl<C: HasTables> Taken<C> {
    /// Keeps the callback of a dropped map from driving again. Waits for a slice of the callback, if one is under way.
    ///
    /// # Safety
    ///
    /// No other thread uses the map, but the callback; nor does the caller, but by the result.
    pub unsafe fn of(shared: Arc<Shared<C>>) -> Self {
        shared.core.driving.close();
        Self(shared)
    }

    /// Returns the core, of which only this frees anything.
    pub fn pinned(&self) -> &Pinned<C> {
        // SAFETY: no other thread has the map, and the callback has ended.
        unsafe { Pinned::of(&self.0.core) }
    }
}

impl<C: HasTables> Drop for Taken<C> {
    fn drop(&mut self) {
        let Shared { core, domain } = &*self.0;
        // SAFETY: the promise of `of`. A callback that has another share is never to drive again.
        unsafe {
            core.free_tables();
            // It goes when its last slot is free.
            drop(core.arena().and_then(|arena| arena.take_shared()));
            drop((*domain.get()).take());
        }
    }
}

impl<C: Driven> Shared<C> {
    /// Asks the service thread to move the table.
    ///
    /// # Safety
    ///
    /// Of an `Arc`, which is there; the domain is the map's.
    pub unsafe fn queue_driver(this: NonNull<Self>, domain: &Domain) {
        let this = this.as_ptr().cast_const();
        // SAFETY: the caller's promise.
        let shared = unsafe {
            Arc::increment_strong_count(this);
            Arc::from_raw(this)
        };
        drive_later(domain, shared);
    }
}

/// Without memory a later change of the map asks again.
#[cold]
fn drive_later<C: Driven>(domain: &Domain, shared: Arc<Shared<C>>) {
    let kept = Arc::clone(&shared);
    let queued = try_call(domain, move || {
        if !shared.core.driving.begin_queued() {
            return;
        }
        /// Also if it panics: the drop of the map waits for it.
        struct End<'a, C: Driven>(&'a C);
        impl<C: Driven> Drop for End<'_, C> {
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
        // SAFETY: inside a section of the map's domain, which frees what `later` gets; and this drives.
        let again = unsafe { Writer::of(Pinned::of(&shared.core), &later) }.drive();
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
