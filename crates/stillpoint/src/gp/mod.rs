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
//! | `engine/wait`; `wakers` | threads and tasks that wait for one; the tasks to wake |
//! | `engine/callbacks`; `callback`, `batches`, `stack` | functions that run after one; their queue, and how long they are kept |
//! | `engine/service`; `server`, `pool`, `work` | the thread for what no caller does: its rounds; its state, and how it ends; threads that domains share |
//! | `engine/stall`; `stalls`, `report` | grace periods that do not end; what is timed, and what is reported |
//! | `timing` | how long grace periods take |
//! | `fork` | all of this in the child of a fork |
//! | `policy` | what tests may switch off to see themselves fail |
//!
//! There is no circle of imports (`tests/imports.rs`): the parts of an engine are below it, and the
//! files of its folder, which have its methods, above.
//! The module knows neither threads' thread-local state (`rcu`) nor objects to be freed (`kvfree`).

mod barrier_mode;
mod batches;
mod callback;
mod engine;
mod entry;
mod flavour;
#[cfg(not(stillpoint_loom))]
mod fork;
mod owners;
pub(crate) mod policy;
pub(crate) mod pool;
mod record;
mod record_cache;
mod registry;
mod report;
mod seq;
mod server;
mod shared;
mod stack;
mod stalls;
mod timing;
mod wakers;
mod work;

#[cfg(all(test, stillpoint_loom, not(stillpoint_shuttle)))]
mod loom_tests;
#[cfg(all(test, stillpoint_shuttle))]
mod shuttle_tests;

/// Whether this is a build for model checkers: time stands still, and each further step costs
/// minutes.
pub(crate) const IN_MODEL: bool = cfg!(stillpoint_loom);

pub(crate) use barrier_mode::BarrierMode;
pub(crate) use callback::Callback;
pub use callback::CallbackHead;
pub(crate) use engine::{
    Engine, Progress,
    wait::{Haste, Waited},
};
pub use flavour::Flavour;
pub(crate) use policy::Policy;
pub(crate) use pool::Member;
pub(crate) use record::Record;
pub(crate) use record_cache::RecordCache;
pub use report::{AcrossAwait, Holdout, StallReport, Stalled, ThreadName};
pub use seq::Cookie;
#[cfg(not(stillpoint_loom))]
pub(crate) use seq::global::GLOBALS;
pub(crate) use seq::{Seq, Sequence};
pub(crate) use server::{End, Pace, Round, Served, Server};
pub(crate) use stalls::{Listed, Unreclaimed};
pub(crate) use wakers::{Awaited, Place};
pub use work::WouldDeadlock;
pub(crate) use work::{Outlook, Work};
