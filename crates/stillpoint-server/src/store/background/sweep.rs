//! Memory that the background gives back: that of flushed key spaces, deleted tenants, open segments that
//! are too large, and segments that are mostly dead.

use crate::store::{segment::Why, shared::Shared, state::TenantState};
use std::sync::Arc;
use stillpoint::read_lock;

/// Least part of a tenant's usage that is dead before its sparse segments are compacted.
const DEAD_PART: u64 = 8;

/// Bytes of segments that a pass compacts, for each tenant.
const COMPACTED: u64 = 16 << 20;

/// Frees the memory of flushed key spaces of a tenant, and all memory of a deleted one.
pub(super) fn sweep_asked(state: &Arc<TenantState>) {
    match state.owner.is_deleted() {
        true => remove(state),
        false => sweep(state),
    }
}

/// Removes what is left of a tenant that is deleted.
pub fn remove(state: &TenantState) {
    sweep(state);
    // Segments that another thread is sealing, or that wait for readers, move to the root's lists.
    // Deleting a tenant without children does not fail.
    let _ = state.owner.limit.memcg.delete();
}

/// Frees the segments of key spaces that were flushed.
pub fn sweep(state: &TenantState) {
    let (owner, lists) = (&state.owner, &state.owner.shared.lists);
    state.forget_flushed();
    lists.for_each(&owner.limit.memcg, |segment| {
        // A segment is made after its key space is published, and the present key space is loaded
        // after the segment is seen. So a segment of another key space is of an older one, which was
        // flushed.
        let flushed = !segment.is_of(state.space.load(&read_lock()));
        // No reader that begins now comes to the old index, and limbo waits for those that have.
        if flushed && segment.leave() {
            lists.free_flushed(segment);
        }
        // If limbo is full, leave the rest to the next pass: here each segment would wait for readers.
        !owner.shared.pool.is_full()
    });
}

/// Frees segments that threads sealed for tenants that were being deleted: these are the root's.
pub(super) fn sweep_deleted(shared: &Shared) {
    shared.lists.for_each(shared.hierarchy.root(), |segment| {
        if segment.is_flushed() {
            shared.lists.evacuate(segment, Why::Clear);
        }
        !shared.pool.is_full()
    });
}

/// Seals open segments that are too large for a tenant that has become small, and moves their items.
pub(super) fn seal_idle(state: &TenantState) {
    let space = state.present();
    for segment in space.seal_idle() {
        state.owner.shared.lists.evacuate(&segment, Why::Compact);
    }
}

/// Compacts sparse segments.
pub(super) fn compact(state: &TenantState) {
    let usage = state.owner.limit.memcg.usage();
    let space = state.present();
    if space.counts().dead < usage / DEAD_PART {
        return;
    }
    let mut left = COMPACTED;
    let lists = &state.owner.shared.lists;
    lists.for_each(&state.owner.limit.memcg, |segment| {
        if segment.is_sparse() && lists.evacuate(segment, Why::Compact) {
            left = left.saturating_sub(segment.bytes() as u64);
        }
        left > 0
    });
}
