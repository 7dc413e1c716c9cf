//! The C and C++ API of Stillpoint.
//!
//! | file | subject |
//! |---|---|
//! | `ffi`, `handle`, `log` | turn panics and errors into errno, report misuse; the objects behind C's pointers |
//! | `thread` | a thread's cached state, and its end; `thread.c` has the thread-local state of the inlined functions |
//! | `reader` | sections of threads, owned guards |
//! | `qsbr` | readers by quiescent states |
//! | `domain`, `static_domain` | domains: grace periods, cookies; static domains, created at their first use |
//! | `callback` | functions that run after a grace period |
//! | `kvfree` | deferred frees of blocks of `malloc()` |
//! | `tenant`, `lru`, `pressure` | tenants and charges; LRU lists and shrinkers; memory pressure |
//! | `map` | hash maps |
//! | `arena`, `deferred_area` | the address space |
//! | `urcu`, `compat/` | liburcu's names and libraries |
//!
//! Everything that C sees is a function `stillpoint_*` here, or inlined in
//! `include/stillpoint/stillpoint.h`. A test generates `include/stillpoint/functions.h` from the
//! functions and their comments with cbindgen. This crate adds no orderings.

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub mod arena;
pub mod callback;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod deferred_area;
pub mod domain;
pub mod ffi;
mod handle;
pub mod kvfree;
mod log;
pub mod lru;
#[cfg(target_pointer_width = "64")]
pub mod map;
pub mod pressure;
pub mod qsbr;
pub mod reader;
mod static_domain;
pub mod tenant;
// The C side of this module is private to it.
/// cbindgen:ignore
mod thread;
// The functions of this module are declared in `compat/urcu/stillpoint/runtime.h`.
/// cbindgen:ignore
pub mod urcu;
