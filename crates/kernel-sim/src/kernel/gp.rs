//! The grace-period thread (`rcu_gp_kthread`): begins a grace period, waits and looks for CPUs that
//! have been idle, again and again until every CPU has passed through a quiescent state, and ends
//! it.

use super::queue::Time;
use super::seq::Seq;
use super::{Event, Kernel, Thread};

/// A grace period that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GracePeriod {
    /// When it began.
    pub began: Time,
    /// When it ended.
    pub ended: Time,
    /// Scans for idle CPUs.
    pub scans: u32,
}

/// What the thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    /// Sleeps until a grace period is requested.
    Nothing,
    /// Begins one.
    Beginning,
    /// Sleeps before a scan.
    Waiting,
    /// Scans.
    Scanning,
    /// Ends it.
    Ending,
}

/// The thread.
#[derive(Debug)]
pub struct GpThread {
    /// The machine's sequence number (`rcu_state.gp_seq`).
    pub seq: Seq,
    /// Where it runs, or ran last.
    pub cpu: usize,
    /// Its latest timer.
    pub timer: u64,
    /// Those that have ended.
    pub history: Vec<GracePeriod>,
    doing: Doing,
    /// It has been woken, and not gone to sleep since.
    awake: bool,
    asked: bool,
    scan_asked: bool,
    first_scan: bool,
    /// When the next scan is due (`jiffies_force_qs`).
    scan_at: u64,
    /// CPUs that the scan under way has found quiescent.
    found: Vec<usize>,
    began: Time,
    scans: u32,
}

impl GpThread {
    /// Asleep, on `cpu`.
    pub fn new(cpu: usize) -> Self {
        Self {
            seq: Seq::FIRST,
            cpu,
            timer: 0,
            history: Vec::new(),
            doing: Doing::Nothing,
            awake: false,
            asked: false,
            scan_asked: false,
            first_scan: true,
            scan_at: 0,
            found: Vec::new(),
            began: 0,
            scans: 0,
        }
    }
}

impl Kernel {
    /// Asks for the grace period that `cookie` names (`rcu_start_this_gp`); true if the thread is
    /// to be woken for it. Where one is under way, the thread goes on to the next by itself.
    pub(super) fn ask_for(&mut self, cookie: Seq) -> bool {
        self.tree.needed = self.tree.needed.max(cookie);
        if self.gp.seq.in_progress() {
            return false;
        }
        self.gp.asked = true;
        true
    }

    /// Wakes the thread from `waker`. A scheduler that sees the waker's CPU idle may move it there.
    pub(super) fn wake_gp(&mut self, waker: usize) {
        if self.gp.awake {
            return;
        }
        self.gp.awake = true;
        if self.scheduler.chance(self.setup.constants.gp_thread_pulled)
            && !self.cpus[waker].is_busy()
        {
            self.gp.cpu = waker;
        }
        self.wake(Thread::Gp);
    }

    /// The last CPU has reported (`rcu_report_qs_rsp`).
    pub(super) fn last_report(&mut self, reporter: usize) {
        self.gp.scan_asked = true;
        if self.gp.doing == Doing::Waiting {
            self.wake_gp(reporter);
        }
    }

    pub(super) fn run_gp(&mut self) {
        self.cancel_timer(Thread::Gp);
        self.enter(self.gp.cpu);
        match self.gp.doing {
            Doing::Nothing => self.begin_or_sleep(),
            Doing::Waiting => self.after_wait(),
            Doing::Beginning | Doing::Scanning | Doing::Ending => {
                unreachable!("it does not sleep then")
            }
        }
    }

    /// A step of work has been done.
    pub(super) fn gp_step(&mut self) {
        match self.gp.doing {
            Doing::Beginning => self.begun(),
            Doing::Scanning => self.scanned(),
            Doing::Ending => self.ended(),
            Doing::Nothing | Doing::Waiting => unreachable!("it works"),
        }
    }

    fn gp_works(&mut self, doing: Doing, span_us: f64) {
        self.gp.doing = doing;
        self.queue
            .at(self.queue.now() + (span_us * 1e3) as Time, Event::GpStep);
    }

    fn gp_sleeps(&mut self, doing: Doing) {
        self.gp.doing = doing;
        self.gp.awake = false;
        self.leave(self.gp.cpu);
    }

    /// The time that a walk over all nodes takes.
    fn walk_us(&self) -> f64 {
        self.tree.nodes() as f64 * self.setup.constants.node_visit_us
    }

    fn begin_or_sleep(&mut self) {
        if !self.gp.asked {
            return self.gp_sleeps(Doing::Nothing);
        }
        self.begin();
    }

    /// `rcu_gp_init`, until all nodes have been told.
    fn begin(&mut self) {
        self.gp.asked = false;
        self.take_line();
        self.gp.seq.start();
        self.gp.began = self.queue.now();
        self.gp.scans = 0;
        self.gp_works(
            Doing::Beginning,
            self.setup.constants.gp_init_us + self.walk_us(),
        );
    }

    /// The end of `rcu_gp_init`.
    fn begun(&mut self) {
        let cpu = self.gp.cpu;
        self.tree.begin(self.gp.seq);
        self.note_gp_changes(cpu);
        self.gp.first_scan = true;
        self.gp.scan_asked = false;
        if self.setup.constants.early_qs {
            self.pass_quiescent_state(cpu);
            self.report_own(cpu);
        }
        self.wait_for_scan(self.setup.constants.jiffies_till_first_fqs);
    }

    /// Sleeps for `jiffies`, or until the last CPU has reported.
    fn wait_for_scan(&mut self, jiffies: u64) {
        self.gp.scan_at = self.jiffies() + jiffies;
        self.sleep_before_scan(jiffies);
    }

    fn sleep_before_scan(&mut self, jiffies: u64) {
        if self.gp.scan_asked || !self.tree.waits() {
            return self.after_wait();
        }
        self.arm_timer(Thread::Gp, jiffies);
        self.gp_sleeps(Doing::Waiting);
    }

    fn after_wait(&mut self) {
        if !self.tree.waits() {
            return self.end();
        }
        if self.jiffies() >= self.gp.scan_at || self.gp.scan_asked {
            self.scan();
        } else {
            let rest = self.gp.scan_at - self.jiffies();
            self.sleep_before_scan(rest);
        }
    }

    /// Looks at every CPU that is still waited for (`rcu_gp_fqs`).
    fn scan(&mut self) {
        let first = self.gp.first_scan;
        let (mut looked_at, mut found) = (0_u32, Vec::new());
        for cpu in self.tree.holdouts() {
            looked_at += 1;
            let state = &mut self.cpus[cpu];
            if if first {
                state.look_first()
            } else {
                state.look_again()
            } {
                found.push(cpu);
            }
        }
        self.gp.found = found;
        self.gp.scans += 1;
        self.gp_works(
            Doing::Scanning,
            self.walk_us() + f64::from(looked_at) * self.setup.constants.cpu_look_us,
        );
    }

    fn scanned(&mut self) {
        for cpu in std::mem::take(&mut self.gp.found) {
            self.tree.report(cpu);
        }
        self.gp.first_scan = false;
        self.gp.scan_asked = false;
        self.wait_for_scan(self.setup.constants.jiffies_till_next_fqs);
    }

    /// `rcu_gp_cleanup`, until all nodes have been told.
    fn end(&mut self) {
        let cpu = self.gp.cpu;
        self.tree.seq = self.gp.seq.ended();
        self.note_gp_changes(cpu);
        if self.setup.constants.rcu_nocbs {
            self.wake_waiting_watchers();
        }
        self.gp_works(Doing::Ending, self.walk_us());
    }

    /// The end of `rcu_gp_cleanup`.
    fn ended(&mut self) {
        let cpu = self.gp.cpu;
        self.gp.seq.end();
        let GpThread { began, scans, .. } = self.gp;
        self.gp.history.push(GracePeriod {
            began,
            ended: self.queue.now(),
            scans,
        });
        if !self.setup.constants.rcu_nocbs {
            self.accelerate(cpu);
        }
        self.gp.asked = self.tree.needed > self.gp.seq;
        self.wake_line();
        self.begin_or_sleep();
    }
}
