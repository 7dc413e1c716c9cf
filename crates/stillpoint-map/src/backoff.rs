//! Waiting for a thread that needs nanoseconds, unless it was preempted.

use std::time::Duration;

/// How often a thread spins, each time twice as long, before it yields.
const SPINS: u32 = 6;
/// How often it yields before it sleeps: yielding alone starves a thread of lower priority.
const YIELDS: u32 = 64;
const SLEEP: Duration = Duration::from_micros(50);

#[derive(Debug)]
pub struct Backoff(u32);

impl Backoff {
    pub fn new() -> Self {
        Self(0)
    }

    pub fn wait(&mut self) {
        self.0 = (self.0 + 1).min(SPINS + YIELDS + 1);
        if cfg!(stillpoint_loom) || (SPINS..SPINS + YIELDS).contains(&self.0) {
            yield_now();
        } else if self.0 < SPINS {
            (0..1 << self.0).for_each(|_| std::hint::spin_loop());
        } else {
            std::thread::sleep(SLEEP);
        }
    }
}

fn yield_now() {
    #[cfg(stillpoint_loom)]
    stillpoint_platform::model::thread::yield_now();
    #[cfg(not(stillpoint_loom))]
    std::thread::yield_now();
}
