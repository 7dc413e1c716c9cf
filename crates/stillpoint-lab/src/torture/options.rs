//! The command line of `stillpoint torture`, and what it comes to: a [`Plan`].

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::disturb::Disturbance;
use super::flavours::{self, Entry, Threads};

/// The options. Without any of the disturbances (from `--stall-reader` to `--fork`) all of them
/// take short turns, but for broken flavours and for wake, which have none; with some, those are in
/// force from the beginning to the end, and no others.
#[derive(Args)]
pub struct Options {
    /// What to torture: a flavour of the table below, several with commas between them, or `all`
    /// for all sound ones. They share the time
    #[arg(value_parser = flavours::parse, required_unless_present = "list")]
    pub flavour: Option<String>,

    /// Print a line for each flavour and end, for scripts: its name; `sound`, `broken`, or
    /// `broken-in-the-hardware` if only optimised code with membarrier on two processors shows it;
    /// and the faults of which a broken one must show one
    #[arg(long, exclusive = true)]
    pub list: bool,

    /// Seconds that the torture lasts; it ends with the first fault
    #[arg(long, value_name = "S", default_value_t = 60.0, value_parser = parse_seconds)]
    pub duration: f64,

    /// Threads (of trace-async: tasks) that read
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub readers: Option<u32>,

    /// Threads that replace what is read, each in its own lane
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub writers: Option<u32>,

    /// Threads that wait for grace periods and change nothing
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=256))]
    pub fakewriters: Option<u32>,

    /// Have a reader stay in its section for so long, again and again
    #[arg(long, value_name = "S", value_parser = parse_seconds)]
    pub stall_reader: Option<f64>,

    /// Have a callback take so long, again and again
    #[arg(long, value_name = "S", value_parser = parse_seconds)]
    pub stall_service: Option<f64>,

    /// Flood the domain with callbacks, and see that they come
    #[arg(long)]
    pub fwd_progress: bool,

    /// Have this many threads queue a callback each, and see that a barrier waits for them
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub barrier_callbacks: Option<u32>,

    /// Have threads come, read and go
    #[arg(long)]
    pub read_exit: bool,

    /// Have readers register and deregister, and domains come and go
    #[arg(long)]
    pub registration_churn: bool,

    /// Have signal handlers read in the middle of everything
    #[arg(long)]
    pub signals: bool,

    /// Have a thread of higher priority (if the system allows it) take the processors away
    #[arg(long)]
    pub preempt: bool,

    /// Move threads between processors
    #[arg(long)]
    pub shuffle: bool,

    /// Have all readers and writers stop and go
    #[arg(long)]
    pub stutter: bool,

    /// Start sequences just below the wrap
    #[arg(long)]
    pub gpwrap: bool,

    /// Fork, and use the domain in the child
    #[arg(long)]
    pub fork: bool,

    /// No disturbances at all
    #[arg(long, conflicts_with_all = ["stall_reader", "stall_service", "fwd_progress", "barrier_callbacks", "read_exit",
        "registration_churn", "signals", "preempt", "shuffle", "stutter", "gpwrap", "fork"])]
    pub calm: bool,

    /// Seconds between two lines of counts
    #[arg(long, value_name = "S", default_value_t = 15.0, value_parser = parse_seconds)]
    pub stat_interval: f64,

    /// Seed of every choice that the torture makes; printed at the start. The schedule is the
    /// system's [default: of the clock]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,

    /// Write the figures to this file as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// How the disturbances come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Turns {
    /// One after the other, some at a time.
    Short,
    /// Those that were asked for, all the time.
    Whole,
}

/// What a run is to do.
#[derive(Debug, Clone, Serialize)]
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
}

impl Plan {
    /// Returns how long the run is to last.
    pub fn duration(&self) -> Duration {
        Duration::from_secs_f64(self.duration_s)
    }

    /// Returns the command that makes the same choices.
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

/// Returns the plan for one flavour of a run with `options`, which has `duration_s` of its time.
fn plan(options: &Options, flavour: &Entry, duration_s: f64, seed: u64) -> Plan {
    let asked = asked(options);
    let none = asked.is_empty() && !options.gpwrap;
    let calm = options.calm || (none && (flavour.is_broken() || flavour.isolated));
    let (mut disturbances, turns) = match none {
        true if calm => (Vec::new(), Turns::Whole),
        true => (Disturbance::value_variants().to_vec(), Turns::Short),
        false => (asked, Turns::Whole),
    };
    // `all` may have asked for what only other flavours support: see [`unsupported`].
    let supports = |option: &str| !flavour.unsupported_options.contains(&option);
    disturbances.retain(|&one| one != Disturbance::Signals || supports("--signals"));
    let threads = |option: &str, count: Option<u32>, usual: u32| {
        count.filter(|_| supports(option)).unwrap_or(usual) as usize
    };
    let Threads {
        readers,
        writers,
        fakewriters,
    } = flavour.threads;
    Plan {
        flavour: flavour.name.to_owned(),
        duration_s,
        readers: threads("--readers", options.readers, readers),
        writers: threads("--writers", options.writers, writers),
        fakewriters: threads("--fakewriters", options.fakewriters, fakewriters),
        disturbances,
        turns,
        gpwrap: supports("--gpwrap")
            && (options.gpwrap || (none && !options.calm && !flavour.is_broken())),
        stall_reader_s: options.stall_reader.unwrap_or(0.05),
        stall_service_s: options.stall_service.unwrap_or(0.02),
        barrier_callbacks: options.barrier_callbacks.unwrap_or(4) as usize,
        stat_interval_s: options.stat_interval,
        seed,
        isolated: flavour.isolated,
    }
}

/// The first option given that the flavour does not support, if there is one. An option that asks
/// for the default is accepted.
pub fn unsupported(options: &Options, flavour: &Entry) -> Option<&'static str> {
    let (other, usual) = (
        |count: Option<u32>, usual| count.unwrap_or(usual) != usual,
        flavour.threads,
    );
    let asked = [
        ("--readers", other(options.readers, usual.readers)),
        ("--writers", other(options.writers, usual.writers)),
        (
            "--fakewriters",
            other(options.fakewriters, usual.fakewriters),
        ),
        ("--signals", options.signals),
        ("--gpwrap", options.gpwrap),
    ];
    let mut asked = asked
        .into_iter()
        .filter(|(_, asked)| *asked)
        .map(|(option, _)| option);
    asked.find(|option| flavour.unsupported_options.contains(option))
}

/// The shortest run, in seconds.
const LEAST_S: f64 = 0.001;

/// Returns the plans of the flavours, which share the time.
pub fn plans(
    options: &Options,
    flavours: &[&'static Entry],
    seed: u64,
) -> Vec<(&'static Entry, Plan)> {
    let duration_s = (options.duration / flavours.len() as f64).max(LEAST_S);
    let plan_of = |&flavour: &&'static Entry| (flavour, plan(options, flavour, duration_s, seed));
    flavours.iter().map(plan_of).collect()
}

fn asked(options: &Options) -> Vec<Disturbance> {
    let asked = [
        (Disturbance::StallReader, options.stall_reader.is_some()),
        (Disturbance::StallService, options.stall_service.is_some()),
        (Disturbance::FwdProgress, options.fwd_progress),
        (
            Disturbance::BarrierCallbacks,
            options.barrier_callbacks.is_some(),
        ),
        (Disturbance::ReadExit, options.read_exit),
        (Disturbance::RegistrationChurn, options.registration_churn),
        (Disturbance::Signals, options.signals),
        (Disturbance::Preempt, options.preempt),
        (Disturbance::Shuffle, options.shuffle),
        (Disturbance::Stutter, options.stutter),
        (Disturbance::Fork, options.fork),
    ];
    asked
        .into_iter()
        .filter(|(_, asked)| *asked)
        .map(|(one, _)| one)
        .collect()
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok();
    let seconds = seconds.filter(|seconds: &f64| (LEAST_S..=1e6).contains(seconds));
    seconds.ok_or_else(|| "say seconds, 0.001 to 1000000".to_owned())
}

#[cfg(test)]
pub mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        options: Options,
    }

    /// The plan that a command line comes to, after `stillpoint torture`.
    pub fn plan_for(arguments: &str) -> Plan {
        let options =
            Program::parse_from(["torture"].into_iter().chain(arguments.split(' '))).options;
        let flavour = flavours::named(options.flavour.as_deref().expect("given"))[0];
        plan(
            &options,
            flavour,
            options.duration,
            options.seed.unwrap_or(1),
        )
    }

    #[test]
    fn isolated_flavour_has_no_disturbances_by_default() {
        assert_eq!(plan_for("wake").disturbances, []);
        assert_eq!(plan_for("rcu").disturbances, Disturbance::value_variants());
        assert_eq!(plan_for("wake --fork").disturbances, [Disturbance::Fork]);
        assert!(plan_for("wake").gpwrap);
        assert!(!plan_for("wake --calm").gpwrap);
    }

    #[test]
    fn flavours_share_the_time_and_the_seed() {
        let words = "torture rcu,map --duration 3".split(' ');
        let options = Program::parse_from(words).options;
        let plans = plans(&options, &flavours::named("rcu,map"), 4);
        let of = |(flavour, plan): &(&Entry, Plan)| {
            assert_eq!(plan.flavour, flavour.name);
            (flavour.name, plan.seed, plan.duration_s)
        };
        let plans: Vec<_> = plans.iter().map(of).collect();
        assert_eq!(plans, [("rcu", 4, 1.5), ("map", 4, 1.5)]);
    }

    #[test]
    fn a_plans_command_comes_to_the_same_plan() {
        for arguments in [
            "rcu --seed 3",
            "rcu --calm --readers 5 --duration 0.25",
            "wake",
            "busted-poll --seed 7",
            "kvfree --stall-reader 0.1 --barrier-callbacks 3 --signals",
            "trace --fork --gpwrap --stall-service 0.5",
        ] {
            let plan = plan_for(arguments);
            let command = plan.command();
            let again = command
                .strip_prefix("stillpoint torture ")
                .expect("it is one");
            let again = plan_for(again);
            let text = |plan: &Plan| serde_json::to_string(plan).expect("it is names and numbers");
            assert_eq!(text(&again), text(&plan), "{command}");
        }
    }

    #[test]
    fn unsupported_options_are_left_out_of_the_plan() {
        for flavour in flavours::named(flavours::ALL) {
            let options =
                "torture all --readers 5 --writers 6 --fakewriters 7 --signals --shuffle --gpwrap";
            let options = Program::parse_from(options.split(' ')).options;
            let plan = plan(&options, flavour, 1.0, 1);
            let supports = |option: &str| !flavour.unsupported_options.contains(&option);
            assert_eq!(plan.readers == 5, supports("--readers"), "{plan:?}");
            assert_eq!(plan.writers == 6, supports("--writers"), "{plan:?}");
            assert_eq!(plan.fakewriters == 7, supports("--fakewriters"), "{plan:?}");
            assert_eq!(
                plan.has(Disturbance::Signals),
                supports("--signals"),
                "{plan:?}"
            );
            assert_eq!(plan.gpwrap, supports("--gpwrap"), "{plan:?}");
            assert!(plan.has(Disturbance::Shuffle));
        }
    }
}
