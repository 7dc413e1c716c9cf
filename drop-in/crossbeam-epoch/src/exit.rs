//! Process exit and library unload, which the service threads must not outlive.
//!
//! ```text
//!   service thread   running += 1 (SeqCst)      exit   exiting = true (SeqCst)
//!                    if exiting (SeqCst): leave        wait until running == 0 (SeqCst)
//!                    destructors
//!                    running -= 1
//! ```
//!
//! These four have one order: either the thread sees the exit, or the exit sees the thread and
//! waits for it, for a second at most, because a destructor may itself wait for the exiting thread.
//! Exit handlers run before a library is unmapped, and ours stays mapped while our threads may run
//! in it.

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

/// The number of service threads that run destructors, in the low half, and the id of their
/// process: a forked child does not have them.
static RUNNING: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// How many of these are the calling thread, which may exit the process itself.
    static HERE: Cell<u32> = const { Cell::new(0) };
}

/// Returns the count in [`RUNNING`] for the process `id`.
fn count(running: u64, id: u32) -> u32 {
    if running >> 32 == u64::from(id) {
        running as u32
    } else {
        0
    }
}

/// Marks that a service thread runs destructors until this is dropped.
pub(crate) struct Running {
    /// The process in which it began.
    id: u32,
}

impl Running {
    /// Returns `None` if the process is exiting.
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
        // In the child of a fork inside a destructor, `RUNNING` may count only the child's threads
        // by now, without this one.
        let one_less = |running: u64| (running >> 32 == u64::from(self.id)).then(|| running - 1);
        let _ = RUNNING.fetch_update(Ordering::Release, Ordering::Relaxed, one_less);
    }
}

/// Registers the exit handler, and keeps this code mapped. The first domain calls it.
pub(crate) fn arrange() {
    static ARRANGED: AtomicBool = AtomicBool::new(false);
    if cfg!(miri) || ARRANGED.swap(true, Ordering::Relaxed) {
        return;
    }
    // SAFETY: `stay_mapped` keeps the function mapped; musl never unmaps a library.
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

/// Opens the shared library that contains this code again, with the flag that keeps it mapped even
/// when closed. Does nothing in a program.
#[cfg(target_env = "gnu")]
fn stay_mapped() {
    use std::{mem::MaybeUninit, ptr};
    let mut found = MaybeUninit::<libc::Dl_info>::uninit();
    let here: extern "C" fn() = exiting;
    // SAFETY: `found` has room for the result, which is initialised on success; the name lives as
    // long as the library.
    unsafe {
        if libc::dladdr(here as *const _, found.as_mut_ptr()) == 0 {
            return;
        }
        let name = found.assume_init().dli_fname;
        if !ptr::eq(name, ptr::null()) {
            let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
            if libc::dlopen(name, flags).is_null() {
                // The program's own file. Clears the message, which is not for the program.
                libc::dlerror();
            }
        }
    }
}

/// Called by a domain around destructors on its service thread.
pub(crate) fn around(free: &mut dyn FnMut()) {
    if let Some(_running) = Running::begin() {
        free();
    }
}
