//! SIGINT (Ctrl-C) and SIGTERM. The first one is noted, so that a run can end its children and
//! report its results so far; a second one ends the program at once, and its children with it,
//! which have all asked the kernel for that.

use std::mem;
use std::process::ExitCode;
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

/// The signals.
const SIGNALS: [libc::c_int; 2] = [libc::SIGINT, libc::SIGTERM];

/// How often a run that waits for a child looks for a signal.
pub const LOOK: Duration = Duration::from_millis(100);

/// The first signal; 0 before it.
static RECEIVED: AtomicI32 = AtomicI32::new(0);

/// Notes the first signal, from now on. A signal that the program was started to ignore (by
/// `nohup`, or in the background of a script) stays ignored.
pub fn catch() {
    for signal in SIGNALS {
        if disposition(signal).sa_sigaction != libc::SIG_IGN {
            let handler = note as extern "C" fn(libc::c_int);
            set(signal, handler as libc::sighandler_t);
        }
    }
}

/// Returns the exit status if a signal has come: 128 plus its number, as in shells.
pub fn received() -> Option<ExitCode> {
    match RECEIVED.load(Ordering::Relaxed) {
        0 => None,
        signal => Some(ExitCode::from(128 + signal as u8)),
    }
}

extern "C" fn note(signal: libc::c_int) {
    // Only the first signal counts. Nothing else is published with it.
    let _ = RECEIVED.compare_exchange(0, signal, Ordering::Relaxed, Ordering::Relaxed);
    let handler = note as extern "C" fn(libc::c_int);
    for signal in SIGNALS {
        if disposition(signal).sa_sigaction == handler as libc::sighandler_t {
            set(signal, libc::SIG_DFL);
        }
    }
}

/// The signal handler. Async-signal-safe.
fn disposition(signal: libc::c_int) -> libc::sigaction {
    // SAFETY: all zeros are a `sigaction`, which the call fills; it changes nothing.
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        libc::sigaction(signal, ptr::null(), &raw mut action);
        action
    }
}

/// Sets the signal's handler. Async-signal-safe.
fn set(signal: libc::c_int, handler: libc::sighandler_t) {
    // SAFETY: the handler is the default one, or `note`, which makes two kinds of system calls and
    // touches an atomic: both async-signal-safe.
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(signal, &raw const action, ptr::null_mut());
    }
}
