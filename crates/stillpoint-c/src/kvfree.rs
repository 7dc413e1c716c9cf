//! Deferred frees of blocks of `malloc()`.

use crate::{
    border::{guarded, misuse},
    callback::{self, Head},
    domain::{Domain, named},
};
use std::{
    ffi::{c_int, c_void},
    ptr::NonNull,
};
use stillpoint::raw;

/// # Safety
///
/// As for [`stillpoint_domain_kvfree`].
#[inline]
unsafe fn retire(domain: *mut Domain, block: NonNull<c_void>) -> Result<(), raw::NoMemory> {
    // SAFETY: a block of `malloc()`, by the caller's promise.
    let bytes = unsafe { libc::malloc_usable_size(block.as_ptr()) };
    // SAFETY: the caller's promise.
    unsafe {
        if domain.is_null() {
            raw::retire_malloced_global(block.cast(), bytes)
        } else {
            raw::retire_malloced(named(domain), block.cast(), bytes)
        }
    }
}

/// Has free() called with the block after a grace period: kvfree_rcu() with one argument. A few nanoseconds; now and then it ends a grace
/// period and frees older blocks, and where readers hold up more than the domain's budget it waits outside sections, a second at most.
/// Not in signal handlers. NULL does nothing.
///
/// -ENOMEM if there is no memory to remember the block by and no way to wait, inside a section or a callback; it is then still the caller's.
///
/// # Safety
///
/// The domain is NULL or alive. The block came from malloc() or its kin; readers that begin from now on cannot find it; nobody else
/// frees it, and nobody but readers whose sections have begun uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_kvfree(domain: *mut Domain, block: *mut c_void) -> c_int {
    guarded(|| {
        let Some(block) = NonNull::new(block) else { return Ok(0) };
        // SAFETY: the caller's promise.
        unsafe { retire(domain, block) }.map(|()| 0).map_err(|_| libc::ENOMEM)
    })
}

/// The same for a block with a head in it, by which it is remembered if there is no memory: kvfree_rcu() with two arguments. Never fails
/// for want of memory and never waits for it. -EINVAL if the head is not in the first 4096 bytes of the block.
///
/// # Safety
///
/// As for the other one; the head is in the block and in no queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_kvfree_head(domain: *mut Domain, block: *mut c_void, head: *mut Head) -> c_int {
    guarded(|| {
        let Some(block) = NonNull::new(block) else { return Ok(0) };
        let offset = head.addr().wrapping_sub(block.as_ptr().addr());
        if offset >= callback::LARGEST_OFFSET {
            return Err(misuse(libc::EINVAL, "kvfree_rcu() with a head that does not lie in the first 4096 bytes of its block"));
        }
        // SAFETY: the caller's promise.
        unsafe {
            if retire(domain, block).is_err() {
                callback::free_later(named(domain), head, offset);
            }
        }
        Ok(0)
    })
}
