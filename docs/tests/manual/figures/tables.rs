//! The tables of figures, block by block. A figure is named as in the lab's JSON: experiment, scenario (empty where the
//! experiment has but one) and metric of a column, subject and variant of a row.

/// A block of figures.
pub struct Table {
    pub name: &'static str,
    /// The head of the rows' labels.
    pub label: &'static str,
    pub columns: &'static [Column],
    pub rows: &'static [Row],
}

pub struct Column {
    pub head: &'static str,
    pub experiment: &'static str,
    pub scenario: &'static str,
    pub metric: &'static str,
    /// The divisor of its figures.
    pub unit: f64,
}

/// Whose figures a row has.
pub struct Row {
    pub label: &'static str,
    /// Experiment, subject, variant. Without an experiment: in all of them.
    pub cases: &'static [(&'static str, &'static str, &'static str)],
}

/// A row of the table of the seeds.
pub struct Seed {
    pub label: &'static str,
    /// The kernel before, after; Stillpoint before, after. Several figures where there are several
    /// befores.
    pub cells: &'static [&'static [SeedFigure]],
}

/// A figure of `docs/figures/seeds.json`.
pub struct SeedFigure {
    /// The text before it.
    pub name: &'static str,
    pub subject: &'static str,
    pub experiment: &'static str,
    pub scenario: &'static str,
    pub variant: &'static str,
    pub metric: &'static str,
    /// Its divisor, and the text behind it.
    pub unit: (f64, &'static str),
}

/// A row of README's table of parts: its columns, and Stillpoint's variant.
pub struct Part {
    pub label: &'static str,
    pub column: Column,
    pub variant: &'static str,
}

macro_rules! column {
    ($head:literal $experiment:literal $scenario:literal $metric:literal $($unit:literal)?) => {
        Column { head: $head, experiment: $experiment, scenario: $scenario, metric: $metric, unit: 1.0 $(* $unit)? }
    };
}

macro_rules! columns {
    ($($head:literal: $experiment:literal $scenario:literal $metric:literal $(/ $unit:literal)?,)*) => {
        &[$(column!($head $experiment $scenario $metric $($unit)?)),*]
    };
}

macro_rules! row {
    ($label:literal: $($experiment:literal $subject:literal $variant:literal),*) => {
        Row { label: $label, cases: &[$(($experiment, $subject, $variant)),*] }
    };
}

macro_rules! tables {
    ($($name:literal $label:literal { $($columns:tt)* } { $($row:literal: $subject:literal $variant:literal,)* })*) => {
        &[$(Table {
            name: $name,
            label: $label,
            columns: columns! { $($columns)* },
            rows: &[$(row!($row: "" $subject $variant)),*],
        }),*]
    };
}

macro_rules! parts {
    ($($label:literal { $head:literal: $experiment:literal $scenario:literal $metric:literal, $variant:literal })*) => {
        &[$(Part {
            label: $label,
            column: column!($head $experiment $scenario $metric),
            variant: $variant,
        }),*]
    };
}

macro_rules! seeds {
    ($($label:literal {
        $($($name:literal $subject:literal $experiment:literal $scenario:literal $variant:literal $metric:literal $unit:ident),*;)*
    })*) => {
        &[$(Seed { label: $label, cells: &[$(&[$(SeedFigure {
            name: $name,
            subject: $subject,
            experiment: $experiment,
            scenario: $scenario,
            variant: $variant,
            metric: $metric,
            unit: $unit,
        }),*]),*] }),*]
    };
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
pub const SEEDS: &[Seed] = seeds! {
    "kvfree: memory of deferred frees" {
        "" "seed" "kfree" "" "before" "footprint_mb" MB;
        "" "seed" "kfree" "" "after" "footprint_mb" MB;
        "" "stillpoint" "kfree" "" "whole-batch" "footprint_mib" MIB;
        "" "stillpoint" "kfree" "" "per-page" "footprint_mib" MIB;
    }
    "`synchronize_rcu`: median wait" {
        "" "seed" "bridge" "" "default" "p50_ms" MS;
        "" "seed" "bridge" "" "fix+wake" "p50_ms" MS;
        "" "stillpoint" "sync" "bridge" "service-led" "p50_us" US;
        "" "stillpoint" "sync" "bridge" "rcu" "p50_us" US;
    }
    "list_lru: time in locks" {
        "" "seed" "lru" "" "before" "lock_share" PERCENT;
        "at most " "seed" "lru" "" "after" "most_lock_share" PERCENT;
        "spinlock " "stillpoint" "lru" "threads-16" "spinlock" "lock_share" PERCENT,
        "mutex " "stillpoint" "lru" "threads-16" "mutex" "lock_share" PERCENT;
        "" "stillpoint" "lru" "threads-16" "rcu" "lock_share" PERCENT;
    }
    "Tasks Trace: mean grace period" {
        "" "seed" "trace" "" "baseline" "gp_mean_ms" MS;
        "" "seed" "trace" "" "gp_sleep" "gp_mean_ms" MS;
        "" "stillpoint" "trace" "idle" "read-mb" "gp_mean_ms" US_OF_MS;
        "" "stillpoint" "trace" "idle" "native" "gp_mean_ms" US_OF_MS;
    }
    "its read section" {
        "" "seed" "trace" "" "baseline" "read_ns" NS;
        "" "seed" "trace" "" "gp_sleep" "read_ns" NS;
        "" "stillpoint" "trace" "idle" "read-mb" "read_ns" NS;
        "" "stillpoint" "trace" "idle" "native" "read_ns" NS;
    }
    "vmalloc: requests with checked copies" {
        "" "seed" "vmap" "" "before" "requests_per_s" REQUESTS;
        "" "seed" "vmap" "" "after" "requests_per_s" REQUESTS;
        "spinlock " "stillpoint" "vmap" "copy-4096" "global-lock" "requests_per_s" MILLIONS,
        "mutex " "stillpoint" "vmap" "copy-4096" "global-mutex" "requests_per_s" MILLIONS,
        "node-rwlock " "stillpoint" "vmap" "copy-4096" "node-rwlock" "requests_per_s" MILLIONS;
        "" "stillpoint" "vmap" "copy-4096" "rcu" "requests_per_s" MILLIONS;
    }
};

/// Scenario, subject and variant of figures that are not shown, as the subject does not do the scenario's work: `ps-reclaim` has room for 255 readers, and
/// crossbeam-deque needs the fence of a pin.
pub const NOT_SHOWN: &[(&str, &str, &str)] = &[
    ("idle1000", "ps-reclaim", "default"),
    ("deque-steal", "stillpoint", "drop-in-nofence"),
];

/// The rows of README's table of peers, by figure.
pub const ROWS_OF_README: &[Column] = columns! {
    "read-side cost, ns per section": "read" "alone" "ns_per_pair",
    "reclamation cost, ns per object": "kfree" "" "ns_per_object",
    "peak unreclaimed memory, MiB": "kfree" "" "peak_mib",
    "grace-period latency, 1,000 idle readers, us": "sync" "idle1000" "mean_us",
    "callback latency, us": "sync" "callback" "mean_us",
};

/// Its first column.
pub const OURS_OF_README: Row = row!("Stillpoint": "read" "stillpoint" "guard", "kfree" "stillpoint" "per-page", "sync" "stillpoint" "rcu");

/// What stands beside it there.
pub const QSBR_OF_README: Row =
    row!("QSBR": "read" "stillpoint" "qsbr", "sync" "stillpoint" "qsbr");

/// The same work without reclamation. Shown where no figure of the row is smaller.
pub const NO_RECLAMATION: Row =
    row!("no reclamation": "read" "limit" "default", "kfree" "limit" "default");

/// Its columns after the best peer's.
pub const PEERS_OF_README: [Row; 3] = [
    row!("liburcu-memb": "read" "liburcu-memb" "default", "kfree" "liburcu-memb" "per-cpu-workers", "sync" "liburcu-memb" "default"),
    row!("crossbeam-epoch": "read" "crossbeam-epoch" "default", "kfree" "crossbeam-epoch" "default"),
    NO_RECLAMATION,
];

/// The experiment whose peers have several settings, and the metric that chooses one: for README's table as
/// for its picture. In other experiments each figure is the peer's best.
pub const SETTING_BY: (&str, &str) = ("kfree", "ns_per_object");

pub const PARTS: &[Part] = parts! {
    "[RCU and deferred frees](docs/src/start.md), in Rust"
        { "retire an object, ns": "kfree" "" "ns_per_object", "per-page" }
    "[Concurrent maps](docs/src/map.md), hashed and ordered"
        { "look-up, ns": "map" "get-100000" "ns_per_op", "hash" }
    "[A cache with tenants](docs/src/cache.md), in your program"
        { "hit, two threads, ns": "cache" "read-2" "ns_per_op", "default" }
    "[stillcache](docs/src/stillcache.md), a server in place of memcached"
        { "processor time of a get, us": "server" "get-1" "cpu_us_per_op", "stillcache" }
    "[C and C++](docs/src/c-and-cpp.md), also under liburcu's names"
        { "read section, ns": "c" "" "ns_per_pair", "default" }
    "[A drop-in for crossbeam-epoch](docs/src/from-crossbeam-epoch.md)"
        { "replace a box, ns": "epoch" "box-2" "cpu_ns_per_op", "drop-in" }
};

pub const TABLES: &[Table] = tables! {
    "kfree" "" {
        "ns per object": "kfree" "" "ns_per_object",
        "peak memory, MiB": "kfree" "" "peak_mib",
    } {
        "Stillpoint, `retire`": "stillpoint" "per-page",
        "Stillpoint, one grace period for all": "stillpoint" "whole-batch",
        "Stillpoint, `call`": "stillpoint" "call",
        "crossbeam-epoch": "crossbeam-epoch" "default",
        "seize": "seize" "default",
        "seize, batches of 1,024": "seize" "batch-1024",
        "seize, batches of 4,096": "seize" "batch-4096",
        "sdd": "sdd" "default",
        "ps-reclaim": "ps-reclaim" "default",
        "liburcu-memb, one worker": "liburcu-memb" "one-worker",
        "liburcu-memb, one worker per CPU": "liburcu-memb" "per-cpu-workers",
        "limit": "limit" "default",
    }
    "read" "" {
        "read pair, ns": "read" "alone" "ns_per_pair",
    } {
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
    }
    "sync-mean" "mean, us" {
        "none": "sync" "idle" "mean_us",
        "1,000 idle": "sync" "idle1000" "mean_us",
        "1 busy": "sync" "busy1" "mean_us",
        "2 busy, on 2 CPUs": "sync" "busy-oversub" "mean_us",
        "64 waiters": "sync" "herd64" "mean_us",
        "callback": "sync" "callback" "mean_us",
        "cookie, polled": "sync" "poll" "mean_us",
    } {
        "Stillpoint": "stillpoint" "rcu",
        "Stillpoint, QSBR": "stillpoint" "qsbr",
        "liburcu-memb": "liburcu-memb" "default",
        "liburcu-qsbr": "liburcu-qsbr" "default",
        "sdd": "sdd" "default",
        "ps-reclaim": "ps-reclaim" "default",
        "limit": "limit" "default",
    }
    "trace-tasks" "" {
        "reads, millions per second": "trace" "async10000" "reads_per_s" / 1e6,
        "updates per second": "trace" "async10000" "updates_per_s",
        "wait, ms": "trace" "async10000" "gp_mean_ms",
        "wait in another domain, us": "trace" "async10000" "other_domain_gp_us",
        "bytes per guard": "trace" "async10000" "bytes_per_guard",
    } {
        "Stillpoint, membarrier": "stillpoint" "native",
        "Stillpoint, fences": "stillpoint" "read-mb",
        "tokio's `RwLock`": "tokio" "rwlock",
        "arc-swap": "arc-swap" "default",
        "limit": "limit" "default",
    }
    "lru" "" {
        "2 threads: counts, millions per second": "lru" "threads-2" "counts_per_s" / 1e6,
        "time in locks": "lru" "threads-2" "lock_share",
        "16 threads: counts": "lru" "threads-16" "counts_per_s" / 1e6,
        "time in locks": "lru" "threads-16" "lock_share",
        "a count, ns": "lru" "threads-16" "count_ns",
    } {
        "Stillpoint": "stillpoint" "rcu",
        "the same lists, a mutex each": "stillpoint" "mutex",
        "the same lists, a spinlock each": "stillpoint" "spinlock",
        "limit": "limit" "default",
    }
    "vmap-find" "" {
        "find, ns": "vmap" "find-100000" "find_ns",
        "dependent look-ups, ns": "vmap" "find-100000" "find_dependent_ns",
        "check, ns": "vmap" "find-100000" "check_ns",
    } {
        "Stillpoint": "stillpoint" "rcu",
        "`BTreeMap` under `RwLock`": "std-rwlock-btreemap" "default",
        "limit": "limit" "default",
    }
    "map" "" {
        "get, ns": "map" "get-100000" "ns_per_op",
        "dependent look-ups, ns": "map" "get-100000" "dependent_ns",
        "98 % reads, M/s": "map" "readheavy-2" "ops_per_s" / 1e6,
        "90 % writes, M/s": "map" "exchange-2" "ops_per_s" / 1e6,
        "80 % inserts, from empty, M/s": "map" "rapidgrow-2-grow" "ops_per_s" / 1e6,
        "90 % writes, growing, 1 thread, M/s": "map" "exchange-1-grow" "ops_per_s" / 1e6,
        "80 % inserts, growing, 1 thread, M/s": "map" "rapidgrow-1-grow" "ops_per_s" / 1e6,
        "99.99 % of inserts within, us": "map" "growth" "p9999_us",
        "bytes an entry": "map" "memory" "bytes_per_entry",
    } {
        "Stillpoint, `HashMap`": "stillpoint" "hash",
        "Stillpoint, `CopyMap`": "stillpoint" "hash-inline",
        "papaya": "papaya" "default",
        "dashmap": "dashmap" "default",
        "scc `HashMap`": "scc-hashmap" "default",
        "scc `HashIndex`": "scc-hashindex" "default",
        "`HashMap` under `RwLock`": "std-rwlock" "default",
        "limit: `hashbrown`, one thread's own": "limit" "default",
    }
    "epoch" "" {
        "pin, ns": "epoch" "pin" "cpu_ns_per_op",
        "boxes, 2 threads, ns": "epoch" "box-2" "cpu_ns_per_op",
        "deque, steal, ns": "epoch" "deque-steal" "cpu_ns_per_op",
        "moka, half writes, ns": "epoch" "moka-50" "cpu_ns_per_op",
        "flood, MiB at the peak": "epoch" "flood" "peak_mib",
    } {
        "drop-in": "stillpoint" "drop-in",
        "drop-in, feature `nofence`": "stillpoint" "drop-in-nofence",
        "crossbeam-epoch": "crossbeam-epoch" "default",
        "limit": "limit" "default",
    }
    "cache" "" {
        "2 threads read, ns": "cache" "read-2" "ns_per_op",
        "half writes, ns": "cache" "mixed-2" "ns_per_op",
        "hit ratio, oltp-2000": "cache" "oltp-2000" "hit_ratio",
        "p3-40000": "cache" "p3-40000" "hit_ratio",
        "p6-40000": "cache" "p6-40000" "hit_ratio",
        "bytes an entry": "cache" "memory" "bytes_per_entry",
        "hits lost to a neighbour": "cache" "isolation" "hits_lost",
    } {
        "Stillpoint": "stillpoint" "default",
        "moka": "moka" "default",
        "quick_cache": "quick_cache" "default",
        "TinyUFO": "tinyufo" "default",
    }
    "server" "" {
        "a get, us": "server" "get-1" "cpu_us_per_op",
        "one of 50 in a write, us": "server" "get-pipelined" "cpu_us_per_op",
        "a set, us": "server" "set" "cpu_us_per_op",
        "bytes an item": "server" "memory" "bytes_per_item",
        "hits lost to a neighbour": "server" "isolation" "hits_lost",
    } {
        "stillcache": "stillpoint" "stillcache",
        "memcached": "memcached" "default",
        "redis": "redis" "default",
    }
    "compat" "" {
        "liburcu, ns": "compat" "" "liburcu_ns",
        "Stillpoint, ns": "compat" "" "stillpoint_ns",
        "liburcu, KiB": "compat" "" "liburcu_kib",
        "Stillpoint, KiB": "compat" "" "stillpoint_kib",
    } {
        "read pair, memb, inlined": "pair memb inlined" "default",
        "read pair, memb, calls": "pair memb calls" "default",
        "read pair, qsbr, inlined": "pair qsbr inlined" "default",
        "read pair, qsbr, calls": "pair qsbr calls" "default",
        "`call_rcu`, memb": "call_rcu memb calls" "default",
        "peak memory of the last": "memory at most" "default",
    }
};
