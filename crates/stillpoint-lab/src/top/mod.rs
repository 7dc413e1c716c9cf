//! `stillpoint top`: what processes publish in their statistics pages.
//!
//! | file | subject |
//! |---|---|
//! | `find` | processes that publish, and their pages, each of which may be hostile |
//! | `figures` | rates, quantiles, JSON |
//! | `view` | the picture, as lines |
//! | `screen` | a terminal, and its keys |
//!
//! It changes nothing in what it looks at, and never maps it.

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use figures::Look;
use find::{Found, Hidden};
use rustix::time::{ClockId, clock_gettime};
use view::{Sort, View};

use crate::output::say;

mod figures;
mod find;
mod screen;
#[cfg(test)]
mod tests;
mod view;

/// What the long help says beside the options.
pub const HELP: &str = "Processes publish their statistics with STILLPOINT_STATS=on in the environment, or by publish_statistics(); stillcache does by \
itself. Shown are those of the same user, to root all. Where standard output is no terminal, or TERM is dumb, it prints once. The exit status is 0 if it \
has shown something, or has found no process without being given one; 1 if the process does not exist, has exited meanwhile or publishes nothing; 2 if the \
usage is bad; 3 if the process may not be looked at; 4 if its page has another version or cannot be read. NO_COLOR turns colours off.";

/// The command line.
#[derive(Args)]
pub struct Options {
    /// Show this process alone
    #[arg(value_name = "PID")]
    pid: Option<u32>,

    /// Print once and end; rates are means since each thing was made
    #[arg(long)]
    once: bool,

    /// Print JSON: all that the pages have
    #[arg(long, requires = "once")]
    json: bool,
}

/// Shows what is asked for.
pub fn run(options: &Options) -> Result<ExitCode> {
    let look = || match options.pid {
        Some(pid) => find::one(pid).map(|process| Found {
            processes: vec![process],
            ..Found::default()
        }),
        None => find::all().map_err(Hidden::from),
    };
    let shown = if options.once || !screen::is_there() {
        match look() {
            Ok(found) => {
                print(options, &found)?;
                Ok(())
            }
            Err(hidden) => Err(hidden),
        }
    } else {
        screen::run(look)?
    };
    let Err(hidden) = shown else {
        return Ok(ExitCode::SUCCESS);
    };
    match options.pid {
        Some(pid) => eprintln!("stillpoint: process {pid}: {hidden}"),
        None => eprintln!("stillpoint: /proc: {hidden}"),
    }
    Ok(ExitCode::from(match hidden {
        Hidden::Gone | Hidden::NoPage => 1,
        Hidden::Denied => 3,
        _ => 4,
    }))
}

fn print(options: &Options, found: &Found) -> Result<()> {
    let now = now();
    if options.json {
        let text = serde_json::to_string_pretty(&figures::json(found, now));
        say!("{}", text.context("figures are JSON")?);
        return Ok(());
    }
    let view = View {
        found,
        now,
        before: &Look::default(),
        sort: Sort::Process,
        reverse: false,
        note: "; rates are means since each was made".to_owned(),
    };
    let [title, note] = view::title(&view);
    say!("{title}");
    if found.processes.is_empty() && found.unreadable.is_empty() {
        say!("No process publishes its statistics: start one with STILLPOINT_STATS=on.");
        return Ok(());
    }
    say!("{note}");
    say!("");
    for (_, line) in view::lines(&view) {
        say!("{}", line.trim_end());
    }
    Ok(())
}

/// The present moment of the clock that pages have.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
