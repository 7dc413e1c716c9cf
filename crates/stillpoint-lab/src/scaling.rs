//! `stillpoint scaling`: what more threads gain. Six experiments of `scale` with one thread, two, four and so
//! on, a table for each, and one picture with a curve for each subject.

use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;

use anyhow::Result;
use clap::Args;
use serde_json::json;

use crate::interrupt;
use crate::load::Watch;
use crate::machine::Machine;
use crate::output::plot::{self, Axes, Line};
use crate::output::{Output, Report, say, table};
use crate::run::{Case, Common};
use crate::scale;

/// The command line.
#[derive(Args)]
pub struct Options {
    /// Draw the curves into this file
    #[arg(long, value_name = "FILE.svg")]
    output: PathBuf,

    /// The most threads [default: as many as there are processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    threads: Option<u32>,

    /// Do little work: enough to see that all runs, too little for figures
    #[arg(long)]
    quick: bool,

    #[command(flatten)]
    common: Common,
}

/// Returns a table of panels: an experiment of `scale`, a title, the experiment's options with `N` for the threads,
/// more of them for `--quick`, a figure, and how many millions of operations a second of all threads it is.
macro_rules! panels {
    ($($experiment:literal, $title:literal: $options:literal $quick:literal $metric:literal $rate:expr;)*) => {
        [$(($experiment, $title, $options, $quick, $metric, $rate)),*]
    };
}

type Rate = fn(figure: f64, threads: f64) -> f64;
const PER_SECOND: Rate = |figure, _| figure / 1e6;
const PANELS: [(&str, &str, &str, &str, &str, Rate); 6] = panels! {
    "read", "Read sections":
        "--threads N --scenarios alone --variants guard,qsbr --peers liburcu-memb,crossbeam-epoch" ""
        "ns_per_pair" |ns, threads| threads * 1e3 / ns;
    "kfree", "Objects allocated and freed after their readers":
        "--threads N --variants per-page,whole-batch --peers liburcu-memb,crossbeam-epoch" " --loops 4 --objects 100"
        "ns_per_object" |ns, _| 1e3 / ns;
    "lru", "Counts of tenants' lists, beside a thread that changes them":
        "--counters N --mutators 1 --scenarios custom --variants rcu,spinlock,mutex" " --tenants 10 --lists 2"
        "counts_per_s" PER_SECOND;
    "vmap", "Checked copies of 256 bytes":
        "--threads N --scenarios copy-256 --variants rcu,node-rwlock,global-mutex,unchecked" " --copy-ms 5"
        "requests_per_s" PER_SECOND;
    "map", "Operations of a hash map, 98 % look-ups":
        "--threads N --scenarios readheavy-n --variants hash,hash-inline --peers papaya,dashmap,std-rwlock" " --capacity-log2 12"
        "ops_per_s" PER_SECOND;
    "cache", "Hits in a cache":
        "--threads N --scenarios read-n --peers quick_cache,moka,tinyufo" " --divide 100"
        "ops_per_s" PER_SECOND;
};

/// Size of a panel, and of the space for the names below it.
const SIZE: (u32, u32) = (480, 300);
const BELOW: u32 = 80;
/// Height of the line below all panels, which names the machine.
const FOOTER: u32 = 20;

/// A subject's points: threads, and millions of operations a second.
type Points = (Case, Vec<(f64, f64)>);

/// Measures, prints and draws.
pub fn run(options: &Options) -> Result<ExitCode> {
    let Options {
        output,
        threads,
        quick,
        common,
    } = options;
    let picture = Output::create(output)?;
    let json = common.json.as_deref().map(Output::create).transpose()?;
    let processors = || thread::available_parallelism().map_or(1, |all| all.get() as u32);
    let most = threads.unwrap_or_else(processors);
    let doubled = (0..)
        .map(|power| 1 << power)
        .take_while(|&count| count < most);
    let counts: Vec<u32> = doubled.chain([most]).collect();
    let across: Vec<f64> = counts.iter().map(|&count| f64::from(count)).collect();
    let watch = Watch::start();
    let (mut rows, mut failures, mut panels) = (Vec::new(), Vec::new(), String::new());
    for (number, (experiment, title, full, less, metric, rate)) in (0..).zip(PANELS) {
        if interrupt::received().is_some() {
            break;
        }
        let mut subjects: Vec<Points> = Vec::new();
        for &count in counts
            .iter()
            .take_while(|_| interrupt::received().is_none())
        {
            let work = full.replace('N', &count.to_string()) + if *quick { less } else { "" };
            let compared = scale::compare(experiment, &work, common)?;
            failures.extend(compared.failures);
            for mut row in compared.report.rows {
                let case = Case {
                    scenario: None,
                    ..row.case
                };
                let point = (
                    f64::from(count),
                    rate(row.metrics[metric], f64::from(count)),
                );
                match subjects.iter_mut().find(|(known, _)| *known == case) {
                    Some((_, points)) => points.push(point),
                    None => subjects.push((case.clone(), vec![point])),
                }
                let scenario = Some(format!("threads-{count}"));
                row.case = Case { scenario, ..case };
                row.experiment = Some(experiment);
                rows.push(row);
            }
        }
        say!(
            "{title}, millions a second, by threads\n\n{}\n",
            table(&subjects, &counts)
        );
        let lines: Vec<Line<'_>> = subjects
            .iter()
            .map(|(case, points)| Line {
                name: case.to_string(),
                subject: &case.subject,
                points: points.clone(),
            })
            .collect();
        let names = ["threads", "millions a second"];
        let axes = Axes {
            size: SIZE,
            title,
            names,
            across: &across,
            floor: None,
        };
        let (x, y) = (number % 2 * SIZE.0, number / 2 * (SIZE.1 + BELOW));
        let svg = plot::curves(&axes, &lines, true)?;
        panels += &svg.replacen("<svg", &format!("<svg x=\"{x}\" y=\"{y}\""), 1);
    }
    let (machine, interrupted) = (Machine::watched_by(&watch), interrupt::received());
    let (width, bottom) = (2 * SIZE.0, 3 * (SIZE.1 + BELOW));
    let height = bottom + FOOTER;
    let work = if *quick {
        "; --quick: too little work for figures"
    } else {
        ""
    };
    let svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\">\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>{panels}\
         <text x=\"10\" y=\"{bottom}\" font-family=\"sans-serif\" font-size=\"13\">{machine}{work}</text></svg>\n"
    );
    say!("{machine}");
    scale::tell(&failures, common.seed);
    plot::write(picture, &svg, interrupted.is_some())?;
    if let Some(file) = json {
        let report = Report {
            experiment: "scaling",
            params: json!({"rounds": common.rounds, "seed": common.seed, "quick": quick, "threads": counts}),
            machine,
            partial: interrupted.is_some(),
            rows,
            skipped: Vec::new(),
        };
        report.write_json(file)?;
    }
    Ok(interrupted.unwrap_or(scale::verdict(&failures)))
}

/// Returns a line for each subject, with a figure for each number of threads.
fn table(subjects: &[Points], counts: &[u32]) -> String {
    let names = subjects.iter().map(|(case, _)| case.to_string());
    let mut columns = vec![[String::new()].into_iter().chain(names).collect()];
    for &count in counts {
        let figure = |(_, points): &Points| {
            let point = points.iter().find(|point| point.0 == f64::from(count));
            table::number(point.map(|point| point.1), 1)
        };
        let figures = subjects.iter().map(figure);
        columns.push([count.to_string()].into_iter().chain(figures).collect());
    }
    table::draw(&columns, 1)
}
