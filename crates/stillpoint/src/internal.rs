//! What Stillpoint's other crates need beyond the interface of this one. Not part of the stable
//! interface. In models, `internal_model.rs` takes its place.

pub use crate::rcu::{Kept, epoch};

use crate::{
    Destructor, Histogram,
    gp::{Cookie, Haste, Waited},
    kvfree::RetireRequest,
    platform::{clock::Nanos, thread as platform_thread, user_code},
    rcu::{self, Domain, Section, global, thread},
    tasks_trace::TraceDomain,
};
use std::sync::Arc;

/// Makes a histogram from the words of a statistics page. Returns `None` if they have another
/// number of buckets.
#[must_use]
pub fn histogram(sum: u64, buckets: &[u64]) -> Option<Histogram> {
    Histogram::from_parts(sum, buckets)
}

/// Returns for how long readers have stalled the oldest grace period of a domain, in nanoseconds; 0
/// while none is stalled.
#[must_use]
pub fn stalled_for(domain: &Domain) -> Nanos {
    domain.engine().stalled_for()
}

/// Returns whether `section` is one of the global domain.
#[inline(always)]
pub fn is_global(section: &impl Section) -> bool {
    rcu::is_global(section)
}

/// Returns whether `section` is one of `domain`, or of the global domain for `None`.
#[inline(always)]
pub fn is_of(section: &impl Section, domain: Option<&Kept>) -> bool {
    match domain {
        Some(domain) => section.domain_id() == domain.id(),
        None => rcu::is_global(section),
    }
}

/// Returns the domain as the [`TraceDomain`] that it was made as.
pub fn trace_domain(domain: &Domain) -> Option<&TraceDomain> {
    domain.core().is_trace().then(|| TraceDomain::of(domain))
}

/// Returns the number of a domain.
pub fn domain_id(domain: &Domain) -> u64 {
    domain.id()
}

/// Returns whether the calling thread may wait for grace periods and callbacks of the global
/// domain: not inside one of either.
pub fn can_wait() -> bool {
    !global().is_reading() && !user_code::runs_for(global().id())
}

/// Waits until a grace period has ended, or until `deadline`. Returns whether it has ended: false
/// also if a section of the calling thread holds it up.
pub fn wait_until(domain: &Domain, cookie: Cookie, deadline: Nanos) -> bool {
    let me = platform_thread::token();
    domain
        .engine()
        .wait_for(cookie, me, Some(deadline), Haste::Normal)
        == Waited::Ended
}

/// Drops a reference after a grace period, as [`Domain::retire`] frees an object.
pub fn retire_shared<T: Send + Sync + 'static>(domain: &Domain, object: Arc<T>) {
    // SAFETY: the reference is given up here, and may be dropped on any thread.
    unsafe { thread::retire(domain.core(), RetireRequest::shared(object)) };
}

/// [`Domain::retire_with`], for a `how` that runs no user code and takes no lock for long: it is
/// called wherever the block of a retired object would be freed, most often on the retiring thread.
///
/// # Safety
///
/// As there.
#[inline]
pub unsafe fn retire_in_place(domain: &Domain, object: *mut u8, how: &'static Destructor) {
    // SAFETY: the caller's promise.
    unsafe { thread::retire(domain.core(), RetireRequest::with(object, how).plain()) };
}

/// Returns the bytes that an object owns, by `weigh`, which is user code. Returns 0 if it panics,
/// which is counted, and inside another such call.
pub fn weigh(domain: &Domain, weigh: impl FnOnce() -> usize) -> usize {
    domain.core().weigh(weigh)
}

/// [`Domain::retire_with`], for an object that owns `heap_bytes` bytes beside those of `how`, which
/// count as in [`Domain::retire_weighed`]. If `heap_bytes` is `None`, what it owns is not known, and it
/// counts as in [`Domain::retire`].
///
/// # Safety
///
/// As for [`Domain::retire_with`].
#[inline]
pub unsafe fn retire_owning(
    domain: &Domain,
    object: *mut u8,
    how: &'static Destructor,
    heap_bytes: Option<usize>,
) {
    let object = RetireRequest::with(object, how);
    let object = match heap_bytes {
        Some(heap_bytes) => object.owning(heap_bytes),
        None => object.unweighed(),
    };
    // SAFETY: the caller's promise.
    unsafe { thread::retire(domain.core(), object) };
}

/// Like [`Domain::call`], but drops the callback and returns false if out of memory.
pub fn try_call(domain: &Domain, callback: impl FnOnce() + Send + 'static) -> bool {
    domain.engine().call_if_memory(callback)
}

/// Returns whether a grace period is known to have ended. Only a load: it ends none, as
/// [`Domain::poll`] may.
pub fn has_ended(domain: &Domain, cookie: Cookie) -> bool {
    domain.core().has_ended(cookie)
}
