//! Domains, as C sees them.

use crate::border::{guarded, guarded_or, misuse};
use std::{ffi::c_int, ptr};
use stillpoint::{Cookie as Named, raw, tasks_trace};

/// A domain: `struct stillpoint_domain`. A pointer to one is a pointer to a handle that is never moved.
#[derive(Debug)]
#[repr(transparent)]
pub struct Domain(pub(crate) stillpoint::Domain);

/// The number of a cookie: `stillpoint_cookie`.
pub type Cookie = u64;

pub(crate) fn pointer(domain: &stillpoint::Domain) -> *mut Domain {
    ptr::from_ref(domain).cast_mut().cast()
}

/// The domain that C means: null is the global one.
///
/// # Safety
///
/// Null, or what this file gave and has not destroyed for as long as the reference is used.
#[inline]
pub(crate) unsafe fn named<'a>(domain: *const Domain) -> &'a stillpoint::Domain {
    // SAFETY: the caller's promise.
    match unsafe { domain.as_ref() } {
        Some(domain) => &domain.0,
        None => stillpoint::global(),
    }
}

pub(crate) const INSIDE: &str = "a wait for a grace period, for callbacks or for deferred frees inside a read-side critical section, a callback \
                                 or an online QSBR reader of the same domain, which would be a wait for itself: leave that first";

fn waited(outcome: Result<(), raw::Deadlock>) -> Result<c_int, c_int> {
    outcome.map(|()| 0).map_err(|_| misuse(libc::EDEADLK, INSIDE))
}

/// The global domain: what a domain that is NULL means. Never destroyed.
#[unsafe(no_mangle)]
pub extern "C" fn stillpoint_global() -> *mut Domain {
    guarded_or(ptr::null_mut(), || pointer(stillpoint::global()))
}

/// The global domain of readers that sleep: see stillpoint_trace_read_lock(). Never destroyed.
#[unsafe(no_mangle)]
pub extern "C" fn stillpoint_trace_global() -> *mut Domain {
    guarded_or(ptr::null_mut(), || pointer(tasks_trace::global()))
}

/// A domain of one's own (what the kernel's SRCU is used for), with a budget of 8 MiB. NULL if it cannot be made.
#[unsafe(no_mangle)]
pub extern "C" fn stillpoint_domain_new() -> *mut Domain {
    guarded_or(ptr::null_mut(), || Box::into_raw(Box::new(Domain(stillpoint::Domain::new()))))
}

/// The same, with readers that fence, so that its grace periods make no system call and interrupt nobody.
#[unsafe(no_mangle)]
pub extern "C" fn stillpoint_domain_new_fencing() -> *mut Domain {
    guarded_or(ptr::null_mut(), || Box::into_raw(Box::new(Domain(stillpoint::Domain::with_fences()))))
}

/// Destroys a domain of one's own: what waits in it is called and freed, which may block for as long as callbacks take.
///
/// -EDEADLK inside a section of it, -EBUSY if another thread is seen inside one, -EINVAL for a global domain; it is then still there.
/// Nobody may be using it otherwise, or afterwards. NULL does nothing.
///
/// # Safety
///
/// The domain came from stillpoint_domain_new() or its like, is used by nobody else, and by nobody afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_destroy(domain: *mut Domain) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        let Some(used) = (unsafe { domain.as_ref() }) else { return Ok(0) };
        if crate::is_global(domain) {
            return Err(misuse(libc::EINVAL, "a global domain cannot be destroyed"));
        }
        if raw::is_reading(&used.0) {
            return Err(misuse(libc::EDEADLK, "stillpoint_domain_destroy() inside a section of that domain"));
        }
        if raw::has_readers(&used.0) {
            return Err(misuse(libc::EBUSY, "stillpoint_domain_destroy() while a thread is inside a section of that domain"));
        }
        // SAFETY: `stillpoint_domain_new` took it out of a box, and the caller gives it up.
        drop(unsafe { Box::from_raw(domain) });
        Ok(0)
    })
}

/// Waits until every section that had begun before has ended: synchronize_rcu(). -EDEADLK inside a section of this domain.
///
/// # Safety
///
/// The domain is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_synchronize(domain: *mut Domain) -> c_int {
    // SAFETY: the caller's promise.
    guarded(|| waited(raw::synchronize(unsafe { named(domain) })))
}

/// The same in haste: looks for up to 50 microseconds before it sleeps. synchronize_rcu_expedited().
///
/// # Safety
///
/// The domain is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_synchronize_expedited(domain: *mut Domain) -> c_int {
    // SAFETY: the caller's promise.
    guarded(|| waited(raw::synchronize_expedited(unsafe { named(domain) })))
}

/// Names the next grace period without starting it: get_state_synchronize_rcu().
///
/// # Safety
///
/// The domain is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_get_state(domain: *mut Domain) -> Cookie {
    // SAFETY: the caller's promise.
    unsafe { named(domain) }.get_state().into_raw()
}

/// Starts a grace period and names it; it ends without a further call: start_poll_synchronize_rcu(). Does not block.
///
/// # Safety
///
/// The domain is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_start_poll(domain: *mut Domain) -> Cookie {
    // SAFETY: the caller's promise.
    let domain = unsafe { named(domain) };
    // Where no service thread can be started it panics after the cookie was taken; one that is only named is as good.
    guarded_or(None, || Some(domain.start_poll())).unwrap_or_else(|| domain.get_state()).into_raw()
}

/// Whether the grace period has ended: poll_state_synchronize_rcu(). Never waits. Inside a section that section counts.
///
/// # Safety
///
/// The domain is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_poll(domain: *mut Domain, cookie: Cookie) -> bool {
    // SAFETY: the caller's promise.
    guarded_or(false, || unsafe { named(domain) }.poll(Named::from_raw(cookie)))
}

/// Waits until the grace period has ended: cond_synchronize_rcu(). -EDEADLK if it waits for a section of the calling thread.
///
/// # Safety
///
/// The domain is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_cond_synchronize(domain: *mut Domain, cookie: Cookie) -> c_int {
    // SAFETY: the caller's promise.
    guarded(|| waited(raw::cond_synchronize(unsafe { named(domain) }, Named::from_raw(cookie), false)))
}

/// The same in haste: cond_synchronize_rcu_expedited().
///
/// # Safety
///
/// The domain is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_cond_synchronize_expedited(domain: *mut Domain, cookie: Cookie) -> c_int {
    // SAFETY: the caller's promise.
    guarded(|| waited(raw::cond_synchronize(unsafe { named(domain) }, Named::from_raw(cookie), true)))
}

/// Waits until every callback that was queued before has been called: rcu_barrier(). -EDEADLK if it would wait for itself: inside a
/// callback, or inside a section that began before one of them was queued.
///
/// # Safety
///
/// The domain is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_barrier(domain: *mut Domain) -> c_int {
    // SAFETY: the caller's promise.
    guarded(|| waited(raw::barrier(unsafe { named(domain) })))
}

/// Waits until everything that was given to kvfree before has been freed: kvfree_rcu_barrier(). -EDEADLK as for the other one.
///
/// # Safety
///
/// The domain is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_kvfree_barrier(domain: *mut Domain) -> c_int {
    // SAFETY: the caller's promise.
    guarded(|| waited(raw::kvfree_barrier(unsafe { named(domain) })))
}

/// How many bytes may wait to be freed before those who add more are slowed down. 8 MiB by default.
///
/// # Safety
///
/// The domain is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_set_budget(domain: *mut Domain, bytes: usize) {
    // SAFETY: the caller's promise.
    guarded_or((), || unsafe { named(domain) }.set_budget(bytes));
}
