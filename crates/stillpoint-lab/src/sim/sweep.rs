//! `stillpoint sim sweep`: the mean of `synchronize_rcu` over the jiffies before a scan, the ticks
//! a second and the number of CPUs.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use kernel_sim::{Constants, Size};
use serde::Serialize;

use super::measured::Loop;
use super::options::{Common, Variant, parse_count};
use super::report::{OURS, SimReport, SimRow};
use super::sync;
use crate::machine::Machine;
use crate::output::plot::{self, Square};
use crate::output::say;
use crate::run::Progress;

/// Ticks a second.
const HZ: [u64; 5] = [100, 250, 300, 500, 1000];

/// CPUs.
const CPUS: [usize; 6] = [2, 16, 64, 256, 1024, 4096];

/// Jiffies before the first scan and the next ones; `None` is what the kernel would take.
const FQS: [Option<(u64, u64)>; 6] = [
    None,
    Some((1, 1)),
    Some((1, 3)),
    Some((3, 1)),
    Some((3, 3)),
    Some((6, 6)),
];

/// The command line.
#[derive(Args, Serialize)]
pub struct Options {
    /// Calls for each cell
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = parse_count)]
    calls: usize,

    #[command(flatten)]
    #[serde(flatten)]
    common: Common,
}

/// Runs it.
pub fn run(options: &Options) -> Result<ExitCode> {
    let common = &options.common;
    let constants = |variant: &Variant, size: Size, fqs: Option<(u64, u64)>| -> Result<Constants> {
        let mut base = sync::base(size);
        if let Some((first, next)) = fqs {
            (base.jiffies_till_first_fqs, base.jiffies_till_next_fqs) = (first, next);
        }
        common.constants(base, variant, size)
    };
    constants(&sync::VARIANTS[0], Size { cpus: 2, hz: 1000 }, None)?;
    let mut files = common.create_files()?;

    let work = Loop {
        callers: 1,
        calls: options.calls,
        pause_ms: 0.0,
    };
    let (mut rows, mut panels) = (Vec::new(), Vec::new());
    let progress = Progress::new(sync::VARIANTS.len() * HZ.len());
    for variant in sync::VARIANTS {
        for hz in HZ {
            let title = format!("{}, {hz} Hz", variant.name);
            progress.begin(&title);
            let mut cells = Vec::new();
            for fqs in FQS {
                let mut row = Vec::new();
                for cpus in CPUS {
                    let size = Size { cpus, hz };
                    let scenario = format!("hz-{hz} fqs-{} cpus-{cpus}", name(fqs));
                    let measured = work.run(common.setup(size, &constants(variant, size, fqs)?, 0));
                    files.write_trace(
                        &format!("sweep {} {scenario}", variant.name),
                        &measured.log,
                    )?;
                    let metrics = measured.metrics();
                    row.push(metrics["mean_ms"]);
                    rows.push(SimRow::new(OURS, variant.name, Some(scenario), metrics));
                }
                cells.push(row);
            }
            progress.end(&title);
            panels.push(Square { title, cells });
        }
    }
    progress.finish();

    for panel in &panels {
        say!(
            "{}, mean_ms (first/next jiffies down, CPUs across)\n{}\n",
            panel.title,
            table(panel)
        );
    }
    say!(
        "Each figure is what a call of synchronize_rcu takes on average in the model, in \
         milliseconds; less is better."
    );
    if let Some(file) = files.plot.take() {
        let columns = CPUS.map(|cpus| cpus.to_string());
        let svg = plot::heat_map(HZ.len(), &panels, &FQS.map(name), &columns)?;
        plot::write(file, &svg)?;
    }
    let params = serde_json::to_value(options)?;
    SimReport {
        experiment: "sweep",
        params,
        machine: Machine::here(),
        rows,
    }
    .conclude(files)
}

fn name(fqs: Option<(u64, u64)>) -> String {
    fqs.map_or_else(
        || "default".to_owned(),
        |(first, next)| format!("{first}/{next}"),
    )
}

fn table(panel: &Square) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::ASCII_MARKDOWN);
    table.set_header(std::iter::once(String::new()).chain(CPUS.map(|cpus| cpus.to_string())));
    for (fqs, row) in FQS.into_iter().zip(&panel.cells) {
        table.add_row(std::iter::once(name(fqs)).chain(row.iter().map(|ms| format!("{ms:.2}"))));
    }
    table.to_string()
}
