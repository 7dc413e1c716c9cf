//! Hash maps of nodes that programs embed in their objects: `<stillpoint/map.h>`.

mod change;
mod look;

use crate::{
    domain::Domain,
    ffi::{Errno, check, done, misuse, stillpoint_reports_misuse},
    handle::check_output,
};
use std::{
    ffi::{c_int, c_uint, c_void},
    mem::{self, ManuallyDrop},
    ptr::{self, NonNull},
};
use stillpoint::raw;
use stillpoint_map::internal::{Exhausted, Node, NodeIter, Nodes};

/// A hash map of nodes that the program embeds in its objects: see <stillpoint/map.h>.
#[derive(Debug)]
pub struct Map(
    /// C's pointer points to a [`Nodes`]'s data.
    [u8; 0],
);

/// The node that a program embeds: `struct stillpoint_map_node`.
#[derive(Debug)]
#[repr(transparent)]
pub struct MapNode(Node);

/// A position in a map: `struct stillpoint_map_iter`.
#[derive(Debug)]
#[repr(C)]
pub struct MapIter {
    node: *mut MapNode,
    opaque: [u64; 8],
}

const _: () = assert!(
    size_of::<NodeIter<'_>>() <= size_of::<[u64; 8]>()
        && align_of::<NodeIter<'_>>() <= align_of::<u64>()
        && !mem::needs_drop::<NodeIter<'_>>()
);

/// Returns whether a node has that key: `stillpoint_match_function`.
pub type MatchFunction =
    Option<unsafe extern "C" fn(node: *mut MapNode, key: *const c_void) -> c_int>;

/// Called with a map's nodes at its end: `stillpoint_map_node_function`.
pub type NodeFunction = Option<unsafe extern "C" fn(node: *mut MapNode, data: *mut c_void)>;

/// Borrows the map that C refers to.
///
/// # Safety
///
/// The map is NULL or alive.
#[inline(always)]
unsafe fn borrow(map: *const Map) -> Option<ManuallyDrop<Nodes>> {
    let map = NonNull::new(map.cast_mut().cast())?;
    // SAFETY: the caller's promise.
    Some(ManuallyDrop::new(unsafe { Nodes::from_raw(map) }))
}

/// Returns false if misuse is reported and the calling thread is detected outside a section.
#[inline(always)]
fn is_protected(map: &Nodes) -> bool {
    !stillpoint_reports_misuse() || is_seen_protected(map)
}

/// Any reader counts, because an owned guard's section belongs to no thread.
#[cold]
fn is_seen_protected(map: &Nodes) -> bool {
    let domain = map.domain();
    check(
        raw::is_reading(domain) || raw::has_readers(domain),
        libc::EPERM,
        "a map is used outside of read-side critical sections of its domain",
    )
    .is_ok()
}

/// Borrows the map for a change.
///
/// # Safety
///
/// The map is NULL or alive.
unsafe fn to_change(map: *const Map) -> Result<ManuallyDrop<Nodes>, Errno> {
    // SAFETY: the caller's promise.
    let map = unsafe { borrow(map) }.ok_or_else(|| misuse(libc::EINVAL, "a null map"))?;
    is_protected(&map).then_some(map).ok_or(Errno(libc::EPERM))
}

fn given<T>(function: Option<T>) -> Result<T, Errno> {
    function.ok_or_else(|| misuse(libc::EINVAL, "a map's function that is null"))
}

fn node(node: *mut MapNode) -> Result<NonNull<Node>, Errno> {
    NonNull::new(node.cast())
        .filter(|node| Node::fits(*node))
        .ok_or_else(|| {
            misuse(
                libc::EINVAL,
                "a map's node that is null, or not at a multiple of 8",
            )
        })
}

impl From<Exhausted> for Errno {
    fn from(_: Exhausted) -> Self {
        Self(libc::ENOMEM)
    }
}

fn pointer(node: Option<NonNull<Node>>) -> *mut MapNode {
    node.map_or(ptr::null_mut(), |node| node.as_ptr().cast())
}

/// Wraps the program's function.
///
/// # Safety
///
/// It may be called with nodes of the map and the key.
#[inline(always)]
unsafe fn is_match(
    function: unsafe extern "C" fn(*mut MapNode, *const c_void) -> c_int,
    key: *const c_void,
) -> impl Fn(NonNull<Node>) -> bool {
    // SAFETY: the caller's promise.
    move |node| unsafe { function(node.as_ptr().cast(), key) != 0 }
}

/// Creates a map with room for `capacity` nodes: cds_lfht_new(). Its readers are in sections of the
/// domain (NULL is the global one). The table grows and shrinks by itself; with
/// STILLPOINT_MAP_KEEP_CAPACITY in `flags`, it does not shrink by itself below `capacity`. Does not
/// block; not async-signal-safe. A domain that is destroyed before its maps ends with the last of
/// them.
///
/// -EINVAL for null or unknown flags; -ENOMEM.
///
/// # Safety
///
/// The domain is NULL or alive; the handle can be written to `map`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_map_new(
    domain: *mut Domain,
    capacity: usize,
    flags: c_uint,
    map: *mut *mut Map,
) -> c_int {
    const KEEP_CAPACITY: c_uint = 1;
    done(|| {
        check_output(map)?;
        let known = flags & !KEEP_CAPACITY == 0;
        check(
            known,
            libc::EINVAL,
            "stillpoint_map_new() with unknown flags",
        )?;
        // SAFETY: the caller's promise.
        let domain = unsafe { domain.as_ref() }.map(|domain| &domain.0);
        let made = Nodes::new(domain, capacity, flags & KEEP_CAPACITY != 0)?;
        // SAFETY: the caller's promise.
        unsafe { map.write(made.into_raw().cast()) };
        Ok(())
    })
}

/// Destroys a map, and passes each node left in it to the function, which may free it at once:
/// cds_lfht_destroy(). Waits for a millisecond or two if the service thread is moving the table;
/// not async-signal-safe. No other thread may use the map: if readers find it by a pointer, clear
/// that and wait for a grace period first. NULL does nothing.
///
/// -ENOTEMPTY (liburcu's -EPERM) if the function is NULL and the map has nodes; the map is then
/// unchanged.
///
/// # Safety
///
/// The map is NULL, or alive, not used by other threads, and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_map_destroy(
    map: *mut Map,
    function: NodeFunction,
    data: *mut c_void,
) -> c_int {
    done(|| {
        // SAFETY: the caller's promise.
        let Some(nodes) = (unsafe { borrow(map) }) else {
            return Ok(());
        };
        match function {
            Some(function) => {
                // SAFETY: the caller's promise.
                let give = |node: NonNull<Node>| unsafe { function(node.as_ptr().cast(), data) };
                ManuallyDrop::into_inner(nodes).end(give);
            }
            None if nodes.len() != 0 => return Err(libc::ENOTEMPTY.into()),
            None => drop(ManuallyDrop::into_inner(nodes)),
        }
        Ok(())
    })
}

/// Returns the number of nodes, exact while no thread changes the map: cds_lfht_count_nodes(), but
/// without a walk, and also outside of sections. Async-signal-safe. 0 for NULL.
///
/// # Safety
///
/// The map is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_map_count(map: *const Map) -> usize {
    // SAFETY: the caller's promise.
    unsafe { borrow(map) }.map_or(0, |map| map.len())
}

/// Returns how many nodes the table has room for before it grows. Async-signal-safe. 0 for NULL.
///
/// # Safety
///
/// The map is NULL or alive; inside a section of its domain.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_map_capacity(map: *const Map) -> usize {
    // SAFETY: the caller's promise.
    unsafe { borrow(map).map_or(0, |map| map.pinned().capacity()) }
}

/// Makes room for `nodes` more nodes, and keeps the table from shrinking below that:
/// cds_lfht_resize() to a larger size. Does not wait: the table moves as when it grows, a few
/// buckets with each change, and more on the domain's service thread. Not async-signal-safe.
/// -EINVAL for null; -ENOMEM, also if no table can be so large; -EPERM outside of a section, if
/// misuse is reported.
///
/// # Safety
///
/// The map is NULL or alive; inside a section of its domain.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_map_reserve(map: *mut Map, nodes: usize) -> c_int {
    // SAFETY: the caller's promise.
    done(|| unsafe { Ok(to_change(map)?.pinned().reserve(nodes)?) })
}

/// Allows the table to shrink to the size of its contents, below any reserved or initial capacity:
/// cds_lfht_resize() to a smaller size. Does not wait. A map that loses nodes shrinks without this.
/// Not async-signal-safe. -EINVAL for null; -EPERM outside of a section, if misuse is reported.
///
/// # Safety
///
/// The map is NULL or alive; inside a section of its domain.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_map_shrink(map: *mut Map) -> c_int {
    done(|| {
        // SAFETY: the caller's promise.
        unsafe { to_change(map)?.pinned().shrink_to_fit() };
        Ok(())
    })
}
