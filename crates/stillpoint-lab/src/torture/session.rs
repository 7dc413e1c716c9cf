//! What all threads of a run share, and what each of them has.

use std::hint;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use stillpoint::Cookie;

use super::disturb::Disturbance;
use super::options::Plan;
use super::tally::{Tally, add};

/// One run of one flavour.
#[derive(Debug)]
pub struct Session {
    /// What it is to do.
    pub plan: Plan,
    /// What it has counted.
    pub tally: Tally,
    /// When it began.
    pub start: Instant,
    over: CachePadded<AtomicBool>,
    /// The disturbances in force at this moment, a bit each.
    in_force: CachePadded<AtomicU32>,
    /// True if readers and writers pause.
    paused: AtomicBool,
    /// Threads of the flavour that have not ended.
    live: AtomicUsize,
    /// What each writer has done: it grows as long as the writer is well.
    beats: Vec<CachePadded<AtomicU64>>,
    /// Readers that can be signalled and moved.
    pub threads: Mutex<Vec<Registered>>,
}

/// A thread of the flavour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registered {
    /// For `sched_setaffinity`.
    pub tid: rustix::thread::Pid,
    /// For `pthread_kill`; `None` if handlers may not read in it.
    pub handle: Option<libc::pthread_t>,
}

impl Session {
    /// A run that begins now.
    pub fn new(plan: Plan) -> Self {
        let writers = plan.writers + plan.fakewriters;
        Self {
            plan,
            tally: Tally::default(),
            start: Instant::now(),
            over: CachePadded::default(),
            in_force: CachePadded::default(),
            paused: AtomicBool::new(false),
            live: AtomicUsize::new(0),
            beats: (0..writers).map(|_| CachePadded::default()).collect(),
            threads: Mutex::default(),
        }
    }

    /// Returns whether the run is over.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Ends the run.
    pub fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
        self.paused.store(false, Ordering::Relaxed);
    }

    /// Returns whether the disturbance is in force at this moment.
    pub fn is_active(&self, disturbance: Disturbance) -> bool {
        self.in_force.load(Ordering::Relaxed) & bit(disturbance) != 0
    }

    /// Puts these disturbances in force, and no others.
    pub fn set_active(&self, disturbances: &[Disturbance]) {
        let set = disturbances.iter().fold(0, |set, &one| set | bit(one));
        self.in_force.store(set, Ordering::Relaxed);
        if !disturbances.contains(&Disturbance::Stutter) {
            self.pause(false);
        }
    }

    /// Has readers and writers pause, or go on.
    pub fn pause(&self, paused: bool) {
        self.paused
            .store(paused && !self.is_over(), Ordering::Relaxed);
    }

    /// A writer's or fake writer's sign of life. From the first one on it is watched: a flavour
    /// need not start all that the plan has room for.
    pub fn beat(&self, who: usize) {
        self.beats[who].fetch_add(1, Ordering::Relaxed);
    }

    /// All signs of life.
    pub fn beats(&self) -> Vec<u64> {
        self.beats
            .iter()
            .map(|beat| beat.load(Ordering::Relaxed))
            .collect()
    }

    /// Waits while the run is paused. Outside of sections. `beat` is called meanwhile.
    pub fn wait_while_paused(&self, beat: impl Fn()) {
        while self.paused.load(Ordering::Relaxed) {
            beat();
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Where the sequences of the run's domains start.
    pub fn first_cookie(&self) -> Cookie {
        // So many grace periods before the wrap; the low 16 bits of a raw cookie are no part of its
        // number.
        let before = 200 + self.plan.seed % 1800;
        if self.plan.gpwrap {
            Cookie::from_raw((before << 16).wrapping_neg())
        } else {
            Cookie::from_raw(0)
        }
    }

    /// Threads of the flavour that have not ended.
    pub fn live(&self) -> usize {
        self.live.load(Ordering::Acquire)
    }

    /// Counts the calling thread as live until the returned value is dropped.
    pub fn enter(&self) -> Live<'_> {
        self.live.fetch_add(1, Ordering::Relaxed);
        Live(self)
    }

    /// A thread's own part, whose choices depend on the seed and on its role and number.
    pub fn thread_ctx(&self, role: &str, number: usize) -> ThreadCtx<'_> {
        let seed = self.plan.seed ^ 0xcbf2_9ce4_8422_2325;
        let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        let mixed = role.bytes().chain(number.to_le_bytes()).fold(seed, mix);
        ThreadCtx {
            session: self,
            random: fastrand::Rng::with_seed(mixed),
            seen: Vec::new(),
            sections: 0,
        }
    }
}

fn bit(disturbance: Disturbance) -> u32 {
    1 << disturbance as u32
}

/// A thread that counts as live.
#[derive(Debug)]
pub struct Live<'s>(&'s Session);

impl Drop for Live<'_> {
    fn drop(&mut self) {
        self.0.live.fetch_sub(1, Ordering::Release);
    }
}

/// A thread's own part.
#[derive(Debug)]
pub struct ThreadCtx<'s> {
    /// The run.
    pub session: &'s Session,
    /// Its choices.
    pub random: fastrand::Rng,
    /// The newest version that it has seen in each lane.
    pub seen: Vec<u64>,
    /// Sections that it has not added to the tally yet.
    sections: u64,
}

/// Sections between two additions to the tally.
const FLUSH: u64 = 256;

impl ThreadCtx<'_> {
    /// Counts a section.
    pub fn count(&mut self) {
        self.sections += 1;
        if self.sections >= FLUSH {
            self.flush();
        }
    }

    fn flush(&mut self) {
        add(&self.session.tally.sections, mem::take(&mut self.sections));
    }

    /// Returns whether something that should happen once in `n` times happens now.
    pub fn one_in(&mut self, n: u32) -> bool {
        self.random.u32(0..n) == 0
    }

    /// Stays where it is for a moment: mostly some nanoseconds, now and then microseconds, rarely
    /// until it has lost its processor.
    pub fn delay(&mut self) {
        match self.random.u32(0..4096) {
            0 => thread::sleep(Duration::from_micros(self.random.u64(1..1000))),
            1..3 => thread::yield_now(),
            3..200 => self.spin(4000),
            200..2000 => self.spin(400),
            _ => self.spin(20),
        }
    }

    /// Spins, up to `most` times.
    pub fn spin(&mut self, most: u32) {
        (0..self.random.u32(0..most)).for_each(|_| hint::spin_loop());
    }
}

impl Drop for ThreadCtx<'_> {
    fn drop(&mut self) {
        self.flush();
    }
}
