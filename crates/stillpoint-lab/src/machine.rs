//! Where a run took place, and which program ran: the facts that figures of two runs differ by, and
//! that a fault needs, beside its command, to be repeated.

use std::collections::BTreeMap;
use std::env;
use std::fmt;
use std::thread;

use serde::{Deserialize, Serialize};

use crate::load::{Load, Watch};

/// The commit that this program was built from, with `+` behind it if its checkout had changes;
/// empty where that is not known.
const COMMIT: &str = env!("STILLPOINT_LAB_COMMIT");

/// The machine, as the JSON names it.
#[derive(Serialize, Deserialize)]
pub struct Machine {
    /// CPUs that this process may run on.
    pub cpus: usize,
    /// The running kernel's release.
    pub kernel: String,
    /// True if Stillpoint's readers go without fences here; otherwise both sides fence.
    pub membarrier: bool,
    /// Stillpoint's version.
    pub version: String,
    /// The commit that the program was built from, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// True if the compiler optimised.
    pub optimised: bool,
    /// The variables that change what the library does, as far as they are set.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// What else it did meanwhile, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<Load>,
}

impl Machine {
    /// This machine.
    pub fn here() -> Self {
        Self {
            cpus: thread::available_parallelism().map_or(1, usize::from),
            kernel: rustix::system::uname()
                .release()
                .to_string_lossy()
                .into_owned(),
            membarrier: stillpoint::membarrier_active(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: (!COMMIT.is_empty()).then(|| COMMIT.to_owned()),
            optimised: !cfg!(debug_assertions),
            environment: environment(),
            load: None,
        }
    }

    /// This machine, at the end of a run that has watched it.
    pub fn watched_by(watch: &Watch) -> Self {
        Self {
            load: watch.so_far(),
            ..Self::here()
        }
    }

    /// Returns what else the machine did, if that was too much.
    pub fn busy(&self) -> Option<&Load> {
        self.load.as_ref().filter(|load| load.busy)
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let membarrier = if self.membarrier { "on" } else { "off" };
        let padded = if cfg!(padded) {
            ", branches padded to 32 bytes"
        } else {
            ""
        };
        write!(
            f,
            "{} CPUs, kernel {}, membarrier {membarrier}{padded}",
            self.cpus, self.kernel
        )
    }
}

/// The variables that the library reads: all that is recorded of the environment, whose other
/// variables are private, whatever their names.
const LIBRARY_VARIABLES: [&str; 5] = [
    "STILLPOINT_CALLBACK_DELAY_MS",
    "STILLPOINT_DEBUG",
    "STILLPOINT_MEMBARRIER",
    "STILLPOINT_STALL",
    "STILLPOINT_STATS",
];

/// The variables that the library reads, as far as they are set.
pub fn environment() -> BTreeMap<String, String> {
    let set = LIBRARY_VARIABLES.iter().filter_map(|&name| {
        let value = env::var_os(name)?;
        Some((name.to_owned(), value.to_string_lossy().into_owned()))
    });
    set.collect()
}

/// Returns which program this is: "stillpoint 0.1.0, commit 0123456789ab".
pub fn this_program() -> String {
    let commit = if COMMIT.is_empty() { "unknown" } else { COMMIT };
    format!("stillpoint {}, commit {commit}", env!("CARGO_PKG_VERSION"))
}

/// Words as a shell reads them back.
pub fn quoted<'w>(words: impl IntoIterator<Item = &'w str>) -> String {
    let quote = |word: &str| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=+.,:/@%".contains(c);
        if !word.is_empty() && word.chars().all(is_plain) {
            word.to_owned()
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    };
    let words: Vec<String> = words.into_iter().map(quote).collect();
    words.join(" ")
}

/// A command with the variables that it needs before it.
pub fn with_environment(command: &str, environment: &BTreeMap<String, String>) -> String {
    let variables = environment
        .iter()
        .map(|(name, value)| format!("{}={} ", quoted([name.as_str()]), quoted([value.as_str()])));
    variables.collect::<String>() + command
}

/// The command that this process was started with.
pub fn this_command() -> String {
    let arguments: Vec<String> = env::args_os()
        .skip(1)
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect();
    let command = ["stillpoint"]
        .into_iter()
        .chain(arguments.iter().map(String::as_str));
    with_environment(&quoted(command), &environment())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As its source names them.
    #[test]
    fn the_librarys_variables_are_known() {
        let source = include_str!("../../stillpoint-platform/src/environment.rs");
        let source = source.split("mod tests").next().expect("the first part");
        let quoted = source.split('"').skip(1).step_by(2);
        let mut named: Vec<_> = quoted
            .filter(|text| text.starts_with("STILLPOINT_"))
            .collect();
        named.sort_unstable();
        assert_eq!(named, LIBRARY_VARIABLES);
    }

    #[test]
    fn words_are_quoted_as_a_shell_needs_it() {
        assert_eq!(
            quoted(["--json", "a file", "it's", "", "x=1"]),
            r"--json 'a file' 'it'\''s' '' x=1"
        );
        let environment = [("STILLPOINT_MEMBARRIER".to_owned(), "off".to_owned())];
        assert_eq!(
            with_environment("stillpoint", &environment.into()),
            "STILLPOINT_MEMBARRIER=off stillpoint"
        );
    }
}
