//! Look-ups and walks.

use super::{Map, MapIter, MapNode, MatchFunction, borrow, is_match, is_protected, pointer};
use std::{
    ffi::c_void,
    ptr::{self, NonNull},
};
use stillpoint_map::internal::{Node, NodeIter, Nodes};

/// Returns a node with that hash for which the function does not return 0; NULL if there is none:
/// cds_lfht_lookup(). The node stays valid until the caller's section ends. Takes no lock, writes
/// nothing, never blocks; async-signal-safe if the function is.
///
/// Undefined outside of a section; if misuse is reported, returns NULL if it detects that (not
/// while another thread is in a section).
///
/// # Safety
///
/// The map is NULL or alive; inside a section of its domain; the function may be called with nodes
/// and the key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_map_lookup(
    map: *const Map,
    hash: u64,
    function: MatchFunction,
    key: *const c_void,
) -> *mut MapNode {
    // SAFETY: the caller's promise. It panics only by a fault of the library, and then aborts.
    unsafe {
        match (borrow(map), function) {
            (Some(map), Some(function)) if is_protected(&map) => {
                pointer(map.pinned().find(hash, is_match(function, key)))
            }
            _ => ptr::null_mut(),
        }
    }
}

/// Like stillpoint_map_lookup(), for maps with duplicates: get the others with
/// stillpoint_map_next_duplicate(), the same function and key. The result is also in `iter->node`.
///
/// # Safety
///
/// The conditions of stillpoint_map_lookup() hold; the iterator is writable, and used only in this section.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_map_first_duplicate(
    map: *const Map,
    hash: u64,
    function: MatchFunction,
    key: *const c_void,
    iter: *mut MapIter,
) -> *mut MapNode {
    // SAFETY: the caller's promise.
    unsafe {
        start(map, iter, |map| map.pinned().with_hash(hash));
        stillpoint_map_next_duplicate(iter, function, key)
    }
}

/// Returns the next node with that key; NULL after the last: cds_lfht_next_duplicate(). Returns
/// each node that stays in the map once; may miss one that is added or taken out meanwhile. Costs
/// as much as stillpoint_map_lookup(), and is as async-signal-safe. NULL after
/// stillpoint_map_first().
///
/// # Safety
///
/// The iterator is stillpoint_map_first_duplicate()'s, in the same section.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_map_next_duplicate(
    iter: *mut MapIter,
    function: MatchFunction,
    key: *const c_void,
) -> *mut MapNode {
    // SAFETY: the caller's promise.
    unsafe {
        let Some(function) = function else {
            return ptr::null_mut();
        };
        let is_match = is_match(function, key);
        advance(iter, |nodes| match nodes {
            NodeIter::WithHash(nodes) => nodes
                .map(|head| head.pointer().cast())
                .find(|node| is_match(*node)),
            NodeIter::All(_) => None,
        })
    }
}

/// Begins a walk over all nodes in no particular order, and returns the first one; NULL if there is
/// none: cds_lfht_first(). Returns each node that stays in the map once, even while the table grows
/// and shrinks; may miss one that is added, taken out or replaced meanwhile. Writers go on, and the
/// caller may take out the nodes it gets. Takes no lock; async-signal-safe. The result is also in
/// `iter->node`.
///
/// # Safety
///
/// The map is NULL or alive; inside a section of its domain; the iterator can be written to, and is
/// used only in this section.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_map_first(map: *const Map, iter: *mut MapIter) -> *mut MapNode {
    // SAFETY: the caller's promise.
    unsafe {
        start(map, iter, |map| map.pinned().iter());
        stillpoint_map_next(iter)
    }
}

/// Returns the next node of a walk; NULL after the last: cds_lfht_next(). After
/// stillpoint_map_first_duplicate(), returns the next node with that hash, whatever its key.
///
/// # Safety
///
/// The iterator is stillpoint_map_first()'s, in the same section.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_map_next(iter: *mut MapIter) -> *mut MapNode {
    // SAFETY: the caller's promise.
    unsafe { advance(iter, |nodes| nodes.next()) }
}

/// # Safety
///
/// As for [`stillpoint_map_first`].
unsafe fn start(
    map: *const Map,
    iter: *mut MapIter,
    make: impl for<'a> FnOnce(&'a Nodes) -> NodeIter<'a>,
) {
    // SAFETY: the caller's promise. The map outlives the iterator by it.
    unsafe {
        let map = borrow(map).filter(|map| is_protected(map));
        let made = map.as_deref().map_or_else(NodeIter::ended, make);
        (&raw mut (*iter).opaque).cast::<NodeIter<'_>>().write(made);
    }
}

/// # Safety
///
/// The iterator has been started in the calling thread's section.
unsafe fn advance(
    iter: *mut MapIter,
    next: impl FnOnce(&mut NodeIter<'_>) -> Option<NonNull<Node>>,
) -> *mut MapNode {
    // SAFETY: the caller's promise.
    unsafe {
        let found = pointer(next(&mut *(&raw mut (*iter).opaque).cast()));
        (*iter).node = found;
        found
    }
}

/// Returns whether a node that has been in a map is in this one: !cds_lfht_is_node_deleted(). Costs
/// a look-up: takes no lock, never blocks; async-signal-safe. False for null.
///
/// # Safety
///
/// As for stillpoint_map_del().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_map_has(map: *const Map, of: *mut MapNode) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        match (borrow(map), NonNull::new(of)) {
            (Some(map), Some(of)) if is_protected(&map) => map.pinned().has(of.cast()),
            _ => false,
        }
    }
}
