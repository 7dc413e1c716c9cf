//! Which processors threads may use.

use rustix::io;
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

/// Returns the processors that the calling thread may use.
pub fn allowed() -> io::Result<Vec<usize>> {
    let allowed = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|&cpu| allowed.is_set(cpu))
        .collect())
}

/// Moves a thread to these processors: the calling one, if `thread` is `None`.
pub fn move_to(thread: Option<Pid>, cpus: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|&cpu| set.set(cpu));
    sched_setaffinity(thread, &set)
}
