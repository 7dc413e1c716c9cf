//! The process's exit, and a library that is unloaded: what the service threads must not outlive.
//!
//! ```text
//!   service thread   running += 1 (SeqCst)      exit   exiting = true (SeqCst)
//!                    if exiting (SeqCst): leave        wait until running == 0 (SeqCst)
//!                    destructors
//!                    running -= 1
//! ```
//!
//! In the one order of these four either the thread sees the exit, or the exit sees the thread and
//! waits for it: for a second at most, because a destructor may itself wait for what the exiting
//! thread has. Exit handlers run before the memory of a library goes, and it never does while
//! threads of ours may be in it: the library stays mapped.

use std::{
    cell::Cell,
    process,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

/// How long an exiting process waits for a destructor under way.
const PATIENCE: Duration = Duration::from_secs(1);

static EXITING: AtomicBool = AtomicBool::new(false);

/// How many service threads run destructors, in the low half, and of which process: they are not
/// there in the child of a fork.
static RUNNING: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// How many of them are this one: it may exit the process itself.
    static HERE: Cell<u32> = const { Cell::new(0) };
}

/// What [`RUNNING`] counts of the process `id`.
fn count(running: u64, id: u32) -> u32 {
    if running >> 32 == u64::from(id) {
        running as u32
    } else {
        0
    }
}

/// A service thread runs destructors until this is dropped.
pub(crate) struct Running {
    /// The process in which it began.
    id: u32,
}

impl Running {
    /// `None` if none may run any more.
    pub(crate) fn begin() -> Option<Self> {
        let id = process::id();
        let one_more = |running| Some(u64::from(id) << 32 | u64::from(count(running, id) + 1));
        // SeqCst, pairs with `exiting`: it sees us, or we see it.
        let _ = RUNNING.fetch_update(Ordering::SeqCst, Ordering::Relaxed, one_more);
        HERE.set(HERE.get() + 1);
        let running = Self { id };
        // SeqCst: the same, pairs with `exiting`.
        (!EXITING.load(Ordering::SeqCst)).then_some(running)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        HERE.set(HERE.get() - 1);
        // Release, pairs with `exiting`: what the destructors did happens before the exit goes on.
        // In the child of a fork within one of them, others may have been counted as the child's by
        // now: then it is not among them.
        let one_less = |running: u64| (running >> 32 == u64::from(self.id)).then(|| running - 1);
        let _ = RUNNING.fetch_update(Ordering::Release, Ordering::Relaxed, one_less);
    }
}

/// Sees to the exit, and to it that this code stays mapped. The first domain does that.
pub(crate) fn arrange() {
    static ARRANGED: AtomicBool = AtomicBool::new(false);
    if cfg!(miri) || ARRANGED.swap(true, Ordering::Relaxed) {
        return;
    }
    // SAFETY: a function that stays, which `stay_mapped` sees to.
    unsafe { libc::atexit(exiting) };
    #[cfg(target_env = "gnu")]
    stay_mapped();
}

extern "C" fn exiting() {
    // SeqCst, pairs with `Running::begin`: it sees the exit, or we see it run.
    EXITING.store(true, Ordering::SeqCst);
    let (here, id) = (HERE.get(), process::id());
    let until = Instant::now() + PATIENCE;
    // SeqCst: the same, pairs with `Running::begin`.
    while count(RUNNING.load(Ordering::SeqCst), id) > here && Instant::now() < until {
        thread::sleep(Duration::from_micros(100));
    }
}

/// Opens the shared library that this code is in once more, with the flag that keeps it mapped
/// even if it is closed. In a program it does nothing.
#[cfg(target_env = "gnu")]
fn stay_mapped() {
    use std::{mem::MaybeUninit, ptr};
    let mut found = MaybeUninit::<libc::Dl_info>::uninit();
    let here: extern "C" fn() = exiting;
    // SAFETY: an address, and a place for what is known of it, which is there if that is so; the
    // name lasts, as the library does.
    unsafe {
        if libc::dladdr(here as *const _, found.as_mut_ptr()) == 0 {
            return;
        }
        let name = found.assume_init().dli_fname;
        if !ptr::eq(name, ptr::null()) {
            let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
            if libc::dlopen(name, flags).is_null() {
                // A program's own file; the message is not for it to find.
                libc::dlerror();
            }
        }
    }
}

/// What a domain does around destructors on its service thread.
pub(crate) fn around(free: &mut dyn FnMut()) {
    if let Some(_running) = Running::begin() {
        free();
    }
}
