//! Batched deferred free, with a grace-period cookie per page: the kernel's `kvfree_rcu()`, polled.
//! `README.md` in this folder teaches it.
//!
//! | file | subject |
//! |---|---|
//! | `account` | what each thread has sealed and freed; the published number that the budget needs |
//! | `around` | the wrapper of frees that no thread has asked for |
//! | `request` | an object that is being retired: its weight, and where it is freed |
//! | `page` | pages of slots, what a slot knows of an object, and lists of pages |
//! | `buffer` | a thread's buffer: appending, which is the fast path; **the proof of the parking protocol** |
//! | `pending` | what waits for the service thread, in the order of its grace periods |
//! | `heap` | the state of a domain's deferred frees, their counts, the order of locks |
//! | `retire` | the slow path: opening, sealing, reclaiming pages |
//! | `on_demand` | domains whose retirers say when objects are freed, and never wait |
//! | `held_up` | for how long a reader has held grace periods up |
//! | `throttle` | back-pressure: when a retiring thread ends a grace period, or waits |
//! | `quota` | how much a thread queues before it does |
//! | `oom` | what happens without memory |
//! | `drain` | what the service thread does: idle threads, destructors, flushes |
//! | `fork` | what is left in the child of a fork |
//! | `policy` | what tests may switch off to see themselves fail |
//!
//! An object goes from its retirer's open page (no lock, no atomic read-modify-write) to that
//! thread's queue of sealed pages, and is freed from there by the same thread; or it goes by way of
//! the service thread. It imports only `gp`, so readers of any flavour can use it.
//!
//! # Why nothing is freed too early
//!
//! The retirer has unlinked the object before it appends. A sealed page's cookie is taken after the
//! last append, by the owner, or by a thread that has read the page's length by acquire (P1 with D3
//! in `buffer.rs`) under the queue's lock; so all unlinking happens before W1 (`gp/engine.rs`). The
//! page is freed by a thread that sees that cookie's grace period ended (W6).

mod account;
mod around;
mod buffer;
mod drain;
#[cfg(not(stillpoint_loom))]
mod fork;
mod heap;
mod held_up;
mod on_demand;
mod oom;
mod page;
mod pending;
pub(crate) mod policy;
mod quota;
mod request;
mod retire;
mod throttle;

#[cfg(all(test, stillpoint_loom, not(stillpoint_shuttle)))]
mod loom_tests;

pub use around::Around;
pub(crate) use buffer::{Pushed, ThreadBuffer};
pub(crate) use heap::{Heap, Waiting};
pub use on_demand::Left;
pub use oom::{NoPage, OnNoPage};
pub use page::Destructor;
#[cfg(test)]
pub(crate) use page::SLOTS;
pub use policy::Policy;
pub(crate) use request::RetireRequest;
pub(crate) use retire::Retirer;
