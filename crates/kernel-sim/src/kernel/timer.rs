//! Which CPU expires a timer. Since 6.9 a CPU whose tick is stopped leaves its timers to one that
//! is awake (the pull model): its own clock stays silent, unless it was the last to go idle. Before
//! that, a timer fired on the CPU that had armed it.

use super::wheel;
use super::{Event, Kernel, Thread};

impl Kernel {
    /// The thread's only timer, on the CPU that it runs on.
    pub(super) fn arm_timer(&mut self, thread: Thread, timeout: u64) {
        self.timers_armed += 1;
        let armed = self.timers_armed;
        *self.latest_timer(thread) = armed;
        let at = self.time_of(wheel::expiry(self.jiffies(), timeout));
        self.queue.at(at, Event::Timer { thread, armed });
    }

    /// Forgets the thread's timer.
    pub(super) fn cancel_timer(&mut self, thread: Thread) {
        *self.latest_timer(thread) = 0;
    }

    fn latest_timer(&mut self, thread: Thread) -> &mut u64 {
        match thread {
            Thread::Gp => &mut self.gp.timer,
            Thread::Caller(caller) => &mut self.callers[caller].timer,
            Thread::Watcher(_) | Thread::Invoker(_) | Thread::Worker => {
                unreachable!("they never sleep for a time")
            }
        }
    }

    pub(super) fn on_timer(&mut self, thread: Thread, armed: u64) {
        if *self.latest_timer(thread) != armed {
            return;
        }
        self.cancel_timer(thread);
        let home = match thread {
            Thread::Gp => self.gp.cpu,
            Thread::Caller(caller) => self.callers[caller].cpu,
            Thread::Watcher(_) | Thread::Invoker(_) | Thread::Worker => {
                unreachable!("they never sleep for a time")
            }
        };
        let expires = self.expires_timer_of(home);
        // A CPU that wakes from idle for this does what every tick does; one that ticks has its own
        // event for it.
        if !self.cpus[expires].ticks() {
            self.sched_clock_irq(expires);
        }
        match thread {
            Thread::Gp => self.wake_gp(expires),
            other => self.wake(other),
        }
    }

    /// The CPU that handles a timer of `home`.
    fn expires_timer_of(&self, home: usize) -> usize {
        let own = &self.cpus[home];
        if !self.setup.constants.timer_pull || own.ticks() || own.wakes_for_timer {
            return home;
        }
        // The migrator is one of the own group, if anyone is awake there.
        let group = self.setup.constants.tmigr_children_per_group as usize;
        let first = home / group * group;
        let mut candidates =
            (first..(first + group).min(self.cpus.len())).chain(0..self.cpus.len());
        candidates
            .find(|&cpu| self.cpus[cpu].ticks())
            .unwrap_or(self.last_awake)
    }
}
