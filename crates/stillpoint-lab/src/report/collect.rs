//! Runs the parts, one after the other, each as a child of this program, and gathers their
//! figures.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::Value;

use super::parts::Task;
use super::stored::{Figures, Part, Stored};
use crate::interrupt;
use crate::load::Watch;
use crate::run::Progress;
use crate::run::child::{describe, die_with_parent, supervise, this_program};

/// Runs the tasks and adds the figures of each; `after_each` saves them. If the program is
/// interrupted, ends early, without the task under way.
pub fn run(
    stored: &mut Stored,
    tasks: &[Task],
    mut after_each: impl FnMut(&Stored) -> Result<()>,
) -> Result<()> {
    let folder = tempfile::tempdir().context("cannot make a folder for the parts' figures")?;
    let progress = Progress::new(tasks.len());
    let (watch, mut told) = (Watch::start(), HashSet::new());
    for task in tasks {
        let what = task.arguments[..2].join(" ");
        progress.begin(&what);
        let json = folder.path().join(format!("{}.json", task.name));
        let Some((mut part, figures)) = run_one(task, &json, || progress.tick())? else {
            break;
        };
        if interrupt::received().is_some() {
            break;
        }
        // What several parts say, such as which peer is missing, is said once.
        part.notes = new_lines(&part.notes, &mut told);
        if let Some(failure) = &part.failure {
            progress.suspend(|| eprintln!("stillpoint: failed: {}: {failure}", part.command));
        }
        stored.add(part, figures);
        stored.machine.machine.load = watch.so_far();
        after_each(stored)?;
        progress.end(&what);
    }
    progress.finish();
    Ok(())
}

/// Returns the lines that are not in `told` yet, and adds them to it.
fn new_lines(text: &str, told: &mut HashSet<String>) -> String {
    let new = text.lines().filter(|line| told.insert((*line).to_owned()));
    new.collect::<Vec<_>>().join("\n")
}

/// Runs one task; if it fails, the others go on. Returns `None` if the report was interrupted.
fn run_one(task: &Task, json: &Path, tick: impl Fn()) -> Result<Option<(Part, Option<Figures>)>> {
    let begun = Instant::now();
    let mut command = Command::new(this_program()?);
    command
        .arg("--quiet")
        .args(&task.arguments)
        .arg("--json")
        .arg(json)
        .stdout(Stdio::null());
    // Its own children end with it.
    die_with_parent(&mut command);
    let ended = supervise(command, || {
        tick();
        false
    })?;
    let Some(ended) = ended else { return Ok(None) };
    let (failure, figures) = judge(task, ended.status, &ended.said, json);
    let part = Part {
        name: task.name.clone(),
        command: task.command(),
        took_s: begun.elapsed().as_secs_f64(),
        failure,
        notes: ended.said,
        params: Value::Null,
    };
    Ok(Some((part, figures)))
}

/// Returns whether the task did what it should, and its figures.
fn judge(
    task: &Task,
    status: ExitStatus,
    said: &str,
    json: &Path,
) -> (Option<String>, Option<Figures>) {
    let text = fs::read_to_string(json).unwrap_or_default();
    let figures: Option<Figures> = serde_json::from_str(&text).ok();
    let as_expected = figures
        .as_ref()
        .and_then(|figures| figures.params["as_expected"].as_bool());
    let failure = match (task.is_broken, status.code()) {
        // Only some machines can show it: said in its notes.
        (true, Some(2)) => None,
        (true, Some(1)) if as_expected == Some(true) => None,
        (true, Some(0)) => Some("it was not detected".to_owned()),
        (true, Some(1)) if as_expected == Some(false) => {
            Some("it failed, but not by what was left out".to_owned())
        }
        (false, Some(0)) if figures.is_some() => None,
        (_, Some(0)) => Some("it wrote no figures".to_owned()),
        _ if said.is_empty() => Some(describe(status)),
        _ => Some(format!("{}; it wrote:\n{said}", describe(status))),
    };
    (failure, figures)
}
