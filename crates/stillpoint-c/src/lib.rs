//! The C and C++ face of Stillpoint.
//!
//! | file | subject |
//! |---|---|
//! | `border` | nothing unwinds across it; errors become errno; what is misuse |
//! | `reserve` | memory for when there is none |
//! | `reader` | sections of threads, and the thread-local state of the inlined ones |
//! | `qsbr` | readers by quiescent states |
//! | `domain` | domains: grace periods, cookies |
//! | `callback` | functions that run after a grace period |
//! | `kvfree` | deferred frees of blocks of `malloc()` |
//! | `tenant`, `lru`, `pressure` | tenants and charges; LRU lists and shrinkers; memory pressure |
//! | `arena` | the address space |
//! | `urcu`, `compat/` | liburcu's names and libraries |
//! | `thread.c` | where that state lies |
//!
//! Everything that C sees is a function `stillpoint_*` here, whose comment becomes the header's (`include/stillpoint/functions.h`, made by
//! cbindgen in a test), or inlined in `include/stillpoint/stillpoint.h`. It adds no orderings of its own.

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub mod arena;
pub mod border;
pub mod callback;
pub mod domain;
pub mod kvfree;
pub mod lru;
pub mod pressure;
pub mod qsbr;
pub mod reader;
mod reserve;
pub mod tenant;
// Its functions are declared in `compat/urcu/stillpoint/runtime.h`.
/// cbindgen:ignore
pub mod urcu;

pub(crate) use reader::is_global;
