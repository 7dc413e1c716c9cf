//! `stillpoint scale contention`: what an operation does to the cache lines that all threads share,
//! counted, and what that would come to on more processors.
//!
//! The library and the peers run as they are, one machine instruction after the other
//! ([`stepping`]); what counts is what the processor does ([`accesses`]), to lines that more than
//! one thread touches ([`lines`]). A read-modify-write that a compiler has made a fence and a load
//! is none. [`operations`] says what is done, [`model`] what is made of it for up to 256 processors,
//! [`parallel`] what is measured where there are four processors or more.
//!
//! | figure | |
//! |---|---|
//! | `shared_rmw_per_op` | atomic read-modify-writes on shared lines |
//! | `shared_stores_per_op` | plain stores to shared lines |
//! | `line_transfers_per_op` | accesses that have to get a line from another processor's cache, if the threads take turns and each has a processor |
//! | `membarriers_per_op`, `instructions_per_op` | of the calling thread |
//! | `modelled_ns_per_op` | **by the model**, on [`MODELLED`] processors; in the scenarios `model-N`, an object that is retired on N processors |
//! | `ns_per_op` | in the scenarios `retire-threads-N` and so on: measured, a thread's time for one operation while N threads run it; on four processors or more |
//!
//! An operation is, of `retire` one object of 32 bytes, allocated, retired, and in its time freed;
//! of `seal` the retire that fills a page, and frees another; of `read` an empty section; of
//! `lru-add` an item added to a list and taken off; of `charge` and `vmap-alloc` one that is given
//! back; the others are what they are called. Memory allocators' lines count where threads share
//! them.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use clap::error::ErrorKind;
use serde::{Deserialize, Serialize};

use super::experiment::{self, Benchmark, Selection};
use super::read::{Guard, Trace};
use crate::choice::{Family, PossibleValues};
use crate::output::{Metric, Row, metric, say};
use crate::peers;
use crate::run::{Case, Curve, Metrics, Sample};
use crate::subject::{Peer, ReadSide, Reclaimer, Registry, Updater};
use lines::MOST_THREADS;
pub use lines::Totals;
pub use stepping::available;
pub use turns::{Plan, Threads, count};

mod accesses;
mod lines;
mod model;
mod operations;
mod parallel;
mod stepping;
mod turns;

/// Processors of `modelled_ns_per_op`, but for the scenarios that say another number.
const MODELLED: usize = 64;

const MODELLED_NS: &str = "modelled_ns_per_op";

/// Processors of the model's scenarios.
const PROCESSORS: [usize; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

/// What the work depends on.
#[derive(Args, Serialize, Deserialize)]
pub struct Work {
    /// Threads that run an operation in turn, while it is counted
    #[arg(long, value_name = "N", default_value_t = COUNTED, value_parser = clap::value_parser!(u32).range(2..=MOST_THREADS as i64))]
    threads: u32,

    /// Threads beside them that have run it once, and wait
    #[arg(long, value_name = "N", default_value_t = 14, value_parser = clap::value_parser!(u32).range(0..=4096))]
    beside: u32,

    /// Measure the time with so many threads at once, in place of counting.
    #[arg(skip)]
    #[serde(skip_serializing_if = "Option::is_none")]
    timed: Option<u32>,
}

/// Threads that are counted, unless the command line says another number.
const COUNTED: u32 = 2;

impl Work {
    fn taking_part(&self) -> Threads {
        Threads {
            counted: self.threads as usize,
            beside: self.beside as usize,
        }
    }
}

impl Selection<Work> {
    /// The same, timed.
    fn timed(&self, threads: u32) -> Self {
        let work = Work {
            timed: Some(threads),
            ..self.work
        };
        self.with_work(work)
    }
}

impl super::Work for Work {
    const NAME: &'static str = "contention";

    const SHOWS: &'static str = "What an operation does to cache lines that all threads share, counted; less is better. \
        modelled_ns_per_op is a model's figure, for 64 processors or as the scenario says.";

    const VARIANTS: PossibleValues = PossibleValues::of_variants(&[
        ("default", "as in the other experiments"),
        ("per-page", "as in the other experiments"),
        ("call", "as in the other experiments"),
        ("guard", "as in the other experiments"),
        ("qsbr", "as in the other experiments"),
        ("trace", "as in the other experiments"),
        ("rcu", "as in the other experiments"),
    ]);

    const PEERS: PossibleValues = PossibleValues::of_peers(&["liburcu-memb", "crossbeam-epoch"]);

    const SCENARIOS: &'static [Family] = &[Family::of(
        &[
            "retire",
            "seal",
            "read",
            "synchronize",
            "get-state",
            "start-poll",
            "owned-guard",
            "charge",
            "charge-kept",
            "lru-add",
            "vmap-alloc",
            "vmap-find",
        ],
        "An operation of that name.",
    )];

    const METRICS: &'static [Metric] = &[
        metric(
            "shared_rmw_per_op",
            3,
            "counted, instruction by instruction",
        ),
        metric(
            "shared_stores_per_op",
            3,
            "counted, instruction by instruction",
        ),
        metric(
            "line_transfers_per_op",
            3,
            "counted, instruction by instruction",
        ),
        metric(
            "membarriers_per_op",
            4,
            "counted, instruction by instruction",
        ),
        metric(
            "instructions_per_op",
            1,
            "counted, instruction by instruction",
        ),
        metric(MODELLED_NS, 1, "counted, instruction by instruction"),
        metric("ns_per_op", 1, "counted, instruction by instruction"),
    ];

    fn benchmarks() -> Vec<Benchmark<Self>> {
        let mut benchmarks = Vec::new();
        let mut list = Subjects(&mut benchmarks);
        let ours = |variant| Peer::new("stillpoint").variant(variant);
        list.reclaims::<operations::Kvfree>(ours("per-page"));
        list.reclaims::<operations::Call>(ours("call"));
        list.reads::<Guard>(ours("guard"));
        list.reads::<super::sync::Qsbr>(ours("qsbr"));
        list.reads::<Trace>(ours("trace"));
        list.waits::<operations::Kvfree>(ours("rcu"));
        peers::register(&mut list);
        let others: [(&str, Measure); 9] = [
            ("seal", operations::seal),
            ("get-state", operations::get_state),
            ("start-poll", operations::start_poll),
            ("owned-guard", operations::owned_guard),
            ("charge", operations::charge),
            ("charge-kept", operations::charge_kept),
            ("lru-add", operations::lru_add),
            ("vmap-alloc", operations::vmap_alloc),
            ("vmap-find", operations::vmap_find),
        ];
        benchmarks.extend(
            others.map(|(scenario, measure)| {
                Benchmark::ours("default", measure).in_scenario(scenario)
            }),
        );
        benchmarks
    }

    fn check(&self) -> Result<(), clap::Error> {
        stepping::available().map_err(|error| clap::Error::raw(ErrorKind::Io, format!("{error}\n")))
    }
}

/// Measures an operation.
type Measure = fn(&Work) -> Result<Sample>;

/// Those whose operations can be counted.
struct Subjects<'c>(&'c mut Vec<Benchmark<Work>>);

impl Subjects<'_> {
    fn add(&mut self, peer: Peer, scenario: &'static str, measure: Measure) {
        let takes_part =
            peer.name == "stillpoint" || <Work as super::Work>::PEERS.names().contains(&peer.name);
        if takes_part {
            self.0
                .push(Benchmark::new(peer, measure).in_scenario(scenario));
        }
    }
}

impl Registry for Subjects<'_> {
    fn reads<S: ReadSide>(&mut self, peer: Peer) {
        self.add(peer, "read", operations::read::<S>);
    }

    fn reclaims<S: Reclaimer>(&mut self, peer: Peer) {
        self.add(peer, "retire", operations::retire::<S>);
    }

    fn waits<S: Updater>(&mut self, peer: Peer) {
        self.add(peer, "synchronize", operations::synchronize::<S>);
    }
}

/// The figures of runs of so many operations each.
fn sample(totals: &Totals, per_run: usize) -> Sample {
    let operations = (totals.runs as usize * per_run) as f64;
    let model = model::Operation::new(totals, per_run);
    let transfers = totals.transfers.iter().sum::<u64>();
    let figures = [
        ("shared_rmw_per_op", totals.read_modify_writes),
        ("shared_stores_per_op", totals.stores),
        ("line_transfers_per_op", transfers),
        ("membarriers_per_op", totals.membarriers),
        ("instructions_per_op", totals.instructions),
    ];
    let modelled = PROCESSORS.map(|processors| (processors as f64, model.ns_on(processors)));
    let mut metrics: Metrics = figures
        .into_iter()
        .map(|(name, count)| (name.to_owned(), count as f64 / operations))
        .collect();
    metrics.insert(MODELLED_NS.to_owned(), model.ns_on(MODELLED));
    let curve = Curve {
        x: "processors".to_owned(),
        y: MODELLED_NS.to_owned(),
        points: modelled.to_vec(),
    };
    Sample { metrics, curve }
}

/// Runs the experiment: counts, models, and measures where there are processors enough.
pub fn run(selection: &Selection<Work>) -> Result<ExitCode> {
    <Work as super::Work>::check(&selection.work)?;
    let mut found = experiment::compare(selection)?;
    say!(
        "{}; counted with {} threads in turn, beside {} that wait\n",
        found.head(),
        selection.work.threads,
        selection.work.beside
    );
    let rows = &mut found.report.rows;
    rows.extend(modelled_rows(rows));
    for threads in parallel::counts_of_threads() {
        let timed = experiment::compare(&selection.timed(threads))?;
        rows.extend(timed.report.rows.into_iter().filter_map(|row| {
            let scenario = row.case.scenario.as_deref()?;
            let scenario = Some(format!("{scenario}-threads-{threads}"));
            Some(Row::new(
                Case {
                    scenario,
                    ..row.case
                },
                row.metrics,
            ))
        }));
        found.failures.extend(timed.failures);
    }
    found.conclude()
}

/// What a retire by the library costs in read-modify-writes of shared lines, where `threads` retire:
/// a page's, by its objects, whose fast path makes none. Counted in a process of its own. `None`
/// where the processor cannot be stepped through.
pub fn shared_rmw_per_retire(threads: u32, timeout: Duration) -> Result<Option<f64>> {
    if stepping::available().is_err() {
        return Ok(None);
    }
    let work = Work {
        threads: COUNTED,
        beside: threads.saturating_sub(COUNTED),
        timed: None,
    };
    let case = Case {
        subject: "stillpoint".to_owned(),
        variant: "default".to_owned(),
        scenario: Some("seal".to_owned()),
    };
    let sample = experiment::measure_once(&work, case, timeout)?;
    let per_page = sample.metrics.get("shared_rmw_per_op");
    Ok(per_page.map(|count| count / operations::SLOTS as f64))
}

/// What an object that is retired comes to on so many processors: a row for each point of the
/// curves.
fn modelled_rows(rows: &[Row]) -> Vec<Row> {
    let retires = rows
        .iter()
        .filter(|row| row.case.scenario.as_deref() == Some("retire"));
    let row = |row: &Row, &(processors, ns): &(f64, f64)| {
        let case = Case {
            scenario: Some(format!("model-{processors}")),
            ..row.case.clone()
        };
        Row::new(case, Metrics::from([(MODELLED_NS.to_owned(), ns)]))
    };
    let mut rows: Vec<_> = retires
        .flat_map(|retire| {
            let points = retire.curve.iter().flat_map(|curve| &curve.points);
            points.map(move |point| (point.0, row(retire, point)))
        })
        .collect();
    rows.sort_by(|one, other| one.0.total_cmp(&other.0));
    rows.into_iter().map(|(_, row)| row).collect()
}
