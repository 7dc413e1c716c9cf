//! Processes that a test waits for, signals, and leaves none of behind.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// What `look` gives, as soon as it gives something.
pub fn wait_for<T>(look: impl Fn() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(100),
            "it has not come"
        );
        thread::sleep(Duration::from_millis(10));
    }
}

/// The child of a thread of process `parent` whose command line has this in it, in `/proc`.
pub fn child_of(parent: u32, command: &str) -> Option<PathBuf> {
    let threads = fs::read_dir(format!("/proc/{parent}/task")).ok()?.flatten();
    let children: String = threads
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok())
        .collect();
    let mut children = children
        .split_ascii_whitespace()
        .map(|child| PathBuf::from(format!("/proc/{child}")));
    // Until the child has become another program it has its parent's command line.
    children.find(|child| {
        fs::read_to_string(child.join("cmdline")).is_ok_and(|line| line.contains(command))
    })
}

/// Sends a signal to a process in `/proc`.
pub fn signal(name: &str, process: &Path) {
    let id = process.file_name().expect("a number");
    let mut kill = Command::new("kill");
    let status = kill.arg(format!("-{name}")).arg(id).status();
    assert!(status.expect("there is kill").success());
}

/// Returns whether the process still runs: a dead one that was not yet reaped does not.
pub fn is_alive(process: &Path) -> bool {
    let status = fs::read_to_string(process.join("stat")).unwrap_or_default();
    status
        .rsplit_once(") ")
        .is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// A process that should have ended by itself; it does not outlive the test in any case.
pub struct Orphan<'p>(pub &'p Path);

impl Drop for Orphan<'_> {
    fn drop(&mut self) {
        if is_alive(self.0) {
            signal("KILL", self.0);
        }
    }
}
