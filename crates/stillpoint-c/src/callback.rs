//! Functions that run after a grace period.

use crate::{
    border::{guarded, misuse},
    domain::{Domain, named},
};
use std::{ffi::c_int, mem, ptr::NonNull};
use stillpoint::CallbackHead;

/// `struct stillpoint_head`: the library's own head, and what is to be called.
#[derive(Debug)]
#[repr(C)]
pub struct Head {
    link: CallbackHead,
    function: Option<unsafe extern "C" fn(*mut Head)>,
}

const _: () = assert!(size_of::<Head>() == 4 * size_of::<usize>());

/// What is called: `stillpoint_function`. It may not unwind.
pub type Function = Option<unsafe extern "C" fn(*mut Head)>;

/// Runs the function of a head, which may free it.
unsafe fn run(link: NonNull<CallbackHead>) {
    let head = link.cast::<Head>().as_ptr();
    // SAFETY: `stillpoint_domain_call` queued it as the first field of a head with a function; it is the caller's again.
    unsafe {
        if let Some(function) = mem::take(&mut (*head).function) {
            function(head);
        }
    }
}

/// Has the function called with the head on the domain's service thread after a grace period: call_rcu(). Allocates nothing (the first
/// call starts the service thread); does not block; may be called inside sections and callbacks, not in signal handlers.
///
/// -EINVAL for a null head or function.
///
/// # Safety
///
/// The domain is NULL or alive. The head is in no queue, and the library's until the function is called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_call(domain: *mut Domain, head: *mut Head, function: Function) -> c_int {
    guarded(|| {
        let (Some(place), Some(_)) = (NonNull::new(head), function) else {
            return Err(misuse(libc::EINVAL, "stillpoint_call() with a null head or function"));
        };
        // SAFETY: the caller's promise.
        unsafe {
            (&raw mut (*head).function).write(function);
            named(domain).call_head(place.cast(), run);
        }
        Ok(0)
    })
}

/// A head of a block that is to be freed lies so far into it at most.
pub(crate) const LARGEST_OFFSET: usize = 4096;

/// Has the block freed in which the head lies `offset` bytes from the start.
///
/// # Safety
///
/// The head lies there, in a block of `malloc()` that is given up, and is in no queue.
pub(crate) unsafe fn free_later(domain: &stillpoint::Domain, head: *mut Head, offset: usize) {
    unsafe fn free(link: NonNull<CallbackHead>) {
        let head = link.cast::<Head>().as_ptr();
        // SAFETY: `free_later` wrote the offset in the function's place, and was given the block.
        unsafe {
            let offset = (&raw const (*head).function).cast::<usize>().read();
            libc::free(head.byte_sub(offset).cast());
        }
    }
    // SAFETY: the caller's promise.
    unsafe {
        (&raw mut (*head).function).cast::<usize>().write(offset);
        domain.call_head(NonNull::new_unchecked(head).cast(), free);
    }
}
