//! What is in which block.

/// A block of figures.
pub struct Table {
    pub name: &'static str,
    /// The head of the rows' labels; several columns, if it and they have as many ` | `.
    pub label: &'static str,
    pub columns: &'static [Column],
    pub rows: &'static [Row],
}

/// A figure of the lab.
pub struct Column {
    pub head: &'static str,
    pub experiment: &'static str,
    /// Empty where the experiment has but one.
    pub scenario: &'static str,
    pub metric: &'static str,
    /// What it is divided by.
    pub unit: f64,
}

/// Whose figures a row has.
pub struct Row {
    pub label: &'static str,
    /// Experiment, subject, variant. Without an experiment: in all of them.
    pub cases: &'static [(&'static str, &'static str, &'static str)],
}

const fn column(
    head: &'static str,
    experiment: &'static str,
    scenario: &'static str,
    metric: &'static str,
) -> Column {
    scaled(head, experiment, scenario, metric, 1.0)
}

const fn scaled(
    head: &'static str,
    experiment: &'static str,
    scenario: &'static str,
    metric: &'static str,
    unit: f64,
) -> Column {
    Column {
        head,
        experiment,
        scenario,
        metric,
        unit,
    }
}

/// A row of the table of the seeds: the kernel and Stillpoint, before and after.
pub struct Seed {
    pub label: &'static str,
    /// The kernel before, after; Stillpoint before, after. Several figures where there are several
    /// befores.
    pub cells: [&'static [SeedFigure]; 4],
}

/// A figure of `docs/figures/seeds.json`.
pub struct SeedFigure {
    /// What stands before it.
    pub name: &'static str,
    pub experiment: &'static str,
    pub subject: &'static str,
    pub variant: &'static str,
    /// Empty where the experiment has but one.
    pub scenario: &'static str,
    pub metric: &'static str,
    /// What it is divided by, and what stands behind it.
    pub unit: (f64, &'static str),
}

const fn kernel(
    name: &'static str,
    experiment: &'static str,
    variant: &'static str,
    metric: &'static str,
    unit: (f64, &'static str),
) -> SeedFigure {
    SeedFigure {
        name,
        experiment,
        subject: "seed",
        variant,
        scenario: "",
        metric,
        unit,
    }
}

const fn ours(
    name: &'static str,
    case: (&'static str, &'static str, &'static str),
    metric: &'static str,
    unit: (f64, &'static str),
) -> SeedFigure {
    SeedFigure {
        name,
        experiment: case.0,
        subject: "stillpoint",
        variant: case.2,
        scenario: case.1,
        metric,
        unit,
    }
}

const MB: (f64, &str) = (1.0, " MB");
const MIB: (f64, &str) = (1.0, " MiB");
const MS: (f64, &str) = (1.0, " ms");
const US: (f64, &str) = (1.0, " us");
const US_OF_MS: (f64, &str) = (1e-3, " us");
const NS: (f64, &str) = (1.0, " ns");
const PERCENT: (f64, &str) = (0.01, " %");
const REQUESTS: (f64, &str) = (1.0, "/s");
const MILLIONS: (f64, &str) = (1e6, " M/s");

/// README's first table.
pub const SEEDS: [Seed; 6] = [
    Seed {
        label: "kvfree: memory of deferred frees",
        cells: [
            &[kernel("", "kfree", "before", "footprint_mb", MB)],
            &[kernel("", "kfree", "after", "footprint_mb", MB)],
            &[ours("", ("kfree", "", "whole-batch"), "footprint_mib", MIB)],
            &[ours("", ("kfree", "", "per-page"), "footprint_mib", MIB)],
        ],
    },
    Seed {
        label: "`synchronize_rcu`: median wait",
        cells: [
            &[kernel("", "bridge", "default", "p50_ms", MS)],
            &[kernel("", "bridge", "fix+wake", "p50_ms", MS)],
            &[ours("", ("sync", "bridge", "service-led"), "p50_us", US)],
            &[ours("", ("sync", "bridge", "rcu"), "p50_us", US)],
        ],
    },
    Seed {
        label: "list_lru: time in locks",
        cells: [
            &[kernel("", "lru", "before", "lock_share", PERCENT)],
            &[kernel(
                "at most ",
                "lru",
                "after",
                "most_lock_share",
                PERCENT,
            )],
            &[
                ours(
                    "spinlock ",
                    ("lru", "threads-16", "spinlock"),
                    "lock_share",
                    PERCENT,
                ),
                ours(
                    "mutex ",
                    ("lru", "threads-16", "mutex"),
                    "lock_share",
                    PERCENT,
                ),
            ],
            &[ours(
                "",
                ("lru", "threads-16", "rcu"),
                "lock_share",
                PERCENT,
            )],
        ],
    },
    Seed {
        label: "Tasks Trace: mean grace period",
        cells: [
            &[kernel("", "trace", "baseline", "gp_mean_ms", MS)],
            &[kernel("", "trace", "gp_sleep", "gp_mean_ms", MS)],
            &[ours(
                "",
                ("trace", "idle", "read-mb"),
                "gp_mean_ms",
                US_OF_MS,
            )],
            &[ours(
                "",
                ("trace", "idle", "native"),
                "gp_mean_ms",
                US_OF_MS,
            )],
        ],
    },
    Seed {
        label: "its read section",
        cells: [
            &[kernel("", "trace", "baseline", "read_ns", NS)],
            &[kernel("", "trace", "gp_sleep", "read_ns", NS)],
            &[ours("", ("trace", "idle", "read-mb"), "read_ns", NS)],
            &[ours("", ("trace", "idle", "native"), "read_ns", NS)],
        ],
    },
    Seed {
        label: "vmalloc: requests with checked copies",
        cells: [
            &[kernel("", "vmap", "before", "requests_per_s", REQUESTS)],
            &[kernel("", "vmap", "after", "requests_per_s", REQUESTS)],
            &[
                ours(
                    "spinlock ",
                    ("vmap", "copy-4096", "global-lock"),
                    "requests_per_s",
                    MILLIONS,
                ),
                ours(
                    "mutex ",
                    ("vmap", "copy-4096", "global-mutex"),
                    "requests_per_s",
                    MILLIONS,
                ),
                ours(
                    "node-rwlock ",
                    ("vmap", "copy-4096", "node-rwlock"),
                    "requests_per_s",
                    MILLIONS,
                ),
            ],
            &[ours(
                "",
                ("vmap", "copy-4096", "rcu"),
                "requests_per_s",
                MILLIONS,
            )],
        ],
    },
];

macro_rules! rows {
    ($($label:literal: $subject:literal $variant:literal,)*) => {
        &[$(Row { label: $label, cases: &[("", $subject, $variant)] },)*]
    };
}

const PER_OBJECT: Column = column("ns per object", "kfree", "", "ns_per_object");
const PEAK: Column = column("peak memory, MiB", "kfree", "", "peak_mib");
const PAIR: Column = column("read pair, ns", "read", "alone", "ns_per_pair");

const fn mean(head: &'static str, scenario: &'static str) -> Column {
    column(head, "sync", scenario, "mean_us")
}

const WAITERS: &[Row] = rows! {
    "Stillpoint": "stillpoint" "rcu",
    "Stillpoint, QSBR": "stillpoint" "qsbr",
    "liburcu-memb": "liburcu-memb" "default",
    "liburcu-qsbr": "liburcu-qsbr" "default",
    "sdd": "sdd" "default",
    "ps-reclaim": "ps-reclaim" "default",
    "limit": "limit" "default",
};

/// The rows of README's table, by figure.
pub const ROWS_OF_README: [Column; 5] = [
    column(
        "read-side cost, ns per section",
        "read",
        "alone",
        "ns_per_pair",
    ),
    column(
        "reclamation cost, ns per object",
        "kfree",
        "",
        "ns_per_object",
    ),
    column("peak unreclaimed memory, MiB", "kfree", "", "peak_mib"),
    mean("grace-period latency, 1,000 idle readers, us", "idle1000"),
    mean("callback latency, us", "callback"),
];

/// Its first column.
pub const OURS_OF_README: Row = Row {
    label: "Stillpoint",
    cases: &[
        ("read", "stillpoint", "guard"),
        ("kfree", "stillpoint", "per-page"),
        ("sync", "stillpoint", "rcu"),
    ],
};

/// What stands beside it there.
pub const QSBR_OF_README: Row = Row {
    label: "QSBR",
    cases: &[
        ("read", "stillpoint", "qsbr"),
        ("sync", "stillpoint", "qsbr"),
    ],
};

/// Its columns after the best peer's.
pub const PEERS_OF_README: [Row; 3] = [
    Row {
        label: "liburcu-memb",
        cases: &[
            ("read", "liburcu-memb", "default"),
            ("kfree", "liburcu-memb", "per-cpu-workers"),
            ("sync", "liburcu-memb", "default"),
        ],
    },
    Row {
        label: "crossbeam-epoch",
        cases: &[
            ("read", "crossbeam-epoch", "default"),
            ("kfree", "crossbeam-epoch", "default"),
        ],
    },
    NO_RECLAMATION,
];

/// The same work without reclamation. Shown where no figure of the row is smaller.
pub const NO_RECLAMATION: Row = Row {
    label: "no reclamation",
    cases: &[("read", "limit", "default"), ("kfree", "limit", "default")],
};

/// By which metric the setting of a peer is chosen, where it has several: for README's table as for its
/// picture. Of other experiments each figure is the peer's best.
pub const SETTING_BY: [(&str, &str); 1] = [("kfree", "ns_per_object")];

/// A row of README's table of parts: the part, what is measured, Stillpoint's subject and variant.
pub struct Part {
    pub label: &'static str,
    pub column: Column,
    pub ours: (&'static str, &'static str),
}

const fn part(label: &'static str, column: Column, variant: &'static str) -> Part {
    Part {
        label,
        column,
        ours: ("stillpoint", variant),
    }
}

pub const PARTS: [Part; 6] = [
    part(
        "[RCU and deferred frees](docs/src/start.md), in Rust",
        column("retire an object, ns", "kfree", "", "ns_per_object"),
        "per-page",
    ),
    part(
        "[Concurrent maps](docs/src/map.md), hashed and ordered",
        column("look-up, ns", "map", "get-100000", "ns_per_op"),
        "hash",
    ),
    part(
        "[A cache with tenants](docs/src/cache.md), in your program",
        column("hit, two threads, ns", "cache", "read-2", "ns_per_op"),
        "default",
    ),
    part(
        "[stillcache](docs/src/stillcache.md), a server in place of memcached",
        column(
            "processor time of a get, us",
            "server",
            "get-1",
            "cpu_us_per_op",
        ),
        "stillcache",
    ),
    part(
        "[C and C++](docs/src/c-and-cpp.md), also under liburcu's names",
        column("read section, ns", "c", "", "ns_per_pair"),
        "default",
    ),
    part(
        "[A drop-in for crossbeam-epoch](docs/src/from-crossbeam-epoch.md)",
        column("replace a box, ns", "epoch", "box-2", "cpu_ns_per_op"),
        "drop-in",
    ),
];

pub const TABLES: &[Table] = &[
    Table {
        name: "kfree",
        label: "",
        columns: &[PER_OBJECT, PEAK],
        rows: rows! {
            "Stillpoint, `retire`": "stillpoint" "per-page",
            "Stillpoint, one grace period for all": "stillpoint" "whole-batch",
            "Stillpoint, `call`": "stillpoint" "call",
            "crossbeam-epoch": "crossbeam-epoch" "default",
            "seize": "seize" "default",
            "seize, batches of 1,024": "seize" "batch-1024",
            "sdd": "sdd" "default",
            "ps-reclaim": "ps-reclaim" "default",
            "liburcu-memb, one worker": "liburcu-memb" "one-worker",
            "liburcu-memb, one worker per CPU": "liburcu-memb" "per-cpu-workers",
            "limit": "limit" "default",
        },
    },
    Table {
        name: "read",
        label: "",
        columns: &[PAIR],
        rows: rows! {
            "Stillpoint": "stillpoint" "guard",
            "Stillpoint, QSBR": "stillpoint" "qsbr",
            "Stillpoint, `tasks_trace`": "stillpoint" "trace",
            "Stillpoint, an owned guard": "stillpoint" "trace-owned",
            "liburcu-memb": "liburcu-memb" "default",
            "liburcu-qsbr": "liburcu-qsbr" "default",
            "crossbeam-epoch": "crossbeam-epoch" "default",
            "seize": "seize" "default",
            "sdd": "sdd" "default",
            "ps-reclaim": "ps-reclaim" "default",
            "arc-swap": "arc-swap" "default",
            "std `RwLock`, uncontended": "std-rwlock" "default",
            "limit": "limit" "default",
        },
    },
    Table {
        name: "sync-mean",
        label: "mean, us",
        columns: &[
            mean("none", "idle"),
            mean("1,000 idle", "idle1000"),
            mean("1 busy", "busy1"),
            mean("2 busy, on 2 CPUs", "busy-oversub"),
            mean("64 waiters", "herd64"),
            mean("callback", "callback"),
            mean("cookie, polled", "poll"),
        ],
        rows: WAITERS,
    },
    Table {
        name: "trace-tasks",
        label: "",
        columns: &[
            scaled(
                "reads, millions per second",
                "trace",
                "async10000",
                "reads_per_s",
                1e6,
            ),
            column("updates per second", "trace", "async10000", "updates_per_s"),
            column("wait, ms", "trace", "async10000", "gp_mean_ms"),
            column(
                "wait in another domain, us",
                "trace",
                "async10000",
                "other_domain_gp_us",
            ),
            column("bytes per guard", "trace", "async10000", "bytes_per_guard"),
        ],
        rows: rows! {
            "Stillpoint, membarrier": "stillpoint" "native",
            "Stillpoint, fences": "stillpoint" "read-mb",
            "tokio's `RwLock`": "tokio" "rwlock",
            "arc-swap": "arc-swap" "default",
            "limit": "limit" "default",
        },
    },
    Table {
        name: "lru",
        label: "",
        columns: &[
            scaled(
                "2 threads: counts, millions per second",
                "lru",
                "threads-2",
                "counts_per_s",
                1e6,
            ),
            column("time in locks", "lru", "threads-2", "lock_share"),
            scaled(
                "16 threads: counts",
                "lru",
                "threads-16",
                "counts_per_s",
                1e6,
            ),
            column("time in locks", "lru", "threads-16", "lock_share"),
            column("a count, ns", "lru", "threads-16", "count_ns"),
        ],
        rows: rows! {
            "Stillpoint": "stillpoint" "rcu",
            "the same lists, a mutex each": "stillpoint" "mutex",
            "the same lists, a spinlock each": "stillpoint" "spinlock",
            "limit": "limit" "default",
        },
    },
    Table {
        name: "vmap-find",
        label: "",
        columns: &[
            column("find, ns", "vmap", "find-100000", "find_ns"),
            column(
                "dependent look-ups, ns",
                "vmap",
                "find-100000",
                "find_dependent_ns",
            ),
            column("check, ns", "vmap", "find-100000", "check_ns"),
        ],
        rows: rows! {
            "Stillpoint": "stillpoint" "rcu",
            "`BTreeMap` under `RwLock`": "std-rwlock-btreemap" "default",
            "limit": "limit" "default",
        },
    },
    Table {
        name: "map",
        label: "",
        columns: &[
            column("get, ns", "map", "get-100000", "ns_per_op"),
            column(
                "dependent look-ups, ns",
                "map",
                "get-100000",
                "dependent_ns",
            ),
            scaled("98 % reads, M/s", "map", "readheavy-2", "ops_per_s", 1e6),
            scaled("80 % writes, M/s", "map", "exchange-2", "ops_per_s", 1e6),
            scaled(
                "80 % inserts, from empty, M/s",
                "map",
                "rapidgrow-2-grow",
                "ops_per_s",
                1e6,
            ),
            column("bytes an entry", "map", "memory", "bytes_per_entry"),
        ],
        rows: rows! {
            "Stillpoint, `HashMap`": "stillpoint" "hash",
            "Stillpoint, `CopyMap`": "stillpoint" "hash-inline",
            "papaya": "papaya" "default",
            "dashmap": "dashmap" "default",
            "scc `HashMap`": "scc-hashmap" "default",
            "scc `HashIndex`": "scc-hashindex" "default",
            "`HashMap` under `RwLock`": "std-rwlock" "default",
            "limit: `hashbrown`, one thread's own": "limit" "default",
        },
    },
    Table {
        name: "epoch",
        label: "",
        columns: &[
            column("pin, ns", "epoch", "pin", "cpu_ns_per_op"),
            column("boxes, 2 threads, ns", "epoch", "box-2", "cpu_ns_per_op"),
            column("deque, steal, ns", "epoch", "deque-steal", "cpu_ns_per_op"),
            column("moka, half writes, ns", "epoch", "moka-50", "cpu_ns_per_op"),
            column("flood, MiB at the peak", "epoch", "flood", "peak_mib"),
        ],
        rows: rows! {
            "drop-in": "stillpoint" "drop-in",
            "drop-in, feature `nofence`": "stillpoint" "drop-in-nofence",
            "crossbeam-epoch": "crossbeam-epoch" "default",
            "limit": "limit" "default",
        },
    },
    Table {
        name: "cache",
        label: "",
        columns: &[
            column("2 threads read, ns", "cache", "read-2", "ns_per_op"),
            column("half writes, ns", "cache", "mixed-2", "ns_per_op"),
            column("hit ratio, oltp-2000", "cache", "oltp-2000", "hit_ratio"),
            column("p3-40000", "cache", "p3-40000", "hit_ratio"),
            column("p6-40000", "cache", "p6-40000", "hit_ratio"),
            column("bytes an entry", "cache", "memory", "bytes_per_entry"),
            column(
                "hits lost to a neighbour",
                "cache",
                "isolation",
                "hits_lost",
            ),
        ],
        rows: rows! {
            "Stillpoint": "stillpoint" "default",
            "moka": "moka" "default",
            "quick_cache": "quick_cache" "default",
            "TinyUFO": "tinyufo" "default",
        },
    },
    Table {
        name: "server",
        label: "",
        columns: &[
            column("a get, us", "server", "get-1", "cpu_us_per_op"),
            column(
                "one of 50 in a write, us",
                "server",
                "get-pipelined",
                "cpu_us_per_op",
            ),
            column("a set, us", "server", "set", "cpu_us_per_op"),
            column("bytes an item", "server", "memory", "bytes_per_item"),
            column(
                "hits lost to a neighbour",
                "server",
                "isolation",
                "hits_lost",
            ),
        ],
        rows: rows! {
            "stillcache": "stillpoint" "stillcache",
            "memcached": "memcached" "default",
            "redis": "redis" "default",
        },
    },
    Table {
        name: "compat",
        label: "",
        columns: &[
            column("liburcu, ns", "compat", "", "liburcu_ns"),
            column("Stillpoint, ns", "compat", "", "stillpoint_ns"),
            column("liburcu, KiB", "compat", "", "liburcu_kib"),
            column("Stillpoint, KiB", "compat", "", "stillpoint_kib"),
        ],
        rows: rows! {
            "read pair, memb, inlined": "pair memb inlined" "default",
            "read pair, memb, calls": "pair memb calls" "default",
            "read pair, qsbr, inlined": "pair qsbr inlined" "default",
            "read pair, qsbr, calls": "pair qsbr calls" "default",
            "`call_rcu`, memb": "call_rcu memb calls" "default",
            "peak memory of the last": "memory at most" "default",
        },
    },
];
