//! Memory of live owned guards: the process's resident pages that no file is behind, which hold all
//! that a guard needs, wherever it lies and whatever the allocator adds to it.
//!
//! One batch of guards is made and kept first: it uses up what memory the process has at hand
//! already. What grows while a second batch is made is then that batch's. The kernel counts it page
//! by page when it is asked (its running count may be behind, by some pages for each processor),
//! and there are enough guards for a page to be little. An allocator that counts would say less,
//! namely not what it wastes, and would stand in the way of all other measurements of this program.

use anyhow::{Context, Result};
use procfs::process::Process;
use stillpoint::tasks_trace::TraceDomain;

/// Guards of a batch.
const GUARDS: usize = 10_000;

/// Bytes for each of the second batch's guards in `domain`, where none was made before; the guard
/// itself lies in a vector.
pub fn bytes_per_guard(domain: &TraceDomain) -> Result<f64> {
    let batch = || {
        let mut guards = Vec::with_capacity(GUARDS);
        guards.extend((0..GUARDS).map(|_| domain.read_lock_owned()));
        guards
    };
    let first = batch();
    let before = anonymous()?;
    let second = batch();
    let after = anonymous()?;
    drop((first, second));
    Ok((after as f64 - before as f64) / GUARDS as f64)
}

/// Bytes of anonymous memory that are resident, counted now.
fn anonymous() -> Result<u64> {
    let rollup = Process::myself()?
        .smaps_rollup()
        .context("cannot read /proc/self/smaps_rollup")?;
    let map = rollup
        .memory_map_rollup
        .iter()
        .next()
        .context("smaps_rollup is empty")?;
    map.extension
        .map
        .get("Anonymous")
        .copied()
        .context("smaps_rollup tells no Anonymous")
}
