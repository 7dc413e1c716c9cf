//! Kernel-style RCU and batched deferred frees for user space.
//!
//! Readers find shared data without a lock, a fence or an atomic read-modify-write. Writers replace
//! it; an old version is freed when the last reader that may still hold it has left. This is the
//! Linux kernel's RCU, with its `kvfree_rcu()`:
//!
//! * [`read_lock`] begins a read-side critical section, for about a nanosecond. [`Rcu<T>`](Rcu) is
//!   a cell that is read inside a section, [`RcuOption<T>`](RcuOption) one that may be empty.
//! * [`synchronize`] waits for a grace period: until all sections that had begun before have ended.
//!   [`Domain::start_poll`] and [`Domain::poll`] ask without waiting; [`call`] runs a function
//!   afterwards.
//! * [`retire`] frees an object after a grace period; one grace period serves thousands of objects.
//!   Unreclaimed memory is kept near a budget.
//!
//! Crates that build on it: `stillpoint-map` has concurrent maps and sets, `stillpoint-cache` a cache
//! with tenants, `stillpoint-metrics` exports statistics to Prometheus, `stillpoint-lru` has LRU lists
//! per tenant, byte limits, shrinkers and memory pressure, and `stillpoint-vmap` a large address space
//! whose areas are found by any address inside them.
//!
//! ```
//! use stillpoint::{Rcu, read_lock};
//!
//! #[derive(Clone)]
//! struct Limits { requests: u32 }
//! static LIMITS: Rcu<Limits> = Rcu::from_static(&Limits { requests: 100 });
//!
//! let reader = std::thread::spawn(|| {
//!     let guard = read_lock();
//!     LIMITS.load(&guard).requests
//! });
//! LIMITS.store(Limits { requests: 200 }); // the old one is freed when no reader is left
//! assert!(matches!(reader.join().unwrap(), 100 | 200));
//! ```
//!
//! # The memory budget
//!
//! A domain's budget for unreclaimed memory is 8 MiB unless [`Domain::set_budget`] changes it. It
//! counts retired objects and the pages that record them. A thread that retires much ends grace
//! periods itself and frees its oldest objects as it retires new ones, so the memory in use depends
//! on the budget, not on how long a flood lasts.
//!
//! If readers hold up grace periods until the budget is used up, or until a thread has twice its
//! share of it, threads that retire wait: at most 10 ms for each 64 KiB that they retire, and at
//! most a second in one call. A thread inside a section waits at the section's end. Past the budget
//! a thread also waits when it opens a page, and a thread that retires objects with destructors
//! waits for earlier destructors to run: hold no lock that they take.
//!
//! Once a stall is reported ([`Domain::set_stall_timeout`]), no thread waits for it any more. A
//! reader that never leaves costs memory, which [`Domain::statistics`] shows, but delays no writer.
//!
//! The library does not know what an object points to. An object with a destructor, such as a map
//! of any size, counts for its own block, and 1 KiB at least. If values are weighed
//! ([`Rcu::weighed`], [`Domain::retire_weighed`]), the budget and the statistics count all that
//! they own.
//!
//! Objects with a destructor are dropped on the domain's service thread, which starts when it is
//! first needed. It also frees the objects that idle threads leave, within 50 ms, and ends when
//! there has been no work for a second.
//!
//! # Where it runs
//!
//! 64-bit Linux. Readers run without fences where the kernel has `membarrier(2)` (since 4.14), and
//! with a fence at each end of a section elsewhere ([`membarrier_active`]).
//! `STILLPOINT_MEMBARRIER=off` forces fences, for programs that later install a seccomp filter
//! against the call. On other Unixes the crate builds, with fences and without fork support, and is untested.
//! Other targets do not compile.
//!
//! A process may fork, at any moment and from any thread, callbacks included, and use the library
//! in the parent and (on Linux) in the child: see [`Domain`], "Forking".
//!
//! # Features
//!
//! None is on by default.
//!
//! * `tracing`: stalls, failures, and panics of callbacks and destructors are warnings and errors of
//!   the `tracing` crate. A subscriber may panic, block, and use the library: no lock is held while it
//!   runs.
//! * `usdt`: probes for bpftrace, perf and others, of grace periods, callbacks, pages of retired
//!   objects, and waits of threads that retire; each is a `nop` while nothing looks. Linux. The
//!   repository's `scripts/trace` lists them and has examples.
//! * `stall-backtrace`: stall reports say where a section was entered. Each section then takes a
//!   backtrace, which costs microseconds, allocates, and is not async-signal-safe. Do not fork with
//!   it: the standard library takes a lock for each backtrace, which a thread that the fork removes
//!   may hold.
//! * `c-symbols`: for the crate `stillpoint-c` alone. A program with two versions of this crate
//!   could not be linked with it.
#![cfg_attr(docsrs, feature(doc_cfg))]
// The model checks the modules below; those that use everything are not part of it.
#![cfg_attr(stillpoint_loom, allow(dead_code, unused_imports))]

mod gp;
mod histogram;
#[cfg_attr(stillpoint_loom, path = "internal_model.rs")]
#[doc(hidden)]
pub mod internal;
mod kvfree;
#[cfg(not(stillpoint_loom))]
mod rcu;
mod statistics;
#[cfg(not(stillpoint_loom))]
pub mod tasks_trace;
mod trace;

pub(crate) use stillpoint_platform as platform;

pub use gp::{
    AcrossAwait, CallbackHead, Cookie, Flavour, Holdout, StallReport, Stalled, ThreadName,
};
pub use histogram::Histogram;
pub use kvfree::Destructor;
#[cfg(not(stillpoint_loom))]
pub use rcu::{
    CallbackBarrier, Domain, DomainBuilder, EmbedsHead, GracePeriod, Guard, Offline, QsbrReader,
    Rcu, RcuOption, Retired, Section, StaticGuard, Weigh, barrier, call, global, kvfree_barrier,
    publish_statistics, read, read_lock, retire, synchronize, synchronize_expedited,
};
pub use statistics::Statistics;
#[cfg(not(stillpoint_loom))]
pub use tasks_trace::snapshot::Snapshot;

/// The code in the package's README.md compiles, and does what it says.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// What the lab needs beyond the interface: torture breaks the machinery on purpose, and `scale kfree`
/// compares with whole batches. It does so in the code that a program gets, so this is behind no
/// feature. No part of the stable interface.
#[doc(hidden)]
pub mod lab {
    pub use crate::gp::policy::{Policy as GracePeriodPolicy, Sound};
    pub use crate::kvfree::Policy;
    #[cfg(not(stillpoint_loom))]
    pub use crate::rcu::{Core as Domain, core_of, free_whole_batches};
}

/// The functions that the C library is built on. Not part of the stable interface, and only there
/// with the C library's feature: it is as safe as C is.
#[cfg(all(unix, feature = "c-symbols", not(stillpoint_loom)))]
#[doc(hidden)]
pub use rcu::raw;

/// Returns true if readers run without fences because `membarrier(2)` works here: determined once,
/// at the first call or first reader.
///
/// `STILLPOINT_MEMBARRIER=off` in the environment makes it false.
#[cfg(not(stillpoint_loom))]
#[must_use]
pub fn membarrier_active() -> bool {
    !platform::barrier::readers_fence()
}
