//! Batched deferred free, with a grace-period cookie per page: the kernel's `kvfree_rcu()`, polled.
//!
//! | file | subject |
//! |---|---|
//! | `slot` | what is known of a waiting object |
//! | `page` | pages of slots, and lists of them |
//! | `pending` | sealed pages in the order of their grace periods |
//! | `local` | one thread's buffer: appending, parking; **the proof of the parking protocol** |
//! | `heap` | what the retiring thread does: appending, sealing, freeing |
//! | `throttle` | when it frees, ends a grace period, or waits: back-pressure |
//! | `drain` | what the service thread does: idle threads, destructors, flushes |
//! | `policy` | what tests may leave out to see themselves fail |
//!
//! An object goes from its retirer's open page (no lock, no atomic read-modify-write) to that thread's queue of sealed pages, and
//! is freed from there by the same thread; or it goes by way of the service thread. It stands on `gp` alone: any flavour of
//! readers can use it.
//!
//! # Why nothing is freed too early
//!
//! The retirer has unlinked the object before it appends. A sealed page's cookie is taken after the last append, by the owner, or
//! by one who has read the page's length by acquire (P1 with D3 in `local.rs`) under the queue's lock; so all unlinking happens before
//! W1 (`gp/engine.rs`). The page is freed by one who sees that cookie's grace period ended (W6).

mod drain;
mod heap;
mod local;
mod page;
mod pending;
pub(crate) mod policy;
mod slot;
mod throttle;

#[cfg(all(test, stillpoint_loom, not(stillpoint_shuttle)))]
mod loom_tests;

pub use heap::{DrainPolicy, OnNoPage};
pub(crate) use heap::{Heap, Waiting};
pub(crate) use local::{Pushed, RetireRequest, ThreadBuffer};
#[cfg(all(test, not(stillpoint_loom)))]
pub(crate) use page::SLOTS;
pub use policy::Policy;
pub(crate) use slot::Slot;
