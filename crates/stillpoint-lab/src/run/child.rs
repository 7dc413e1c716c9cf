//! One measurement in one fresh process: what a run left behind in the allocator, the caches and
//! the counters of one subject cannot reach the next.
//!
//! The program starts itself with the hidden subcommand `measure` and a [`Request`] in JSON; the
//! child prints a [`Sample`] in JSON on its standard output and nothing else.

use std::io::{self, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};
use std::{env, fs};

use anyhow::{Context, Result, anyhow, bail};
use rustix::process::Signal;
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
    // A child must not outlive its parent. Where memory runs out, the kernel should end the child,
    // which is reported, and nothing else; a system that forbids saying so loses only that.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
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
    let program = env::current_exe().context("cannot find this program's own file")?;
    let mut child = Command::new(program)
        .arg("measure")
        .arg(serde_json::to_string(request)?)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start a child process")?;
    let output = gather(child.stdout.take().expect("piped above"));
    let errors = gather(child.stderr.take().expect("piped above"));

    // Standard output ends when the child does, so one wait serves both.
    let begun = Instant::now();
    let output = loop {
        let left = timeout.saturating_sub(begun.elapsed());
        match output.recv_timeout(left.min(interrupt::LOOK)) {
            Ok(output) => break output,
            Err(RecvTimeoutError::Timeout) if interrupt::received().is_some() => {
                end(&mut child)?;
                bail!("interrupted");
            }
            Err(RecvTimeoutError::Timeout) if !left.is_zero() => {}
            Err(_) => {
                end(&mut child)?;
                bail!(
                    "killed after {} s (--timeout-s){}",
                    timeout.as_secs(),
                    told(&errors)
                );
            }
        }
    };
    let status = child.wait()?;
    if !status.success() {
        bail!("{}{}", describe(status), told(&errors));
    }
    serde_json::from_str(&output)
        .map_err(|error| anyhow!("no sample in its output ({error}){}", told(&errors)))
}

/// Reads a pipe to its end on a thread of its own, so that a full pipe never blocks the child.
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

fn end(child: &mut Child) -> Result<()> {
    child.kill().context("cannot kill a child past its time")?;
    child.wait()?;
    Ok(())
}

/// How a process ended, in words.
pub fn describe(status: ExitStatus) -> String {
    match status.signal() {
        Some(signal) => format!("ended by signal {signal}"),
        None => format!("exited with {}", status.code().unwrap_or_default()),
    }
}

/// What the ended child wrote on its standard error, set below the reason.
fn told(errors: &mpsc::Receiver<String>) -> String {
    match errors.recv() {
        Ok(text) if !text.trim().is_empty() => format!("; it wrote:\n{}", text.trim_end()),
        _ => "; it wrote nothing".to_owned(),
    }
}
