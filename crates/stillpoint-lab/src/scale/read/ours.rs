//! Stillpoint's own variants, and the limit.

use std::hint::black_box;

use super::ReadSide;
use crate::scale::Participant;
use crate::scale::sync::Qsbr;

/// `stillpoint::read_lock`, whose guard's drop is the unlock.
pub struct Guard;

impl Participant for Guard {
    fn join() -> Self {
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
    fn join() -> Self {
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

/// The bare loop.
pub struct Limit;

impl Participant for Limit {
    fn join() -> Self {
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
