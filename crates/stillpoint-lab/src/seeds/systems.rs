//! The five systems: which figures stand beside each other, and what was gained.

use super::kernel::KERNEL;
use super::{Found, SIMULATION};
use crate::output::numbers::{Unit, grouped, significant};

/// A system's part of the page.
pub struct System {
    /// The seed's number and the system's name.
    pub title: &'static str,
    /// What the patch does.
    pub patch: &'static str,
    /// The figures' names.
    pub columns: Vec<&'static str>,
    /// The rows of the table.
    pub lines: Vec<Line>,
    /// What the rows are.
    pub about: &'static str,
    /// What was gained here: a line for each pair of figures.
    pub gains: Vec<String>,
    /// The commands that show more.
    pub more: &'static str,
}

/// A row of the table.
pub struct Line {
    /// `kernel`, `simulated` or `here`.
    pub origin: &'static str,
    /// The variant that the row measures.
    pub label: String,
    /// The figures, in the columns' order.
    pub cells: Vec<Option<String>>,
}

/// Returns all five, for a machine with `cpus` CPUs.
pub fn all(found: &Found, cpus: usize) -> [System; 5] {
    [
        kvfree(found, cpus),
        grace_periods(found, cpus),
        lru(found, cpus),
        tasks_trace(found, cpus),
        vmap(found, cpus),
    ]
}

/// Which figure a column shows: scenario (if the experiment has any), name and unit. `None` if the
/// source has no such figure.
type Column = Option<(Option<&'static str>, &'static str, Unit)>;

/// The source of lines: whose figures they show, and of which experiment.
struct Source<'f> {
    found: &'f Found,
    origin: &'static str,
    subject: &'static str,
    experiment: &'static str,
    columns: Vec<Column>,
}

impl<'f> Source<'f> {
    fn kernel(found: &'f Found, experiment: &'static str, columns: &[Column]) -> Self {
        Self {
            found,
            origin: "kernel",
            subject: KERNEL,
            experiment,
            columns: columns.to_vec(),
        }
    }

    fn simulation(found: &'f Found, experiment: &'static str, columns: &[Column]) -> Self {
        Self {
            origin: "simulated",
            subject: SIMULATION,
            ..Self::kernel(found, experiment, columns)
        }
    }

    fn here(found: &'f Found, experiment: &'static str, columns: &[Column]) -> Self {
        Self {
            origin: "here",
            subject: "stillpoint",
            ..Self::kernel(found, experiment, columns)
        }
    }

    fn figure(&self, column: Column, variant: &str) -> Option<f64> {
        let (scenario, metric, _) = column?;
        self.found
            .figure(self.experiment, self.subject, variant, scenario, metric)
    }

    fn line(&self, label: &str, variant: &str) -> Line {
        let cell = |&column: &Column| {
            let (.., unit) = column?;
            let value = self.figure(column, variant)?;
            Some(match self.origin {
                "kernel" => as_published(unit, value),
                _ => unit.show(value),
            })
        };
        Line {
            origin: self.origin,
            label: label.to_owned(),
            cells: self.columns.iter().map(cell).collect(),
        }
    }

    /// Says what `after` gains over `before` in a column; `None` if either has no figure.
    fn gain(
        &self,
        what: &str,
        column: usize,
        better: Better,
        [after, before]: [&str; 2],
        cpus: usize,
    ) -> Option<String> {
        let column = self.columns[column];
        let (now, then) = (self.figure(column, after)?, self.figure(column, before)?);
        Some(format!(
            "{what}, {after} over {before}: {}",
            better.judge(now, then, cpus)
        ))
    }
}

/// Which of two figures is better.
#[derive(Clone, Copy)]
pub enum Better {
    Less,
    More,
}

/// A factor nearer to 1 than this is noise.
const NOISE: f64 = 1.1;

impl Better {
    /// Says how much better or worse `now` is than `then`.
    pub fn judge(self, now: f64, then: f64, cpus: usize) -> String {
        let factor = match self {
            Self::Less if now == 0.0 && then == 0.0 => return "none with either.".to_owned(),
            Self::Less if now == 0.0 => return "none left.".to_owned(),
            Self::Less => then / now,
            Self::More => now / then,
        };
        if factor >= NOISE {
            format!("better by a factor of {}.", significant(factor))
        } else {
            let judged = if factor * NOISE > 1.0 {
                "no gain"
            } else {
                "worse"
            };
            format!(
                "{judged} on {cpus} CPUs (a factor of {}).",
                significant(factor)
            )
        }
    }
}

/// Formats a kernel's figure with its author's digits, as far as they mean something.
fn as_published(unit: Unit, value: f64) -> String {
    let short = |value: f64| {
        let text = format!("{value:.2}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    match unit {
        Unit::Milliseconds => format!("{} ms", short(value)),
        Unit::Seconds => format!("{} s", short(value)),
        Unit::Nanoseconds => format!("{} ns", short(value)),
        Unit::Share => format!("{} %", short(value * 100.0)),
        Unit::PerSecond => format!("{}/s", grouped(&format!("{value:.0}"))),
        Unit::Megabytes => format!("{value:.0} MB"),
        other => other.show(value),
    }
}

/// Returns the gains whose figures were measured.
fn known<const N: usize>(gains: [Option<String>; N]) -> Vec<String> {
    gains.into_iter().flatten().collect()
}

fn kvfree(found: &Found, cpus: usize) -> System {
    let kernel = Source::kernel(
        found,
        "kfree",
        &[
            Some((None, "footprint_mb", Unit::Megabytes)),
            None,
            Some((None, "total_s", Unit::Seconds)),
        ],
    );
    let ours = [
        Some((None, "footprint_mib", Unit::Mebibytes)),
        Some((None, "peak_mib", Unit::Mebibytes)),
        Some((None, "total_s", Unit::Seconds)),
    ];
    let here = Source::here(found, "kfree", &ours);
    let limit = Source {
        subject: "limit",
        ..Source::here(found, "kfree", &ours)
    };
    let pair = ["per-page", "whole-batch"];
    let gain = |what, column| here.gain(what, column, Better::Less, pair, cpus);
    System {
        title: "Seed 000: kvfree, objects that are freed once readers have left",
        patch: "Each page of pointers has a cookie of its grace period, and is freed when that has ended. Before, a whole batch \
                waited for one more grace period.",
        columns: vec!["memory, mean", "memory, peak", "time"],
        lines: vec![
            kernel.line("before: whole batches", "before"),
            kernel.line("after: a cookie for each page", "after"),
            here.line("before: whole-batch", "whole-batch"),
            here.line("after: per-page", "per-page"),
            limit.line("no grace periods: no reclamation", "default"),
        ],
        about: "kernel: rcuscale, 16 threads on 64 CPUs, medians of five runs. here: 16 threads allocate and retire 320,000 objects of \
             32 bytes each; the mean is rcuscale's formula.",
        gains: known([
            gain("Memory, mean", 0),
            gain("Memory, peak", 1),
            gain("Time", 2),
        ]),
        more: "cargo lab scale kfree",
    }
}

fn grace_periods(found: &Found, cpus: usize) -> System {
    let kernel = |experiment| {
        let columns = [
            Some((None, "mean_ms", Unit::Milliseconds)),
            Some((None, "p50_ms", Unit::Milliseconds)),
            Some((None, "max_ms", Unit::Milliseconds)),
            None,
        ];
        Source::kernel(found, experiment, &columns)
    };
    let simulation = |experiment| Source {
        origin: "simulated",
        subject: SIMULATION,
        ..kernel(experiment)
    };
    let bridge = |label, variant| {
        let cpu = |name| found.figure("bridge", KERNEL, variant, None, name);
        let cpu = cpu("least_cpu_s").zip(cpu("greatest_cpu_s"));
        let mut line = kernel("bridge").line(label, variant);
        line.cells[3] = cpu.map(|(least, greatest)| format!("{least:.2} to {greatest:.2} s"));
        line
    };
    let scenario = Some("bridge");
    let here = Source::here(
        found,
        "sync",
        &[
            Some((scenario, "mean_us", Unit::Microseconds)),
            Some((scenario, "p50_us", Unit::Microseconds)),
            Some((scenario, "max_us", Unit::Microseconds)),
            Some((scenario, "cpu_us_per_gp", Unit::Microseconds)),
        ],
    );
    let gain = |what, column| here.gain(what, column, Better::Less, ["rcu", "service-led"], cpus);
    System {
        title: "Seed 001: synchronize_rcu, waiting for a grace period",
        patch: "The grace-period thread reports its own CPU at once and saves a second scan (fix). With wake_from_gp (wake), which the \
                seed measures beside it, a waiter is woken directly and needs no callback.",
        columns: vec!["wait, mean", "median", "longest", "CPU time"],
        lines: vec![
            kernel("sync").line("before, 32 CPUs", "before"),
            kernel("sync").line("after: fix", "after"),
            simulation("sim sync").line("before, 32 CPUs", "baseline"),
            simulation("sim sync").line("after: fix", "fix"),
            bridge("before, bridge on 64 CPUs", "default"),
            bridge("after: fix", "fix"),
            bridge("wake alone", "wake"),
            bridge("after: fix and wake", "fix+wake"),
            simulation("sim bridge").line("before, bridge on 64 CPUs", "default"),
            simulation("sim bridge").line("after: fix and wake", "fix+wake"),
            here.line("before: service-led", "service-led"),
            here.line("after: rcu", "rcu"),
        ],
        about: "kernel: 100 calls, ten runs; a network bridge set up and torn down 100 times, with its system CPU time over five runs, in \
             which the author saw no difference. here: the bridge's 400 waits beside 64 threads that sleep; with service-led a wait is \
             a callback that the service thread invokes, with rcu the waiter drives the grace period itself. Its CPU time is of one wait.",
        gains: known([
            gain("Wait, mean", 0),
            gain("Wait, median", 1),
            gain("CPU time of a wait", 3),
        ]),
        more: "cargo lab scale sync; cargo lab sim sync; cargo lab sim bridge",
    }
}

fn lru(found: &Found, cpus: usize) -> System {
    let share = Some((None, "lock_share", Unit::Share));
    let kernel = Source::kernel(found, "lru", &[share, None, None]);
    let mut after = kernel.line("after: counted under RCU", "after");
    let most = found.figure("lru", KERNEL, "after", None, "most_lock_share");
    after.cells[0] = most.map(|share| format!("at most {}", as_published(Unit::Share, share)));
    let scenario = Some("threads-16");
    let here = Source::here(
        found,
        "lru",
        &[
            Some((scenario, "lock_share", Unit::Share)),
            Some((scenario, "counts_per_s", Unit::PerSecond)),
            Some((scenario, "adds_per_s", Unit::PerSecond)),
        ],
    );
    let gains = ["spinlock", "mutex"].into_iter().flat_map(|before| {
        let gain = |what, column, better| here.gain(what, column, better, ["rcu", before], cpus);
        [
            gain("Time in locks", 0, Better::Less),
            gain("Counts", 1, Better::More),
            gain("Adds", 2, Better::More),
        ]
    });
    System {
        title: "Seed 002: list_lru, counting the objects of one tenant",
        patch: "A count finds the tenant's list under RCU. Before, it took the node's lock, which all counts, adds and deletes share.",
        columns: vec!["time in locks", "counts", "adds"],
        lines: vec![
            kernel.line("before: a spinlock", "before"),
            after,
            here.line("before: spinlock", "spinlock"),
            here.line("before: mutex", "mutex"),
            here.line("after: rcu", "rcu"),
        ],
        about: "kernel: samples of perf in a fork bomb in a control group of 200 MiB, 4 CPUs; after the patch no spinlock is among the ten \
             costliest functions. here: 14 threads count and 2 add and delete; samples that find a thread waiting for a lock.",
        gains: gains.flatten().collect(),
        more: "cargo lab scale lru",
    }
}

fn tasks_trace(found: &Found, cpus: usize) -> System {
    let kernel = Source::kernel(
        found,
        "trace",
        &[
            Some((None, "gp_mean_ms", Unit::Milliseconds)),
            None,
            None,
            Some((None, "read_ns", Unit::Nanoseconds)),
        ],
    );
    let mean = Some((None, "mean_ms", Unit::Milliseconds));
    let simulation = Source::simulation(found, "sim trace", &[mean, None, None, None]);
    let here = Source::here(
        found,
        "trace",
        &[
            Some((Some("idle"), "gp_mean_ms", Unit::Milliseconds)),
            Some((Some("sleepers"), "gp_mean_ms", Unit::Milliseconds)),
            Some((Some("sleepers"), "exit_to_gp_us", Unit::Microseconds)),
            Some((Some("idle"), "read_ns", Unit::Nanoseconds)),
        ],
    );
    let gain = |what, column| here.gain(what, column, Better::Less, ["native", "read-mb"], cpus);
    System {
        title: "Seed 003: RCU Tasks Trace, readers that may sleep",
        patch: "Patches 3 to 5 poll sooner, interrupt running tasks at once, and pause less between grace periods; 6 to 8 fix the races \
                that this exposed. Kernels whose readers have fences (READ_MB) keep the old pauses.",
        columns: vec!["no readers", "8 sleepers", "exit to end", "a section"],
        lines: vec![
            kernel.line("before", "baseline"),
            kernel.line("patch 3: polls", "polling"),
            kernel.line("patch 4: interrupts", "ipis"),
            kernel.line("after: patch 5, pauses", "gp_sleep"),
            simulation.line("before", "baseline"),
            simulation.line("patch 3: polls", "polling"),
            simulation.line("patch 4: interrupts", "ipis"),
            simulation.line("after: patch 5, pauses", "gp_sleep"),
            here.line("before: read-mb", "read-mb"),
            here.line("after: native", "native"),
        ],
        about: "A grace period without readers; beside 8 threads that sleep for 1 ms in each section, and in that case from the exit of the \
             last reader that it waits for to its end; and what a section costs. kernel: a laptop. here: with read-mb readers have \
             fences, with native they have none and a grace period issues a membarrier.",
        gains: known([
            gain("Grace period, no readers", 0),
            gain("Grace period, 8 sleepers", 1),
            gain("Exit to end", 2),
            gain("A section", 3),
        ]),
        more: "cargo lab scale trace; cargo lab sim trace",
    }
}

fn vmap(found: &Found, cpus: usize) -> System {
    let requests = |scenario| [Some((scenario, "requests_per_s", Unit::PerSecond))];
    let kernel = Source::kernel(found, "vmap", &requests(None));
    let here = Source::here(found, "vmap", &requests(Some("copy-4096")));
    // Adds to the figure its share of that without a check.
    let with_share = |source: &Source, label, variant| {
        let mut line = source.line(label, variant);
        let figure = |variant| source.figure(source.columns[0], variant);
        let both = figure(variant).zip(figure("unchecked"));
        line.cells
            .push(both.map(|(figure, unchecked)| Unit::Share.show(figure / unchecked)));
        line
    };
    let pairs = [
        ["node-spinlock", "global-lock"],
        ["node-spinlock", "global-mutex"],
        ["node-rwlock", "global-lock"],
        ["node-rwlock", "global-mutex"],
        ["rcu", "node-rwlock"],
        ["rcu", "global-mutex"],
    ];
    let gain = |pair| here.gain("Requests", 0, Better::More, pair, cpus);
    System {
        title: "Seed 004: vmalloc, finding the area of an address",
        patch: "The series splits the tree of areas and its lock by nodes; the seed's mail makes the nodes' locks reader-writer locks. \
                Here a look-up is in an RCU section and takes no lock.",
        columns: vec!["requests", "of unchecked"],
        lines: vec![
            with_share(&kernel, "before: one lock", "before"),
            with_share(&kernel, "after: a lock for each node", "after"),
            with_share(&kernel, "no check at all", "unchecked"),
            with_share(&here, "before: global-lock (spinlock)", "global-lock"),
            with_share(&here, "before: global-mutex", "global-mutex"),
            with_share(&here, "series: node-spinlock", "node-spinlock"),
            with_share(&here, "mail: node-rwlock", "node-rwlock"),
            with_share(&here, "after: rcu", "rcu"),
            with_share(&here, "no check at all: unchecked", "unchecked"),
        ],
        about: "kernel: nginx and wrk over shared memory on 48 CPUs. here: 16 threads serve 64 connections of 4 KiB messages, and each copy \
             first asks whether its range lies in one area.",
        gains: pairs.into_iter().filter_map(gain).collect(),
        more: "cargo lab scale vmap",
    }
}
