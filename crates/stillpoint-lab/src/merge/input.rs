//! One file to be merged. It may be cut off, of another program, or made to do harm: it is read to
//! a limit, and held to what this program writes before any of it is added to anything.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hasher};
use std::io::Read;
use std::path::Path;

use clap::Subcommand;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::machine::LIBRARY_VARIABLES;
use crate::run::{Curve, Metrics, Spread};
use crate::scale;
use crate::sim::Sim;
use crate::torture::plan::Plan;

/// The most bytes of a file. The largest that this program writes, `scale kfree` with its curves,
/// has some 300 KiB.
const MOST_BYTES: u64 = 64 << 20;

/// The largest figure: more than any count that fits into the time that machines have.
const GREATEST: f64 = 1e18;

/// What kind of results a file has. Only results of one kind are merged.
#[derive(Clone, PartialEq, Eq)]
pub enum Kind {
    /// Of `stillpoint torture`.
    Torture,
    /// Of `stillpoint sim`, and of which simulation.
    Sim(String),
    /// Of `stillpoint scale`, and of which experiment.
    Scale(String),
}

impl Kind {
    /// Its name: the command that writes such files.
    pub fn name(&self) -> String {
        match self {
            Self::Torture => "torture".to_owned(),
            Self::Sim(name) => format!("sim {name}"),
            Self::Scale(name) => format!("scale {name}"),
        }
    }
}

/// Where a result is from, and which program it is of.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Ran {
    /// CPUs.
    #[serde(default)]
    pub cpus: usize,
    /// The kernel's release.
    #[serde(default)]
    pub kernel: String,
    /// True if readers went without fences.
    #[serde(default)]
    pub membarrier: bool,
    /// Stillpoint's version.
    #[serde(default)]
    pub version: String,
    /// The commit that the program was built from, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The library's variables.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
}

/// A row of a file.
#[derive(Deserialize)]
pub struct Row {
    /// Whose figures.
    pub subject: String,
    /// In which variant; of a torture, the flavour.
    pub variant: String,
    /// In which scenario, where there are several.
    #[serde(default)]
    pub scenario: Option<String>,
    /// The figures.
    pub metrics: Metrics,
    /// The least and the greatest value of the rounds.
    #[serde(default)]
    pub spread: Spread,
    /// The curve.
    #[serde(default)]
    pub curve: Option<Curve>,
}

/// What is looked at first.
#[derive(Deserialize)]
struct Head {
    experiment: String,
}

/// A file's content.
#[derive(Deserialize)]
struct Content {
    experiment: String,
    params: Map<String, Value>,
    #[serde(default)]
    machine: Ran,
    #[serde(default)]
    partial: bool,
    rows: Vec<Row>,
}

/// A file that can be merged.
pub struct Input {
    /// What kind of results.
    pub kind: Kind,
    /// What the run was asked for.
    pub params: Map<String, Value>,
    /// Where it ran.
    pub ran: Ran,
    /// True if the run was broken off.
    pub partial: bool,
    /// What was found.
    pub rows: Vec<Row>,
    /// Of a torture, what each row's run was to do, and of runs that did not come to a row.
    pub plans: Vec<Plan>,
    /// The same for files with the same runs and figures, wherever they ran.
    pub identity: u64,
}

impl Input {
    /// Reads a file; if it cannot be merged, says why.
    pub fn read(path: &Path) -> Result<Self, String> {
        let bytes = read(path)?;
        let head: Head = serde_json::from_slice(&bytes).map_err(|error| explain(&bytes, &error))?;
        if let "report" | "merge" = head.experiment.as_str() {
            return Err(format!("has a whole `{}`, not one run", head.experiment));
        }
        let content: Content =
            serde_json::from_slice(&bytes).map_err(|error| explain(&bytes, &error))?;
        let Content {
            experiment,
            params,
            mut machine,
            partial,
            rows,
        } = content;
        let is_sim = Sim::has_subcommand(&experiment);
        let kind = match experiment.as_str() {
            "torture" => Kind::Torture,
            "sweep" | "improve" => Kind::Sim(experiment),
            // The names of these are experiments', too.
            _ if is_sim && params.contains_key("constants") => Kind::Sim(experiment),
            name if scale::is_experiment(name) => Kind::Scale(experiment),
            _ => return Err("has no figures of this program".to_owned()),
        };
        machine.check()?;
        check_names(&rows)?;
        for row in &rows {
            check(row, &kind)?;
        }
        let plans = if kind == Kind::Torture {
            plans(&params, &rows)?
        } else {
            Vec::new()
        };
        Ok(Self {
            identity: identity(&kind, &params, &rows),
            kind,
            params,
            ran: machine,
            partial,
            rows,
            plans,
        })
    }

    /// The index of the task in its job array.
    pub fn index(&self) -> Option<u64> {
        self.params.get("index").and_then(Value::as_u64)
    }
}

/// The file's bytes, if it is a file, and none too large.
pub fn read(path: &Path) -> Result<Vec<u8>, String> {
    let cannot = |error: std::io::Error| format!("cannot be read: {error}");
    // Before it is opened: to open a pipe may take for ever.
    if !fs::metadata(path).map_err(cannot)?.is_file() {
        return Err("is no file".to_owned());
    }
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MOST_BYTES + 1).read_to_end(&mut bytes))
        .map_err(cannot)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(format!("has more than {} MiB", MOST_BYTES >> 20));
    }
    Ok(bytes)
}

fn explain(bytes: &[u8], error: &serde_json::Error) -> String {
    if bytes.is_empty() {
        "is empty".to_owned()
    } else if error.is_eof() {
        format!("is cut off after {} bytes", bytes.len())
    } else if error.is_syntax() {
        format!("is no JSON: {error}")
    } else {
        format!("has no figures of this program: {error}")
    }
}

/// The most bytes of a name, and the most figures of a row.
const LONGEST_NAME: usize = 1000;
const MOST_FIGURES: usize = 200;

/// Returns whether it can be printed, and kept for each of many failures.
fn is_text(text: &str) -> bool {
    text.len() <= LONGEST_NAME && !text.chars().any(char::is_control)
}

fn no_names() -> String {
    "has names that no run of this program has".to_owned()
}

impl Ran {
    /// Refuses what no run has: it is printed, and the variables stand before commands that are to
    /// be typed. Those of them that are not the library's are forgotten.
    pub fn check(&mut self) -> Result<(), String> {
        let of_program = [&self.kernel, &self.version].into_iter();
        let holds = of_program.chain(&self.commit).all(|text| is_text(text))
            && self
                .environment
                .iter()
                .all(|(name, value)| name.starts_with("STILLPOINT_") && is_text(value));
        if !holds {
            return Err(no_names());
        }
        let of_library = |name: &String| LIBRARY_VARIABLES.contains(&name.as_str());
        self.environment.retain(|name, _| of_library(name));
        Ok(())
    }
}

/// Refuses names that no run has: they are printed, and are part of commands.
fn check_names(rows: &[Row]) -> Result<(), String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_+.".contains(c);
    let is_name = |name: &str| !name.is_empty() && is_text(name) && name.chars().all(is_plain);
    let holds = |row: &Row| {
        let figures = row.metrics.keys().chain(row.spread.keys());
        is_name(&row.subject)
            && is_name(&row.variant)
            && row.scenario.as_deref().is_none_or(is_text)
            && row.metrics.len().max(row.spread.len()) <= MOST_FIGURES
            && figures.into_iter().all(|name| is_name(name))
    };
    if rows.iter().all(holds) {
        Ok(())
    } else {
        Err(no_names())
    }
}

/// Refuses figures that no run has.
fn check(row: &Row, kind: &Kind) -> Result<(), String> {
    let ends = row.spread.values().flatten();
    let points = row.curve.iter().flat_map(|curve| &curve.points);
    let all = row
        .metrics
        .values()
        .chain(ends)
        .copied()
        .chain(points.flat_map(|&(x, y)| [x, y]));
    let counts = *kind == Kind::Torture;
    let least = if counts { 0.0 } else { -GREATEST };
    for value in all {
        if !(least..=GREATEST).contains(&value) {
            return Err(format!("has the figure {value} in {}", row.variant));
        }
    }
    if counts && !row.metrics.contains_key("errors") {
        return Err(format!("does not say whether {} had errors", row.variant));
    }
    Ok(())
}

/// What each row's run was to do.
fn plans(params: &Map<String, Value>, rows: &[Row]) -> Result<Vec<Plan>, String> {
    let plans = params.get("plans").cloned().unwrap_or_default();
    let plans: Vec<Plan> =
        serde_json::from_value(plans).map_err(|error| format!("has no valid plans: {error}"))?;
    let fits = plans.len() >= rows.len()
        && rows
            .iter()
            .zip(&plans)
            .all(|(row, plan)| row.variant == plan.flavour);
    if fits {
        Ok(plans)
    } else {
        Err("has rows of other flavours than its plans".to_owned())
    }
}

/// Where it ran and how busy that was is no part of it.
fn identity(kind: &Kind, params: &Map<String, Value>, rows: &[Row]) -> u64 {
    let mut hasher = DefaultHasher::new();
    let mut add = |text: &str| {
        hasher.write_usize(text.len());
        hasher.write(text.as_bytes());
    };
    add(&kind.name());
    add(&Value::Object(params.clone()).to_string());
    for row in rows {
        add(&row.subject);
        add(&row.variant);
        add(row.scenario.as_deref().unwrap_or_default());
        for (name, value) in &row.metrics {
            add(name);
            add(&value.to_bits().to_string());
        }
    }
    hasher.finish()
}
