//! Runs the parts, one after the other, each as a child of this program, and gathers their
//! figures.

use std::collections::HashSet;
use std::fs;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};
use serde_json::Value;

use super::parts::Task;
use super::stored::{Figures, Part, Stored};
use crate::interrupt;
use crate::load::Watch;
use crate::run::Progress;
use crate::run::child::describe;

/// Interval of drawing the progress bar and looking for a Ctrl-C.
const TICK: Duration = Duration::from_millis(250);

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
        let (mut part, figures) = run_one(task, &json, || progress.tick())?;
        if interrupt::received().is_some() {
            break;
        }
        // What several parts say, such as which peer is missing, is said once.
        part.notes = new_lines(&part.notes, &mut told);
        if let Some(failure) = &part.failure {
            progress.suspend(|| eprintln!("stillpoint: failed: {}: {failure}", part.command));
        }
        stored.add(part, figures);
        stored.machine.load = watch.so_far();
        after_each(stored)?;
        progress.end(&what);
    }
    progress.finish();
    Ok(())
}

/// Returns the lines that are not in `told` yet, and adds them to it.
fn new_lines(text: &str, told: &mut HashSet<String>) -> String {
    let new: Vec<&str> = text
        .lines()
        .filter(|line| told.insert((*line).to_owned()))
        .collect();
    new.join("\n")
}

/// Runs one task; if it fails, the others go on.
fn run_one(task: &Task, json: &Path, tick: impl Fn()) -> Result<(Part, Option<Figures>)> {
    let begun = Instant::now();
    let ended = supervise(&task.arguments, json, tick)?;
    let (failure, figures) = judge(task, ended.status, &ended.said, json);
    let part = Part {
        name: task.name.clone(),
        command: task.command(),
        took_s: begun.elapsed().as_secs_f64(),
        failure,
        notes: ended.said,
        params: Value::Null,
    };
    Ok((part, figures))
}

/// A child's exit status and standard error.
struct Ended {
    status: ExitStatus,
    said: String,
}

fn supervise(arguments: &[String], json: &Path, tick: impl Fn()) -> Result<Ended> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let mut command = Command::new(program);
    command
        .arg("--quiet")
        .args(arguments)
        .arg("--json")
        .arg(json);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let parent = getpid();
    // SAFETY: between fork and exec it makes two system calls, and allocates and locks nothing.
    unsafe {
        command.pre_exec(move || {
            // What is under way must not outlive the report; its own children have the same order.
            set_parent_process_death_signal(Some(Signal::KILL))?;
            if getppid() == Some(parent) {
                Ok(())
            } else {
                Err(io::ErrorKind::BrokenPipe.into())
            }
        });
    }
    let mut child = command.spawn().context("cannot start a child process")?;
    let mut errors = child.stderr.take().expect("piped above");
    let (sender, said) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // A broken pipe ends the text early; what was read is still worth telling.
        let _ = errors.read_to_end(&mut bytes);
        // The receiver is gone only when the report has been given up.
        let _ = sender.send(String::from_utf8_lossy(&bytes).trim().to_owned());
    });
    // Standard error ends when the child and its own children do.
    let said = loop {
        match said.recv_timeout(TICK) {
            Ok(text) => break text,
            Err(RecvTimeoutError::Timeout) if interrupt::received().is_some() => {
                // Its own children end with it.
                child
                    .kill()
                    .context("cannot end a part that was interrupted")?;
                break String::new();
            }
            Err(RecvTimeoutError::Timeout) => tick(),
            Err(RecvTimeoutError::Disconnected) => break String::new(),
        }
    };
    Ok(Ended {
        status: child.wait()?,
        said,
    })
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
        .and_then(|figures| figures.params.get("as_expected"))
        .and_then(Value::as_bool);
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
        _ => Some(format!(
            "{}{}",
            describe(status),
            if said.is_empty() {
                String::new()
            } else {
                format!("; it wrote:\n{said}")
            }
        )),
    };
    (failure, figures)
}
