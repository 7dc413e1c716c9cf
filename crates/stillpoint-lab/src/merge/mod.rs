//! `stillpoint merge`: one result of many, such as the files of a job array.
//!
//! | file | subject |
//! |---|---|
//! | `input` | one file, which may be hostile |
//! | `totals` | rows: sums, means, worst cases |
//! | `failures` | runs that failed |
//! | `indices` | the indices of a job array that have come |
//! | `properties` | what has to hold over a sweep |
//! | `merged` | the result |
//!
//! A file is read, added and forgotten, so thousands of them take no more memory than one. Whatever
//! is wrong with one file is said of it, and costs no other file its figures; but files of another
//! kind than the first one's are a mistake on the command line, and nothing is written.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use clap::error::ErrorKind;
use serde_json::Value;

use crate::array::Indices;
use crate::machine::program;
use crate::output::{self, Output, say};
use indices::Found;
use input::{Input, Kind, Ran};
use merged::{Counts, Machines, Merged, Named, Params};
use totals::Totals;

mod failures;
mod indices;
pub mod input;
pub mod merged;
mod properties;
mod totals;

/// What the long help says beside the options.
pub const HELP: &str = "Counts of a torture are added up; of simulations and measurements the result has the means over the files, with the least, the \
greatest and the worst value, whose file and seed it names, and a row for each point of a sweep. Each file counts once: of two with the same index of a \
job array, or with the same content, the second one is left out and named, but for the faults that it found. The exit status is 0 if all went well; 1 if a \
run failed, an index is missing, a run was broken off or a property of a sweep does not hold; 2 if files could not be read, are not of one kind, or the \
usage is bad. `stillpoint report --from` draws the result, and `stillpoint torture --replay` does its failures again.";

/// How the names end of what runs leave that are broken off.
const PARTIAL: &str = ".json.partial";

/// The longest list in the result. The counts beside it are of all.
const MOST_NAMED: usize = 10_000;

/// The most machines and programs that are told apart.
const MOST_MACHINES: usize = 100;

/// Lines on standard error for each kind of thing.
const MOST_TOLD: usize = 20;

/// The command line.
#[derive(Args)]
pub struct Options {
    /// The results, as torture, sim or scale have written them with --json; a folder stands for the
    /// files in it whose names end in .json, and those of runs that were broken off in .json.partial
    #[arg(value_name = "FILES", required = true)]
    files: Vec<PathBuf>,

    /// Write the result to this file, instead of to standard output
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// The indices that the job array has; those without a result are named [default: what the
    /// files say]
    #[arg(long, value_name = "FIRST-LAST")]
    indices: Option<Indices>,
}

/// Joins the files.
pub fn run(options: &Options) -> Result<ExitCode> {
    let files = all_files(options)?;
    let output = options.output.as_deref().map(Output::create).transpose()?;
    let mut joined: Option<Join> = None;
    let mut unreadable = List::default();
    for path in &files {
        let name = path.display().to_string();
        // It is printed, and stands in the result.
        if name.chars().any(char::is_control) {
            let why = "has control characters in its name".to_owned();
            let file = name.escape_debug().to_string();
            unreadable.push(Named { file, why });
            continue;
        }
        let input = match Input::read(path) {
            Ok(input) => input,
            Err(why) => {
                unreadable.push(Named { file: name, why });
                continue;
            }
        };
        let is_first = joined.is_none();
        let join = match &mut joined {
            Some(join) if join.kind != input.kind => {
                return Err(usage(format!(
                    "{name} is of `{}`, and {} is of `{}`: merge results of one kind",
                    input.kind.name(),
                    join.first,
                    join.kind.name()
                )));
            }
            Some(join) => join,
            None => joined.insert(Join::new(&name, &input, options.indices)),
        };
        if let Err(why) = join.add(&name, &input) {
            unreadable.push(Named { file: name, why });
            if is_first {
                // What it says of kind and array is not to be held against the others.
                joined = None;
            }
        }
    }
    let Some(join) = joined else {
        unreadable.tell("cannot be merged");
        return Err(usage("none of the files can be merged".to_owned()));
    };
    let merged = join.conclude(files.len() as u64, unreadable);
    match output {
        Some(mut file) => {
            output::write_json(&merged, &mut file)?;
            file.commit()?;
        }
        None => say!("{}", serde_json::to_string_pretty(&merged)?),
    }
    Ok(match merged.counts {
        counts if counts.has_faults() => ExitCode::FAILURE,
        counts if !counts.is_clean() => ExitCode::from(2),
        _ => ExitCode::SUCCESS,
    })
}

fn usage(message: String) -> anyhow::Error {
    clap::Error::raw(ErrorKind::ValueValidation, message + "\n").into()
}

/// The files, with those of folders; the output is none of them.
fn all_files(options: &Options) -> Result<Vec<PathBuf>> {
    let same = |path: &Path| {
        let output = options.output.as_deref()?;
        Some(path.canonicalize().ok()? == output.canonicalize().ok()?)
    };
    let is_output = |path: &Path| same(path).unwrap_or(false);
    let mut files = Vec::new();
    for path in &options.files {
        if !path.is_dir() {
            if is_output(path) {
                let name = path.display();
                return Err(usage(format!("{name} is one of the files, and --output")));
            }
            files.push(path.clone());
            continue;
        }
        let name = path.display();
        let entries = fs::read_dir(path).with_context(|| format!("cannot read {name}"))?;
        let mut inside = Vec::new();
        for entry in entries {
            let entry = entry.with_context(|| format!("cannot read {name}"))?.path();
            let name = entry.as_os_str().as_encoded_bytes();
            let ends = [".json", PARTIAL].map(|end| name.ends_with(end.as_bytes()));
            if ends.contains(&true) && !is_output(&entry) {
                inside.push(entry);
            }
        }
        // Of a task that was broken off and then done again, the whole result counts.
        let is_partial = |path: &Path| {
            path.as_os_str()
                .as_encoded_bytes()
                .ends_with(PARTIAL.as_bytes())
        };
        inside.sort_by_cached_key(|path| (is_partial(path), path.clone()));
        files.append(&mut inside);
    }
    if files.is_empty() {
        return Err(usage("there are no .json files in there".to_owned()));
    }
    Ok(files)
}

/// A list of the result.
struct List<T> {
    items: Vec<T>,
    count: u64,
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self {
            items: Vec::new(),
            count: 0,
        }
    }
}

impl<T> List<T> {
    fn push(&mut self, item: T) {
        self.count += 1;
        if self.items.len() < MOST_NAMED {
            self.items.push(item);
        }
    }
}

impl List<Named> {
    fn tell(&self, what: &str) {
        tell(self.count, self.items.iter(), |Named { file, why }| {
            format!("{file} {what}: {why}")
        });
    }
}

/// Says the first of so many things on standard error.
fn tell<T>(count: u64, items: impl Iterator<Item = T>, say: impl Fn(T) -> String) {
    for item in items.take(MOST_TOLD) {
        eprintln!("stillpoint: {}", say(item));
    }
    if count > MOST_TOLD as u64 {
        eprintln!("stillpoint: ... and {} more", count - MOST_TOLD as u64);
    }
}

/// What has been joined so far.
struct Join {
    kind: Kind,
    /// The first file's name.
    first: String,
    expected: Option<Indices>,
    /// True if the command line says what is expected, so that the files need not.
    is_asked: bool,
    found: Found,
    identities: HashSet<u64>,
    counts: Counts,
    machines: BTreeMap<Ran, u64>,
    partial: List<Named>,
    duplicates: List<Named>,
    failures: List<merged::Failure>,
    totals: Totals,
}

impl Join {
    /// Begins with the first file, which says what kind all are of.
    fn new(name: &str, input: &Input, asked: Option<Indices>) -> Self {
        Self {
            kind: input.kind.clone(),
            first: name.to_owned(),
            expected: asked.or_else(|| indices_of(input)),
            is_asked: asked.is_some(),
            found: Found::default(),
            identities: HashSet::new(),
            counts: Counts::default(),
            machines: BTreeMap::new(),
            partial: List::default(),
            duplicates: List::default(),
            failures: List::default(),
            totals: Totals::new(input.kind.clone()),
        }
    }

    /// Adds a file, or says why it cannot be added; then nothing of it is kept.
    fn add(&mut self, name: &str, input: &Input) -> Result<(), String> {
        if let Some(expected) = self.expected {
            match input.index() {
                None => return Err(format!("has no index, and the array's are {expected}")),
                Some(index) if !expected.contains(index) => {
                    return Err(format!(
                        "has the index {index}, and the array's are {expected}"
                    ));
                }
                Some(_) => {}
            }
        }
        if !self.is_asked && indices_of(input) != self.expected {
            return Err(format!("is of another job array than {}", self.first));
        }
        let is_new = !self.identities.contains(&input.identity);
        let duplicate = match input.index() {
            Some(index) if self.found.contains(index) => {
                Some(format!("the index {index} has a result"))
            }
            _ if !is_new => Some("another file has the same content".to_owned()),
            _ => None,
        };
        if duplicate.is_none() {
            self.totals.add(name, input)?;
        }
        self.identities.insert(input.identity);
        if is_new {
            // A fault counts, also in a file that does not.
            failures::of_file(name, input).for_each(|failure| self.failures.push(failure));
        }
        if let Some(why) = duplicate {
            let file = name.to_owned();
            self.duplicates.push(Named { file, why });
            return Ok(());
        }
        if let Some(index) = input.index() {
            self.found.insert(index);
        }
        self.counts.merged += 1;
        self.counts.runs += match self.kind {
            Kind::Torture => input.rows.len() as u64,
            Kind::Sim(_) | Kind::Scale(_) => 1,
        };
        if self.machines.len() < MOST_MACHINES || self.machines.contains_key(&input.ran) {
            *self.machines.entry(input.ran.clone()).or_default() += 1;
        }
        if input.partial {
            let (file, why) = (name.to_owned(), "the run was broken off".to_owned());
            self.partial.push(Named { file, why });
        }
        Ok(())
    }

    /// The result; says on standard error what is the matter.
    fn conclude(self, files: u64, unreadable: List<Named>) -> Merged {
        let Self {
            kind,
            expected,
            found,
            mut counts,
            machines,
            partial,
            duplicates,
            failures,
            totals,
            ..
        } = self;
        let mut rows = totals.into_rows();
        let missing = expected.map_or_else(Vec::new, |all| found.missing(all));
        let properties = properties::check(&kind, &rows);
        totals::shorten_points(&mut rows);
        counts.files = files;
        counts.failures = failures.count;
        counts.broken_properties = properties.iter().filter(|one| !one.holds).count() as u64;
        counts.missing = missing.iter().map(|(first, last)| last - first + 1).sum();
        counts.partial = partial.count;
        counts.duplicates = duplicates.count;
        counts.unreadable = unreadable.count;
        let missing: Vec<String> = missing
            .into_iter()
            .take(MOST_NAMED)
            .map(|(first, last)| match first == last {
                true => first.to_string(),
                false => format!("{first}-{last}"),
            })
            .collect();

        unreadable.tell("cannot be merged");
        duplicates.tell("is left out");
        partial.tell("is not whole");
        if !missing.is_empty() {
            let list = missing[..missing.len().min(MOST_TOLD)].join(",");
            eprintln!("stillpoint: missing indices ({}): {list}", counts.missing);
        }
        tell(failures.count, failures.items.iter(), |failure| {
            let merged::Failure {
                file,
                what,
                command,
                ran,
                ..
            } = failure;
            let program = program(&ran.version, ran.commit.as_deref());
            format!("{file}: {what}; to do the same again: {command} ({program})")
        });
        for property in properties.iter().filter(|property| !property.holds) {
            eprintln!(
                "stillpoint: does not hold: {}: {}",
                property.name,
                property.broken_at.join("; ")
            );
        }
        Merged {
            experiment: merged::NAME.to_owned(),
            params: Params {
                of: kind.name(),
                indices: expected.map(|indices| indices.to_string()),
            },
            counts,
            machines: machines
                .into_iter()
                .map(|(ran, files)| Machines { ran, files })
                .collect(),
            missing,
            partial: partial.items,
            duplicates: duplicates.items,
            unreadable: unreadable.items,
            failures: failures.items,
            properties,
            rows,
        }
    }
}

/// The indices of the array that a file says it is of.
fn indices_of(input: &Input) -> Option<Indices> {
    let text = input.params.get("indices").and_then(Value::as_str)?;
    text.parse().ok()
}
