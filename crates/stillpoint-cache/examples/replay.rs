//! Replays a trace in ARC's format, uncompressed, and prints the hit ratio: how the policy is tuned.
//!
//! `cargo run --release -p stillpoint-cache --example replay -- TRACE CAPACITY...`
//!
//! A line of a trace is `first_block blocks ignored request`. The traces OLTP, P3 and P6 are of
//! Megiddo and Modha, "ARC: A Self-Tuning, Low Overhead Replacement Cache", USENIX FAST 2003.

use std::{env, error::Error, fs};
use stillpoint_cache::Cache;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let path = arguments
        .next()
        .ok_or("a trace and capacities are needed")?;
    let text = fs::read_to_string(&path)?;
    for capacity in arguments {
        let capacity: u64 = capacity.parse()?;
        let cache: Cache<u64, ()> = Cache::builder().max_entries(capacity).build();
        for line in text.lines() {
            let mut words = line.split_whitespace().map(str::parse::<u64>);
            let (Some(first), Some(blocks)) = (words.next(), words.next()) else {
                return Err(format!("no request: {line:?}").into());
            };
            let first = first?;
            for block in first..first + blocks? {
                if cache.get(&block).is_none() {
                    cache.insert(block, ());
                }
            }
        }
        let statistics = cache.statistics();
        let requests = (statistics.hits + statistics.misses).max(1);
        println!(
            "{path} {capacity} {:.4}",
            statistics.hits as f64 / requests as f64
        );
    }
    Ok(())
}
