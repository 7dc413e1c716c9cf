//! `torture --replay FILE`: the runs that a result says, with its plans. The file may be from anywhere,
//! so its plans are held to what the command line takes.

use std::path::Path;

use anyhow::Result;
use clap::error::ErrorKind;
use serde::Deserialize;
use serde_json::Value;

use super::flavours::{self, Entry};
use super::options::{LEAST_S, Options};
use super::plan::{Disturbance, Plan};
use crate::machine::{program, this_program};
use crate::merge::input::{self, Ran};

/// The part of a result that says what was run, and what was found.
#[derive(Deserialize)]
struct Outcome {
    experiment: String,
    #[serde(default)]
    params: Params,
    #[serde(default)]
    rows: Vec<Row>,
    #[serde(default)]
    machine: Ran,
    /// Of `stillpoint merge`.
    #[serde(default)]
    failures: Vec<Failed>,
}

#[derive(Default, Deserialize)]
struct Params {
    #[serde(default)]
    plans: Vec<Plan>,
}

#[derive(Deserialize)]
struct Row {
    #[serde(default)]
    metrics: Value,
}

#[derive(Deserialize)]
struct Failed {
    plan: Option<Plan>,
    #[serde(flatten)]
    ran: Ran,
}

/// What the file's result says: the runs that found a fault, or all of them if none did.
pub fn runs(path: &Path, options: &Options) -> Result<Vec<(&'static Entry, Plan)>> {
    let refuse = |why: String| {
        let message = format!("--replay {}: {why}\n", path.display());
        clap::Error::raw(ErrorKind::ValueValidation, message)
    };
    let bytes = input::read(path).map_err(&refuse)?;
    let result: Outcome = serde_json::from_slice(&bytes)
        .map_err(|error| refuse(format!("is no result of a torture ({error})")))?;
    let (plans, ran) = match result.experiment.as_str() {
        "torture" => (faulty(result.params.plans, &result.rows), result.machine),
        "merge" => {
            let ran = result.failures.first().map(|failed| failed.ran.clone());
            let plans = result.failures.into_iter().filter_map(|failed| failed.plan);
            (plans.collect(), ran.unwrap_or_default())
        }
        other => return Err(refuse(format!("has the figures of `{other}`")).into()),
    };
    if plans.is_empty() {
        return Err(refuse("says no run that could be done again".to_owned()).into());
    }
    let mut ran = ran;
    ran.check().map_err(&refuse)?;
    let checked: Result<Vec<_>, String> = plans
        .into_iter()
        .map(|plan| Ok((checked(&plan)?, plan)))
        .collect();
    let checked = checked.map_err(&refuse)?;
    tell_differences(&ran);
    let runs = checked.into_iter().map(|(flavour, plan)| {
        let plan = Plan {
            isolated: flavour.isolated,
            kernel_format: options.kernel_format,
            stat_interval_s: options.stat_interval,
            ..plan
        };
        (flavour, plan)
    });
    Ok(runs.collect())
}

/// The plans whose runs found a fault; all of them if none did.
fn faulty(plans: Vec<Plan>, rows: &[Row]) -> Vec<Plan> {
    let is_faulty = |number: usize| {
        let errors = rows
            .get(number)
            .and_then(|row| row.metrics["errors"].as_f64());
        errors.is_some_and(|errors| errors > 0.0)
    };
    let any = (0..plans.len()).any(is_faulty);
    plans
        .into_iter()
        .enumerate()
        .filter(|&(number, _)| !any || is_faulty(number))
        .map(|(_, plan)| plan)
        .collect()
}

/// Says what the replay cannot bring back.
fn tell_differences(ran: &Ran) {
    let theirs = program(&ran.version, ran.commit.as_deref());
    if theirs != this_program() {
        eprintln!(
            "stillpoint: the file is of {theirs}; this is {}",
            this_program()
        );
    }
    let ours = crate::machine::environment();
    if ran.environment != ours {
        eprintln!(
            "stillpoint: the file was written with {:?} in the environment; here it is {ours:?}",
            ran.environment
        );
    }
}

/// The plan's flavour, if the command line would take what the plan says.
fn checked(plan: &Plan) -> Result<&'static Entry, String> {
    let Some(flavour) = flavours::FLAVOURS
        .iter()
        .find(|entry| entry.name == plan.flavour)
    else {
        return Err(format!("there is no flavour {:?}", plan.flavour));
    };
    let seconds = [
        ("duration_s", plan.duration_s),
        ("stall_reader_s", plan.stall_reader_s),
        ("stall_service_s", plan.stall_service_s),
    ];
    if let Some((name, value)) = seconds.iter().find(|(_, s)| !(LEAST_S..=1e6).contains(s)) {
        return Err(format!("{name} is {value}"));
    }
    let counts = [
        ("readers", plan.readers, 1..=1024),
        ("writers", plan.writers, 1..=64),
        ("fakewriters", plan.fakewriters, 0..=256),
        ("barrier_callbacks", plan.barrier_callbacks, 1..=64),
    ];
    if let Some((name, value, range)) = counts.iter().find(|(_, n, range)| !range.contains(n)) {
        return Err(format!("{name} is {value}, and not in {range:?}"));
    }
    let threads = &flavour.threads;
    let other = |count: usize, usual: u32| count != usual as usize;
    let asks = [
        ("--readers", other(plan.readers, threads.readers)),
        ("--writers", other(plan.writers, threads.writers)),
        (
            "--fakewriters",
            other(plan.fakewriters, threads.fakewriters),
        ),
        ("--signals", plan.has(Disturbance::Signals)),
        ("--gpwrap", plan.gpwrap),
    ];
    let unsupported = |option| flavour.unsupported_options.contains(&option);
    match asks
        .iter()
        .find(|&&(option, asks)| asks && unsupported(option))
    {
        Some((option, _)) => Err(format!("{option} is not supported by {}", plan.flavour)),
        None => Ok(flavour),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::torture::options::tests::plan_for;

    #[test]
    fn only_plans_that_the_command_line_takes_are_run() {
        for arguments in ["rcu", "wake", "busted-lru", "lru --calm", "map --fork"] {
            assert!(checked(&plan_for(arguments)).is_ok(), "{arguments}");
        }
        let refused = |change: fn(&mut Plan)| {
            let mut plan = plan_for("wake");
            change(&mut plan);
            checked(&plan).is_err()
        };
        assert!(!refused(|_| ()));
        assert!(refused(|plan| plan.flavour = "all".to_owned()));
        assert!(refused(|plan| plan.readers = 0));
        assert!(refused(|plan| plan.writers = 65));
        assert!(refused(|plan| plan.fakewriters = usize::MAX));
        assert!(refused(|plan| plan.barrier_callbacks = 0));
        assert!(refused(|plan| plan.duration_s = f64::INFINITY));
        assert!(refused(|plan| plan.stall_reader_s = -1.0));
        assert!(refused(|plan| plan.disturbances.push(Disturbance::Signals)));
        // A flavour with threads of its own has no others.
        for entry in flavours::FLAVOURS {
            for option in ["--readers", "--writers", "--fakewriters"] {
                let mut plan = plan_for(entry.name);
                match option {
                    "--readers" => plan.readers += 1,
                    "--writers" => plan.writers += 1,
                    _ => plan.fakewriters += 1,
                }
                let is_refused = checked(&plan).is_err();
                let is_fixed = entry.unsupported_options.contains(&option);
                assert_eq!(is_refused, is_fixed, "{} {option}", entry.name);
            }
        }
    }

    #[test]
    fn of_several_runs_those_with_faults_are_done_again() {
        let plans = || vec![plan_for("rcu"), plan_for("map"), plan_for("lru")];
        let row = |errors: f64| Row {
            metrics: serde_json::json!({ "errors": errors }),
        };
        let names = |rows: &[Row]| {
            let plans = faulty(plans(), rows).into_iter();
            plans.map(|plan| plan.flavour).collect::<Vec<_>>()
        };
        assert_eq!(names(&[row(0.0), row(2.0), row(0.0)]), ["map"]);
        assert_eq!(names(&[row(0.0), row(0.0)]), ["rcu", "map", "lru"]);
    }
}
