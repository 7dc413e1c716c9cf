//! CPU time of all threads of the process, and its memory.

use std::{fs, sync::Barrier, thread, time::Duration};

/// Figures by name.
pub type Figures = Vec<(&'static str, f64)>;

/// Approximate CPU time of a measurement per thread.
const ENOUGH: Duration = Duration::from_millis(400);

/// Number of measurements. The lowest counts, because other load only adds.
const SLICES: usize = 5;

fn cpu_time() -> Duration {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a place for the time.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut now) };
    assert_eq!(failed, 0);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Measures one operation while `threads` threads do them in parallel: `work` gets its thread's
/// number and the number of operations. Two thirds of the time are warm-up and the search for a
/// count.
pub fn cpu_ns_per_op(
    threads: usize,
    count: Option<u64>,
    work: impl Fn(usize, u64) + Sync,
) -> Figures {
    if let Some(count) = count {
        together(threads, |thread| work(thread, count));
        return Vec::new();
    }
    let timed = |count: u64| {
        let before = cpu_time();
        together(threads, |thread| work(thread, count));
        cpu_time() - before
    };
    let enough = ENOUGH * threads as u32 / SLICES as u32;
    let mut count = 1000;
    while timed(count) < enough {
        count *= 2;
    }
    let least = (0..SLICES).map(|_| timed(count)).min().unwrap();
    let operations = count as f64 * threads as f64;
    vec![("cpu_ns_per_op", least.as_nanos() as f64 / operations)]
}

/// Runs `work` on `threads` threads, including this one, which begin together.
pub fn together(threads: usize, work: impl Fn(usize) + Sync) {
    let begin = Barrier::new(threads);
    thread::scope(|scope| {
        let (begin, work) = (&begin, &work);
        for thread in 1..threads {
            scope.spawn(move || {
                begin.wait();
                work(thread);
            });
        }
        begin.wait();
        work(0);
    });
}

/// Returns a value of `/proc/self/status` in KiB.
fn status(name: &str) -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Returns the highest growth of resident memory while `work` runs, in MiB.
pub fn peak_mib(work: impl FnOnce()) -> f64 {
    // Resets the kernel's own peak.
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = status("VmRSS:");
    work();
    (status("VmHWM:") - before) / 1024.0
}
