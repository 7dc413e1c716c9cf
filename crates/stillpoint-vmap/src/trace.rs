//! What this crate shows to a person who looks into a running program: probes (feature `usdt`) and
//! events (feature `tracing`), named after the kernel's tracepoints. `stillpoint-platform/src/trace.rs`
//! says when events reach the subscriber; `scripts/trace/README.md` has the list for users.

use stillpoint::{Domain, internal::is_reading};
use stillpoint_platform::{trace, trace_event, user_code::NO_DOMAIN};

trace_event! {
    /// An area has been allocated. The arena is known by its first address.
    TRACE alloc_vmap_area(arena, addr, bytes) for NO_DOMAIN
}

trace_event! {
    /// An area has been freed, and waits for a drain with `lazy_bytes` in all.
    TRACE free_vmap_area_noflush(arena, addr, bytes, lazy_bytes) for NO_DOMAIN
}

trace_event! {
    /// A batch of freed areas has been given back to the system.
    TRACE purge_vmap_area_lazy(arena, areas, bytes) for NO_DOMAIN
}

/// Gives events to the subscriber, outside of sections of the arena's domain. Called without a lock.
pub(crate) fn emit(domain: &Domain) {
    if trace::is_pending() && !is_reading(domain) {
        trace::emit();
    }
}
