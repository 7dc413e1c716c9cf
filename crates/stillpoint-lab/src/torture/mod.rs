//! `stillpoint torture`: the library against readers and writers that try to break it, and against itself with parts left out on purpose, which
//! must be found out. After the kernel's rcutorture: its way of finding grace periods that are too short, its lines, its verdict.
//!
//! | file | subject |
//! |---|---|
//! | `options` | the command line, and the [`Plan`] that it comes to |
//! | `session`, `tally` | what the threads of a run share: time, turns, counts, faults |
//! | `pipe` | elements that are recycled, and the checks of a section: **how a fault is found** |
//! | `writers` | those who replace elements, in every way that one can wait for a grace period |
//! | `flavours/` | what can be tortured, a file each; how to add one |
//! | `disturb/` | what goes on around |
//! | `conductor` | one run, from its beginning to its end |
//! | `clutter` | stores that are slow to become visible |
//! | `report` | lines and JSON |
//!
//! A run ends with the first fault. All its choices depend on the seed; the schedule is the system's, so a seed brings the
//! same program back, and not always the same fault.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use clap::error::ErrorKind;
use serde_json::json;

use crate::machine::Machine;
use crate::output::{self, Report};

pub use flavours::help;
pub use options::Options;
use options::Plan;
use session::Session;

mod clutter;
mod conductor;
mod disturb;
mod flavours;
mod options;
mod pipe;
mod report;
mod session;
mod tally;
mod writers;

/// Runs the flavours that were asked for, one after the other.
pub fn run(options: &Options) -> Result<ExitCode> {
    let flavours = flavours::named(&options.flavour);
    if !stillpoint::membarrier_active() && ["busted-membarrier", "busted-wake"].contains(&options.flavour.as_str()) {
        // Not the exit status of a torture that has found something.
        let what = "needs membarrier(2): without it readers fence by themselves, and there is no barrier to be left out";
        return Err(clap::Error::raw(ErrorKind::InvalidValue, format!("{} {what}\n", options.flavour)).into());
    }
    let json = options.json.as_deref().map(output::create).transpose()?;
    let seed = options.seed.unwrap_or_else(of_the_clock);
    let duration = options.duration / flavours.len() as f64;

    let plans: Vec<_> = flavours.iter().map(|flavour| Plan::new(options, flavour, duration, seed)).collect();
    let mut outcomes = Vec::new();
    for (flavour, plan) in flavours.iter().zip(&plans) {
        report::announce(plan);
        let session = Arc::new(Session::new(plan.clone()));
        (flavour.run)(&session);
        outcomes.push(report::conclude(&session, flavour));
    }
    let clean = outcomes.iter().all(|outcome| outcome.clean);
    if flavours.len() > 1 {
        println!("all-torture:--- End of test: {}: seed={seed}", if clean { "SUCCESS" } else { "FAILURE" });
    }
    let as_expected = outcomes.iter().all(|outcome| outcome.as_expected);
    if let Some(file) = json {
        let params = json!({ "flavour": options.flavour, "duration_s": options.duration, "seed": seed, "plans": plans,
            "as_expected": as_expected });
        let rows = outcomes.into_iter().map(|outcome| outcome.row).collect();
        let report = Report { experiment: "torture", params, machine: Machine::here(), rows };
        report.write_json(file).context("cannot write the JSON file")?;
    }
    Ok(if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn of_the_clock() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    // Short enough to be typed.
    (since as u64 / 1000).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40
}
