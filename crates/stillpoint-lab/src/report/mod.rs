//! `stillpoint report`: one page of everything that this program measures.
//!
//! | file | subject |
//! |---|---|
//! | `parts` | which commands a report consists of |
//! | `collect` | runs them, each as a child, by the command that the page shows |
//! | `stored`, `host` | the JSON, all that a page is drawn from; the machine |
//! | `standing`, `names` | Stillpoint's place among the peers; what a row is called on the page |
//! | `charts` | the charts of the experiments, and the picture for other documents |
//! | `page`, `head`, `torture`, `patches` | the page |

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use clap::error::ErrorKind;

use crate::choice::Choice;
use crate::interrupt;
use crate::output::Output;
use host::Host;
use parts::{Extent, Task};
use stored::{Params, Stored};

mod charts;
mod collect;
mod head;
mod host;
mod names;
mod page;
mod parts;
mod patches;
mod standing;
mod stored;
mod torture;

/// The text below the options in the long help.
pub const HELP: &str = "On two processors --quick takes about three minutes, and a whole report about six: the experiments with three rounds, \
a minute of torture. The page is one file that refers to no other and to nothing on the network; beside it stands a JSON file with all figures, from \
which --from draws the page again, or --picture a picture. The exit status is 1 if any part failed, which the page shows too.";

/// The command line.
#[derive(Args)]
pub struct Options {
    /// Write the page to this file
    #[arg(long, value_name = "FILE.html", required_unless_present = "picture")]
    output: Option<PathBuf>,

    /// Write the figures to this file [default: FILE.json beside FILE.html]
    #[arg(long, value_name = "FILE.json")]
    json: Option<PathBuf>,

    /// Write one picture of the most important figures to this file, for another document
    #[arg(long, value_name = "FILE.svg")]
    picture: Option<PathBuf>,

    /// Measure nothing: draw what this file has, which a report wrote before
    #[arg(long, value_name = "FILE.json", conflicts_with_all = ["json", "quick", "seed", "rounds", "torture_s", "parts"])]
    from: Option<PathBuf>,

    /// Take about three minutes: two or three rounds of each experiment, 18 s of torture
    #[arg(long)]
    quick: bool,

    /// Seed of all that is left to chance
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Rounds of each experiment [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,

    /// Seconds of torture, which all sound flavours share [default: 60, or 18]
    #[arg(long, value_name = "S", value_parser = parse_seconds)]
    torture_s: Option<f64>,

    #[arg(long, value_name = "all|NAME,...", default_value = "all", help = parts::menu().help(), value_parser = |text: &str| parts::menu().parse(text))]
    parts: Choice,
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds = text
        .parse()
        .ok()
        .filter(|seconds: &f64| (0.1..=1e6).contains(seconds));
    seconds.ok_or_else(|| "say seconds, 0.1 to 1000000".to_owned())
}

/// Makes a report; fails at once if it could not be written at the end.
pub fn run(options: &Options) -> Result<ExitCode> {
    let stored = options.from.as_deref().map(Stored::read).transpose()?;
    let json = match (&options.json, &options.output) {
        _ if stored.is_some() => None,
        (Some(json), _) => Some(json.clone()),
        (None, Some(output)) => Some(output.with_extension("json")),
        (None, None) => None,
    };
    refuse_twice(&[&options.output, &json, &options.picture, &options.from])?;
    let reserve = |path: &Option<PathBuf>| path.as_deref().map(Output::create).transpose();
    let (page, mut json, picture) = (
        reserve(&options.output)?,
        reserve(&json)?,
        reserve(&options.picture)?,
    );

    let stored = match stored {
        Some(stored) => stored,
        None => measure(options, &mut json)?,
    };
    if let Some(interrupted) = interrupt::received() {
        tell_interrupted(&stored, json.as_ref());
        return Ok(interrupted);
    }
    if let Some(load) = stored.machine.load.as_ref().filter(|load| load.busy)
        && options.from.is_none()
    {
        eprintln!("stillpoint: {load}");
    }
    if let Some(json) = &mut json {
        json.commit_whole()?;
    }
    let drawn = [
        page.map(|file| (file, page::draw(&stored))),
        picture.map(|file| (file, charts::picture(&stored))),
    ];
    for (mut file, text) in drawn.into_iter().flatten() {
        file.write(&text?)?;
        file.commit()?;
        eprintln!("stillpoint: wrote {}", file.path().display());
    }
    let failed = stored.failures().count() > 0;
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// Runs the parts. Finished parts are saved beside the JSON file, so an interrupted report is not
/// lost, and the file keeps the report before it.
fn measure(options: &Options, json: &mut Option<Output>) -> Result<Stored> {
    let Options {
        quick,
        rounds,
        torture_s,
        seed,
        ..
    } = *options;
    let extent = Extent {
        quick,
        rounds,
        torture_s,
        seed,
    };
    let chosen = parts::names().filter(|name| options.parts.includes(name));
    let tasks: Vec<Task> = chosen.flat_map(|part| parts::tasks(part, extent)).collect();
    let mut stored = Stored {
        experiment: stored::NAME.to_owned(),
        params: Params { quick, seed },
        machine: Host::here(),
        planned: tasks.iter().map(Task::command).collect(),
        parts: Vec::new(),
        rows: Vec::new(),
    };
    interrupt::catch();
    collect::run(&mut stored, &tasks, |stored| match json.as_mut() {
        Some(file) if file.is_replaced() => {
            file.restart();
            file.write(&stored.to_json()?)?;
            file.commit_partial().map(drop)
        }
        _ => Ok(()),
    })?;
    if let Some(file) = json.as_mut()
        && interrupt::received().is_none()
    {
        file.restart();
        file.write(&stored.to_json()?)?;
    }
    Ok(stored)
}

/// Says which parts of an interrupted report are done, and how to draw them.
fn tell_interrupted(stored: &Stored, json: Option<&Output>) {
    let parts = stored.parts.len();
    eprintln!(
        "stillpoint: interrupted after {parts} parts; seed {}",
        stored.params.seed
    );
    if let Some(json) = json.filter(|json| json.is_replaced() && parts > 0) {
        let partial = json.partial_path();
        eprintln!(
            "stillpoint: their figures are in {0}; `stillpoint report --from {0} --output \
             FILE.html` draws them",
            partial.display()
        );
    }
}

/// Refuses the same file twice: two outputs, or an input and an output, would lose one of them.
fn refuse_twice(paths: &[&Option<PathBuf>]) -> Result<()> {
    let paths: Vec<&Path> = paths.iter().filter_map(|path| path.as_deref()).collect();
    let twice = paths
        .iter()
        .enumerate()
        .find(|(index, path)| paths[..*index].contains(path));
    match twice {
        None => Ok(()),
        Some((_, path)) => {
            let message = format!(
                "{} would be two of the report's files; name different ones\n",
                path.display()
            );
            Err(clap::Error::raw(ErrorKind::ArgumentConflict, message).into())
        }
    }
}
