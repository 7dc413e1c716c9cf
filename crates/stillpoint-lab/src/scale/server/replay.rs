//! The trace OLTP, at the same limit. A request that misses stores the block's value, of 64 to 1,087 bytes;
//! requests are sent [`BATCH`] at a time, then what missed is stored. `hit_ratio` is that of all.

use anyhow::Result;

use super::process::{Server, Settings};
use super::{Work, keys};
use crate::peers::servers::Kind;
use crate::run::Sample;

/// Requests at a time.
const BATCH: usize = 20;

/// The bytes of a value.
const SHORTEST: usize = 64;
const LONGEST: usize = 1_087;

/// The trace, and the servers' limit in MiB.
pub const TRACE: &str = "oltp";
const MIB: u64 = 8;

/// Measures it.
pub fn measure(work: &Work, kind: Kind) -> Result<Sample> {
    let trace = work.traces.read(TRACE)?.divided(work.divide);
    let server = Server::start(kind, &Settings::new(work, MIB))?;
    let mut client = server.connect()?;
    let value = keys::bytes(LONGEST);
    let (mut asked, mut found) = (0, 0);
    let mut blocks = trace.blocks();
    loop {
        let batch: Vec<u64> = blocks.by_ref().take(BATCH).collect();
        if batch.is_empty() {
            break;
        }
        for &block in &batch {
            let key = keys::key(block);
            client.get(&key);
        }
        client.send()?;
        let mut missed = Vec::new();
        found += client.wait(batch.len(), |number, answer| {
            if answer.values == 0 {
                missed.push(batch[number]);
            }
        })?;
        asked += batch.len();
        for &block in &missed {
            let length = keys::length(block, SHORTEST, LONGEST);
            client.set(&keys::key(block), &value[..length]);
        }
        client.ask(missed.len())?;
    }
    Ok(Sample::of([("hit_ratio", found as f64 / asked as f64)]))
}
