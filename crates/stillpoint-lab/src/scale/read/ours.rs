//! Stillpoint's own variants, and the limit.

use std::hint::black_box;

use stillpoint::tasks_trace;

use crate::scale::sync::Qsbr;
use crate::subject::{Participant, ReadSide};

/// `stillpoint::read_lock`, whose guard's drop is the unlock.
pub struct Guard;

impl Participant for Guard {
    fn register_thread() -> Self {
        Self
    }
}

impl ReadSide for Guard {
    #[inline(never)]
    fn pairs(&mut self, count: u64) {
        for _ in 0..count {
            let guard = stillpoint::read_lock();
            black_box(());
            drop(guard);
        }
    }
}

/// `stillpoint::read`, which runs a closure as the section.
pub struct Closure;

impl Participant for Closure {
    fn register_thread() -> Self {
        Self
    }
}

impl ReadSide for Closure {
    #[inline(never)]
    fn pairs(&mut self, count: u64) {
        for _ in 0..count {
            stillpoint::read(|_guard| black_box(()));
        }
    }
}

impl ReadSide for Qsbr {
    #[inline(never)]
    fn pairs(&mut self, count: u64) {
        for _ in 0..count {
            black_box(());
        }
        self.reader().quiescent_state();
    }
}

/// `stillpoint::tasks_trace::read_lock`: a section that may sleep, of one thread.
pub struct Trace;

impl Participant for Trace {
    fn register_thread() -> Self {
        Self
    }
}

impl ReadSide for Trace {
    #[inline(never)]
    fn pairs(&mut self, count: u64) {
        for _ in 0..count {
            let guard = tasks_trace::read_lock();
            black_box(());
            drop(guard);
        }
    }
}

/// `stillpoint::tasks_trace::read_lock_owned`: a section that a task may hold across an `.await`.
pub struct TraceOwned;

impl Participant for TraceOwned {
    fn register_thread() -> Self {
        Self
    }
}

impl ReadSide for TraceOwned {
    #[inline(never)]
    fn pairs(&mut self, count: u64) {
        for _ in 0..count {
            let guard = tasks_trace::read_lock_owned();
            black_box(());
            drop(guard);
        }
    }
}

/// The bare loop.
pub struct Limit;

impl Participant for Limit {
    fn register_thread() -> Self {
        Self
    }
}

impl ReadSide for Limit {
    #[inline(never)]
    fn pairs(&mut self, count: u64) {
        for _ in 0..count {
            black_box(());
        }
    }
}
