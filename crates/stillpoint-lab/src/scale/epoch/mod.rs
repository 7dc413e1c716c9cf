//! `stillpoint scale epoch`: the drop-in package for crossbeam-epoch beside the original, in
//! programs that use it, themselves or through other crates ([`builds`]).
//!
//! `cpu_ns_per_op` is the processor time of the whole process, the library's thread included, for
//! an operation; `peak_mib` by how much the resident memory grew at most; `drop_ms` how long after
//! the last guard's end all was freed: the original frees it only if some thread goes on pinning,
//! and so has no figure. `left` is what is not freed two seconds after caches were dropped: values
//! in `moka-values`, KiB in `moka-blocks`. The last four scenarios are what users have reported.
//!
//! The limit is the same work without guards, each object freed at once, where it is the program's
//! own: what moka and the others do without protection is not known.

use clap::Args;
use serde::{Deserialize, Serialize};

use self::builds::Program;
use super::Benchmarks;
use crate::choice::{Explained, Family, explained, families, scenarios};
use crate::output::{Metric, metrics};
use crate::subject::Peer;

mod builds;

const SCENARIOS: &[Family] = families! {
    "pin", "pin-nested" => "A pin and its end, in no other pin or in one.";
    "defer", "box-1", "box-2", "values" => "Defer a function; make a box and defer its end, on 1 or 2 threads; values with a destructor.";
    "skiplist-get", "skiplist-write", "deque-steal", "deque-push" => "crossbeam-skiplist and crossbeam-deque.";
    "moka-95", "moka-50" => "moka on two threads, with 95 or 50 percent of reads.";
    "flood", "flood-loaded" => "16 threads make boxes and defer their ends, on idle or on busy processors.";
    "prompt" => "A thread defers something and falls idle.";
    "defer-memory", "moka-memory", "moka-values", "moka-blocks" => "What users have reported: memory that stays.";
};

/// Those that no other crate's code is in, which have a limit.
const WITH_LIMIT: &[&str] = &["pin", "pin-nested", "defer", "box-1", "box-2", "values"];

const STOCK: Program = Program {
    name: "stock",
    manifest: "stock",
    features: "",
};

const DROP_IN: Program = Program {
    name: "drop-in",
    manifest: "patched",
    features: "",
};

const NO_FENCE: Program = Program {
    name: "drop-in-nofence",
    manifest: "patched",
    features: "nofence",
};

/// What the work depends on: nothing that could be asked for.
#[derive(Args, Serialize, Deserialize)]
pub struct Work {}

impl super::Work for Work {
    const NAME: &'static str = "epoch";

    const SHOWS: &'static str = "What programs on crossbeam-epoch cost with the drop-in package and with the original; less \
        is better. The original has no drop_ms: what is left when a program falls idle stays.";

    const VARIANTS: &'static [Explained] = explained! {
        "drop-in" => "the package as it is";
        "drop-in-nofence" => "its feature nofence, for programs that need no fence in a pin";
    };

    const SCENARIOS: &'static [Family] = SCENARIOS;

    const METRICS: &'static [Metric] = metrics! {
        "cpu_ns_per_op" 2 "processor time of the whole process for an operation, the library's thread included";
        "peak_mib" 1 "the most that resident memory grew by";
        "drop_ms" 1 "from the end of the last guard until all is freed; the original has none";
        "left" 0 "what is not freed two seconds after caches were dropped: values, or KiB in moka-blocks";
    };

    fn add_to(all: &mut Benchmarks<Self>) {
        for scenario in scenarios(SCENARIOS) {
            for (subject, program) in [
                (Peer::ours("drop-in"), DROP_IN),
                (Peer::ours("drop-in-nofence"), NO_FENCE),
                (Peer::new("crossbeam-epoch"), STOCK),
            ] {
                all.add(subject, scenario, move |_| program.run(scenario));
            }
            if WITH_LIMIT.contains(&scenario) {
                let limit = move |_: &Self| STOCK.run(&format!("limit-{scenario}"));
                all.add(Peer::LIMIT, scenario, limit);
            }
        }
    }

    fn check(&self) -> Result<(), clap::Error> {
        builds::build(&[DROP_IN, NO_FENCE, STOCK]);
        Ok(())
    }
}
