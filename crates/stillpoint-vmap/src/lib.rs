//! A large address space: areas of pages that are found, without a lock, by any address inside
//! them, and checked copies. 64-bit Linux; elsewhere this crate is empty.
//!
//! A server that copies into and out of buffers may check, at every copy, that the range lies inside
//! one live buffer, as the kernel's hardened usercopy does. If that look-up takes a lock, the lock
//! becomes the bottleneck. Here it costs a load:
//!
//! * [`Arena`] is a stretch of address space; [`Arena::alloc`] gives an [`Area`], some pages of it,
//!   freed when it is dropped.
//! * [`Arena::find`] returns the area around an address, [`Arena::check`] verifies that a range
//!   lies inside one, in a read-side critical section. What was found stays until the section ends,
//!   even if another thread frees it.
//! * [`Arena::copy_to`], [`Arena::copy_from`], [`Arena::copy_between`] check and copy.
//!
//! # How memory comes and goes
//!
//! Memory becomes accessible from the start of the arena upwards, some megabytes at a time, so an
//! arena adds only three or four mappings to the process (`vm.max_map_count`). Sizes up to 256
//! pages come from pools, one set per CPU.
//!
//! Freeing is lazy. A freed area leaves the map at once. A later **drain** gathers freed areas,
//! waits for a grace period, returns their memory in one system call, and then lets their addresses
//! be reused. A drain begins in a free that reaches half of [`Builder::lazy_limit`], in an
//! allocation that finds the address space exhausted, and in [`Arena::drain`] and [`Arena::shrink`].
//! Where the kernel has guard pages (6.13), one follows each area; otherwise only the end of the
//! accessible part is guarded.
//!
//! # Forking
//!
//! In the child of a fork, private arenas are copies, as all private memory is, and areas of lost
//! threads stay. If one of those threads was allocating, freeing or draining at the fork, the child
//! can find, check and copy; drops leak, and an operation that needs the lost lock ends the process
//! with a message. An arena over a memory file is shared with the parent: the child finds, checks,
//! copies and shares; [`Arena::alloc`] refuses; and freeing an area in the child does not affect the
//! parent.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]
#![cfg_attr(docsrs, feature(doc_cfg))]
// The model checks what is compiled for it, not what uses that.
#![cfg_attr(stillpoint_loom, allow(dead_code))]
// `span` and `map` are the page map, which is model-checked: its head has the proof. `space` has
// the free address space, `node` the pools, `copy` the copies; on them stands `arena`. Imports lead
// from the later ones to the earlier ones.

#[cfg(not(stillpoint_loom))]
mod arena;
mod copy;
#[cfg(all(test, stillpoint_loom, not(stillpoint_shuttle)))]
mod loom_tests;
mod map;
mod node;
mod space;
mod span;
#[cfg(not(stillpoint_loom))]
pub use arena::{
    Area, Arena, ArenaStatistics, Builder, Checked, Description, Dump, DumpedArea, Error, Reader,
};

/// What the lab needs beyond the interface: a purge that does not wait for readers, which torture must
/// catch in the code that a program gets, and the copy of checked reads for its measurements. Not part
/// of the stable interface.
#[cfg(not(stillpoint_loom))]
#[doc(hidden)]
pub mod lab {
    pub use crate::{arena::drain_without_grace_period, copy::copy};
}

/// The code in the package's README.md compiles, and does what it says.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
