//! `stillpoint torture`: the library against readers and writers that try to break it, and against
//! itself with parts left out on purpose, which must be detected. After the kernel's rcutorture:
//! its way of finding grace periods that are too short, its verdict.
//!
//! | file | subject |
//! |---|---|
//! | `options` | the command line, and the [plan](options::Plan) that it comes to |
//! | `session`, `tally` | what the threads of a run share: time, turns, counts, faults |
//! | `pipe` | elements that are recycled, and the checks of a section: **how a fault is found** |
//! | `writers` | the threads that replace elements, with every way to wait for a grace period |
//! | `flavours/` | what can be tortured, a file each; how to add one |
//! | `disturb/` | what goes on around |
//! | `harness` | what a flavour hands over: its domain, its threads |
//! | `runner` | one run, from its beginning to its end |
//! | `watchdog` | a run whose end does not come |
//! | `signals` | handlers that read |
//! | `store_buffer` | stores that are slow to become visible |
//! | `report` | lines and JSON |
//!
//! A run ends with the first fault. All its choices depend on the seed; the schedule is the
//! system's, so a seed brings the same program back, and not always the same fault.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use clap::error::ErrorKind;
use serde_json::json;

use crate::interrupt;
use crate::load::Watch;
use crate::output::{Output, say};

pub use flavours::{Entry, help};
pub use options::Options;
use options::Plan;
use report::Results;
use session::Session;
use tally::Fault;
use watchdog::LONGEST_END;

mod disturb;
mod flavours;
mod harness;
mod options;
mod pipe;
mod report;
mod runner;
mod session;
mod signals;
mod store_buffer;
mod tally;
mod watchdog;
mod writers;

/// Runs the flavours that were asked for, one after the other.
pub fn run(options: &Options) -> Result<ExitCode> {
    if options.list {
        say!("{}", flavours::list().trim_end());
        return Ok(ExitCode::SUCCESS);
    }
    let name = options.flavour.as_deref().unwrap_or(flavours::ALL);
    let flavours = flavours::named(name);
    refuse_unsupported(options, &flavours)?;
    refuse_undetectable(&flavours)?;
    let seed = options.seed.unwrap_or_else(of_the_clock);
    let runs = options::plans(options, &flavours, seed);
    let json = options.json.as_deref().map(Output::create).transpose()?;
    let plans: Vec<&Plan> = runs.iter().map(|(_, plan)| plan).collect();
    let params = json!({
        "flavour": name,
        "duration_s": options.duration,
        "seed": seed,
        "plans": plans,
    });
    let mut results = Results::new(params, json, Watch::start());
    interrupt::catch();
    for (flavour, plan) in &runs {
        if interrupt::received().is_some() {
            break;
        }
        report::announce(plan);
        let session = Arc::new(Session::new(plan.clone()));
        let give_up = || give_up(&session, flavour, &mut results);
        watchdog::guard(&session, LONGEST_END, give_up, || (flavour.run)(&session));
        results.add(report::conclude(&session, flavour.expected_faults));
    }
    let clean = results.clean();
    if runs.len() > 1 {
        let verdict = report::verdict(clean);
        say!("{verdict} ({name}, seed {seed})");
    }
    results.write()?;
    // What was found counts for more than that the rest was not run.
    Ok(match interrupt::received() {
        _ if !clean => ExitCode::FAILURE,
        Some(interrupted) => interrupted,
        None => ExitCode::SUCCESS,
    })
}

/// All flavours, the sound ones first.
pub fn flavours() -> impl Iterator<Item = &'static Entry> {
    flavours::FLAVOURS.iter()
}

/// Ends the program, whose run cannot be ended: with the verdict, and with the figures of all that
/// has been run.
fn give_up(session: &Session, flavour: &Entry, results: &mut Results) {
    session.tally.fault(Fault::NoEnd, || {
        "the run was over, and its end has not come".to_owned()
    });
    results.add(report::conclude(session, flavour.expected_faults));
    if let Err(error) = results.write() {
        eprintln!("stillpoint: {error:#}");
    }
    let _ = io::stdout().flush();
    // SAFETY: ends the process, and runs nothing that might wait for the threads that hang.
    unsafe { libc::_exit(1) };
}

/// Refuses broken flavours that this machine cannot show: they end with another exit status than
/// that of a torture that has found something.
fn refuse_undetectable(flavours: &[&Entry]) -> Result<()> {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    if stillpoint::membarrier_active() && processors > 1 {
        return Ok(());
    }
    let Some(flavour) = flavours.iter().find(|flavour| flavour.in_the_hardware) else {
        return Ok(());
    };
    let what = "cannot be detected here: it needs membarrier(2), without which readers fence by themselves, and two processors";
    Err(clap::Error::raw(
        ErrorKind::InvalidValue,
        format!("{} {what}\n", flavour.name),
    )
    .into())
}

/// Refuses options that the one flavour would ignore. Of `all`, others do not.
fn refuse_unsupported(options: &Options, flavours: &[&Entry]) -> Result<()> {
    let [flavour] = flavours else { return Ok(()) };
    let Some(option) = options::unsupported(options, flavour) else {
        return Ok(());
    };
    let (name, unsupported) = (flavour.name, flavour.unsupported_options.join(", "));
    let what = format!(
        "{option} is not supported by flavour {name}: leave it out (unsupported: {unsupported})\n"
    );
    Err(clap::Error::raw(ErrorKind::ArgumentConflict, what).into())
}

fn of_the_clock() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos());
    // Short enough to be typed.
    (since as u64 / 1000).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40
}
