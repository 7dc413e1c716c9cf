//! Processors taken away from threads, and threads from processors.

use std::hint;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use stillpoint::lab::Policy;

use super::Disturbance;
use crate::affinity;
use crate::torture::harness::Harness;
use crate::torture::session::{Registered, Session};

/// A hog on each processor for some milliseconds, at real-time priority, or else at a better one,
/// or else (where the system allows neither) at the same as all the others. Then it sleeps as long.
pub fn hog<P: Policy>(session: &Arc<Session>, _ground: &Harness<P>, round: u64) {
    let mut random = session.thread_ctx("hog", round as usize).random.fork();
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let spans: Vec<u64> = (0..cpus).map(|_| random.u64(200..4000)).collect();
    thread::scope(|scope| {
        for span in spans {
            super::spawn(scope, "hog", move || {
                raise_priority();
                let until = Instant::now() + Duration::from_micros(span);
                while Instant::now() < until {
                    hint::spin_loop();
                }
            });
        }
    });
    thread::sleep(Duration::from_micros(random.u64(200..4000)));
}

/// For the calling thread, as far as the system allows.
fn raise_priority() {
    let parameters = libc::sched_param { sched_priority: 1 };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: valid parameters, for the calling thread.
    if unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) } != 0 {
        // SAFETY: numbers only. On Linux it is for the thread that is named by its kernel id; 0 is
        // the calling one.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -5) };
    }
}

/// Moves every thread of the flavour to one processor, chosen by chance; and lets all of them go
/// where they want at the turn's end.
pub fn shuffle<P: Policy>(session: &Arc<Session>, _ground: &Harness<P>, round: u64) {
    let mut random = session.thread_ctx("shuffle", round as usize).random.fork();
    let Ok(allowed) = affinity::allowed() else {
        return thread::sleep(Duration::from_millis(20));
    };
    // One that has just ended, or that the system does not let us move, stays where it is.
    let move_to =
        |thread: &Registered, cpus: &[usize]| _ = affinity::move_to(Some(thread.tid), cpus);
    // This thread stays where it may go anywhere: it has to know where that is.
    let me = rustix::thread::gettid();
    for thread in session
        .threads
        .lock()
        .iter()
        .filter(|thread| thread.tid != me)
    {
        move_to(thread, &[allowed[random.usize(0..allowed.len())]]);
    }
    thread::sleep(Duration::from_millis(20));
    if !session.is_active(Disturbance::Shuffle) || session.is_over() {
        session
            .threads
            .lock()
            .iter()
            .for_each(|thread| move_to(thread, &allowed));
    }
}
