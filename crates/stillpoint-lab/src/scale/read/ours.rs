//! Stillpoint's own variants, and the limit.

use std::hint::black_box;

use stillpoint::tasks_trace;

use crate::scale::sync::Qsbr;
use crate::subject::{Guarded, ReadSide};

/// `stillpoint::read`, which runs a closure as the section.
#[derive(Default)]
pub struct Closure;

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
#[derive(Default)]
pub struct Trace;

impl Guarded for Trace {
    #[inline(always)]
    fn enter(&self) -> impl Sized {
        tasks_trace::read_lock()
    }
}

/// `stillpoint::tasks_trace::read_lock_owned`: a section that a task may hold across an `.await`.
#[derive(Default)]
pub struct TraceOwned;

impl Guarded for TraceOwned {
    #[inline(always)]
    fn enter(&self) -> impl Sized {
        tasks_trace::read_lock_owned()
    }
}

/// The bare loop.
#[derive(Default)]
pub struct Limit;

impl ReadSide for Limit {
    #[inline(never)]
    fn pairs(&mut self, count: u64) {
        for _ in 0..count {
            black_box(());
        }
    }
}
