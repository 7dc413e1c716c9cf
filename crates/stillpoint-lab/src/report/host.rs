//! The machine and the date of a report's figures.

use std::ops::Deref;
use std::time::SystemTime;

use procfs::{CpuInfo, Current, Meminfo};
use serde::{Deserialize, Serialize};

use crate::machine::Machine;

/// Every package that this program was built with, a line each: name and version.
const PACKAGES: &str = include_str!(concat!(env!("OUT_DIR"), "/versions.txt"));

/// The machine, and what ran on it.
#[derive(Serialize, Deserialize)]
pub struct Host {
    /// The facts that each run's JSON states.
    #[serde(flatten)]
    pub machine: Machine,
    /// The CPUs' model name.
    #[serde(default)]
    pub cpu_model: Option<String>,
    /// True if the machine is virtual.
    #[serde(default)]
    pub is_virtual: Option<bool>,
    /// Memory in MiB.
    #[serde(default)]
    pub memory_mib: Option<u64>,
    /// The compiler's version.
    pub rustc: String,
    /// When the report began, in UTC.
    pub date: String,
    /// The versions of packages, among them the peers'.
    #[serde(default)]
    pub packages: Vec<(String, String)>,
}

impl Deref for Host {
    type Target = Machine;

    fn deref(&self) -> &Machine {
        &self.machine
    }
}

impl Host {
    /// Describes this machine, now.
    pub fn here() -> Self {
        let processor = CpuInfo::current().ok();
        let processor = processor.as_ref();
        let flags = processor.and_then(|cpu| cpu.flags(0));
        let model = processor.and_then(|cpu| cpu.model_name(0));
        let packages = PACKAGES.lines().filter_map(|line| line.split_once(' '));
        Self {
            machine: Machine::here(),
            cpu_model: model.map(ToOwned::to_owned),
            is_virtual: flags.map(|flags| flags.contains(&"hypervisor")),
            memory_mib: Meminfo::current().ok().map(|memory| memory.mem_total >> 20),
            rustc: env!("STILLPOINT_LAB_RUSTC").to_owned(),
            date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            packages: packages
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
