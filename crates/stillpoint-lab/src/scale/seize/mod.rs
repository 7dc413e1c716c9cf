//! `stillpoint scale seize`: the drop-in package for seize beside the original, in a program that uses
//! it, itself and through papaya's map ([`builds`]).
//!
//! `cpu_ns_per_op` is the processor time of the whole process for an operation. `read` and `mixed` are
//! papaya's map with all of 10,000 keys: all gets, and half gets, half insertions that replace; `write`
//! is insertions alone; the number says how many threads. `create` makes a map, puts an entry in,
//! replaces it and drops the map. `peak_mib` is by how much the resident memory grew at most while 16
//! threads replaced a million objects each; `kib_per_map` what each of 10,000 maps with an entry takes.

use clap::Args;
use serde::{Deserialize, Serialize};

use super::Benchmark;
use super::builds::{self, Program};
use crate::choice::PossibleValues;
use crate::output::Metric;
use crate::subject::Peer;

const SCENARIOS: &[&str] = &[
    "enter",
    "retire",
    "read-1",
    "read-2",
    "mixed-1",
    "mixed-2",
    "write-2",
    "create",
    "flood",
    "maps-memory",
];

const STOCK: Program = Program {
    binary: "seize-bench",
    name: "stock",
    manifest: "seize-stock",
    features: "",
};

const DROP_IN: Program = Program {
    binary: "seize-bench",
    name: "drop-in",
    manifest: "seize-patched",
    features: "",
};

/// What the work depends on: nothing that could be asked for.
#[derive(Args, Serialize, Deserialize)]
pub struct Work {}

impl super::Work for Work {
    const NAME: &'static str = "seize";

    const SHOWS: &'static str = "What programs on seize cost with the drop-in package and with the original; less is better.";

    const VARIANTS: PossibleValues = PossibleValues::of_variants(&["drop-in"]);

    const PEERS: PossibleValues = PossibleValues::of_peers(&["seize"]);

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
            name: "kib_per_map",
            decimals: 1,
        },
    ];

    fn benchmarks() -> Vec<Benchmark<Self>> {
        let in_scenario = |&scenario: &&'static str| {
            let run = |program: Program| move |_: &Self| program.run(scenario);
            [
                Benchmark::ours("drop-in", run(DROP_IN)),
                Benchmark::new(Peer::new("seize"), run(STOCK)),
            ]
            .map(|benchmark| benchmark.in_scenario(scenario))
        };
        SCENARIOS.iter().flat_map(in_scenario).collect()
    }

    fn check(&self) -> Result<(), clap::Error> {
        builds::build(&[DROP_IN, STOCK]);
        Ok(())
    }
}
