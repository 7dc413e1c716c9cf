//! The command line of `stillpoint torture`, and what it comes to: a [`Plan`].

use std::path::PathBuf;

use clap::Args;

use crate::array::Task;

use super::flavours::{self, Entry};
use super::plan::{DISTURBANCES, Disturbance, Plan, Turns};

/// The options. Without any of the disturbances (from `--stall-reader` to `--fork`) all of them
/// take short turns, but for broken flavours and for wake, which have none; with some, those are in
/// force from the beginning to the end, and no others.
#[derive(Args)]
pub struct Options {
    /// What to torture: a flavour of the table below, several with commas between them, or `all`
    /// for all sound ones. They share the time
    #[arg(value_parser = flavours::parse, required_unless_present_any = ["list", "replay"])]
    pub flavour: Option<String>,

    /// Do again what this file says, which a torture has written with --json, or `stillpoint
    /// merge`: the runs that found a fault, or all of them if none did
    #[arg(long, value_name = "FILE", conflicts_with_all = ["flavour", "duration", "readers", "writers", "fakewriters", "calm",
        "stall_reader", "stall_service", "fwd_progress", "barrier_callbacks", "read_exit", "registration_churn", "signals", "preempt",
        "shuffle", "stutter", "gpwrap", "fork", "seed", "seeds", "index", "indices"])]
    pub replay: Option<PathBuf>,

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

    /// Threads that replace what is read, each in a lane of its own
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

    /// Have so many threads queue a callback each, and see that a barrier waits for them
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
    /// system's. With --index it is the seed of the array, 1 by default, whose tasks take --seeds
    /// seeds each, one task after the other, and one of the flavours each, in turn [default: of the
    /// clock]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,

    /// Run each flavour with so many seeds, one after the other, from the first one on; they share
    /// the time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub seeds: u32,

    #[command(flatten)]
    pub task: Task,

    /// Print the lines that the kernel's rcutorture prints, with its abbreviations, instead of
    /// sentences
    #[arg(long)]
    pub kernel_format: bool,

    /// Write the figures to this file as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// The plan for one flavour of a run with `options`, which has `duration_s` of its time.
pub fn plan(options: &Options, flavour: &Entry, duration_s: f64, seed: u64) -> Plan {
    let asked = asked(options);
    let none = asked.is_empty() && !options.gpwrap;
    let calm = options.calm || (none && (flavour.is_broken() || flavour.isolated));
    let (mut disturbances, turns) = match none {
        true if calm => (Vec::new(), Turns::Whole),
        true => (DISTURBANCES.to_vec(), Turns::Short),
        false => (asked, Turns::Whole),
    };
    // `all` may have asked for what only other flavours support: see [`unsupported`].
    let supports = |option: &str| !flavour.unsupported_options.contains(&option);
    disturbances.retain(|&one| one != Disturbance::Signals || supports("--signals"));
    let or = |count: Option<u32>, usual: u32| count.unwrap_or(usual) as usize;
    let threads = |option: &str, count: Option<u32>, usual: u32| {
        or(count.filter(|_| supports(option)), usual)
    };
    Plan {
        flavour: flavour.name.to_owned(),
        duration_s,
        readers: threads("--readers", options.readers, flavour.threads.readers),
        writers: threads("--writers", options.writers, flavour.threads.writers),
        fakewriters: threads(
            "--fakewriters",
            options.fakewriters,
            flavour.threads.fakewriters,
        ),
        disturbances,
        turns,
        gpwrap: supports("--gpwrap")
            && (options.gpwrap || (none && !options.calm && !flavour.is_broken())),
        stall_reader_s: options.stall_reader.unwrap_or(0.05),
        stall_service_s: options.stall_service.unwrap_or(0.02),
        barrier_callbacks: or(options.barrier_callbacks, 4),
        stat_interval_s: options.stat_interval,
        seed,
        isolated: flavour.isolated,
        kernel_format: options.kernel_format,
    }
}

/// The first option given that the flavour does not support, if there is one. An option that asks
/// for the default is accepted.
pub fn unsupported(options: &Options, flavour: &Entry) -> Option<&'static str> {
    let other = |count: Option<u32>, usual: u32| count.is_some_and(|count| count != usual);
    let asked = [
        ("--readers", other(options.readers, flavour.threads.readers)),
        ("--writers", other(options.writers, flavour.threads.writers)),
        (
            "--fakewriters",
            other(options.fakewriters, flavour.threads.fakewriters),
        ),
        ("--signals", options.signals),
        ("--gpwrap", options.gpwrap),
    ];
    asked
        .into_iter()
        .find(|(option, asked)| *asked && flavour.unsupported_options.contains(option))
        .map(|(option, _)| option)
}

/// The shortest run, in seconds.
pub const LEAST_S: f64 = 0.001;

/// What is to be run, in this order: of a task of a job array, the flavour whose turn it is, with
/// the task's seeds.
pub fn plans(
    options: &Options,
    flavours: &[&'static Entry],
    clock: u64,
) -> Vec<(&'static Entry, Plan)> {
    let seeds = u64::from(options.seeds);
    let (flavours, first) = match options.task.index {
        Some(index) => {
            let turn = (index % flavours.len() as u64) as usize;
            let first = options.seed.unwrap_or(1);
            (
                &flavours[turn..=turn],
                first.wrapping_add(index.wrapping_mul(seeds)),
            )
        }
        None => (flavours, options.seed.unwrap_or(clock)),
    };
    let share = options.duration / (flavours.len() as f64 * seeds as f64);
    let duration_s = share.max(LEAST_S);
    (0..seeds)
        .flat_map(|number| flavours.iter().map(move |&flavour| (number, flavour)))
        .map(|(number, flavour)| {
            let seed = first.wrapping_add(number);
            (flavour, plan(options, flavour, duration_s, seed))
        })
        .collect()
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
        .filter_map(|(disturbance, asked)| asked.then_some(disturbance))
        .collect()
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds = text
        .parse()
        .ok()
        .filter(|seconds: &f64| (LEAST_S..=1e6).contains(seconds));
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
        assert_eq!(plan_for("rcu").disturbances, DISTURBANCES);
        assert_eq!(plan_for("wake --fork").disturbances, [Disturbance::Fork]);
        assert!(plan_for("wake").gpwrap);
        assert!(!plan_for("wake --calm").gpwrap);
    }

    fn runs(arguments: &str) -> Vec<(&'static str, u64)> {
        let words = ["torture"].into_iter().chain(arguments.split(' '));
        let options = Program::parse_from(words).options;
        let flavours = flavours::named(options.flavour.as_deref().expect("given"));
        plans(&options, &flavours, 99)
            .into_iter()
            .map(|(flavour, plan)| {
                assert_eq!(plan.flavour, flavour.name);
                (flavour.name, plan.seed)
            })
            .collect()
    }

    #[test]
    fn tasks_of_an_array_share_flavours_and_seeds_out() {
        assert_eq!(runs("rcu"), [("rcu", 99)]);
        assert_eq!(
            runs("rcu,map --seed 4 --seeds 2"),
            [("rcu", 4), ("map", 4), ("rcu", 5), ("map", 5)]
        );
        let task = |index| runs(&format!("rcu,map --seeds 3 --index {index}"));
        assert_eq!(task(0), [("rcu", 1), ("rcu", 2), ("rcu", 3)]);
        assert_eq!(task(1), [("map", 4), ("map", 5), ("map", 6)]);
        assert_eq!(task(2), [("rcu", 7), ("rcu", 8), ("rcu", 9)]);
        assert_eq!(runs("rcu --seed 10 --index 5"), [("rcu", 15)]);
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
            let again = plan_for(
                command
                    .strip_prefix("stillpoint torture ")
                    .expect("it is one"),
            );
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
