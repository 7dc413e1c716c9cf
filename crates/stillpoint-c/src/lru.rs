//! LRU lists.

use crate::{
    ffi::{Errno, catch_panic_or, check, done, misuse},
    handle::{deref, free_handle, get, new_handle},
    tenant::{Hierarchy, Tenant},
};
use std::{
    ffi::{c_int, c_void},
    ptr,
    sync::Arc,
};
use stillpoint_lru::{Isolate, ListLru, Node};

/// Called when an object's entry is freed: `stillpoint_release_function`.
pub type ReleaseFunction = Option<unsafe extern "C" fn(object: *mut c_void)>;

/// The object that an entry stands for.
pub(crate) struct Object {
    object: *mut c_void,
    release: ReleaseFunction,
}

// SAFETY: the caller of stillpoint_entry_new() promises that its object may be released on any
// thread; the library does nothing else with it.
unsafe impl Send for Object {}
// SAFETY: as for Send.
unsafe impl Sync for Object {}

impl Drop for Object {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: the promise of stillpoint_entry_new()'s caller.
            unsafe { release(self.object) };
        }
    }
}

/// Stands for an object on LRU lists, with a reference count: `struct stillpoint_entry`.
#[expect(missing_debug_implementations, reason = "C has pointers to it alone")]
#[repr(transparent)]
pub struct LruEntry(Entry);

type Entry = stillpoint_lru::Entry<Object>;

/// LRU lists, one for each tenant and node.
#[derive(Debug)]
pub struct Lru {
    pub(crate) lists: ListLru<Object>,
    hierarchy: Option<stillpoint_lru::Hierarchy>,
}

impl Lru {
    /// Returns the tenant that C names; NULL is the root. `EXDEV` for a tenant of another
    /// hierarchy.
    fn tenant<'a>(
        &self,
        tenant: Option<&'a Tenant>,
    ) -> Result<Option<&'a stillpoint_lru::Tenant>, Errno> {
        let own = self.hierarchy.as_ref();
        check(
            own.zip(tenant)
                .is_none_or(|(own, tenant)| *own == tenant.hierarchy),
            libc::EXDEV,
            "a tenant of another hierarchy than that of the LRU lists",
        )?;
        Ok(tenant.map(|tenant| &tenant.tenant))
    }
}

/// Creates lists for the tenants of a hierarchy or, for NULL, one list per node for all items.
/// -ENOMEM.
///
/// # Safety
///
/// The hierarchy is NULL or valid; the handle can be written to `lru`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_lru_new(
    hierarchy: *mut Hierarchy,
    lru: *mut *mut Lru,
) -> c_int {
    let make = || {
        // SAFETY: the caller's promise.
        let hierarchy = unsafe { hierarchy.as_ref() }.map(|hierarchy| hierarchy.0.clone());
        let lists = ListLru::try_new(hierarchy.as_ref()).ok_or(libc::ENOMEM)?;
        Ok(Lru { lists, hierarchy })
    };
    // SAFETY: the caller's promise.
    unsafe { new_handle(lru, make) }
}

/// Destroys the lists and releases their references to entries. NULL does nothing.
///
/// # Safety
///
/// The handle is not used again, not even by a shrinker.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_lru_free(lru: *mut Lru) {
    // SAFETY: the caller's promise.
    unsafe { free_handle(lru) };
}

/// Creates an entry for an object, with one reference, the caller's. Each list has a reference to
/// its entries, and a walk takes one briefly. The thread that releases the last one calls `release`
/// with the object; `release` may be NULL.
///
/// # Safety
///
/// `release` may be called with the object on any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_entry_new(
    object: *mut c_void,
    release: ReleaseFunction,
) -> *mut LruEntry {
    catch_panic_or(ptr::null_mut(), || {
        let entry = Entry::new(Object { object, release });
        Arc::into_raw(Arc::new(entry)).cast_mut().cast()
    })
}

/// Takes another reference to an entry. The caller already has one.
///
/// # Safety
///
/// The entry is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_entry_get(entry: *mut LruEntry) -> *mut LruEntry {
    if !entry.is_null() {
        // SAFETY: it came out of an `Arc`, by the caller's promise.
        unsafe { Arc::increment_strong_count(entry.cast::<Entry>()) };
    }
    entry
}

/// Releases a reference. NULL does nothing.
///
/// # Safety
///
/// The reference is the caller's, and not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_entry_put(entry: *mut LruEntry) {
    if !entry.is_null() {
        // SAFETY: it came out of an `Arc`, by the caller's promise.
        catch_panic_or((), || unsafe {
            Arc::decrement_strong_count(entry.cast::<Entry>())
        });
    }
}

/// Returns the object of an entry; NULL for NULL.
///
/// # Safety
///
/// The entry is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_entry_object(entry: *const LruEntry) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { get(entry, ptr::null_mut(), |entry| entry.0.object) }
}

/// Adds an entry to the tenant's list of this node as the newest; the list takes a reference. NULL
/// stands for the root tenant. list_lru_add(). -EEXIST if it is on a list already; -EXDEV for a
/// tenant of another hierarchy; -EINVAL.
///
/// # Safety
///
/// The handles are valid; the entry is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_lru_add(
    lru: *mut Lru,
    tenant: *mut Tenant,
    entry: *mut LruEntry,
) -> c_int {
    done(|| {
        // SAFETY: the caller's promise.
        let (lru, tenant) = unsafe { (deref(lru)?, tenant.as_ref()) };
        check(
            !entry.is_null(),
            libc::EINVAL,
            "stillpoint_lru_add() of NULL",
        )?;
        let tenant = lru.tenant(tenant)?;
        // SAFETY: the reference of this `Arc` was counted just now.
        let item = unsafe { Arc::from_raw(stillpoint_entry_get(entry).cast::<Entry>()) };
        let added = lru.lists.add(tenant, item);
        added.then_some(()).ok_or(Errno(libc::EEXIST))
    })
}

/// Takes an entry off its list, and releases the list's reference. list_lru_del(). -ENOENT if it is
/// on none of this lru's lists.
///
/// # Safety
///
/// The handle is valid; the entry is alive, and the caller has a reference.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_lru_del(lru: *mut Lru, entry: *mut LruEntry) -> c_int {
    done(|| {
        // SAFETY: the caller's promise.
        let (lru, entry) = unsafe { (deref(lru)?, deref(entry)?) };
        lru.lists.del(&entry.0).map(drop).ok_or(Errno(libc::ENOENT))
    })
}

/// Returns the number of NUMA nodes; a machine without NUMA has one.
#[unsafe(no_mangle)]
pub extern "C" fn stillpoint_nodes() -> usize {
    catch_panic_or(1, || Node::all().count())
}

fn node(number: usize) -> Result<Node, Errno> {
    Node::all()
        .nth(number)
        .ok_or_else(|| misuse(libc::EINVAL, "no such NUMA node (see stillpoint_nodes())"))
}

/// Returns the number of the tenant's entries on the node: list_lru_count_one(). Takes no lock. 0
/// for a tenant or node that does not exist.
///
/// # Safety
///
/// The handles are valid or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_lru_count_one(
    lru: *const Lru,
    tenant: *const Tenant,
    number: usize,
) -> usize {
    let count = || {
        // SAFETY: the caller's promise.
        let (lru, tenant) = unsafe { (deref(lru)?, tenant.as_ref()) };
        Ok::<_, Errno>(lru.lists.count_one(lru.tenant(tenant)?, node(number)?))
    };
    catch_panic_or(0, || count().unwrap_or(0))
}

/// Returns the number of entries: list_lru_count().
///
/// # Safety
///
/// The handle is valid or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_lru_count(lru: *const Lru) -> usize {
    // SAFETY: the caller's promise.
    unsafe { get(lru, 0, |lru| lru.lists.count()) }
}

/// An isolate function's result: what the walk does with the entry. The kernel's `enum lru_status`.
/// Any other number stops the walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub enum LruStatus {
    /// Take it off.
    Removed,
    /// Take it off, and restart with the oldest.
    RemovedRetry,
    /// Make it the newest.
    Rotate,
    /// Leave it where it is.
    Skip,
    /// Leave it, and restart with the oldest.
    Retry,
    /// Leave it, and end the walk.
    Stop,
}

/// The function that a walk calls for each entry: `stillpoint_isolate_function`. It runs without a
/// lock held and may do anything but unwind.
pub type IsolateFunction = Option<
    unsafe extern "C" fn(entry: *mut LruEntry, object: *mut c_void, data: *mut c_void) -> c_int,
>;

fn isolate(status: c_int) -> Isolate {
    match status {
        0 => Isolate::Removed,
        1 => Isolate::RemovedRetry,
        2 => Isolate::Rotate,
        3 => Isolate::Skip,
        4 => Isolate::Retry,
        _ => Isolate::Stop,
    }
}

/// Calls the function for up to `budget` entries of the tenant on the node, oldest first, and does
/// what it returns; returns the number of entries taken off: list_lru_walk_one(). A node of
/// SIZE_MAX means all nodes and all tenants: list_lru_walk(). 0 for a tenant or node that does not
/// exist.
///
/// # Safety
///
/// The handles are valid or NULL; the function may be called with the data.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_lru_walk(
    lru: *mut Lru,
    tenant: *mut Tenant,
    number: usize,
    budget: usize,
    function: IsolateFunction,
    data: *mut c_void,
) -> usize {
    let walk = || {
        // SAFETY: the caller's promise.
        let (lru, tenant) = unsafe { (deref(lru)?, tenant.as_ref()) };
        let function = function
            .ok_or_else(|| misuse(libc::EINVAL, "stillpoint_lru_walk() without a function"))?;
        let ask = |item: &Arc<Entry>| {
            // SAFETY: the caller's promise; the walk has a reference to the entry.
            isolate(unsafe { function(Arc::as_ptr(item).cast_mut().cast(), item.object, data) })
        };
        if number == usize::MAX {
            return Ok(lru.lists.walk(budget, ask));
        }
        let (tenant, node) = (lru.tenant(tenant)?, node(number)?);
        Ok::<_, Errno>(lru.lists.walk_one(tenant, node, budget, ask))
    };
    catch_panic_or(0, || walk().unwrap_or(0))
}

/// The tenant and node of a shrinker's call. Valid until the function returns.
#[derive(Debug)]
#[repr(C)]
pub struct Scope {
    /// The tenant whose memory to free. The function must not release this handle.
    pub tenant: *mut Tenant,
    /// The NUMA node.
    pub node: usize,
}

/// An object that can free memory on request: `struct shrinker`. Registering copies it. Any thread
/// that reclaims calls the functions, several at once, without a lock held.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct ShrinkerOps {
    /// Estimates how many objects could be freed. Should be cheap: stillpoint_lru_count_one().
    pub count: Option<unsafe extern "C" fn(scope: *const Scope, data: *mut c_void) -> usize>,
    /// Looks at up to `objects` objects and frees those that can be freed. Returns how many it freed,
    /// or -1 if it cannot work now.
    pub scan:
        Option<unsafe extern "C" fn(scope: *const Scope, objects: usize, data: *mut c_void) -> i64>,
    /// Passed to the functions.
    pub data: *mut c_void,
    /// The cost of making an object again; 0 stands for the default, 2.
    pub seeks: u32,
    /// How many objects a scan should look at; 0 stands for the default, 128.
    pub batch: usize,
    /// Whether the memory belongs to no tenant. Only passes over the whole hierarchy then call the
    /// shrinker, with the root as tenant.
    pub not_per_tenant: bool,
}

/// A shrinker whose functions are the program's.
struct CallbackShrinker {
    ops: ShrinkerOps,
    hierarchy: stillpoint_lru::Hierarchy,
}

// SAFETY: the caller of stillpoint_shrinker_register() promises that the functions may be called
// with the data on any thread.
unsafe impl Send for CallbackShrinker {}
// SAFETY: as for Send.
unsafe impl Sync for CallbackShrinker {}

impl CallbackShrinker {
    fn with_scope<R>(
        &self,
        scope: &stillpoint_lru::Scope<'_>,
        call: impl FnOnce(*const Scope) -> R,
    ) -> R {
        let mut tenant = Tenant {
            tenant: scope.tenant.clone(),
            hierarchy: self.hierarchy.clone(),
        };
        call(&Scope {
            tenant: &raw mut tenant,
            node: scope.node.index(),
        })
    }
}

impl stillpoint_lru::Shrink for CallbackShrinker {
    fn count(&self, scope: &stillpoint_lru::Scope<'_>) -> usize {
        let Some(count) = self.ops.count else {
            return 0;
        };
        // SAFETY: the promise of stillpoint_shrinker_register()'s caller.
        self.with_scope(scope, |scope| unsafe { count(scope, self.ops.data) })
    }

    fn scan(&self, scope: &stillpoint_lru::Scope<'_>, objects: usize) -> Option<usize> {
        let scan = self.ops.scan?;
        // SAFETY: the promise of stillpoint_shrinker_register()'s caller.
        let freed = self.with_scope(scope, |scope| unsafe {
            scan(scope, objects, self.ops.data)
        });
        usize::try_from(freed).ok()
    }

    fn seeks(&self) -> u32 {
        or(self.ops.seeks, 2)
    }

    fn batch(&self) -> usize {
        or(self.ops.batch, 128)
    }

    fn per_tenant(&self) -> bool {
        !self.ops.not_per_tenant
    }
}

/// Returns `default` for a field that is 0.
fn or<T: Default + PartialEq>(field: T, default: T) -> T {
    if field == T::default() {
        default
    } else {
        field
    }
}

/// A registered shrinker.
#[derive(Debug)]
pub struct Shrinker {
    registration: stillpoint_lru::Registration,
    hierarchy: stillpoint_lru::Hierarchy,
}

/// Registers a shrinker: shrinker_register(). -ENOSPC if there are 1,024 already; -EINVAL if a
/// function is missing.
///
/// # Safety
///
/// The hierarchy is valid; the functions may be called with the data, on any thread, until
/// stillpoint_shrinker_free() has returned; the handle can be written to `shrinker`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_shrinker_register(
    hierarchy: *mut Hierarchy,
    ops: *const ShrinkerOps,
    shrinker: *mut *mut Shrinker,
) -> c_int {
    let register = || {
        // SAFETY: the caller's promise.
        let (hierarchy, ops) = unsafe { (deref(hierarchy)?.0.clone(), *deref(ops)?) };
        check(
            ops.count.is_some() && ops.scan.is_some(),
            libc::EINVAL,
            "a shrinker without both functions",
        )?;
        let made = Arc::new(CallbackShrinker {
            ops,
            hierarchy: hierarchy.clone(),
        });
        let registration = hierarchy.register(made).map_err(|_| libc::ENOSPC)?;
        Ok(Shrinker {
            registration,
            hierarchy,
        })
    };
    // SAFETY: the caller's promise.
    unsafe { new_handle(shrinker, register) }
}

/// Declares that all objects that the shrinker can free are on this lru's lists, so it is not
/// called for empty lists. -EXDEV if the lru is not for the tenants of its hierarchy.
///
/// # Safety
///
/// The handles are valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_shrinker_covers(
    shrinker: *mut Shrinker,
    lru: *mut Lru,
) -> c_int {
    done(|| {
        // SAFETY: the caller's promise.
        let (shrinker, lru) = unsafe { (deref(shrinker)?, deref(lru)?) };
        check(
            lru.hierarchy.as_ref() == Some(&shrinker.hierarchy),
            libc::EXDEV,
            "a shrinker that is to cover the lists of another hierarchy",
        )?;
        shrinker.registration.covers(&lru.lists);
        Ok(())
    })
}

/// Unregisters a shrinker: waits for calls under way, unless it is called inside one. NULL does
/// nothing.
///
/// # Safety
///
/// The handle is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_shrinker_free(shrinker: *mut Shrinker) {
    // SAFETY: the caller's promise.
    unsafe { free_handle(shrinker) };
}
