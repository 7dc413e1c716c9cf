//! Grace periods, whatever the flavour of the readers.
//!
//! | file | subject |
//! |---|---|
//! | `seq` | sequence numbers, cookies, the three counters |
//! | `record`, `registry` | a reader's word, and all of them |
//! | `entry`, `record_cache` | what reports say of a reader; records for guards that no thread owns |
//! | `engine` | starting, fencing, scanning, publishing; **the proofs** |
//! | `owners` | waits while no reader is registered |
//! | `coalesce` | one barrier for many that wait |
//! | `wait` | spinning and sleeping until a grace period has ended |
//! | `callbacks` | functions that run after one |
//! | `delay` | how long they are kept before |
//! | `wakers` | tasks that wait for one, or for callbacks |
//! | `service` | the thread for what no caller does |
//! | `stall` | grace periods that do not end |
//! | `policy` | what tests may leave out to see themselves fail |
//!
//! The room knows neither threads' thread-local state (`rcu`) nor objects to be freed (`kvfree`). Every ordering has a label;
//! `engine` pairs them.

mod callbacks;
mod coalesce;
mod delay;
mod engine;
mod entry;
mod owners;
pub(crate) mod policy;
mod record;
mod record_cache;
mod registry;
mod seq;
mod service;
mod stall;
mod wait;
mod wakers;

#[cfg(all(test, stillpoint_loom, not(stillpoint_shuttle)))]
mod loom_litmus_tests;
#[cfg(all(test, stillpoint_loom, not(stillpoint_shuttle)))]
mod loom_owned_tests;
#[cfg(all(test, stillpoint_loom, not(stillpoint_shuttle)))]
mod loom_tests;
#[cfg(all(test, stillpoint_loom, not(stillpoint_shuttle)))]
mod loom_wakers_tests;
#[cfg(all(test, stillpoint_shuttle))]
mod shuttle_tests;

pub use callbacks::CallbackHead;
pub(crate) use callbacks::{Callback, WouldDeadlock};
pub(crate) use engine::{BarrierMode, Engine, Progress};
pub(crate) use policy::Policy;
pub(crate) use record::Record;
pub(crate) use record_cache::RecordCache;
pub use seq::Cookie;
#[cfg(not(stillpoint_loom))]
pub(crate) use seq::GLOBALS;
pub(crate) use seq::{Seq, Sequence};
pub(crate) use service::{End, Outlook, Served, Work};
pub(crate) use stall::Listed;
pub use stall::{Flavour, Holdout, StallReport, Stalled, ThreadName};
pub(crate) use wait::{Haste, Waited};
pub(crate) use wakers::{Awaited, Place};
