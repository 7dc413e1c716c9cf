//! The machine: CPUs with ticks and idle states, timers, threads, and the kernel's normal grace
//! periods, as events in virtual time.
//!
//! Files: [`queue`] orders the events; [`cpu`] is about ticks, idle states and what a CPU notes of
//! a grace period (`rcu_core`); [`timer`] chooses the CPU that expires a timer, and [`wheel`] the
//! time; [`seq`], [`tree`] and [`segments`] are RCU's data; [`gp`] is its thread; [`callbacks`],
//! [`offload`] and [`direct`] are the three ways to wait for it; [`background`] is the rest of the
//! system. A workload drives it from outside: it says what a caller does next, and
//! [`Kernel::next_caller`] returns a caller that has come back from it.

use serde::Serialize;

use crate::constants::Constants;
use gp::GpThread;
use queue::Queue;
use random::Random;

mod background;
mod callbacks;
mod cpu;
mod direct;
mod gp;
mod offload;
mod queue;
mod random;
mod segments;
mod seq;
pub mod tasks_trace;
mod timer;
mod tree;
mod wheel;

pub use gp::GracePeriod;
pub use queue::Time;
pub use random::Random as Stream;

/// How large and how quick a machine is.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Size {
    /// CPUs, all online.
    pub cpus: usize,
    /// Ticks a second.
    pub hz: u64,
}

/// What a machine is made of.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Its size.
    pub size: Size,
    /// Everything else that can be set.
    pub constants: Constants,
    /// Chance's beginning.
    pub seed: u64,
}

/// The threads that run on CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Thread {
    /// The grace-period thread.
    Gp,
    /// The thread that watches over the offloaded callbacks of a group of CPUs (`rcuog`).
    Watcher(usize),
    /// The thread that invokes a CPU's offloaded callbacks (`rcuop`).
    Invoker(usize),
    /// The worker that wakes direct waiters, if they are many (`sync_wq`).
    Worker,
    /// A caller of the workload's.
    Caller(usize),
}

#[derive(Debug)]
enum Event {
    /// A CPU's tick; of an earlier stretch of ticks if the number is not the CPU's.
    Tick { cpu: usize, stretch: u64 },
    /// A woken thread gets to run.
    Run(Thread),
    /// A task leaves the CPU.
    Leave(usize),
    /// A caller has done its work.
    WorkDone(usize),
    /// A thread's timer; cancelled if the number is not that of the thread's latest.
    Timer { thread: Thread, armed: u64 },
    /// The grace-period thread has done a step of its work.
    GpStep,
    /// A task of the background starts, on some CPU.
    Background,
}

/// A thread of the workload's.
#[derive(Debug)]
struct Caller {
    cpu: usize,
    /// Its latest timer.
    timer: u64,
}

/// The machine.
#[derive(Debug)]
pub struct Kernel {
    setup: Setup,
    tick: Time,
    queue: Queue<Event>,
    cpus: Vec<cpu::Cpu>,
    /// CPUs whose tick runs.
    ticking: usize,
    /// The CPU that went idle last, when none was left: it will wake for the next timer of all.
    last_awake: usize,
    timers_armed: u64,
    tree: tree::Tree,
    gp: GpThread,
    direct: direct::Direct,
    watchers: Vec<offload::Watcher>,
    callers: Vec<Caller>,
    /// Callers that have come back and are not reported yet.
    back: Option<usize>,
    latencies: Random,
    governor: Random,
    placement: Random,
    scheduler: Random,
    background: Random,
}

impl Kernel {
    /// A machine at rest, some time after a tick.
    pub fn boot(setup: Setup) -> Self {
        let Setup {
            size: Size { cpus, hz },
            ref constants,
            seed,
        } = setup;
        let tick = 1_000_000_000 / hz;
        let mut placement = Random::new(seed, "placement");
        let gp = GpThread::new(placement.below(cpus));
        let groups = cpus.div_ceil(constants.rcu_nocb_gp_stride as usize);
        let mut kernel = Self {
            tick,
            // Far enough from the beginning for "the last grace period" to be long ago.
            queue: Queue::starting_at(1000 * tick + tick / 2),
            cpus: (0..cpus).map(|_| cpu::Cpu::default()).collect(),
            ticking: 0,
            last_awake: gp.cpu,
            timers_armed: 0,
            tree: tree::Tree::new(
                cpus,
                constants.rcu_fanout_leaf as usize,
                constants.rcu_fanout as usize,
            ),
            gp,
            direct: direct::Direct::default(),
            watchers: (0..groups).map(|_| offload::Watcher::Asleep).collect(),
            callers: Vec::new(),
            back: None,
            latencies: Random::new(seed, "latencies"),
            governor: Random::new(seed, "governor"),
            placement,
            scheduler: Random::new(seed, "scheduler"),
            background: Random::new(seed, "background"),
            setup,
        };
        kernel.cpus[kernel.last_awake].wakes_for_timer = true;
        kernel.start_background();
        kernel
    }

    /// The present, in nanoseconds.
    pub fn now(&self) -> Time {
        self.queue.now()
    }

    /// The machine's size.
    pub fn size(&self) -> Size {
        self.setup.size
    }

    /// The constants in force.
    pub fn constants(&self) -> &Constants {
        &self.setup.constants
    }

    /// Ticks so far.
    pub fn jiffies(&self) -> u64 {
        self.now() / self.tick
    }

    /// The time of a jiffy's tick.
    fn time_of(&self, jiffy: u64) -> Time {
        jiffy * self.tick
    }

    /// Where the grace-period thread is.
    pub fn gp_thread_cpu(&self) -> usize {
        self.gp.cpu
    }

    /// The grace periods that have ended.
    pub fn grace_periods(&self) -> &[GracePeriod] {
        &self.gp.history
    }

    /// A CPU drawn by lot, for a caller to live on.
    pub fn any_cpu(&mut self) -> usize {
        self.placement.below(self.cpus.len())
    }

    /// A new caller on `cpu`, running, just after a tick: its sleep has ended then.
    pub fn add_caller(&mut self, cpu: usize) -> usize {
        let caller = self.callers.len();
        self.callers.push(Caller { cpu, timer: 0 });
        self.arm_timer(Thread::Caller(caller), 1);
        caller
    }

    /// The caller runs on its CPU for so long.
    pub fn work(&mut self, caller: usize, span: Time) {
        let at = self.now() + span;
        self.queue.at(at, Event::WorkDone(caller));
    }

    /// Puts the caller to sleep for `jiffies` (`schedule_timeout`).
    pub fn sleep(&mut self, caller: usize, jiffies: u64) {
        self.arm_timer(Thread::Caller(caller), jiffies);
        self.leave(self.callers[caller].cpu);
    }

    /// The caller has nothing more to do.
    pub fn depart(&mut self, caller: usize) {
        self.leave(self.callers[caller].cpu);
    }

    /// The caller moves to another CPU, and goes on running there.
    pub fn migrate(&mut self, caller: usize, cpu: usize) {
        let old = self.callers[caller].cpu;
        if old != cpu {
            self.enter(cpu);
            self.callers[caller].cpu = cpu;
            self.leave(old);
        }
    }

    /// The caller waits for a grace period, asleep.
    pub fn synchronize_rcu(&mut self, caller: usize) {
        let cpu = self.callers[caller].cpu;
        if self.setup.constants.rcu_normal_wake_from_gp {
            self.wait_directly(caller);
        } else {
            self.call_rcu(cpu, segments::Callback::Wake(caller));
        }
        self.leave(cpu);
    }

    /// The caller, running, queues a callback that has no effect on the experiment.
    pub fn defer(&mut self, caller: usize) {
        self.call_rcu(self.callers[caller].cpu, segments::Callback::Other);
    }

    /// Goes on until a caller runs again after its work, its sleep or its wait, and says which.
    pub fn next_caller(&mut self) -> usize {
        loop {
            let event = self
                .queue
                .next()
                .expect("a caller's return is always scheduled, or depends on one that is");
            self.handle(event);
            if let Some(caller) = self.back.take() {
                return caller;
            }
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Tick { cpu, stretch } => self.on_tick(cpu, stretch),
            Event::Run(thread) => self.run(thread),
            Event::Leave(cpu) => self.leave(cpu),
            Event::WorkDone(caller) => self.back = Some(caller),
            Event::Timer { thread, armed } => self.on_timer(thread, armed),
            Event::GpStep => self.gp_step(),
            Event::Background => self.on_background(),
        }
    }

    fn run(&mut self, thread: Thread) {
        match thread {
            Thread::Gp => self.run_gp(),
            Thread::Watcher(group) => self.run_watcher(group),
            Thread::Invoker(cpu) => self.run_invoker(cpu),
            Thread::Worker => self.run_worker(),
            Thread::Caller(caller) => {
                self.enter(self.callers[caller].cpu);
                self.back = Some(caller);
            }
        }
    }

    /// Has a sleeping thread run as soon as it can: an interrupt, the way out of idle, the
    /// scheduler.
    fn wake(&mut self, thread: Thread) {
        let latency = self.latency();
        self.queue
            .at(self.queue.now() + latency, Event::Run(thread));
    }

    /// How long the next wake-up takes.
    fn latency(&mut self) -> Time {
        let Constants {
            wakeup_us,
            wakeup_jitter_us,
            ..
        } = self.setup.constants;
        (wakeup_us * 1e3) as Time + self.latencies.exponential_us(wakeup_jitter_us)
    }

    /// Something runs on `cpu` for `us` microseconds from now on.
    fn occupy(&mut self, cpu: usize, us: f64) {
        self.enter(cpu);
        self.queue
            .at(self.queue.now() + (us * 1e3) as Time, Event::Leave(cpu));
    }
}
