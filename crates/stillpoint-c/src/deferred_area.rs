//! Areas of an arena that are freed after a grace period.

use crate::ffi::misuse;
use std::{
    cell::Cell,
    ptr::NonNull,
    thread,
    time::{Duration, Instant},
};
use stillpoint::CallbackHead;
use stillpoint_vmap::{Arena, Error};

/// Pause before retrying to free an area, if there was no memory to track it.
const RETRY_INTERVAL: Duration = Duration::from_millis(1);

#[repr(C)]
struct DeferredArea {
    link: CallbackHead,
    arena: Arena,
    start: *const u8,
    queued: Instant,
}

/// Frees an area after a grace period of the arena's domain.
///
/// # Safety
///
/// As for [`stillpoint_arena_free_area_rcu`](crate::arena::stillpoint_arena_free_area_rcu): the
/// area starts there, and is the caller's.
pub(crate) unsafe fn free_after_grace_period(arena: &Arena, start: *const u8) {
    let area = DeferredArea {
        link: CallbackHead::new(),
        arena: arena.clone(),
        start,
        queued: Instant::now(),
    };
    // SAFETY: made just now, and given up here.
    unsafe { defer(Box::into_raw(Box::new(area))) };
}

thread_local! {
    /// When the thread's last sleep ended.
    static LAST_SLEEP: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Sleeps at most once for all callbacks queued before the last sleep ended, because the domain's
/// other callbacks wait meanwhile.
fn sleep_before_retry(queued: Instant) {
    if LAST_SLEEP.get().is_none_or(|ended| ended < queued) {
        thread::sleep(RETRY_INTERVAL);
        LAST_SLEEP.set(Some(Instant::now()));
    }
}

/// # Safety
///
/// The box is the caller's, which gives it up.
unsafe fn defer(deferred: *mut DeferredArea) {
    // SAFETY: the caller's promise. What is queued has a handle of the arena, too, but may be freed
    // before the call returns.
    let arena = unsafe { (*deferred).arena.clone() };
    // SAFETY: a box's address is not null; the head is its first field, and an arena may be used on
    // any thread.
    unsafe {
        arena
            .domain()
            .call_head(NonNull::new_unchecked(deferred).cast(), free_deferred)
    };
}

unsafe fn free_deferred(link: NonNull<CallbackHead>) {
    let deferred = link.cast::<DeferredArea>().as_ptr();
    // SAFETY: `defer` gave it up to this, as the first field of a box, and it has been called for:
    // it is this function's alone.
    let DeferredArea {
        arena,
        start,
        queued,
        ..
    } = unsafe { &mut *deferred };
    // SAFETY: the promise of `stillpoint_arena_free_area_rcu`'s caller.
    match unsafe { arena.free_raw(*start) } {
        Ok(()) => {}
        Err(Error::System { .. }) => {
            // There is no memory to track the area, and nothing signals when there is: try again
            // after a sleep and another grace period.
            sleep_before_retry(*queued);
            *queued = Instant::now();
            // SAFETY: this function's alone, as above, and not touched after this.
            return unsafe { defer(deferred) };
        }
        Err(_) => {
            misuse(
                libc::EFAULT,
                "stillpoint_arena_free_area_rcu() of an area that was freed otherwise before its grace period ended",
            );
        }
    }
    // SAFETY: a box, which is in no queue any more.
    drop(unsafe { Box::from_raw(deferred) });
}
