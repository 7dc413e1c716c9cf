//! How much memory is unreclaimed, and for how long.

use crate::measure::{Figures, peak_mib, together};
use crossbeam_epoch::{self as epoch, Owned};
use std::{
    hint,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

pub const THREADS: usize = 16;
pub const OBJECTS: usize = 100_000;

/// Time after which an object counts as never freed.
pub const NEVER: Duration = Duration::from_secs(2);

/// Sixteen threads each create and defer many boxes of 256 bytes, on at most two CPUs; if `loaded`,
/// with a busy thread on each CPU.
pub fn flood(loaded: bool) -> Figures {
    on_two_processors();
    let over = AtomicBool::new(false);
    let peak = thread::scope(|scope| {
        if loaded {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        hint::spin_loop();
                    }
                });
            }
        }
        // Excludes the memory that threads take just by starting and exiting.
        together(THREADS, |_| drop(epoch::pin()));
        let peak = peak_mib(|| together(THREADS, |_| deferred_boxes()));
        over.store(true, Ordering::Relaxed);
        peak
    });
    vec![("peak_mib", peak)]
}

fn deferred_boxes() {
    for n in 0..OBJECTS {
        let guard = &epoch::pin();
        let object = Owned::new([n; 32]).into_shared(guard);
        // SAFETY: nothing else knows it.
        unsafe { guard.defer_destroy(object) };
    }
}

pub fn on_two_processors() {
    // SAFETY: a set of processors is plain memory, and both calls stay inside.
    unsafe {
        let mut allowed: libc::cpu_set_t = std::mem::zeroed();
        let size = size_of::<libc::cpu_set_t>();
        assert_eq!(libc::sched_getaffinity(0, size, &raw mut allowed), 0);
        let first = (0..libc::CPU_SETSIZE as usize).filter(|&cpu| libc::CPU_ISSET(cpu, &allowed));
        let mut two: libc::cpu_set_t = std::mem::zeroed();
        for cpu in first.take(2) {
            libc::CPU_SET(cpu, &mut two);
        }
        assert_eq!(libc::sched_setaffinity(0, size, &raw const two), 0);
    }
}

/// Counts its drop.
pub struct Noted(pub Arc<AtomicUsize>);

impl Drop for Noted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

/// Measures the time from the end of the last guard until all deferred objects are freed; no figure
/// if that does not happen by itself.
pub fn prompt() -> Figures {
    const COUNT: usize = 1000;
    let dropped = Arc::new(AtomicUsize::new(0));
    for _ in 0..COUNT {
        let guard = &epoch::pin();
        let object = Owned::new(Noted(Arc::clone(&dropped))).into_shared(guard);
        // SAFETY: nothing else knows it.
        unsafe { guard.defer_destroy(object) };
    }
    let ended = Instant::now();
    while dropped.load(Ordering::Acquire) < COUNT {
        if ended.elapsed() > NEVER {
            return Vec::new();
        }
        thread::sleep(Duration::from_micros(100));
    }
    vec![("drop_ms", ended.elapsed().as_secs_f64() * 1000.0)]
}
