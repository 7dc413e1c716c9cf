//! The machine and the date of a report's figures.

use std::time::SystemTime;

use procfs::{CpuInfo, Current, Meminfo};
use serde::{Deserialize, Serialize};

use crate::load::Load;
use crate::machine::Machine;

/// Every package that this program was built with, a line each: name and version.
const PACKAGES: &str = include_str!(concat!(env!("OUT_DIR"), "/versions.txt"));

/// The machine, and what ran on it.
#[derive(Serialize, Deserialize)]
pub struct Host {
    /// CPUs that the program may run on.
    pub cpus: usize,
    /// The running kernel's release.
    pub kernel: String,
    /// True if Stillpoint's readers need no fences here.
    pub membarrier: bool,
    /// The machine's other work while the parts ran, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<Load>,
    /// The CPUs' model name.
    #[serde(default)]
    pub cpu_model: Option<String>,
    /// True if the machine is virtual.
    #[serde(default)]
    pub is_virtual: Option<bool>,
    /// Memory in MiB.
    #[serde(default)]
    pub memory_mib: Option<u64>,
    /// Stillpoint's version.
    pub version: String,
    /// The commit that the program was built from, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The compiler's version.
    pub rustc: String,
    /// True if the compiler optimised.
    pub optimised: bool,
    /// When the report began, in UTC.
    pub date: String,
    /// The versions of packages, among them the peers'.
    #[serde(default)]
    pub packages: Vec<(String, String)>,
}

impl Host {
    /// Describes this machine, now.
    pub fn here() -> Self {
        let Machine {
            cpus,
            kernel,
            membarrier,
            version,
            commit,
            optimised,
            environment: _,
            load: _,
        } = Machine::here();
        let processor = CpuInfo::current().ok();
        let flags = processor.as_ref().and_then(|cpu| cpu.flags(0));
        Self {
            cpus,
            kernel,
            membarrier,
            load: None,
            cpu_model: processor
                .as_ref()
                .and_then(|cpu| cpu.model_name(0))
                .map(ToOwned::to_owned),
            is_virtual: flags.map(|flags| flags.contains(&"hypervisor")),
            memory_mib: Meminfo::current().ok().map(|memory| memory.mem_total >> 20),
            version: version.to_owned(),
            commit: commit.map(ToOwned::to_owned),
            rustc: env!("STILLPOINT_LAB_RUSTC").to_owned(),
            optimised,
            date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            packages: PACKAGES
                .lines()
                .filter_map(|line| line.split_once(' '))
                .map(|(name, version)| (name.to_owned(), version.to_owned()))
                .collect(),
        }
    }

    /// Returns the version of a subject's package.
    pub fn version_of(&self, subject: &str) -> Option<&str> {
        let package = match subject {
            "scc-hashmap" | "scc-hashindex" | "scc-treeindex" => "scc",
            _ if subject.starts_with("liburcu") => "liburcu",
            _ => subject,
        };
        self.packages
            .iter()
            .find(|(name, _)| name == package)
            .map(|(_, version)| version.as_str())
    }
}
