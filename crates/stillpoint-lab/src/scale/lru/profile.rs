//! What share of the processors' time goes into waiting for locks: samples of the profiling timer,
//! as `perf` would take them.
//!
//! The timer counts the time of all threads, in the kernel and out of it; its signal finds the
//! thread that runs. Each thread has a flag that says whether it waits for a lock held by another
//! thread: what the kernel spends in the slow path of its spinlocks. To take a lock that is free is
//! no wait. Threads that sleep take no time, so those that wait for a mutex in the kernel count
//! only for their way there and back.

use std::cell::Cell;
use std::io;
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};

thread_local! {
    static WAITING: Cell<bool> = const { Cell::new(false) };
}

static SAMPLES: AtomicU64 = AtomicU64::new(0);
static WAITED: AtomicU64 = AtomicU64::new(0);

/// Shorter than the kernel's tick, which bounds it.
const INTERVAL_US: libc::suseconds_t = 1000;

/// The calling thread begins to wait for a lock.
#[inline(always)]
pub fn waiting() {
    WAITING.set(true);
}

/// It has it.
#[inline(always)]
pub fn waited() {
    WAITING.set(false);
}

extern "C" fn sample(_signal: libc::c_int) {
    SAMPLES.fetch_add(1, Ordering::Relaxed);
    if WAITING.get() {
        WAITED.fetch_add(1, Ordering::Relaxed);
    }
}

/// A running timer.
pub struct Profile(());

/// Starts the timer.
pub fn start() -> Result<Profile> {
    SAMPLES.store(0, Ordering::Relaxed);
    WAITED.store(0, Ordering::Relaxed);
    // SAFETY: zeroes are a value of these plain structures.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    action.sa_sigaction = sample as extern "C" fn(libc::c_int) as usize;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: the handler touches atomics and a thread-local without a destructor, nothing else.
    let set = unsafe { libc::sigaction(libc::SIGPROF, &raw const action, ptr::null_mut()) };
    if set != 0 {
        return Err(io::Error::last_os_error()).context("cannot handle SIGPROF");
    }
    set_timer(INTERVAL_US)?;
    Ok(Profile(()))
}

impl Profile {
    /// Stops the timer; the share of samples that found a thread waiting.
    pub fn finish(self) -> f64 {
        // It cannot fail where it has been started.
        let _ = set_timer(0);
        let samples = SAMPLES.load(Ordering::Relaxed);
        if samples == 0 {
            0.0
        } else {
            WAITED.load(Ordering::Relaxed) as f64 / samples as f64
        }
    }
}

fn set_timer(interval_us: libc::suseconds_t) -> Result<()> {
    let interval = libc::timeval {
        tv_sec: 0,
        tv_usec: interval_us,
    };
    let timer = libc::itimerval {
        it_interval: interval,
        it_value: interval,
    };
    // SAFETY: a pointer to our own value, and none for the old one.
    if unsafe { libc::setitimer(libc::ITIMER_PROF, &raw const timer, ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error()).context("cannot set the profiling timer");
    }
    Ok(())
}
