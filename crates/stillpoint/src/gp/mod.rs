//! Grace periods, whatever the flavour of the readers. `README.md` in this folder has the protocol,
//! its proof, the glossary, the lock order and the threads.
//!
//! | file | subject |
//! |---|---|
//! | `seq` | sequence numbers, cookies, the three counters |
//! | `record`, `registry` | a reader's word, and all of them |
//! | `flavour`, `barrier_mode` | kinds of readers; who pays for their order with updaters |
//! | `entry`, `record_cache` | what reports say of a reader; records for guards that no thread owns |
//! | `owners` | waits while no reader is registered |
//! | `shared` | what an engine shares with its readers' records |
//! | `engine` | starting, fencing, scanning, publishing |
//! | `engine/coalesce` | one barrier for many that wait |
//! | `engine/wait` | spinning and sleeping until a grace period has ended |
//! | `engine/callbacks`; `callback`, `delay`, `stack` | functions that run after one; their queue, how long they are kept before |
//! | `engine/wakers` | tasks that wait for one, or for callbacks |
//! | `engine/service`; `work` | the thread for what no caller does; what it does for the modules above |
//! | `engine/stall`; `report` | grace periods that do not end; what is told of them |
//! | `fork` | all of this in the child of a fork |
//! | `policy` | what tests may leave out to see themselves fail |
//!
//! There is no circle of imports, but between the engine and its own parts, which are below it
//! (`tests/imports.rs`).
//! The module knows neither threads' thread-local state (`rcu`) nor objects to be freed (`kvfree`).

mod barrier_mode;
mod callback;
mod delay;
mod engine;
mod entry;
mod flavour;
#[cfg(not(stillpoint_loom))]
mod fork;
mod owners;
pub(crate) mod policy;
mod queue_times;
mod record;
mod record_cache;
mod registry;
mod report;
mod seq;
mod shared;
mod stack;
mod timing;
mod work;

#[cfg(all(test, stillpoint_loom, not(stillpoint_shuttle)))]
mod loom_tests;
#[cfg(all(test, stillpoint_shuttle))]
mod shuttle_tests;

/// Whether this is the model, in which time stands still and each step more costs minutes.
pub(crate) const IN_MODEL: bool = cfg!(stillpoint_loom);

pub(crate) use barrier_mode::BarrierMode;
pub(crate) use callback::Callback;
pub use callback::CallbackHead;
pub(crate) use engine::{
    Engine, Progress,
    service::{
        End, Pace, Round, Served, Server,
        pool::{self, Member},
    },
    stall::{Listed, Unreclaimed},
    wait::{Haste, Waited},
    wakers::{Awaited, Place},
};
pub use flavour::Flavour;
pub(crate) use policy::Policy;
pub(crate) use record::Record;
pub(crate) use record_cache::RecordCache;
pub use report::{AcrossAwait, Holdout, StallReport, Stalled, ThreadName};
pub use seq::Cookie;
#[cfg(not(stillpoint_loom))]
pub(crate) use seq::global::GLOBALS;
pub(crate) use seq::{Seq, Sequence};
pub(crate) use work::{Outlook, Work, WouldDeadlock};
