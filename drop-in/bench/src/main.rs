//! What crossbeam-epoch and the crates on it cost: one source, built twice, with the original
//! (`stock/Cargo.toml`) and with the drop-in package (`patched/Cargo.toml`). `stillpoint scale
//! epoch` builds and runs both; it says what the figures are.
//!
//! `epoch-bench SCENARIO SEED` prints its figures as one line of JSON; `epoch-bench SCENARIO SEED
//! COUNT` does `COUNT` operations and prints nothing, for a profiler.

mod flood;
mod measure;
mod operations;
mod reported;

use std::{env, process::ExitCode};

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (scenario, seed, count) = match &arguments[..] {
        [scenario, seed] => (scenario, seed.parse(), None),
        [scenario, seed, count] => (scenario, seed.parse(), count.parse().ok()),
        _ => return usage(),
    };
    let Ok(seed) = seed else { return usage() };
    fastrand::seed(seed);
    let figures = match scenario.as_str() {
        "pin" => operations::pin(count),
        "pin-nested" => operations::pin_nested(count),
        "defer" => operations::defer(count),
        "box-1" => operations::boxes(1, count),
        "box-2" => operations::boxes(2, count),
        "values" => operations::values(count),
        "skiplist-get" => operations::skiplist(100, count),
        "skiplist-write" => operations::skiplist(0, count),
        "deque-steal" => operations::deque(true, count),
        "deque-push" => operations::deque(false, count),
        "moka-95" => operations::moka(95, seed, count),
        "moka-50" => operations::moka(50, seed, count),
        "flood" => flood::flood(false),
        "flood-loaded" => flood::flood(true),
        "prompt" => flood::prompt(),
        "defer-memory" => reported::defer_memory(),
        "moka-memory" => reported::moka_memory(),
        "moka-values" => reported::moka_values(),
        "moka-blocks" => reported::moka_blocks(),
        _ => return usage(),
    };
    if count.is_none() {
        println!("{}", serde_json::Value::from_iter(figures));
    }
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    eprintln!("usage: epoch-bench SCENARIO SEED [COUNT]");
    ExitCode::from(2)
}
