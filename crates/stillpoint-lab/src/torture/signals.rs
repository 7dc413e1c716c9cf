//! Signal handlers that read in the middle of readers and writers, and the threads that they may
//! run in.

use std::marker::PhantomData;
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::session::{Registered, Session};

/// What the handler calls; null while no signals are sent.
static VISIT: AtomicPtr<&'static (dyn Fn() + Sync)> = AtomicPtr::new(ptr::null_mut());

/// The handler is in place for as long as this lives.
pub struct Handler<'v>(PhantomData<&'v ()>);

impl<'v> Handler<'v> {
    /// Has handlers call `visit`. One at a time; it is dropped when all threads that registered
    /// have deregistered.
    pub fn new(visit: &'v (dyn Fn() + Sync)) -> Self {
        // SAFETY: the reference is used by handlers alone, and those run in threads between
        // `register` and `deregister`, all of them over when this is dropped.
        let visit: &'static (dyn Fn() + Sync) =
            unsafe { mem::transmute::<&(dyn Fn() + Sync), _>(visit) };
        let before = VISIT.swap(Box::into_raw(Box::new(visit)), Ordering::AcqRel);
        assert!(before.is_null(), "one run at a time");
        // SAFETY: the handler touches atomics and calls what may be called in one.
        unsafe {
            let mut action: libc::sigaction = mem::zeroed();
            action.sa_sigaction = handle as extern "C" fn(libc::c_int) as usize;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(libc::SIGUSR1, &raw const action, ptr::null_mut());
        }
        Self(PhantomData)
    }
}

impl Drop for Handler<'_> {
    fn drop(&mut self) {
        let visit = VISIT.swap(ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: from `new`, and no handler runs any more.
        drop(unsafe { Box::from_raw(visit) });
    }
}

extern "C" fn handle(_signal: libc::c_int) {
    // SAFETY: null, or what a `Handler` has put there, which waits for the end of all threads that
    // handlers run in.
    if let Some(visit) = unsafe { VISIT.load(Ordering::Acquire).as_ref() } {
        visit();
    }
}

/// Adds the calling thread to those that are moved, and, if `handlers`, to those that are
/// signalled.
pub fn register(session: &Session, handlers: bool) -> Registered {
    // SAFETY: it has no preconditions.
    let handle = unsafe { libc::pthread_self() };
    let registered = Registered {
        tid: rustix::thread::gettid(),
        handle: handlers.then_some(handle),
    };
    session.threads.lock().push(registered);
    registered
}

/// Takes it off again. No handler runs in the thread from then on.
pub fn deregister(session: &Session, registered: Registered) {
    // What has been sent and not come yet never will: the thread ends with the signal blocked.
    // SAFETY: a set of one signal, for the calling thread.
    unsafe {
        let mut set: libc::sigset_t = mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGUSR1);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut());
    }
    session.threads.lock().retain(|other| *other != registered);
}
