//! Adding, replacing and deleting nodes.

use super::{Map, MapNode, MatchFunction, given, is_match, node, pointer, to_change};
use crate::ffi::{Errno, check, done, stillpoint_reports_misuse};
use crate::handle::{check_output, write_if_wanted};
use std::{
    ffi::{c_int, c_void},
    ptr::NonNull,
};
use stillpoint_map::internal::{Node, Nodes};

/// Checks a node before it is added to the map.
///
/// # Safety
///
/// As for [`stillpoint_map_add`].
unsafe fn new_node(map: &Nodes, hash: u64, new: *mut MapNode) -> Result<NonNull<Node>, Errno> {
    let new = node(new)?;
    // SAFETY: the caller's promise.
    let map = unsafe { map.pinned() };
    let is_there = stillpoint_reports_misuse() && map.find(hash, |other| other == new).is_some();
    check_new(!is_there)?;
    Ok(new)
}

fn check_new(is_new: bool) -> Result<(), Errno> {
    let mistake = "a node is put into a map that is in it already";
    check(is_new, libc::EBUSY, mistake)
}

/// Returns C's result of a change that `made` a difference: the node was in the map.
fn found(made: bool) -> Result<(), Errno> {
    made.then_some(()).ok_or(Errno(libc::ENOENT))
}

/// Adds a node, even if others have the same key: cds_lfht_add(). The node needs no initialisation,
/// lies at a multiple of 8, and is the map's until a grace period after it was taken out or
/// replaced. Allocates if its bucket is full. Blocks only for the bucket's lock, which other
/// threads hold for nanoseconds; not async-signal-safe. The more nodes have the same hash, the more
/// it costs to find or add one.
///
/// -EINVAL for null; if misuse is reported, -EBUSY for a node that is in this map with that hash,
/// and -EPERM outside of a section. The node is then still the caller's.
///
/// # Safety
///
/// The map is NULL or alive; inside a section of its domain. The node is in no map, and no reader can
/// find it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_map_add(map: *mut Map, hash: u64, new: *mut MapNode) -> c_int {
    done(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let map = to_change(map)?;
            let new = new_node(&map, hash, new)?;
            map.pinned().add(hash, new);
        }
        Ok(())
    })
}

/// Adds a node unless one with its key exists: cds_lfht_add_unique(). Otherwise like
/// stillpoint_map_add(). Calls the function without a lock held, and again if another thread
/// changes the bucket meanwhile.
///
/// -EEXIST if one exists; writes it to `existing` unless that is NULL, and it is valid until the
/// section ends. -EINVAL, -EBUSY and -EPERM as for stillpoint_map_add().
///
/// # Safety
///
/// The conditions of stillpoint_map_add() hold, the function accepts nodes and the key, and
/// `existing` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_map_add_unique(
    map: *mut Map,
    hash: u64,
    function: MatchFunction,
    key: *const c_void,
    new: *mut MapNode,
    existing: *mut *mut MapNode,
) -> c_int {
    done(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let map = to_change(map)?;
            let function = given(function)?;
            let new = new_node(&map, hash, new)?;
            let found = map.pinned().add_unique(hash, new, is_match(function, key));
            let Some(found) = found else {
                return Ok(());
            };
            check_new(found != new)?;
            write_if_wanted(existing, pointer(Some(found)));
            Err(libc::EEXIST.into())
        }
    })
}

/// Adds a node, or replaces one with its key: cds_lfht_add_replace(). A reader finds one of the
/// two. Otherwise like stillpoint_map_add_unique(). Writes the replaced node, or NULL, to `old`; it
/// may be freed after a grace period, by stillpoint_call() or stillpoint_kvfree().
///
/// -EINVAL, -EBUSY and -EPERM as for stillpoint_map_add().
///
/// # Safety
///
/// The conditions of stillpoint_map_add_unique() hold, and `old` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_map_add_replace(
    map: *mut Map,
    hash: u64,
    function: MatchFunction,
    key: *const c_void,
    new: *mut MapNode,
    old: *mut *mut MapNode,
) -> c_int {
    done(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let map = to_change(map)?;
            let function = given(function)?;
            check_output(old)?;
            let new = new_node(&map, hash, new)?;
            let map = map.pinned();
            let replaced = map.add_or_replace(hash, new, is_match(function, key));
            check_new(replaced != Some(new))?;
            old.write(pointer(replaced));
        }
        Ok(())
    })
}

/// Replaces a node that the caller has found in its section with a new one of the same hash and
/// key: cds_lfht_replace(). A reader finds one of the two. Allocates nothing; blocks no longer than
/// stillpoint_map_add(); not async-signal-safe. The old node may be freed after a grace period.
///
/// -ENOENT if the old node is not in the map (any more); -EINVAL for null; -EBUSY if both are one
/// node; -EPERM outside of a section, if misuse is reported.
///
/// # Safety
///
/// The map is NULL or alive; inside the section in which `old` was found, or `old` is kept alive by
/// other means. The new node is in no map, and no reader can find it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_map_replace(
    map: *mut Map,
    old: *mut MapNode,
    new: *mut MapNode,
) -> c_int {
    done(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let map = to_change(map)?;
            let (old, new) = (node(old)?, node(new)?);
            check_new(old != new)?;
            found(map.pinned().replace(old, new))
        }
    })
}

/// Takes a node out: cds_lfht_del(). If several threads try, one gets 0: it owns the node, and may
/// free it or add it again after a grace period. Never fails for lack of memory; blocks no longer
/// than stillpoint_map_add(); not async-signal-safe.
///
/// -ENOENT if it is not in the map (any more); -EINVAL for null; -EPERM outside of a section, if
/// misuse is reported.
///
/// # Safety
///
/// The map is NULL or alive; inside the section in which the node was found, or it is kept alive by
/// other means. It has been in a map.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_map_del(map: *mut Map, old: *mut MapNode) -> c_int {
    // SAFETY: the caller's promise.
    done(|| unsafe { found(to_change(map)?.pinned().remove(node(old)?)) })
}
