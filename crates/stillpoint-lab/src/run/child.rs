//! One measurement in one fresh process: what a run left behind in the allocator, the caches and
//! the counters of one subject cannot reach the next.
//!
//! The program starts itself with the hidden subcommand `measure` and a [`Request`] in JSON; the
//! child prints a [`Sample`] in JSON on its standard output and nothing else.

use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};
use std::{env, fs};

use anyhow::{Context, Result, anyhow, bail};
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Case, Sample};
use crate::interrupt;

/// What a child is to measure.
#[derive(Serialize, Deserialize)]
pub struct Request {
    /// The experiment's name.
    pub experiment: String,
    /// The subject, variant and scenario.
    pub case: Case,
    /// The experiment's own parameters.
    pub params: Value,
}

/// The child's whole life: measures what `request` asks for, and prints the sample.
pub fn answer(request: &str, measure: impl FnOnce(&Request) -> Result<Sample>) -> Result<ExitCode> {
    // Where memory runs out, the kernel should end the child, which is reported, and nothing else; a
    // system that forbids saying so loses only that.
    let _ = fs::write("/proc/self/oom_score_adj", "1000");

    let request: Request = serde_json::from_str(request).context("no valid request")?;
    let sample = measure(&request)?;
    writeln!(io::stdout(), "{}", serde_json::to_string(&sample)?)?;
    Ok(ExitCode::SUCCESS)
}

/// Starts a child for `request` and returns its sample, or why there is none: it crashed, or was
/// killed after `timeout`, or because the run is [interrupted](interrupt::received). What it wrote
/// on its standard error is part of the reason.
pub fn measure(request: &Request, timeout: Duration) -> Result<Sample> {
    let request = serde_json::to_string(request)?;
    let mut command = Command::new(this_program()?);
    command.arg("measure").arg(request).stdout(Stdio::piped());
    die_with_parent(&mut command);
    let begun = Instant::now();
    let is_late = || begun.elapsed() >= timeout;
    let Some(ended) = supervise(command, is_late)? else {
        bail!("interrupted");
    };
    let told = match ended.said.as_str() {
        "" => "; it wrote nothing".to_owned(),
        said => format!("; it wrote:\n{said}"),
    };
    if ended.was_given_up {
        bail!("killed after {} s (--timeout-s){told}", timeout.as_secs());
    }
    if !ended.status.success() {
        bail!("{}{told}", describe(ended.status));
    }
    serde_json::from_str(&ended.output)
        .map_err(|error| anyhow!("no sample in its output ({error}){told}"))
}

/// Returns this program's own file.
pub fn this_program() -> Result<PathBuf> {
    env::current_exe().context("cannot find this program's own file")
}

/// How a child ended, and what it wrote.
pub struct Ended {
    /// Its exit status.
    pub status: ExitStatus,
    /// Its standard output, if that was piped and the child was not given up.
    pub output: String,
    /// Its standard error, trimmed.
    pub said: String,
    /// True if it was killed because it was given up.
    pub was_given_up: bool,
}

/// Runs a child to its end, and kills it if `gives_up`, which is asked again and again, says so.
/// Returns `None` if the run was interrupted: the child has been killed then. Does not wait for the
/// children of a killed child.
pub fn supervise(
    mut command: Command,
    mut gives_up: impl FnMut() -> bool,
) -> Result<Option<Ended>> {
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().context("cannot start a child process")?;
    let output = child.stdout.take().map(gather);
    let said = gather(child.stderr.take().expect("piped above"));
    // Standard error ends when the child and its own children do.
    let (mut is_interrupted, mut was_given_up) = (false, false);
    let said = loop {
        match said.recv_timeout(interrupt::LOOK) {
            Ok(said) => break said,
            Err(RecvTimeoutError::Disconnected) => break String::new(),
            Err(RecvTimeoutError::Timeout) => {
                is_interrupted = interrupt::received().is_some();
                was_given_up = !is_interrupted && gives_up();
                if is_interrupted || was_given_up {
                    child.kill().context("cannot kill a child")?;
                    child.wait()?;
                    // Its own children may live on, and hold the pipe open.
                    break said.recv_timeout(interrupt::LOOK).unwrap_or_default();
                }
            }
        }
    };
    let status = child.wait()?;
    if is_interrupted {
        return Ok(None);
    }
    let output = output.filter(|_| !was_given_up);
    Ok(Some(Ended {
        status,
        output: output.map_or(String::new(), |output| output.recv().unwrap_or_default()),
        said: said.trim().to_owned(),
        was_given_up,
    }))
}

/// Reads a pipe to its end on a separate thread, so that a full pipe never blocks the child.
fn gather(mut pipe: impl Read + Send + 'static) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // A broken pipe ends the text early; what was read is still worth telling.
        let _ = pipe.read_to_end(&mut bytes);
        // The receiver is gone only when the measurement has been given up.
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver
}

/// Lets the command's process end with this one.
pub fn die_with_parent(command: &mut Command) {
    let parent = getpid();
    // SAFETY: between fork and exec it makes two system calls, and allocates and locks nothing.
    unsafe {
        command.pre_exec(move || {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            if getppid() == Some(parent) {
                Ok(())
            } else {
                Err(io::ErrorKind::BrokenPipe.into())
            }
        });
    }
}

/// How a process ended, in words.
pub fn describe(status: ExitStatus) -> String {
    match status.signal() {
        Some(signal) => format!("ended by signal {signal}"),
        None => format!("exited with {}", status.code().unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::{Pid, kill_process};

    use super::*;

    /// Sleeps in a child's child, of which it says the process, and then says that it has ended.
    const SLEEPS: &str = "(sleep 20 & echo $! > process; wait; echo > ended) & wait";

    #[test]
    fn a_child_that_is_given_up_is_not_waited_for_by_way_of_its_own_children() {
        let folder = tempfile::tempdir().expect("a folder for temporary files");
        let mut command = Command::new("sh");
        command.args(["-c", SLEEPS]).stdout(Stdio::piped());
        command.current_dir(folder.path());
        let process = || {
            let text = fs::read_to_string(folder.path().join("process")).unwrap_or_default();
            Pid::from_raw(text.strip_suffix('\n')?.parse().ok()?)
        };
        let ended = supervise(command, || process().is_some()).expect("it starts");
        let has_slept = folder.path().join("ended").exists();
        let _ = kill_process(process().expect("it was there"), Signal::KILL);
        assert!(ended.expect("no interrupt").was_given_up && !has_slept);
    }
}
