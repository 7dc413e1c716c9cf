//! Deferred frees of blocks of `malloc()`.

use crate::{
    callback::{self, Head},
    domain::{Domain, resolve},
    ffi::{Errno, check, done},
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

/// Frees for a thread that cannot get a buffer, as if there were no page. May wait for as long as
/// readers stay in their sections.
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
            (Some(buffer), Some(place)) => {
                retire_to(buffer, place, OnNoPage::Block).map_or(-libc::ENOMEM, |()| 0)
            }
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
                    return done(|| check_queued(true));
                }
                if retire_to(buffer, place, OnNoPage::Fail).is_err() {
                    let offset = head.addr() - block.addr();
                    return done(|| {
                        callback::free_after_grace_period(resolve(ptr::null()), head, offset);
                        Ok(())
                    });
                }
                0
            }
            _ => stillpoint_domain_kvfree_head(ptr::null_mut(), block, head),
        }
    }
}

/// If a bug makes the slow path panic, the process aborts, because nothing may unwind to C.
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

/// Refuses a block whose head is queued for a function.
fn check_queued(queued: bool) -> Result<(), Errno> {
    check(
        !queued,
        libc::EBUSY,
        "kvfree_rcu() with a head that is queued: it waits for its function to be called",
    )
}

/// Calls free() with the block after a grace period: kvfree_rcu() with one argument. Takes a few
/// nanoseconds; now and then it ends a grace period and frees older blocks. Outside of sections, it
/// waits for up to a second if readers hold up more than the domain's budget, and for a whole grace
/// period, however long, if there is no memory to track the block. Not for signal handlers. NULL
/// does nothing. The budget and the statistics count the block's malloc_usable_size(), and nothing
/// that it points to.
///
/// -ENOMEM inside a section or a callback, where it cannot wait, if there is no memory to track the
/// block, which is then still the caller's.
///
/// # Safety
///
/// The domain is NULL or alive. The block came from malloc() or its kin; readers that begin later
/// cannot find it; nothing else frees it, and only readers whose sections have begun use it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_kvfree(
    domain: *mut Domain,
    block: *mut c_void,
) -> c_int {
    done(|| {
        let Some(block) = NonNull::new(block) else {
            return Ok(());
        };
        // SAFETY: the caller's promise.
        unsafe { retire(domain, block, OnNoPage::Block) }.map_err(|_| Errno(libc::ENOMEM))
    })
}

/// Frees a block like stillpoint_domain_kvfree(), but uses the head in it to track it if memory is
/// short: kvfree_rcu() with two arguments. Never fails for lack of memory and never waits for it.
/// -EINVAL if the head is not in the first 4,096 bytes of the block; -EBUSY if it is queued for a
/// function, if detected (x86-64; by stillpoint_kvfree() in a debug build only).
///
/// # Safety
///
/// The conditions of stillpoint_domain_kvfree() hold, and the head is in the block and in no queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_kvfree_head(
    domain: *mut Domain,
    block: *mut c_void,
    head: *mut Head,
) -> c_int {
    done(|| {
        let Some(block) = NonNull::new(block) else {
            return Ok(());
        };
        let offset = head.addr().wrapping_sub(block.as_ptr().addr());
        check(
            offset < callback::LARGEST_OFFSET,
            libc::EINVAL,
            "kvfree_rcu() with a head that does not lie in the first 4096 bytes of its block",
        )?;
        // SAFETY: the caller's promise.
        unsafe {
            check_queued(callback::is_queued(head))?;
            if retire(domain, block, OnNoPage::Fail).is_err() {
                callback::free_after_grace_period(resolve(domain), head, offset);
            }
        }
        Ok(())
    })
}
