//! Functions that run after a grace period.

use crate::{
    domain::{Domain, resolve},
    ffi::{Errno, check, done, stillpoint_reports_misuse},
};
use std::{ffi::c_int, mem, ptr::NonNull};
use stillpoint::{CallbackHead, raw};

/// `struct stillpoint_head`: the library's own head, and the function to call.
#[derive(Debug)]
#[repr(C)]
pub struct Head {
    link: CallbackHead,
    function: Option<unsafe extern "C" fn(*mut Head)>,
}

const _: () = assert!(size_of::<Head>() == 4 * size_of::<usize>());

/// The function that is called: `stillpoint_function`. It must not unwind.
pub type Function = Option<unsafe extern "C" fn(*mut Head)>;

/// Runs the function of a head, which may free it.
unsafe fn run(link: NonNull<CallbackHead>) {
    let head = link.cast::<Head>().as_ptr();
    // SAFETY: `stillpoint_domain_call` queued it as the first field of a head with a marked
    // function; it is the caller's again.
    unsafe {
        let marked = (&raw mut (*head).function).cast::<usize>();
        let function = marked.replace(0) ^ mark(head);
        if let Some(function) = mem::transmute::<usize, Function>(function) {
            function(head);
        }
    }
}

/// [`run`], at one address.
static RUN: unsafe fn(NonNull<CallbackHead>) = run;

/// The mark of a queued head's function, in bits that no function's address uses. It depends on the
/// head's address, so a copy of a queued head does not look queued.
fn mark(head: *const Head) -> usize {
    if cfg!(target_pointer_width = "64") {
        (head.addr().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 49 | 1) << 48
    } else {
        0
    }
}

/// Returns whether the head looks queued: its library function is [`run`], and its own function has
/// the head's mark. A head that was never written, or whose function has run, does not. Always
/// false on processors other than x86-64.
///
/// # Safety
///
/// The head can be read, though perhaps nothing has been written there.
pub(crate) unsafe fn is_queued(head: *const Head) -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let (run, marked): (usize, usize);
        // SAFETY: two loads of readable memory, by the caller's promise; in assembly, because it
        // may be uninitialised.
        unsafe {
            std::arch::asm!(
                "mov {run}, [{head} + {run_at}]", "mov {marked}, [{head} + {function_at}]",
                head = in(reg) head, run = out(reg) run, marked = out(reg) marked,
                run_at = const raw::FUNCTION_OFFSET, function_at = const mem::offset_of!(Head, function),
                options(nostack, readonly, preserves_flags),
            );
        }
        run == RUN as usize && marked >> 48 == mark(head) >> 48
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    {
        let _ = head;
        false
    }
}

/// Calls the function with the head on the domain's service thread after a grace period:
/// call_rcu(). Allocates nothing (the first call starts the service thread); does not block; may be
/// called inside sections and callbacks, not in signal handlers.
///
/// -EINVAL for a null head or function; -EBUSY for a head that is queued in any domain, if detected
/// (x86-64).
///
/// # Safety
///
/// The domain is NULL or alive. The head is the library's until the function is called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_call(
    domain: *mut Domain,
    head: *mut Head,
    function: Function,
) -> c_int {
    // SAFETY: the caller's promise.
    done(|| unsafe { call(domain, head, function, |head| is_queued(head)) })
}

/// Like stillpoint_domain_call(), for a head that may be a copy of a queued one, as in
/// <stillpoint/rcu.hpp>; not for programs. If misuse is reported (in a debug build, or with
/// STILLPOINT_DEBUG in the environment), a head that looks queued is searched for among all pending
/// callbacks.
///
/// # Safety
///
/// As for stillpoint_domain_call().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_call_copied(
    domain: *mut Domain,
    head: *mut Head,
    function: Function,
) -> c_int {
    // SAFETY: the caller's promise.
    let waits = |head: *const Head| unsafe {
        stillpoint_reports_misuse()
            && is_queued(head)
            && raw::is_queued(resolve(domain), head.cast())
    };
    // SAFETY: the caller's promise.
    done(|| unsafe { call(domain, head, function, waits) })
}

/// # Safety
///
/// As for [`stillpoint_domain_call`].
unsafe fn call(
    domain: *mut Domain,
    head: *mut Head,
    function: Function,
    is_queued: impl FnOnce(*const Head) -> bool,
) -> Result<(), Errno> {
    check(
        !head.is_null() && function.is_some(),
        libc::EINVAL,
        "stillpoint_call() with a null head or function",
    )?;
    check(
        !is_queued(head),
        libc::EBUSY,
        "stillpoint_call() with a head that is queued: it waits for its function to be called",
    )?;
    // SAFETY: the caller's promise; not null by the check.
    unsafe {
        (&raw mut (*head).function)
            .cast::<usize>()
            .write(mem::transmute::<Function, usize>(function) ^ mark(head));
        resolve(domain).call_head(NonNull::new_unchecked(head).cast(), RUN);
    }
    Ok(())
}

/// Bound in bytes on the offset of a head in its block.
pub(crate) const LARGEST_OFFSET: usize = 4096;

/// Frees the block in which the head lies `offset` bytes from the start.
///
/// # Safety
///
/// The head lies there, in a block of `malloc()` that is given up, and is in no queue.
pub(crate) unsafe fn free_after_grace_period(
    domain: &stillpoint::Domain,
    head: *mut Head,
    offset: usize,
) {
    unsafe fn free(link: NonNull<CallbackHead>) {
        let head = link.cast::<Head>().as_ptr();
        // SAFETY: `free_after_grace_period` wrote the offset in the function's place, and was given
        // the block.
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
