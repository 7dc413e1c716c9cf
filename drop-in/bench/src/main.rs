//! Measures the cost of crossbeam-epoch and crates that use it: one source, built with the original
//! (`stock/Cargo.toml`) and with the drop-in package (`patched/Cargo.toml`). `stillpoint scale
//! epoch` builds and runs both, and explains the figures.
//!
//! `epoch-bench SCENARIO SEED` prints its figures as one line of JSON; `epoch-bench SCENARIO SEED
//! COUNT` does `COUNT` operations and prints nothing, for a profiler. `limit-SCENARIO` does the
//! same work without guards, and frees at once, for scenarios without other crates' code.

mod flood;
mod measure;
mod operations;
mod reported;

use measure::Figures;
use operations::{Pinned, Pins, Unprotected};
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
    let of_our_own = match scenario.strip_prefix("limit-") {
        None => own::<Pinned>(scenario, count),
        Some(scenario) => own::<Unprotected>(scenario, count),
    };
    let figures = of_our_own.or_else(|| others(scenario, seed, count));
    let Some(figures) = figures else {
        return usage();
    };
    if count.is_none() {
        println!("{}", serde_json::Value::from_iter(figures));
    }
    ExitCode::SUCCESS
}

/// Runs the scenarios of this program's own.
fn own<P: Pins>(scenario: &str, count: Option<u64>) -> Option<Figures> {
    Some(match scenario {
        "pin" => operations::pin::<P>(count),
        "pin-nested" => operations::pin_nested::<P>(count),
        "defer" => operations::defer::<P>(count),
        "box-1" => operations::boxes::<P>(1, count),
        "box-2" => operations::boxes::<P>(2, count),
        "values" => operations::values::<P>(count),
        _ => return None,
    })
}

/// Runs the scenarios of other crates, and those about memory.
fn others(scenario: &str, seed: u64, count: Option<u64>) -> Option<Figures> {
    Some(match scenario {
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
        _ => return None,
    })
}

fn usage() -> ExitCode {
    eprintln!("usage: epoch-bench SCENARIO SEED [COUNT]");
    ExitCode::from(2)
}
