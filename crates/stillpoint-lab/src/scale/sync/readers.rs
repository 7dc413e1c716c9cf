//! The readers beside the callers, the same for every subject: registered threads that have read
//! once and sleep, and threads that read without a pause.
//!
//! ```text
//!   asleep   join, read once, settle ------------------------------------------------> end
//!   busy     join, read once, settle -> start -> section, section, ... -> halt ------> end
//! ```
//!
//! At every arrow a thread sleeps [away](Reader::offline). All have settled before the first wait
//! is timed, and none leaves before the last figure is taken.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::time::{ClockId, clock_gettime};

use crate::affinity;
use crate::scale::threads::spawn_small;
use crate::subject::Reader;

/// How long a busy reader's section lasts.
const SECTION: Duration = Duration::from_nanos(200);

/// Time for the last of the settled threads to fall asleep.
const SETTLING: Duration = Duration::from_millis(2);

/// Who reads beside the callers.
#[derive(Clone, Copy)]
pub struct ReaderPool {
    asleep: usize,
    busy: usize,
    two_cpus: bool,
}

impl ReaderPool {
    /// No readers.
    pub const NONE: Self = Self {
        asleep: 0,
        busy: 0,
        two_cpus: false,
    };

    /// Registered threads that sleep.
    pub const fn asleep(count: usize) -> Self {
        Self {
            asleep: count,
            ..Self::NONE
        }
    }

    /// Threads that read section after section.
    pub const fn busy(count: usize) -> Self {
        Self {
            busy: count,
            ..Self::NONE
        }
    }

    /// The same, with two CPUs for the whole process, however many the machine has.
    pub const fn on_two_cpus(self) -> Self {
        Self {
            two_cpus: true,
            ..self
        }
    }
}

/// Where the readers of one process are.
pub struct ReaderControl {
    settled: Latch,
    start: Latch,
    running: Latch,
    halt: AtomicBool,
    halted: Latch,
    /// Processor time of the busy readers between start and halt, in nanoseconds.
    spent: AtomicU64,
    end: Latch,
}

impl ReaderControl {
    fn for_pool(pool: ReaderPool) -> Self {
        Self {
            settled: Latch::new(pool.asleep + pool.busy),
            start: Latch::new(1),
            running: Latch::new(pool.busy),
            halt: AtomicBool::new(false),
            halted: Latch::new(pool.busy),
            spent: AtomicU64::new(0),
            end: Latch::new(1),
        }
    }

    /// Returns once all busy readers read.
    pub fn set_going(&self) {
        self.start.open();
        self.running.wait();
    }

    /// Returns once none does any more: the processor time that they have taken together.
    pub fn halt(&self) -> Duration {
        self.halt.store(true, Ordering::Relaxed);
        self.halted.wait();
        Duration::from_nanos(self.spent.load(Ordering::Relaxed))
    }

    fn sleep_through<R: Reader>(&self) {
        let mut part = R::register_thread();
        part.read(|| ());
        part.offline(|| {
            self.settled.arrive();
            self.end.wait();
        });
    }

    fn read_without_pause<R: Reader>(&self, section: Section) {
        let mut part = R::register_thread();
        part.read(|| ());
        part.offline(|| {
            self.settled.arrive();
            self.start.wait();
        });
        let before = cpu_time(ClockId::ThreadCPUTime);
        self.running.arrive();
        while !self.halt.load(Ordering::Relaxed) {
            part.read(|| section.run());
        }
        let spent = cpu_time(ClockId::ThreadCPUTime) - before;
        self.spent
            .fetch_add(spent.as_nanos() as u64, Ordering::Relaxed);
        part.offline(|| {
            self.halted.arrive();
            self.end.wait();
        });
    }
}

/// Lets all readers go when it is dropped, also where something failed and they would wait for
/// ever.
struct StopOnDrop<'s>(&'s ReaderControl);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.halt.store(true, Ordering::Relaxed);
        self.0.start.open();
        self.0.end.open();
    }
}

/// Runs `measured` beside the pool, whose readers belong to `R`.
pub fn with_readers<R: Reader, T>(
    pool: ReaderPool,
    measured: impl FnOnce(&ReaderControl) -> Result<T>,
) -> Result<T> {
    if pool.two_cpus {
        confine_to_two_cpus()?;
    }
    let section = Section::lasting(SECTION);
    let control = ReaderControl::for_pool(pool);
    thread::scope(|scope| {
        let _stop = StopOnDrop(&control);
        for _ in 0..pool.asleep {
            spawn_small(scope, || control.sleep_through::<R>());
        }
        for _ in 0..pool.busy {
            spawn_small(scope, || control.read_without_pause::<R>(section));
        }
        control.settled.wait();
        thread::sleep(SETTLING);
        measured(&control)
    })
}

/// What `clock` shows, one of those that count processor time.
pub fn cpu_time(clock: ClockId) -> Duration {
    clock_gettime(clock)
        .try_into()
        .expect("processor time counts from 0")
}

/// Leaves the process the first two of its CPUs; to be called before it starts threads.
fn confine_to_two_cpus() -> Result<()> {
    let allowed = affinity::allowed().context("cannot read the CPU affinity")?;
    let two = &allowed[..allowed.len().min(2)];
    affinity::move_to(None, two).context("cannot set the CPU affinity")
}

/// Work of a known length that touches no memory and makes no call. Not the processor's pause
/// instruction, which a hypervisor may take as a hint to run another virtual CPU.
#[derive(Clone, Copy)]
struct Section {
    turns: u32,
}

impl Section {
    /// Finds out how much work lasts so long: by the best of some tries, since whatever lengthens
    /// one is other people's work.
    fn lasting(length: Duration) -> Self {
        const TRIES: usize = 20;
        let sample = Self { turns: 10_000 };
        let time = |_| {
            let begun = Instant::now();
            sample.run();
            begun.elapsed()
        };
        let best = (0..TRIES).map(time).min().expect("there are tries");
        let turns = f64::from(sample.turns) * length.as_secs_f64() / best.as_secs_f64();
        Self {
            turns: turns.round() as u32,
        }
    }

    #[inline]
    fn run(self) {
        let mut value = black_box(1_u64);
        for _ in 0..self.turns {
            // Each turn needs the one before (a generator of Knuth's), so that no two overlap.
            value = value
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
        }
        black_box(value);
    }
}

/// Opens for all who wait when the last of those counted has arrived.
pub struct Latch {
    missing: Mutex<usize>,
    opened: Condvar,
}

impl Latch {
    /// Open from the start if `count` is 0.
    pub fn new(count: usize) -> Self {
        Self {
            missing: Mutex::new(count),
            opened: Condvar::new(),
        }
    }

    /// One of those counted is here.
    pub fn arrive(&self) {
        let mut missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        *missing = missing.saturating_sub(1);
        if *missing == 0 {
            self.opened.notify_all();
        }
    }

    /// Opens, even if some have not arrived.
    pub fn open(&self) {
        *self.missing.lock().unwrap_or_else(PoisonError::into_inner) = 0;
        self.opened.notify_all();
    }

    /// Sleeps until it is open.
    pub fn wait(&self) {
        let missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        let _open = self
            .opened
            .wait_while(missing, |missing| *missing > 0)
            .unwrap_or_else(PoisonError::into_inner);
    }
}
