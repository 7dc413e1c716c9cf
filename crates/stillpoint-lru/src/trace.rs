//! What this crate shows to a person who looks into a running program: probes (feature `usdt`) and
//! events (feature `tracing`), named after the kernel's tracepoints. `stillpoint-platform/src/trace.rs`
//! says when events reach the subscriber; `scripts/trace/README.md` has the list for users.

use stillpoint::internal::can_wait;
use stillpoint_platform::{
    trace::{self, Entered},
    trace_event, trace_span,
    user_code::NO_DOMAIN,
};

trace_event! {
    /// A charge has been made that the stock of a processor did not have.
    TRACE memcg_charge(tenant, bytes, usage) for NO_DOMAIN
}

trace_event! {
    /// A pass over a tenant and those below it begins.
    TRACE mm_vmscan_memcg_reclaim_begin(tenant, usage) for NO_DOMAIN
}

trace_event! {
    /// It has ended, after shrinkers have freed so many objects.
    TRACE mm_vmscan_memcg_reclaim_end(tenant, usage, freed) for NO_DOMAIN
}

trace_event! {
    /// A shrinker is asked for `total_scan` of the `freeable` objects that it has said it has.
    TRACE mm_shrink_slab_start(shrinker, tenant, node, freeable, total_scan, priority) for NO_DOMAIN
}

trace_event! {
    /// It has looked at `scanned`, and freed `freed`.
    TRACE mm_shrink_slab_end(shrinker, tenant, node, scanned, freed) for NO_DOMAIN
}

/// Gives events to the subscriber, outside of sections and callbacks of the global domain. Called
/// where a shrinker may be.
pub(crate) fn emit() {
    if trace::is_pending() && can_wait() {
        trace::emit();
    }
}

trace_span! {
    /// A pass over a tenant and those below it.
    mm_vmscan_memcg_reclaim(tenant) for NO_DOMAIN
}

trace_span! {
    /// The calls of a shrinker for a tenant.
    mm_shrink_slab(shrinker, tenant, node) for NO_DOMAIN
}

/// Enters a span where [`emit`] would give events.
pub(crate) fn enter(span: impl FnOnce() -> Entered) -> Option<Entered> {
    (trace::wants_spans() && can_wait()).then(span)
}
