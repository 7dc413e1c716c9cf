//! What every simulation takes on its command line, and how a variant's machine is made of it.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use clap::error::ErrorKind;
use kernel_sim::{Change, Constants, Setup, Size};
use serde::Serialize;

use crate::output::Output;

/// The options.
#[derive(Args, Clone, Serialize)]
pub struct Common {
    /// Seed of all chance; the same seed gives the same events, byte for byte
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Change a constant; may be given more than once. An unknown name lists those there are
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = Change::parse)]
    pub set: Vec<Change>,

    /// Write the figures to this file as JSON
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    pub json: Option<PathBuf>,

    /// Draw the latencies' distributions into this file (SVG)
    #[arg(long, value_name = "FILE.svg")]
    #[serde(skip)]
    pub plot: Option<PathBuf>,

    /// Write every event to this file, a line each: nanoseconds, CPU, what
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    pub trace: Option<PathBuf>,
}

/// A patch, or several, in force.
#[derive(Clone, Copy)]
pub struct Variant {
    /// Its name on the command line and in the JSON.
    pub name: &'static str,
    /// Puts it in force.
    pub apply: fn(&mut Constants, Size),
}

/// The files that a run fills, known before it begins to be writable.
pub struct Files {
    /// For the figures.
    pub json: Option<Output>,
    /// For the plot.
    pub plot: Option<Output>,
    trace: Option<Output>,
}

impl Files {
    /// Writes down the events of one simulated run.
    pub fn write_trace(&mut self, title: &str, log: &str) -> Result<()> {
        let Some(file) = &mut self.trace else {
            return Ok(());
        };
        file.write(&format!("# {title}\n{log}"))
    }

    /// Ends the trace.
    pub fn commit_trace(&mut self) -> Result<()> {
        self.trace.as_mut().map_or(Ok(()), Output::commit)
    }
}

impl Common {
    /// Creates the files that were asked for.
    pub fn create_files(&self) -> Result<Files> {
        let create = |path: &Option<PathBuf>| path.as_deref().map(Output::create).transpose();
        Ok(Files {
            json: create(&self.json)?,
            plot: create(&self.plot)?,
            trace: create(&self.trace)?,
        })
    }

    /// A variant's constants: `base`, with the variant's patches, and then what the command line
    /// sets.
    pub fn constants(&self, base: Constants, variant: &Variant, size: Size) -> Result<Constants> {
        let mut constants = base;
        (variant.apply)(&mut constants, size);
        constants.with(&self.set).map_err(|error| usage(&error))
    }

    /// The machine of a variant's `run`th run. Its chance does not depend on the variant.
    pub fn setup(&self, size: Size, constants: &Constants, run: u64) -> Setup {
        let seed = self
            .seed
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .wrapping_add(run);
        Setup {
            size,
            constants: constants.clone(),
            seed,
            log: self.trace.is_some(),
        }
    }
}

/// Reads `--cpus`.
pub fn parse_cpus(text: &str) -> Result<usize, String> {
    in_range(text, 1, 4096).map(|cpus| cpus as usize)
}

/// Reads `--hz`.
pub fn parse_hz(text: &str) -> Result<u64, String> {
    in_range(text, 10, 10_000)
}

/// Reads a count.
pub fn parse_count(text: &str) -> Result<usize, String> {
    in_range(text, 1, 100_000).map(|count| count as usize)
}

fn in_range(text: &str, least: u64, most: u64) -> Result<u64, String> {
    let number = text
        .parse()
        .ok()
        .filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| format!("say a whole number in {least}..={most}"))
}

/// A refused command line.
fn usage(error: &anyhow::Error) -> anyhow::Error {
    clap::Error::raw(ErrorKind::ValueValidation, format!("{error:#}\n")).into()
}
