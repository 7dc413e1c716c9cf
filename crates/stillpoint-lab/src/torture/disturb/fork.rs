//! Forks, and children that use the domain.

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};
use stillpoint::lab::Policy;

use crate::torture::harness::Harness;
use crate::torture::session::Session;
use crate::torture::tally::{Fault, add};

/// Seconds after which the kernel ends a child.
const ALARM: u32 = 60;

/// Forks; the child reads, waits, calls and retires, and the parent waits for the child.
pub fn fork<P: Policy>(session: &Arc<Session>, harness: &Harness<P>, _round: u64) {
    let parent = getpid();
    // SAFETY: the child uses this library, whose promise is what is put to the test, and the
    // allocator, which glibc sees to; then it ends.
    match unsafe { libc::fork() } {
        -1 => {}
        0 => {
            // SAFETY: no handler: the alarm ends the process.
            unsafe { libc::alarm(ALARM) };
            // Nor does it outlive a torture that is ended meanwhile.
            let bound = set_parent_process_death_signal(Some(Signal::KILL));
            if bound.is_ok() && getppid() != Some(parent) {
                // SAFETY: ends the process.
                unsafe { libc::_exit(1) };
            }
            let well =
                panic::catch_unwind(AssertUnwindSafe(|| child(harness))).is_ok_and(|well| well);
            // SAFETY: ends the process.
            unsafe { libc::_exit(i32::from(!well)) };
        }
        child => {
            let mut status = 0;
            // SAFETY: our own child, and a place for its status; the alarm bounds the wait.
            while unsafe { libc::waitpid(child, &raw mut status, 0) } == -1
                && std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted
            {
            }
            if status == 0 {
                add(&session.tally.forks, 1);
            } else {
                let how = if libc::WIFSIGNALED(status) {
                    "was ended by a signal, or hung: status"
                } else {
                    "failed: status"
                };
                session.tally.fault(Fault::Fork, || {
                    format!("the child of a fork {how} {status:#x}")
                });
            }
        }
    }
    super::sleep(session, Duration::from_millis(20).as_secs_f64());
}

/// Returns whether all went well.
fn child<P: Policy>(harness: &Harness<P>) -> bool {
    (harness.in_child)();
    let domain = harness.domain;
    let cookie = domain.get_state();
    let held = domain.read(|_| {
        let inside = domain.get_state();
        !domain.poll(inside)
    });
    domain.synchronize();
    let came = Arc::new(AtomicBool::new(false));
    let theirs = Arc::clone(&came);
    domain.call(move || theirs.store(true, Ordering::Relaxed));
    domain.barrier();
    for number in 0..600_u64 {
        let object = std::ptr::NonNull::from(Box::leak(Box::new(number)));
        // SAFETY: it came out of a box just now, and no other thread knows it.
        unsafe { domain.retire(object) };
    }
    domain.kvfree_barrier();
    let promised = domain.start_poll();
    // It comes true by itself, or the alarm comes.
    while !domain.has_ended(promised) {
        thread::sleep(Duration::from_micros(100));
    }
    held && domain.poll(cookie) && domain.poll(promised) && came.load(Ordering::Relaxed)
}
