//! Memory that is given back: of key spaces that were flushed, of deleted tenants, of open segments that are
//! too large, of segments that are mostly dead.

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
    // Its lists are empty, but for what another thread is sealing, and what had to wait for readers;
    // that goes to the root's. It has no children, so this does not fail.
    let _ = state.owner.limit.memcg.delete();
}

/// Frees the segments of key spaces that were flushed.
pub fn sweep(state: &TenantState) {
    let (owner, lists) = (&state.owner, &state.owner.shared.lists);
    state.forget_flushed();
    lists.for_each(&owner.limit.memcg, |segment| {
        // The key space is loaded behind the segment, which was made after its own was published:
        // so that which is not the present one has been flushed, and is not a newer one.
        let flushed = !segment.is_of(state.space.load(&read_lock()));
        // No reader that begins now comes to the old index, and limbo waits for those that have.
        if flushed && segment.leave() {
            lists.free_flushed(segment);
        }
        // What is more waits for the next pass, rather than each one for readers.
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

/// Gives back what open segments take beyond the need of a tenant that has become small.
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
