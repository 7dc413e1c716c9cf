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
use super::Benchmark;
use crate::choice::PossibleValues;
use crate::output::Metric;
use crate::subject::Peer;

mod builds;

const SCENARIOS: &[&str] = &[
    "pin",
    "pin-nested",
    "defer",
    "box-1",
    "box-2",
    "values",
    "skiplist-get",
    "skiplist-write",
    "deque-steal",
    "deque-push",
    "moka-95",
    "moka-50",
    "flood",
    "flood-loaded",
    "prompt",
    "defer-memory",
    "moka-memory",
    "moka-values",
    "moka-blocks",
];

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

    const VARIANTS: PossibleValues = PossibleValues::of_variants(&["drop-in", "drop-in-nofence"]);

    const PEERS: PossibleValues = PossibleValues::of_peers(&["crossbeam-epoch"]);

    const SCENARIOS: Option<PossibleValues> = Some(PossibleValues::of_scenarios(SCENARIOS));

    const METRICS: &'static [Metric] = &[
        Metric {
            name: "cpu_ns_per_op",
            decimals: 2,
        },
        Metric {
            name: "peak_mib",
            decimals: 1,
        },
        Metric {
            name: "drop_ms",
            decimals: 1,
        },
        Metric {
            name: "left",
            decimals: 0,
        },
    ];

    fn benchmarks() -> Vec<Benchmark<Self>> {
        let in_scenario = |&scenario: &&'static str| {
            let run = |program: Program| move |_: &Self| program.run(scenario);
            let limit = Benchmark::limit(move |_| STOCK.run(&format!("limit-{scenario}")));
            [
                Some(Benchmark::ours("drop-in", run(DROP_IN))),
                Some(Benchmark::ours("drop-in-nofence", run(NO_FENCE))),
                Some(Benchmark::new(Peer::new("crossbeam-epoch"), run(STOCK))),
                WITH_LIMIT.contains(&scenario).then_some(limit),
            ]
            .into_iter()
            .flatten()
            .map(move |benchmark| benchmark.in_scenario(scenario))
        };
        SCENARIOS.iter().flat_map(in_scenario).collect()
    }

    fn check(&self) -> Result<(), clap::Error> {
        builds::build(&[DROP_IN, NO_FENCE, STOCK]);
        Ok(())
    }
}
