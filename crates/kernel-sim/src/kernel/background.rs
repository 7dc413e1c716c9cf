//! The rest of the system: short tasks, at any moment, each of which leaves a callback behind; and
//! CPUs that never rest.

use super::segments::Callback;
use super::{Event, Kernel};

impl Kernel {
    pub(super) fn start_background(&mut self) {
        let busy = (self.setup.constants.busy_cpus as usize).min(self.cpus.len());
        for index in 0..busy {
            self.enter(self.spread(index, busy));
        }
        self.schedule_background();
    }

    fn schedule_background(&mut self) {
        let rate = self.setup.constants.background_tasks_per_s;
        if rate > 0.0 {
            let span = self.background.exponential_us(1e6 / rate);
            self.queue.at(self.queue.now() + span, Event::Background);
        }
    }

    pub(super) fn on_background(&mut self) {
        let cpus = (self.setup.constants.background_cpus as usize).clamp(1, self.cpus.len());
        let index = self.background.below(cpus);
        let cpu = self.spread(index, cpus);
        self.enter(cpu);
        self.call_rcu(cpu, Callback::Other);
        let span = self
            .background
            .exponential_us(self.setup.constants.background_task_us);
        self.queue.at(self.queue.now() + span, Event::Leave(cpu));
        self.schedule_background();
    }

    /// The `index`th of `count` CPUs that lie evenly over the machine.
    fn spread(&self, index: usize, count: usize) -> usize {
        index * self.cpus.len() / count
    }
}
