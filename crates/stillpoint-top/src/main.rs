//! `stillpoint-top` shows what processes publish in their statistics pages.
//!
//! | file | subject |
//! |---|---|
//! | `find` | processes that publish, and their pages, which may be hostile |
//! | `figures` | rates, quantiles, JSON |
//! | `view` | the lines of the screen |
//! | `screen` | the terminal and its keys |
//!
//! The program changes nothing in the processes, and never maps their pages.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::Parser;
use figures::{Look, now};
use find::{Found, Hidden};
use view::{Sort, View};

mod figures;
mod find;
mod screen;
#[cfg(test)]
mod tests;
mod view;

/// The text below the options in the long help.
const HELP: &str = "Processes publish their statistics with STILLPOINT_STATS=on in the environment, or by publish_statistics(); stillcache does by \
itself. It shows those of the same user; root sees all. If standard output is not a terminal, or TERM is dumb, it prints once. The exit status is 0 if it \
has shown something, or if no PID was given and no process publishes; 1 if the process does not exist, has exited meanwhile or publishes nothing; 2 if the \
usage is bad; 3 if access to the process is denied; 4 if its page has another version or cannot be read. NO_COLOR turns colors off.";

/// Shows what running processes publish: grace periods, unreclaimed memory, stalled readers.
#[derive(Parser)]
#[command(version, after_long_help = HELP)]
struct Options {
    /// Show only this process
    #[arg(value_name = "PID")]
    pid: Option<u32>,

    /// Print once and end; rates are means since each domain was made
    #[arg(long)]
    once: bool,

    /// Print all values of the pages as JSON
    #[arg(long, requires = "once")]
    json: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    match run(&options) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(hidden)) => {
            match options.pid {
                Some(pid) => eprintln!("stillpoint-top: process {pid}: {hidden}"),
                None => eprintln!("stillpoint-top: /proc: {hidden}"),
            }
            ExitCode::from(match hidden {
                Hidden::Gone | Hidden::NoPage => 1,
                Hidden::Denied => 3,
                _ => 4,
            })
        }
        Err(error) => {
            // A reader that has closed the pipe has seen enough.
            if error.kind() != io::ErrorKind::BrokenPipe {
                eprintln!("stillpoint-top: {error}");
            }
            ExitCode::FAILURE
        }
    }
}

/// Shows what the options ask for.
///
/// # Errors
///
/// Fails if the terminal or standard output cannot be used. The inner result says why there is
/// nothing to show.
fn run(options: &Options) -> io::Result<Result<(), Hidden>> {
    let look = || match options.pid {
        Some(pid) => find::one(pid).map(|process| Found {
            processes: vec![process],
            ..Found::default()
        }),
        None => find::all().map_err(Hidden::from),
    };
    if !options.once && screen::is_there() {
        return screen::run(look);
    }
    match look() {
        Ok(found) => {
            let text = if options.json {
                format!("{:#}\n", figures::json(&found, now()))
            } else {
                picture(&found)
            };
            io::stdout().write_all(text.as_bytes())?;
            Ok(Ok(()))
        }
        Err(hidden) => Ok(Err(hidden)),
    }
}

/// Returns one look as text.
fn picture(found: &Found) -> String {
    let view = View {
        found,
        now: now(),
        before: &Look::default(),
        sort: Sort::Process,
        reverse: false,
        note: "; rates are means since each was made".to_owned(),
    };
    let [title, note] = view::title(&view);
    if found.processes.is_empty() && found.unreadable.is_empty() {
        return format!(
            "{title}\nNo process publishes its statistics: start one with STILLPOINT_STATS=on.\n"
        );
    }
    let mut text = format!("{title}\n{note}\n\n");
    for (_, line) in view::lines(&view) {
        text += line.trim_end();
        text.push('\n');
    }
    text
}
