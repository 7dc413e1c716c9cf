//! Counts what an operation writes of the cache lines that threads share.
//!
//! [`THREADS`] threads run it in turn, one machine instruction after the other ([`stepping`]). What
//! counts is what the processor does ([`accesses`]) to lines that both threads have touched
//! ([`lines`]). A read-modify-write that a compiler has made a fence and a load is none. Memory
//! allocators' lines count where threads share them.

use std::sync::{Barrier, Condvar, Mutex, PoisonError};
use std::thread::{self, Builder};

use anyhow::Result;

use super::{join, spawn};
use crate::affinity;
use accesses::Accesses;
use lines::Lines;
pub use lines::Totals;
pub use stepping::available;
use stepping::{Step, Steps};

mod accesses;
mod lines;
mod stepping;

/// Threads that run the operation in turn, each on its own processor where there are enough.
pub const THREADS: usize = 2;

/// How an operation is counted.
#[derive(Clone, Copy)]
pub struct Plan {
    /// Runs of each thread that no tracer steps through: they bring the subject to its usual state.
    pub warm_up: usize,
    /// Runs of each thread that are stepped through and counted, behind one that is not counted
    /// and brings the lines to where they are.
    pub calls: usize,
    /// Threads beside those that are counted, which have run the operation once and wait.
    pub beside: usize,
}

/// An operation as one thread runs it.
pub trait Operation {
    /// What comes before it, each time, and is not counted.
    fn before(&mut self) {}

    /// What is counted.
    fn run(&mut self);
}

impl<F: FnMut()> Operation for F {
    fn run(&mut self) {
        self();
    }
}

struct Turns<'t> {
    next: Mutex<usize>,
    changed: Condvar,
    counted: Mutex<(Accesses, &'t mut Lines)>,
}

impl Turns<'_> {
    /// Runs `work` when it is the turn of `thread`, and then gives it to the next.
    fn take<T>(&self, thread: usize, work: impl FnOnce() -> T) -> T {
        let next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = self
            .changed
            .wait_while(next, |next| *next % THREADS != thread)
            .unwrap_or_else(PoisonError::into_inner);
        let done = work();
        *next += 1;
        self.changed.notify_all();
        done
    }

    fn note(&self, thread: usize, taken: &[Step], thread_segment: u64, is_counted: bool) {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let (accesses, lines) = &mut *counted;
        for step in taken {
            accesses.of(step, thread_segment, |line, kind| {
                lines.note(thread, line, kind, is_counted)
            });
        }
        if is_counted {
            lines.note_run();
        }
    }
}

/// Returns what the counted threads together did to shared lines. `make` makes an operation on its
/// thread.
pub fn count<O: Operation>(plan: Plan, make: impl Fn() -> O + Sync) -> Result<Totals> {
    let mut lines = Lines::default();
    let turns = Turns {
        next: Mutex::new(0),
        changed: Condvar::new(),
        counted: Mutex::new((Accesses::new(), &mut lines)),
    };
    // After their one run those beside wait here until all is counted.
    let all_wait = Barrier::new(plan.beside + 1);
    let over = Barrier::new(plan.beside + 1);
    thread::scope(|scope| {
        for _ in 0..plan.beside {
            let (all_wait, over, make) = (&all_wait, &over, &make);
            spawn(Builder::new(), scope, move || {
                let mut operation = make();
                operation.run();
                all_wait.wait();
                over.wait();
            });
        }
        all_wait.wait();
        let started: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (turns, make) = (&turns, &make);
                spawn(Builder::new(), scope, move || {
                    pin(thread);
                    run_one(plan, thread, turns, make())
                })
            })
            .collect();
        let outcome = started.into_iter().try_for_each(|thread| join(thread)?);
        over.wait();
        outcome
    })?;
    Ok(lines.totals())
}

fn run_one<O: Operation>(
    plan: Plan,
    thread: usize,
    turns: &Turns<'_>,
    mut operation: O,
) -> Result<()> {
    let mut steps = Steps::new();
    let mut failed = None;
    for _ in 0..plan.warm_up {
        turns.take(thread, || {
            operation.before();
            operation.run();
        });
    }
    for call in 0..=plan.calls {
        // Each takes all its turns, also after a failure: the others wait for them.
        turns.take(thread, || {
            let Ok(steps) = &mut steps else { return };
            operation.before();
            let thread_segment = steps.thread_segment;
            match steps.of(|| operation.run()) {
                Ok(taken) => turns.note(thread, taken, thread_segment, call > 0),
                Err(error) => failed = Some(error),
            }
        });
    }
    // A thread's end is not counted: this turn comes after the others' last calls.
    turns.take(thread, || ());
    steps?;
    failed.map_or(Ok(()), Err)
}

/// Gives the calling thread processor number `thread` of those that the process may use, if there
/// is one for each: what the library has a piece of for each processor is then that thread's alone.
fn pin(thread: usize) {
    if let Ok(allowed) = affinity::allowed()
        && allowed.len() >= THREADS
    {
        // Where it is refused, per-processor state may count as shared.
        let _ = affinity::move_to(None, &allowed[thread..=thread]);
    }
}

#[cfg(all(test, target_arch = "x86_64", target_os = "linux"))]
mod tests {
    use std::hint::black_box;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// So often that crossbeam-epoch looks at its other threads once.
    const PLAN: Plan = Plan {
        warm_up: 100,
        calls: 100,
        beside: 1,
    };

    /// Read-modify-writes and stores of shared lines, for one operation.
    fn per_op<O: Operation>(make: impl Fn() -> O + Sync) -> (f64, f64) {
        let totals = count(PLAN, make).expect("instructions can be stepped through");
        let per_op = |count: u64| count as f64 / totals.runs as f64;
        (per_op(totals.read_modify_writes), per_op(totals.stores))
    }

    #[test]
    fn writes_of_shared_lines_are_counted_and_no_others() {
        let shared = AtomicU64::new(0);
        let add = || || _ = black_box(shared.fetch_add(1, Ordering::Relaxed));
        assert_eq!(per_op(add), (1.0, 0.0));
        let store = || || shared.store(1, Ordering::Relaxed);
        assert_eq!(per_op(store), (0.0, 1.0));
        let load = || || _ = black_box(shared.load(Ordering::Relaxed));
        assert_eq!(per_op(load), (0.0, 0.0));
        let private = || {
            // The middle one has its line to itself, wherever the box lies.
            let own: Box<[AtomicU64; 16]> = Box::default();
            move || _ = black_box(own[8].fetch_add(1, Ordering::Relaxed))
        };
        assert_eq!(per_op(private), (0.0, 0.0));
    }

    /// The protocol's promise to readers, and a reader of a scheme that pins itself.
    #[test]
    fn a_section_writes_no_shared_line() {
        assert_eq!(per_op(|| || drop(stillpoint::read_lock())), (0.0, 0.0));
        let (pinned, _) = per_op(|| || drop(crossbeam_epoch::pin()));
        assert!(pinned >= 1.0, "{pinned}");
    }
}
