//! Deferred frees of blocks of `malloc()`.

use crate::{
    callback::{self, Head},
    domain::{Domain, resolve},
    ffi::{catch_panic, misuse},
    reader::may_register,
    thread::cache_buffer,
};
use std::{
    ffi::{c_int, c_void},
    ptr::{self, NonNull},
};
use stillpoint::raw::{self, OnNoPage};

/// # Safety
///
/// As for [`stillpoint_domain_kvfree`].
unsafe fn retire(
    domain: *mut Domain,
    block: NonNull<c_void>,
    on_no_page: OnNoPage,
) -> Result<(), raw::NoMemory> {
    // SAFETY: a block of `malloc()`, by the caller's promise.
    let bytes = unsafe { libc::malloc_usable_size(block.as_ptr()) };
    // SAFETY: the caller's promise.
    let used = unsafe { resolve(domain) };
    if !may_register(used) {
        return free_at_once(used, block, on_no_page);
    }
    // SAFETY: the caller's promise.
    let retired = unsafe { raw::retire_malloced(used, block.cast(), bytes, on_no_page) };
    if domain.is_null() {
        cache_buffer();
    }
    retired
}

/// For a thread that has no buffer and cannot be given one: as where there is no page. It may wait
/// as long as readers read.
#[cold]
fn free_at_once(
    domain: &stillpoint::Domain,
    block: NonNull<c_void>,
    on_no_page: OnNoPage,
) -> Result<(), raw::NoMemory> {
    if on_no_page == OnNoPage::Fail
        || raw::in_callback(domain)
        || raw::synchronize(domain, false).is_err()
    {
        return Err(raw::NoMemory);
    }
    // SAFETY: a block of `malloc()` that is ours to free, and a grace period has ended.
    unsafe { libc::free(block.as_ptr()) };
    Ok(())
}

/// A thread's buffer of the global domain's deferred frees: `struct stillpoint_thread_buffer`.
#[derive(Debug)]
#[repr(transparent)]
pub struct ThreadBuffer(raw::ThreadBuffer);

/// The fast path of stillpoint_kvfree(block); not for programs.
/// cbindgen:postfix=STILLPOINT_NO_STUB_
///
/// # Safety
///
/// As for stillpoint_domain_kvfree(); the buffer is NULL or the calling thread's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_kvfree_buffered(
    buffer: *const ThreadBuffer,
    block: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        match (buffer.as_ref(), NonNull::new(block)) {
            (Some(buffer), Some(place)) => match retire_to(buffer, place, OnNoPage::Block) {
                Ok(()) => 0,
                Err(_) => -libc::ENOMEM,
            },
            _ => stillpoint_domain_kvfree(ptr::null_mut(), block),
        }
    }
}

/// The fast path of stillpoint_kvfree(block, field); not for programs.
/// cbindgen:postfix=STILLPOINT_NO_STUB_
///
/// # Safety
///
/// As for stillpoint_domain_kvfree_head(); the buffer is NULL or the calling thread's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_kvfree_head_buffered(
    buffer: *const ThreadBuffer,
    block: *mut c_void,
    head: *mut Head,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        match (buffer.as_ref(), NonNull::new(block)) {
            (Some(buffer), Some(place))
                if head.addr().wrapping_sub(block.addr()) < callback::LARGEST_OFFSET =>
            {
                if cfg!(debug_assertions) && callback::is_queued(head) {
                    return -queued();
                }
                if retire_to(buffer, place, OnNoPage::Fail).is_err() {
                    return catch_panic(|| {
                        callback::free_after_grace_period(
                            resolve(ptr::null()),
                            head,
                            head.addr() - block.addr(),
                        );
                        Ok(0)
                    });
                }
                0
            }
            _ => stillpoint_domain_kvfree_head(ptr::null_mut(), block, head),
        }
    }
}

/// Where it takes more than an append it may panic, if the library is at fault; the process then
/// ends, as nothing may unwind to C.
///
/// # Safety
///
/// As for [`stillpoint_domain_kvfree`]; the buffer is the calling thread's.
#[inline(always)]
unsafe fn retire_to(
    buffer: &ThreadBuffer,
    block: NonNull<c_void>,
    on_no_page: OnNoPage,
) -> Result<(), raw::NoMemory> {
    // SAFETY: the caller's promise.
    unsafe {
        raw::retire_malloced_to(
            &buffer.0,
            block.cast(),
            libc::malloc_usable_size(block.as_ptr()),
            on_no_page,
        )
    }
}

/// A block is not freed under a head that waits for a function.
fn queued() -> c_int {
    misuse(
        libc::EBUSY,
        "kvfree_rcu() with a head that is queued: it waits for its function to be called",
    )
}

/// Calls free() with the block after a grace period: kvfree_rcu() with one argument. A few
/// nanoseconds; now and then it ends a grace period and frees older blocks, and where readers hold
/// up more than the domain's budget it waits outside sections, a second at most. Where there is no
/// memory to track the block, it waits outside sections for a grace period, however long readers
/// hold that up. Not in signal handlers. NULL does nothing. For the budget and the statistics the
/// block counts for its malloc_usable_size(), and what it points to for nothing.
///
/// -ENOMEM if there is no memory to track the block and no way to wait, inside a section or a
/// callback; it is then still the caller's.
///
/// # Safety
///
/// The domain is NULL or alive. The block came from malloc() or its kin; readers that begin from
/// now on cannot find it; nothing else frees it, and only readers whose sections have begun use it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_kvfree(
    domain: *mut Domain,
    block: *mut c_void,
) -> c_int {
    catch_panic(|| {
        let Some(block) = NonNull::new(block) else {
            return Ok(0);
        };
        // SAFETY: the caller's promise.
        unsafe { retire(domain, block, OnNoPage::Block) }
            .map(|()| 0)
            .map_err(|_| libc::ENOMEM)
    })
}

/// stillpoint_domain_kvfree() for a block with a head in it, which tracks it if there is no memory:
/// kvfree_rcu() with two arguments. Never fails when out of memory and never waits for it. -EINVAL
/// if the head is not in the first 4096 bytes of the block; -EBUSY if it waits for a function, as
/// far as that can be seen (x86-64; by stillpoint_kvfree() in a library built for debugging only).
///
/// # Safety
///
/// As for the other one; the head is in the block and in no queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_kvfree_head(
    domain: *mut Domain,
    block: *mut c_void,
    head: *mut Head,
) -> c_int {
    catch_panic(|| {
        let Some(block) = NonNull::new(block) else {
            return Ok(0);
        };
        let offset = head.addr().wrapping_sub(block.as_ptr().addr());
        if offset >= callback::LARGEST_OFFSET {
            return Err(misuse(
                libc::EINVAL,
                "kvfree_rcu() with a head that does not lie in the first 4096 bytes of its block",
            ));
        }
        // SAFETY: the caller's promise.
        unsafe {
            if callback::is_queued(head) {
                return Err(queued());
            }
            if retire(domain, block, OnNoPage::Fail).is_err() {
                callback::free_after_grace_period(resolve(domain), head, offset);
            }
        }
        Ok(0)
    })
}
