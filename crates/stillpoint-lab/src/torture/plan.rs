//! What a run is to do.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The disturbances, by their names on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u32)]
pub enum Disturbance {
    StallReader,
    StallService,
    FwdProgress,
    BarrierCallbacks,
    ReadExit,
    RegistrationChurn,
    Signals,
    Preempt,
    Shuffle,
    Stutter,
    Fork,
}

/// All of them.
pub const DISTURBANCES: [Disturbance; 11] = [
    Disturbance::StallReader,
    Disturbance::StallService,
    Disturbance::FwdProgress,
    Disturbance::BarrierCallbacks,
    Disturbance::ReadExit,
    Disturbance::RegistrationChurn,
    Disturbance::Signals,
    Disturbance::Preempt,
    Disturbance::Shuffle,
    Disturbance::Stutter,
    Disturbance::Fork,
];

impl Disturbance {
    /// The option that asks for it, without its dashes.
    pub fn option(self) -> &'static str {
        match self {
            Self::StallReader => "stall-reader",
            Self::StallService => "stall-service",
            Self::FwdProgress => "fwd-progress",
            Self::BarrierCallbacks => "barrier-callbacks",
            Self::ReadExit => "read-exit",
            Self::RegistrationChurn => "registration-churn",
            Self::Signals => "signals",
            Self::Preempt => "preempt",
            Self::Shuffle => "shuffle",
            Self::Stutter => "stutter",
            Self::Fork => "fork",
        }
    }
}

/// How the disturbances come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Turns {
    /// One after the other, some at a time.
    Short,
    /// Those that were asked for, all the time.
    Whole,
}

/// What a run is to do; with it and its flavour the run can be repeated.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    /// The flavour.
    pub flavour: String,
    /// How long.
    pub duration_s: f64,
    /// Reading threads, or tasks.
    pub readers: usize,
    /// Lanes, and writers.
    pub writers: usize,
    /// Threads that only wait.
    pub fakewriters: usize,
    /// The disturbances in force, in turns or always.
    pub disturbances: Vec<Disturbance>,
    /// Which of the two.
    pub turns: Turns,
    /// True if sequences start just below the wrap.
    pub gpwrap: bool,
    /// How long a stalling reader stays.
    pub stall_reader_s: f64,
    /// How long a stalling callback takes.
    pub stall_service_s: f64,
    /// Threads that queue callbacks for a barrier.
    pub barrier_callbacks: usize,
    /// Seconds between lines.
    pub stat_interval_s: f64,
    /// The seed.
    pub seed: u64,
    /// True if it is about wake-ups, so that a lost one is missed soon.
    #[serde(skip)]
    pub isolated: bool,
    /// True if lines are printed as rcutorture does.
    #[serde(skip)]
    pub kernel_format: bool,
}

impl Plan {
    /// How long the run is to last.
    pub fn duration(&self) -> Duration {
        Duration::from_secs_f64(self.duration_s)
    }

    /// The command that makes the same choices.
    pub fn command(&self) -> String {
        let mut command = format!(
            "stillpoint torture {} --seed {} --duration {} --readers {} --writers {} --fakewriters {}",
            self.flavour, self.seed, self.duration_s, self.readers, self.writers, self.fakewriters
        );
        if self.turns == Turns::Whole {
            for &disturbance in &self.disturbances {
                command += &format!(" --{}", disturbance.option());
                command += &match disturbance {
                    Disturbance::StallReader => format!(" {}", self.stall_reader_s),
                    Disturbance::StallService => format!(" {}", self.stall_service_s),
                    Disturbance::BarrierCallbacks => format!(" {}", self.barrier_callbacks),
                    _ => String::new(),
                };
            }
            match (self.gpwrap, self.disturbances.is_empty()) {
                (true, _) => command += " --gpwrap",
                (false, true) => command += " --calm",
                (false, false) => {}
            }
        }
        command
    }

    /// Returns whether the disturbance takes part at all.
    pub fn has(&self, disturbance: Disturbance) -> bool {
        self.disturbances.contains(&disturbance)
    }
}
