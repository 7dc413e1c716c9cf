//! sleepers: each of some threads sleeps for 1 ms in a section, and then in the next one; beside
//! them one thread waits for grace periods.
//!
//! Every reader notes when it has entered a section and when it is about to leave it, the waiter
//! when it calls and when it is back. From that follows afterwards, exactly and without a word
//! between them, whom a wait was for: those that had entered when it was called and had not left.
//! The last of them to leave ends the grace period, as far as readers can: `exit_to_gp_us` is
//! counted from there. A reader that enters at the moment of the call may be waited for as well and
//! be none of them in the notes; the figure is then too large, never too small. A wait that is back
//! before one of its holdouts has left fails the measurement.

use std::iter;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use parking_lot::Mutex;
use stillpoint::tasks_trace::TraceDomain;

use super::Work;
use crate::run::Sample;
use crate::scale::SetAtEnd;
use crate::scale::threads::spawn_small;
use crate::scale::timing::{Timed, no_times, note, repeat, time};

/// How long a reader sleeps in a section.
const NAP: Duration = Duration::from_millis(1);

/// Time for all readers to begin.
const SETTLING: Duration = Duration::from_millis(5);

/// A reader's section.
struct SectionTimes {
    entered: Instant,
    /// Just before the guard is dropped.
    left: Instant,
}

/// Threads that sleep in guards of `domain`, and a thread that waits for them.
pub fn with_readers(domain: &TraceDomain, work: &Work) -> Result<Sample> {
    measure(
        work.threads,
        || domain.read_lock(),
        || domain.synchronize(),
        work,
    )
}

/// One thread that sleeps, and at each end of that wakes one that waits for it: less than this no
/// wait can do.
pub fn bare_wakeups(work: &Work) -> Result<Sample> {
    let wake_up = WakeUp {
        awaited: AtomicBool::new(false),
        waiter: thread::current(),
    };
    let mut sample = measure(1, || WakeAtEnd(&wake_up), || wake_up.wait(), work)?;
    // It is no grace period of all the threads.
    sample.metrics.retain(|name, _| name == "exit_to_gp_us");
    Ok(sample)
}

/// Calls `wait` on this thread beside `readers` readers; `enter` gives a guard.
fn measure<G>(
    readers: u32,
    enter: impl Fn() -> G + Sync,
    wait: impl Fn(),
    work: &Work,
) -> Result<Sample> {
    let halt = AtomicBool::new(false);
    let sections = Mutex::new(Vec::new());
    let mut waits = Vec::new();
    let times = thread::scope(|scope| {
        let _halt = SetAtEnd(&halt);
        for _ in 0..readers {
            spawn_small(scope, || {
                let own = sleep_in_sections(&enter, &halt);
                sections.lock().push(own);
            });
        }
        thread::sleep(SETTLING);
        wait();
        repeat(Instant::now() + Duration::from_millis(work.span_ms), || {
            let wait = time(&wait);
            waits.push(wait);
            wait
        })
    });

    let sections = sections.into_inner();
    let mut delays = no_times();
    for wait in &waits {
        let called = wait.ended - wait.took;
        let exit = |sections: &Vec<_>| exit_of_holdout(sections, called);
        let Some(left) = sections.iter().filter_map(exit).max() else {
            continue;
        };
        ensure!(
            left <= wait.ended,
            "a grace period has ended before a reader that it was for has left"
        );
        let took = wait.ended - left;
        note(&mut delays, &Timed { took, ..*wait });
    }
    let mut sample = Sample::of(super::of_waits(&times));
    // Absent where no wait had anyone to wait for, which only a very short run can bring about.
    if !delays.is_empty() {
        sample.add([("exit_to_gp_us", delays.mean() / 1e3)]);
    }
    Ok(sample)
}

fn sleep_in_sections<G>(enter: impl Fn() -> G, halt: &AtomicBool) -> Vec<SectionTimes> {
    let section = || {
        let guard = enter();
        let entered = Instant::now();
        thread::sleep(NAP);
        let left = Instant::now();
        drop(guard);
        SectionTimes { entered, left }
    };
    let sections = iter::repeat_with(section);
    sections
        .take_while(|_| !halt.load(Ordering::Relaxed))
        .collect()
}

/// When the reader with these sections, the oldest first, left the one in which it was at `moment`.
fn exit_of_holdout(sections: &[SectionTimes], moment: Instant) -> Option<Instant> {
    let entered_before = sections.partition_point(|section| section.entered <= moment);
    sections[..entered_before]
        .last()
        .map(|section| section.left)
        .filter(|&left| left > moment)
}

/// The channel by which a reader wakes the thread that waits for it.
struct WakeUp {
    awaited: AtomicBool,
    waiter: Thread,
}

impl WakeUp {
    fn wait(&self) {
        self.awaited.store(true, Ordering::Release);
        while self.awaited.load(Ordering::Acquire) {
            thread::park();
        }
    }
}

struct WakeAtEnd<'b>(&'b WakeUp);

impl Drop for WakeAtEnd<'_> {
    fn drop(&mut self) {
        if self.0.awaited.swap(false, Ordering::AcqRel) {
            self.0.waiter.unpark();
        }
    }
}
