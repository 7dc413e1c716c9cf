//! Hash maps of nodes that programs embed in their objects: `<stillpoint/map.h>`.

use crate::{
    domain::Domain,
    ffi::{catch_panic, catch_panic_with_memory, misuse, stillpoint_reports_misuse},
    reserve,
};
use std::{
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    mem::{self, ManuallyDrop},
    ptr::{self, NonNull},
};
use stillpoint::raw;
use stillpoint_map::internal::{Exhausted, Node, NodeIter, Nodes};

/// A hash map of nodes that the program embeds in its objects: see <stillpoint/map.h>.
#[derive(Debug)]
pub struct Map(
    /// What C points to is [`Nodes`]'s.
    [u8; 0],
);

/// What a program embeds: `struct stillpoint_map_node`.
#[derive(Debug)]
#[repr(transparent)]
pub struct MapNode(Node);

/// A place in a map: `struct stillpoint_map_iter`.
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

/// Returns whether a node is the one with that key: `stillpoint_match_function`.
pub type MatchFunction =
    Option<unsafe extern "C" fn(node: *mut MapNode, key: *const c_void) -> c_int>;

/// What a map's nodes are handed to at its end: `stillpoint_map_node_function`.
pub type NodeFunction = Option<unsafe extern "C" fn(node: *mut MapNode, data: *mut c_void)>;

/// The map that C refers to, which stays C's.
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

/// Returns whether the calling thread may use the map, as far as can be seen, where misuse is
/// reported.
#[inline(always)]
fn is_protected(map: &Nodes) -> bool {
    !stillpoint_reports_misuse() || is_seen_protected(map)
}

/// An owned guard's section is no thread's.
#[cold]
fn is_seen_protected(map: &Nodes) -> bool {
    let domain = map.domain();
    let protected = raw::is_reading(domain) || raw::has_readers(domain);
    if !protected {
        misuse(
            libc::EPERM,
            "a map is used outside of read-side critical sections of its domain",
        );
    }
    protected
}

/// The map, for a change of it.
///
/// # Safety
///
/// The map is NULL or alive.
unsafe fn to_change(map: *const Map) -> Result<ManuallyDrop<Nodes>, c_int> {
    // SAFETY: the caller's promise.
    let map = unsafe { borrow(map) }.ok_or_else(|| misuse(libc::EINVAL, "a null map"))?;
    if is_protected(&map) {
        Ok(map)
    } else {
        Err(libc::EPERM)
    }
}

fn given<T>(function: Option<T>) -> Result<T, c_int> {
    function.ok_or_else(|| misuse(libc::EINVAL, "a map's function that is null"))
}

fn node(node: *mut MapNode) -> Result<NonNull<Node>, c_int> {
    NonNull::new(node.cast())
        .filter(|node| Node::fits(*node))
        .ok_or_else(|| {
            misuse(
                libc::EINVAL,
                "a map's node that is null, or not at a multiple of 8",
            )
        })
}

/// A node to be put into the map.
///
/// # Safety
///
/// As for [`stillpoint_map_add`].
unsafe fn new_node(map: &Nodes, hash: u64, new: *mut MapNode) -> Result<NonNull<Node>, c_int> {
    let new = node(new)?;
    // SAFETY: the caller's promise.
    if stillpoint_reports_misuse() && unsafe { map.find(hash, |other| other == new) }.is_some() {
        return Err(is_there());
    }
    Ok(new)
}

fn is_there() -> c_int {
    misuse(
        libc::EBUSY,
        "a node is put into a map that is in it already",
    )
}

fn no_memory(_: Exhausted) -> c_int {
    libc::ENOMEM
}

fn pointer(node: Option<NonNull<Node>>) -> *mut MapNode {
    node.map_or(ptr::null_mut(), |node| node.as_ptr().cast())
}

/// Asks the program's function.
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

/// Makes a map with room for so many nodes: cds_lfht_new(). Its readers are in sections of the domain
/// (NULL is the global one). The table grows and shrinks by itself, with STILLPOINT_MAP_KEEP_CAPACITY
/// in the flags not below what it is made for. Does not block; not async-signal-safe. A domain that is
/// destroyed before its maps ends with the last of these.
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
    catch_panic(|| {
        if map.is_null() || flags & !KEEP_CAPACITY != 0 {
            return Err(misuse(
                libc::EINVAL,
                "stillpoint_map_new() with a null output pointer or unknown flags",
            ));
        }
        reserve::check_system()?;
        // SAFETY: the caller's promise.
        let domain = unsafe { domain.as_ref() }.map(|domain| &domain.0);
        let made = Nodes::new(domain, capacity, flags & KEEP_CAPACITY != 0).map_err(no_memory)?;
        // SAFETY: the caller's promise.
        unsafe { map.write(made.into_raw().cast()) };
        Ok(0)
    })
}

/// Gives a map a name for stillpoint_publish_statistics(), which shows its first 80 bytes, how many nodes
/// it has, and its table's memory, until it is destroyed. The name is copied; bytes that are not UTF-8 are
/// replaced. Names need not differ; a map that has one keeps it. Additions and removals take some
/// nanoseconds more where there is a page; look-ups do not. To be called before another thread uses the
/// map; may wait for a millisecond or two if it has had nodes; not async-signal-safe.
///
/// -EINVAL for null; -ENOMEM.
///
/// # Safety
///
/// The map is NULL, or alive and used by no other thread; the name is NULL or ends in a null byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_map_set_name(map: *mut Map, name: *const c_char) -> c_int {
    catch_panic(|| {
        // SAFETY: the caller's promise.
        let map = unsafe { borrow(map) };
        let (Some(map), false) = (map, name.is_null()) else {
            return Err(misuse(
                libc::EINVAL,
                "stillpoint_map_set_name() with a null map or name",
            ));
        };
        // SAFETY: the caller's promise.
        let name = unsafe { CStr::from_ptr(name) };
        let name = name.to_string_lossy().into_owned().into_boxed_str();
        // SAFETY: the same.
        unsafe { map.show(name) }.map_err(no_memory)?;
        Ok(0)
    })
}

/// Ends a map, and hands its nodes, if there are some, to the function, which may free them at once:
/// cds_lfht_destroy(). Waits for a millisecond or two if the service thread is moving the table; not
/// async-signal-safe. No thread uses the map any more: where readers have found it by a pointer, wait
/// for a grace period between taking that away and this. NULL does nothing.
///
/// -ENOTEMPTY for a map with nodes if the function is NULL (liburcu's -EPERM); the map is then as it
/// was.
///
/// # Safety
///
/// The map is NULL, or alive and used by no other thread, nor afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_map_destroy(
    map: *mut Map,
    function: NodeFunction,
    data: *mut c_void,
) -> c_int {
    catch_panic(|| {
        // SAFETY: the caller's promise.
        let Some(nodes) = (unsafe { borrow(map) }) else {
            return Ok(0);
        };
        match function {
            Some(function) => {
                // SAFETY: the caller's promise.
                let give = |node: NonNull<Node>| unsafe { function(node.as_ptr().cast(), data) };
                ManuallyDrop::into_inner(nodes).end(give);
            }
            None if nodes.len() != 0 => return Err(libc::ENOTEMPTY),
            None => drop(ManuallyDrop::into_inner(nodes)),
        }
        Ok(0)
    })
}

/// Returns a node with that hash for which the function returns other than 0; NULL if there is none:
/// cds_lfht_lookup(). The node stays valid until the caller's section ends. Takes no lock, writes
/// nothing, never blocks; async-signal-safe if the function is.
///
/// Outside of a section undefined; if misuse is reported, then NULL, where it can be seen (not while
/// another thread is in a section).
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
                pointer(map.find(hash, is_match(function, key)))
            }
            _ => ptr::null_mut(),
        }
    }
}

/// As stillpoint_map_lookup(), for maps with duplicates: the others come by
/// stillpoint_map_next_duplicate() with the same function and key. The result is in `iter->node`, too.
///
/// # Safety
///
/// As there; the iterator can be written to, and is used in this section alone.
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
        start(map, iter, |map| map.with_hash(hash));
        stillpoint_map_next_duplicate(iter, function, key)
    }
}

/// Returns the next node with that key; NULL behind the last: cds_lfht_next_duplicate(). One that is in
/// the map throughout is returned once; one that is put in or taken out meanwhile may be or not. Costs
/// and signals as stillpoint_map_lookup(). After stillpoint_map_first(): NULL.
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
            NodeIter::WithHash(nodes) => nodes.map(NonNull::cast).find(|node| is_match(*node)),
            NodeIter::All(_) => None,
        })
    }
}

/// Begins a walk over all nodes, and returns the first one; NULL if there is none: cds_lfht_first(). In
/// no order that means anything. One that is in the map throughout is returned once, also while the
/// table grows and shrinks; one that is put in, taken out or replaced meanwhile may be or not. Writers
/// go on, and the caller may take out what it has been given. Takes no lock; async-signal-safe. The
/// result is in `iter->node`, too.
///
/// # Safety
///
/// The map is NULL or alive; inside a section of its domain; the iterator can be written to, and is
/// used in this section alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_map_first(map: *const Map, iter: *mut MapIter) -> *mut MapNode {
    // SAFETY: the caller's promise.
    unsafe {
        start(map, iter, |map| map.iter());
        stillpoint_map_next(iter)
    }
}

/// Returns the next node of a walk; NULL behind the last: cds_lfht_next(). After
/// stillpoint_map_first_duplicate(): the next one with that hash, whatever its key is.
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

/// Puts a node in, beside those with the same key that are there: cds_lfht_add(). The node needs no
/// initialisation, lies at a multiple of 8, and is the map's until a grace period after it was taken
/// out or replaced. Allocates if its bucket is full; does not block, but for a lock of the bucket, which
/// other threads hold for nanoseconds; not async-signal-safe. Each of many nodes with one hash costs
/// more to find and to put in than the one before it.
///
/// -EINVAL for null; -ENOMEM; -EBUSY for a node that is in this map with that hash, and -EPERM outside
/// of a section, if misuse is reported. The node is then the caller's still.
///
/// # Safety
///
/// The map is NULL or alive; inside a section of its domain. The node is in no map, and no reader can
/// find it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_map_add(map: *mut Map, hash: u64, new: *mut MapNode) -> c_int {
    catch_panic_with_memory(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let map = to_change(map)?;
            let new = new_node(&map, hash, new)?;
            map.add(hash, new).map(|()| 0).map_err(no_memory)
        }
    })
}

/// Puts a node in, unless one with its key is there: cds_lfht_add_unique(). Otherwise as
/// stillpoint_map_add(). The function is called without a lock held, again if another thread changes
/// the bucket meanwhile.
///
/// -EEXIST if there is one, which is written to `existing`, unless that is NULL, and valid until the
/// section ends; -EBUSY if that is the node itself.
///
/// # Safety
///
/// As there; the function may be called with nodes and the key; `existing` is NULL or can be written
/// to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_map_add_unique(
    map: *mut Map,
    hash: u64,
    function: MatchFunction,
    key: *const c_void,
    new: *mut MapNode,
    existing: *mut *mut MapNode,
) -> c_int {
    catch_panic_with_memory(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let map = to_change(map)?;
            let function = given(function)?;
            let new = new_node(&map, hash, new)?;
            let found = map.add_unique(hash, new, is_match(function, key));
            let Some(found) = found.map_err(no_memory)? else {
                return Ok(0);
            };
            if found == new {
                return Err(is_there());
            }
            if let Some(existing) = existing.as_mut() {
                *existing = found.as_ptr().cast();
            }
            Err(libc::EEXIST)
        }
    })
}

/// Puts a node in, in the place of one with its key, if there is one: cds_lfht_add_replace(). A reader
/// finds one of the two. Otherwise as stillpoint_map_add_unique(). The one that was replaced, or NULL, is
/// written to `old`; it may be freed after a grace period, by stillpoint_call() or stillpoint_kvfree().
///
/// -EINVAL, -ENOMEM, -EBUSY and -EPERM as there.
///
/// # Safety
///
/// As there; `old` can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_map_add_replace(
    map: *mut Map,
    hash: u64,
    function: MatchFunction,
    key: *const c_void,
    new: *mut MapNode,
    old: *mut *mut MapNode,
) -> c_int {
    catch_panic_with_memory(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let map = to_change(map)?;
            let (function, old) = (given(function)?, given(old.as_mut())?);
            let new = new_node(&map, hash, new)?;
            let replaced = map.add_or_replace(hash, new, is_match(function, key));
            match replaced.map_err(no_memory)? {
                Some(found) if found == new => Err(is_there()),
                found => {
                    *old = pointer(found);
                    Ok(0)
                }
            }
        }
    })
}

/// Puts a node in the place of one that the caller has found in its section, and that has the same hash
/// and key: cds_lfht_replace(). A reader finds one of the two. Allocates nothing; blocks no longer than
/// stillpoint_map_add(); not async-signal-safe. The old one may be freed after a grace period.
///
/// -ENOENT if the old one is not in the map, or no longer; -EINVAL for null; -EPERM outside of a section,
/// if misuse is reported.
///
/// # Safety
///
/// The map is NULL or alive; inside the section in which `old` was found, or `old` is kept by other
/// means. The new node is in no map, and no reader can find it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_map_replace(
    map: *mut Map,
    old: *mut MapNode,
    new: *mut MapNode,
) -> c_int {
    catch_panic(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let map = to_change(map)?;
            let (old, new) = (node(old)?, node(new)?);
            if old == new {
                return Err(is_there());
            }
            if map.replace(old, new) {
                Ok(0)
            } else {
                Err(libc::ENOENT)
            }
        }
    })
}

/// Takes a node out: cds_lfht_del(). Of several threads that do that, one gets 0: the node is its own,
/// and may be freed, or put in again, after a grace period. Never fails for lack of memory; blocks no
/// longer than stillpoint_map_add(); not async-signal-safe.
///
/// -ENOENT if it is not in the map, or no longer; -EINVAL for null; -EPERM outside of a section, if misuse
/// is reported.
///
/// # Safety
///
/// The map is NULL or alive; inside the section in which the node was found, or it is kept by other means.
/// It has been in a map.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_map_del(map: *mut Map, old: *mut MapNode) -> c_int {
    catch_panic(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let map = to_change(map)?;
            if map.remove(node(old)?) {
                Ok(0)
            } else {
                Err(libc::ENOENT)
            }
        }
    })
}

/// Returns whether a node that has been in a map is in this one: !cds_lfht_is_node_deleted(). A look-up:
/// takes no lock, never blocks; async-signal-safe. False for null.
///
/// # Safety
///
/// As for stillpoint_map_del().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_map_has(map: *const Map, of: *mut MapNode) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        match (borrow(map), NonNull::new(of)) {
            (Some(map), Some(of)) if is_protected(&map) => map.has(of.cast()),
            _ => false,
        }
    }
}

/// Returns how many nodes there are, exactly while no thread changes the map: cds_lfht_count_nodes(), but
/// without looking at the nodes, and outside of sections, too. Async-signal-safe. 0 for NULL.
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
    unsafe { borrow(map).map_or(0, |map| map.capacity()) }
}

/// Makes room for so many more nodes, below which the table does not shrink then: cds_lfht_resize() to
/// more. Does not wait for that: the table moves as it does when it grows, a few buckets with each change,
/// and more on the domain's service thread. Not async-signal-safe. -EINVAL for null; -ENOMEM, also for more
/// than any table has; -EPERM outside of a section, if misuse is reported.
///
/// # Safety
///
/// The map is NULL or alive; inside a section of its domain.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_map_reserve(map: *mut Map, nodes: usize) -> c_int {
    catch_panic_with_memory(|| {
        // SAFETY: the caller's promise.
        let reserved = unsafe { to_change(map)?.reserve(nodes) };
        reserved.map(|()| 0).map_err(no_memory)
    })
}

/// Lets the table shrink to what its nodes need, below what the map was made for or has reserved:
/// cds_lfht_resize() to less. Does not wait for that. A map with fewer nodes than it had shrinks without
/// this. Not async-signal-safe. -EINVAL for null; -EPERM outside of a section, if misuse is reported.
///
/// # Safety
///
/// The map is NULL or alive; inside a section of its domain.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_map_shrink(map: *mut Map) -> c_int {
    catch_panic(|| {
        // SAFETY: the caller's promise.
        unsafe { to_change(map)?.shrink_to_fit() };
        Ok(0)
    })
}
