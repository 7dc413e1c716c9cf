//! Processors taken away from threads, and threads from processors.

use std::hint;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use stillpoint::torture::Policy;

use crate::torture::conductor::Ground;
use crate::torture::options::Disturbance;
use crate::torture::session::Session;

/// A hog on each processor for some milliseconds, at real-time priority, or else at a better one, or else (where the system allows
/// neither) at the same as all the others. Then it sleeps as long.
pub fn hog<P: Policy>(session: &Arc<Session>, _ground: &Ground<P>, round: u64) {
    let mut random = session.seat("hog", round as usize).random.fork();
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let spans: Vec<u64> = (0..cpus).map(|_| random.u64(200..4000)).collect();
    thread::scope(|scope| {
        for span in spans {
            scope.spawn(move || {
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
    // SAFETY: valid parameters, for the calling thread.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &raw const parameters) } != 0 {
        // SAFETY: numbers only. On Linux it is for the thread that is named by its kernel id; 0 is the calling one.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -5) };
    }
}

/// Moves every thread of the flavour to one processor, chosen by chance; and lets all of them go where they want at the turn's end.
pub fn shuffle<P: Policy>(session: &Arc<Session>, _ground: &Ground<P>, round: u64) {
    let mut random = session.seat("shuffle", round as usize).random.fork();
    // SAFETY: zeroes are an empty set.
    let mut all: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: a place for the set, of its size; 0 is the calling thread, which nobody moves.
    if unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut all) } != 0 {
        return thread::sleep(Duration::from_millis(20));
    }
    // SAFETY: numbers below the set's size.
    let allowed: Vec<usize> = (0..libc::CPU_SETSIZE as usize).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &all) }).collect();
    for thread in &*session.threads() {
        // SAFETY: zeroes are an empty set; the number is below the set's size.
        let one = unsafe {
            let mut one: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(allowed[random.usize(0..allowed.len())], &mut one);
            one
        };
        move_to(thread.tid, &one);
    }
    thread::sleep(Duration::from_millis(20));
    if !session.is_on(Disturbance::Shuffle) || session.is_over() {
        session.threads().iter().for_each(|thread| move_to(thread.tid, &all));
    }
}

/// A thread that has just ended, or that the system does not let us move, stays where it is.
fn move_to(tid: libc::pid_t, cpus: &libc::cpu_set_t) {
    // SAFETY: a valid set of its size.
    unsafe { libc::sched_setaffinity(tid, size_of::<libc::cpu_set_t>(), cpus) };
}
