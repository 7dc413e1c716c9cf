//! A flood in a control group that may use [`LIMIT`] bytes: the process enters the group, makes a
//! cache without saying how large it is, and inserts eight times as many bytes. `rss_ratio` is the
//! most that the group used, divided by its limit. If the kernel kills the process, the measurement
//! has failed.
//!
//! The group is made below the nearest group above this process that hands on the memory
//! controller of version 2; where there is none, or it may not be written to, the scenario is
//! skipped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process;

use anyhow::{Context, Result, ensure};

use super::{Work, pressure};
use crate::cache::ByteCache;
use crate::run::Sample;

const ROOT: &str = "/sys/fs/cgroup";

const LIMIT: u64 = 128 << 20;

/// A group of this process, for a while.
struct Group {
    path: PathBuf,
    /// Where the process came from.
    home: PathBuf,
}

/// Returns whether a group can be made.
pub fn is_possible() -> bool {
    Group::make().is_ok()
}

/// Measures a flood.
pub fn measure<C: ByteCache>(work: &Work, make: impl FnOnce() -> C) -> Result<Sample> {
    let group = Group::make()?;
    group.enter()?;
    let cache = make();
    pressure::fill(&cache, 8 * LIMIT / u64::from(work.divide));
    let most = group
        .number("memory.peak")
        .or_else(|_| group.number("memory.current"))?;
    let events = group.read("memory.events")?;
    let is_unharmed = events.lines().any(|line| line == "oom_kill 0");
    ensure!(
        is_unharmed,
        "the kernel killed a process of the group: {events}"
    );
    Ok(Sample::of([("rss_ratio", most as f64 / LIMIT as f64)]))
}

impl Group {
    fn make() -> Result<Self> {
        let groups = fs::read_to_string("/proc/self/cgroup")?;
        let own = groups.lines().find_map(|line| line.strip_prefix("0::/"));
        let home = Path::new(ROOT).join(own.context("there is no control group of version 2")?);
        let parent = home
            .ancestors()
            .take_while(|group| group.starts_with(ROOT))
            .find(|group| hands_on_memory(group))
            .context("no group hands on the memory controller")?;
        let path = parent.join(format!("stillpoint-lab-{}", process::id()));
        fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        let group = Self {
            path,
            home: home.clone(),
        };
        group.write("memory.max", LIMIT)?;
        // Absent where the kernel has no swap.
        let _ = group.write("memory.swap.max", 0);
        Ok(group)
    }

    fn enter(&self) -> Result<()> {
        self.write("cgroup.procs", process::id().into())
    }

    fn write(&self, file: &str, number: u64) -> Result<()> {
        let path = self.path.join(file);
        fs::write(&path, number.to_string())
            .with_context(|| format!("cannot write {}", path.display()))
    }

    fn read(&self, file: &str) -> Result<String> {
        let path = self.path.join(file);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    fn number(&self, file: &str) -> Result<u64> {
        Ok(self.read(file)?.trim().parse()?)
    }
}

fn hands_on_memory(group: &Path) -> bool {
    let controllers = fs::read_to_string(group.join("cgroup.subtree_control"));
    controllers.is_ok_and(|names| names.split_whitespace().any(|name| name == "memory"))
}

impl Drop for Group {
    /// Goes back, as a group that is in use cannot be removed. What fails leaves an empty group.
    fn drop(&mut self) {
        let _ = fs::write(self.home.join("cgroup.procs"), process::id().to_string());
        let _ = fs::remove_dir(&self.path);
    }
}
