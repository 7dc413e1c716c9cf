//! What all threads of a run share: where the server listens, clocks, what has removed whole tenants' items.

use super::program::Program;
use std::{
    collections::HashSet,
    path::PathBuf,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Instant,
};

/// Tenants by socket, and one by prefix.
pub const TENANTS: [&str; 5] = ["", "a", "b", "gone", "prefixed"];

/// The tenant that is deleted and created again.
pub const GONE: usize = 3;

/// Numbers that follow from a seed (splitmix64).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub fn fork(&mut self) -> Self {
        Self(self.next())
    }
}

/// Commands that remove all items of a tenant: those that were sent, and those that were answered.
#[derive(Default)]
pub struct Wipes {
    pub begun: AtomicU64,
    pub done: AtomicU64,
}

/// A moment at which an item was known to be there.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    ms: u64,
    jumps_begun: u64,
    wipes_begun: u64,
}

/// A moment before a command was sent.
#[derive(Debug, Clone, Copy)]
pub struct Before {
    ms: u64,
    jumps_done: u64,
    wipes_done: u64,
}

pub struct World {
    pub admin: PathBuf,
    pub sockets: [PathBuf; 5],
    pub churn: PathBuf,
    pub commands: AtomicU64,
    pub wipes: [Wipes; 5],
    /// CAS values with which a shared key was changed, each of which can be that of one change only.
    pub spent: Mutex<HashSet<(usize, u64, u64)>>,
    /// Seconds by which the clock was moved: asked for, and answered. None for the system's clock.
    jumps: Option<[AtomicU64; 2]>,
    started: Instant,
    stopping: AtomicBool,
}

impl World {
    pub fn new(program: &Program) -> Self {
        Self {
            admin: program.admin.clone(),
            sockets: program.sockets.clone(),
            churn: program.churn.clone(),
            commands: AtomicU64::new(0),
            wipes: Default::default(),
            spent: Mutex::default(),
            jumps: program.moves_clock.then(Default::default),
            started: Instant::now(),
            stopping: AtomicBool::new(false),
        }
    }

    fn ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    /// Whether the clients of the small tenant are to go on: each other half of a second.
    pub fn churns(&self) -> bool {
        (self.ms() / 500).is_multiple_of(2)
    }

    /// Now, after an answer of that tenant has come.
    pub fn moment(&self, tenant: usize) -> Moment {
        Moment {
            ms: self.ms(),
            jumps_begun: self
                .jumps
                .as_ref()
                .map_or(0, |jumps| jumps[0].load(Ordering::SeqCst)),
            wipes_begun: self.wipes[tenant].begun.load(Ordering::SeqCst),
        }
    }

    /// Now, before a command is sent.
    pub fn before(&self, tenant: usize) -> Before {
        Before {
            wipes_done: self.wipes[tenant].done.load(Ordering::SeqCst),
            jumps_done: self
                .jumps
                .as_ref()
                .map_or(0, |jumps| jumps[1].load(Ordering::SeqCst)),
            ms: self.ms(),
        }
    }

    /// Whether so many seconds have passed in between, by the server's clock, or all items were removed.
    pub fn is_over(&self, then: Moment, seconds: Option<u32>, now: Before) -> bool {
        if now.wipes_done > then.wipes_begun {
            return true;
        }
        // Without jumps, that clock is this machine's; with them it is never faster than that.
        let passed = match self.jumps {
            None => now.ms.saturating_sub(then.ms) / 1000,
            Some(_) => now.jumps_done.saturating_sub(then.jumps_begun),
        };
        // What it shows is a second's beginning.
        seconds.is_some_and(|seconds| passed > u64::from(seconds) + 1)
    }

    /// Moves the clock, if this run does: `ask` has the server do it.
    pub fn jump(&self, seconds: u64, ask: impl FnOnce()) {
        if let Some([begun, done]) = &self.jumps {
            begun.fetch_add(seconds, Ordering::SeqCst);
            ask();
            done.fetch_add(seconds, Ordering::SeqCst);
        }
    }

    /// Removes all items of a tenant: `ask` has the server do it, and returns whether it said that it has.
    pub fn wipe(&self, tenant: usize, ask: impl FnOnce() -> bool) {
        let wipes = &self.wipes[tenant];
        wipes.begun.fetch_add(1, Ordering::SeqCst);
        if ask() {
            wipes.done.fetch_add(1, Ordering::SeqCst);
        }
    }

    pub fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Has all threads stop when it is dropped: also if the one that has it has failed.
    pub fn stop_at_end(&self) -> impl Drop + '_ {
        struct Stop<'a>(&'a World);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.stop();
            }
        }
        Stop(self)
    }
}
