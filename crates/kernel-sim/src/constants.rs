//! Every number that the model depends on, by name: the kernel's own, under their names there; the
//! patches, as switches; and the calibration.

use serde::Serialize;
use serde_json::{Map, Value};

/// The numbers. Jiffies are ticks of the machine at hand; what ends in `_us` is in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Constants {
    // The kernel's own.
    /// Jiffies before a grace period's first scan for idle CPUs.
    pub jiffies_till_first_fqs: u64,
    /// Jiffies before each later one.
    pub jiffies_till_next_fqs: u64,
    /// CPUs of a leaf of the tree, at most.
    pub rcu_fanout_leaf: u64,
    /// Children of another node, at most.
    pub rcu_fanout: u64,
    /// CPUs that one thread watches over, where callbacks are offloaded.
    pub rcu_nocb_gp_stride: u64,
    /// Grace periods whose direct waiters may be under way or unwoken.
    pub sr_normal_gp_wait_head_max: u64,
    /// Direct waiters that the grace-period thread wakes by itself.
    pub sr_max_users_wake_from_gp: u64,
    /// CPUs of a group that handle each other's timers.
    pub tmigr_children_per_group: u64,
    /// RCU Tasks Trace: the first wait for holdouts is HZ divided by this; each further divisor is
    /// one less.
    pub tasks_trace_init_fract: u64,
    /// RCU Tasks Trace: jiffies that a grace period must be old for interrupts to be sent to
    /// running tasks.
    pub rcu_task_ipi_delay: u64,
    /// RCU Tasks Trace: jiffies that its thread sleeps after a grace period.
    pub tasks_trace_gp_sleep: u64,

    // Switches.
    /// The grace-period thread reports its own CPU once the grace period has begun (seed 001).
    pub early_qs: bool,
    /// `synchronize_rcu` waits without a callback.
    pub rcu_normal_wake_from_gp: bool,
    /// Callbacks are offloaded to threads, on every CPU.
    pub rcu_nocbs: bool,
    /// Timers of idle CPUs are expired by those awake (since 6.9).
    pub timer_pull: bool,
    /// RCU Tasks Trace sends interrupts also in the jiffy in which its grace period began (seed
    /// 003).
    pub tasks_trace_ipi_at_once: bool,

    // Calibration: no source gives these.
    /// From a wake-up to its thread's running, at least.
    pub wakeup_us: f64,
    /// What comes on top of it, in the mean; memoryless.
    pub wakeup_jitter_us: f64,
    /// The grace-period thread's work at a beginning, besides the nodes.
    pub gp_init_us: f64,
    /// A visit to one node of the tree.
    pub node_visit_us: f64,
    /// A scan's look at one CPU.
    pub cpu_look_us: f64,
    /// A run of a thread that watches over or invokes offloaded callbacks.
    pub offload_thread_us: f64,
    /// A wake-up by the worker that serves direct waiters.
    pub worker_wake_us: f64,
    /// An interrupt of RCU Tasks Trace, from sending to its effect.
    pub ipi_us: f64,
    /// Probability that the idle governor leaves the tick running for once when a CPU goes idle.
    pub idle_tick_kept: f64,
    /// Probability that a wake-up takes the grace-period thread to the waker's CPU, if that is
    /// idle.
    pub gp_thread_pulled: f64,
    /// Tasks of the background, in all; each leaves a callback.
    pub background_tasks_per_s: f64,
    /// CPUs that they run on, evenly over the machine.
    pub background_cpus: u64,
    /// How long one runs, in the mean; memoryless.
    pub background_task_us: f64,
    /// CPUs that never go idle, evenly over the machine.
    pub busy_cpus: u64,
    /// `sim bridge`: how long the caller works between waits that follow one upon the other, in the
    /// mean; memoryless.
    pub bridge_work_us: f64,
    /// `sim bridge`: what else an iteration takes, in the mean, in two uniform parts.
    pub bridge_think_us: f64,
    /// `sim bridge`: callbacks that the caller leaves before each wait.
    pub bridge_callbacks: u64,
}

impl Constants {
    /// The kernel's defaults on such a machine, without any of the patches, and the calibration
    /// that all experiments begin with.
    pub fn of_kernel(cpus: usize, hz: u64) -> Self {
        let cpus = cpus as u64;
        let till_fqs = 1 + u64::from(hz > 250) + u64::from(hz > 500) + cpus / 256;
        Self {
            jiffies_till_first_fqs: till_fqs,
            jiffies_till_next_fqs: till_fqs,
            rcu_fanout_leaf: 16,
            rcu_fanout: 64,
            rcu_nocb_gp_stride: cpus / cpus.isqrt(),
            sr_normal_gp_wait_head_max: 5,
            sr_max_users_wake_from_gp: 5,
            tmigr_children_per_group: 8,
            tasks_trace_init_fract: 10,
            rcu_task_ipi_delay: hz / 2,
            tasks_trace_gp_sleep: hz / 10,

            early_qs: false,
            rcu_normal_wake_from_gp: false,
            rcu_nocbs: false,
            timer_pull: true,
            tasks_trace_ipi_at_once: false,

            wakeup_us: 3.0,
            wakeup_jitter_us: 5.0,
            gp_init_us: 5.0,
            node_visit_us: 0.2,
            cpu_look_us: 0.05,
            offload_thread_us: 10.0,
            worker_wake_us: 3.0,
            ipi_us: 5.0,
            idle_tick_kept: 0.0,
            gp_thread_pulled: 0.0,
            background_tasks_per_s: 0.0,
            background_cpus: cpus,
            background_task_us: 50.0,
            busy_cpus: 0,
            bridge_work_us: 0.0,
            bridge_think_us: 0.0,
            bridge_callbacks: 0,
        }
    }

    /// These constants without jitter, chance or background: what the mechanism alone does.
    #[must_use]
    pub fn undisturbed(self) -> Self {
        Self {
            wakeup_jitter_us: 0.0,
            idle_tick_kept: 0.0,
            gp_thread_pulled: 0.0,
            background_tasks_per_s: 0.0,
            ..self
        }
    }

    /// The names, and the values here.
    pub fn by_name(&self) -> Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(map)) => map,
            _ => unreachable!("a structure of numbers is an object"),
        }
    }
}

/// Those that no source gives: they were chosen so that the results fit, and are no prediction.
pub const CALIBRATION: &[&str] = &[
    "wakeup_us",
    "wakeup_jitter_us",
    "gp_init_us",
    "node_visit_us",
    "cpu_look_us",
    "offload_thread_us",
    "worker_wake_us",
    "ipi_us",
    "idle_tick_kept",
    "gp_thread_pulled",
    "background_tasks_per_s",
    "background_cpus",
    "background_task_us",
    "busy_cpus",
    "bridge_work_us",
    "bridge_think_us",
    "bridge_callbacks",
];

/// What the help of every experiment says about them: names, and values there.
pub fn help(constants: &Constants) -> String {
    let values = constants.by_name();
    let list = |calibration: bool| -> String {
        let chosen = values
            .iter()
            .filter(|(name, _)| CALIBRATION.contains(&name.as_str()) == calibration);
        chosen
            .map(|(name, value)| format!("  {name}={value}\n"))
            .collect()
    };
    format!(
        "Constants and switches of the kernel, with their values in this experiment before its variants:\n{}\n\
         Calibration, not prediction: what no source gives, chosen so that the results fit:\n{}",
        list(false),
        list(true)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calibration_names_what_there_is() {
        let values = Constants::of_kernel(4096, 1000).by_name();
        assert!(CALIBRATION.iter().all(|name| values.contains_key(*name)));
    }
}
