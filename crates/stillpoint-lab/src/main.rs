//! The `stillpoint` program measures Stillpoint beside its peers, each at its best documented use.
//! It prints one set of figures twice: as a table for people and as JSON for scripts.
//!
//! | module | subject |
//! |---|---|
//! | [`scale`] | the experiments, a folder or file each |
//! | [`subject`], [`peers`] | what an experiment asks of a subject; what each peer does in it |
//! | [`run`], [`choice`] | starts each measurement in a separate process and takes medians; which cases were asked for |
//! | [`output`], [`report`] | tables and JSON; a page of all experiments |
//! | [`machine`], [`load`] | where it ran; what else ran there meanwhile |
//! | [`sim`] | the kernel's timing in virtual time |
//! | [`torture`] | tries to break the library |
//! | [`interrupt`] | Ctrl-C |

#![cfg_attr(
    not(feature = "report"),
    allow(
        dead_code,
        unused_imports,
        reason = "of commands that this build leaves out; the full build has no such exception"
    )
)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod affinity;
mod authors;
mod cache;
mod choice;
mod features;
mod interrupt;
mod load;
mod machine;
mod map;
mod object;
mod output;
#[cfg(feature = "peers")]
mod peers;
#[cfg(not(feature = "peers"))]
#[path = "no_peers.rs"]
mod peers;
#[cfg(feature = "report")]
mod report;
mod run;
mod scale;
#[cfg(feature = "peers")]
mod scaling;
mod seeds;
mod sim;
mod subject;
#[cfg(feature = "torture")]
mod torture;

/// What to begin with.
const EXAMPLES: &str = "Start with one of these (times on two processors):
  stillpoint seeds                                  the kernel's five patches, and the same here: a minute
  stillpoint scale kfree                            deferred frees beside the peers: 25 seconds
  stillpoint scale read                             what a read section costs: 40 seconds
  stillpoint torture all --duration 10              try to break it: 10 seconds
  stillpoint sim sync                               the kernel's timing: at once
  stillpoint report --quick --output report.html    all of it on one page: three minutes";

/// Measures the Stillpoint library beside its peers.
#[derive(Parser)]
#[command(name = "stillpoint", version, after_help = EXAMPLES)]
struct Cli {
    /// Say nothing of progress; without it there is a bar on a terminal, or else a line on standard
    /// error for each part that is done
    #[arg(long, global = true)]
    quiet: bool,

    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show what five patches to the kernel gained, and what the same systems gain here
    #[command(after_long_help = seeds::HELP)]
    Seeds(seeds::Options),

    /// Measure how an operation scales, beside the peers that offer it
    Scale(scale::Options),

    /// Measure six experiments with one thread, two, four and so on, and draw what more threads gain
    #[cfg(feature = "peers")]
    Scaling(scaling::Options),

    /// Simulate the kernel's grace periods in virtual time, beside what was measured on it
    #[command(subcommand)]
    Sim(sim::Sim),

    /// Try to break the library: readers, writers and disturbances, and variants broken on purpose
    /// that must be detected
    #[cfg(feature = "torture")]
    #[command(after_long_help = torture::help())]
    Torture(torture::Options),

    /// Measure, simulate and torture everything, and draw one page of it
    #[cfg(feature = "report")]
    #[command(after_long_help = report::HELP)]
    Report(report::Options),

    /// Answer one request for a measurement; the program starts itself with this, once for every
    /// round
    #[command(hide = true)]
    Measure {
        /// The request, in JSON
        request: String,
    },

    /// Serve as stillcache does, whose arguments follow; `scale server` starts the program with this
    #[cfg(feature = "peers")]
    #[command(hide = true, disable_help_flag = true)]
    Stillcache {
        /// Its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

/// Exits with 0 when everything asked for was measured, 1 when something failed, 2 on bad usage,
/// 128 and the signal's number when it was interrupted.
fn main() -> ExitCode {
    let Cli { quiet, command } = Cli::try_parse().unwrap_or_else(|error| features::exit(error));
    if quiet {
        run::silence_progress();
    }
    let outcome = match command {
        Command::Seeds(options) => seeds::run(&options),
        Command::Scale(options) => scale::run(&options),
        #[cfg(feature = "peers")]
        Command::Scaling(options) => scaling::run(&options),
        Command::Sim(simulation) => sim::run(&simulation),
        #[cfg(feature = "torture")]
        Command::Torture(options) => torture::run(&options),
        #[cfg(feature = "report")]
        Command::Report(options) => report::run(&options),
        #[cfg(feature = "peers")]
        Command::Stillcache { arguments } => stillcache(arguments),
        Command::Measure { request } => run::child::answer(&request, scale::measure),
    };
    match outcome {
        Ok(code) => output::exit_code(code),
        Err(error) => match error.downcast_ref::<clap::Error>() {
            Some(usage) => usage.exit(),
            None => {
                eprintln!("stillpoint: {error:#}");
                ExitCode::FAILURE
            }
        },
    }
}

/// The program stillcache.
#[cfg(feature = "peers")]
fn stillcache(arguments: Vec<String>) -> anyhow::Result<ExitCode> {
    use stillpoint_server::config::flags::Flags;
    use stillpoint_server::server;

    let name = "stillcache".to_owned();
    let flags = Flags::parse_from([name].into_iter().chain(arguments))?;
    Ok(server::main(flags))
}
