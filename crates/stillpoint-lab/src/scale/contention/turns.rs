//! Counts what an operation does: so many threads run it in turn, one at a time, each stepped
//! through (`stepping.rs`).

use std::sync::{Barrier, Condvar, Mutex, PoisonError};
use std::thread::{self, Builder};

use anyhow::{Result, anyhow};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::accesses::Accesses;
use super::lines::{Lines, Totals};
use super::stepping::{Step, Steps};
use crate::scale::spawn;

/// How an operation is counted.
#[derive(Clone, Copy)]
pub struct Plan {
    /// Runs of each thread that nobody steps through: they bring the subject to its usual state.
    pub warm_up: usize,
    /// Runs of each thread that are stepped through and counted, behind one that is not counted
    /// and brings the lines to where they are.
    pub calls: usize,
}

/// Who takes part.
#[derive(Clone, Copy)]
pub struct Threads {
    /// Those that run the operation in turn, each on a processor of its own where there are enough.
    pub counted: usize,
    /// Others, that have run it once and wait.
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
    threads: usize,
    counted: Mutex<(Accesses, &'t mut Lines)>,
}

impl Turns<'_> {
    /// Runs `work` when it is the turn of `thread`, and then gives it to the next.
    fn take<T>(&self, thread: usize, work: impl FnOnce() -> T) -> T {
        let next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = self
            .changed
            .wait_while(next, |next| *next % self.threads != thread)
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
            accesses.of(step, thread_segment, |event| {
                lines.note(thread, event, is_counted)
            });
        }
        if is_counted {
            lines.note_run(taken.len());
        }
    }
}

/// What all threads together did to shared lines. `make` makes an operation on its thread.
pub fn count<O: Operation>(
    plan: Plan,
    threads: Threads,
    make: impl Fn(usize) -> O + Sync,
) -> Result<Totals> {
    let mut lines = Lines::default();
    let turns = Turns {
        next: Mutex::new(0),
        changed: Condvar::new(),
        threads: threads.counted,
        counted: Mutex::new((Accesses::new(), &mut lines)),
    };
    // After their one run those beside wait here until all is counted.
    let all_wait = Barrier::new(threads.beside + 1);
    let over = Barrier::new(threads.beside + 1);
    thread::scope(|scope| {
        for number in 0..threads.beside {
            let (all_wait, over, make) = (&all_wait, &over, &make);
            spawn(Builder::new(), scope, move || {
                let mut operation = make(threads.counted + number);
                operation.run();
                all_wait.wait();
                over.wait();
            });
        }
        all_wait.wait();
        let started: Vec<_> = (0..threads.counted)
            .map(|thread| {
                let (turns, make) = (&turns, &make);
                spawn(Builder::new(), scope, move || {
                    pin(thread, threads.counted);
                    run_one(plan, thread, turns, make(thread))
                })
            })
            .collect();
        let outcome = started
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?);
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
/// is one for each of `threads`: what the library has a piece of for each processor is then that
/// thread's alone.
fn pin(thread: usize, threads: usize) {
    let Ok(allowed) = sched_getaffinity(None) else {
        return;
    };
    let mut cpus = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu));
    if allowed.count() as usize >= threads
        && let Some(cpu) = cpus.nth(thread)
    {
        let mut one = CpuSet::new();
        one.set(cpu);
        // Where it is refused, per-processor state may count as shared.
        let _ = sched_setaffinity(None, &one);
    }
}
