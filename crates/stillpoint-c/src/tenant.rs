//! Tenants with limits, and charges to them.

use crate::{
    ffi::{Errno, catch_panic_or, done, misuse},
    handle::{check_output, deref, free_handle, get, new_handle, write_if_wanted, write_sized},
};
use std::{ffi::c_int, ptr};
use stillpoint_lru::{ChargeError, CreateError, DeleteError, Reclaimed, TenantStatistics};

/// A tree of tenants.
#[derive(Debug)]
pub struct Hierarchy(pub(crate) stillpoint_lru::Hierarchy);

/// A handle of a tenant.
#[derive(Debug)]
pub struct Tenant {
    pub(crate) tenant: stillpoint_lru::Tenant,
    pub(crate) hierarchy: stillpoint_lru::Hierarchy,
}

/// Bytes that are charged: `struct stillpoint_charge`. It may be moved, as in Rust.
#[derive(Debug)]
#[repr(C)]
pub struct Charge(stillpoint_lru::Charge);

const _: () = assert!(
    size_of::<Charge>() == 2 * size_of::<u64>() && align_of::<Charge>() == align_of::<u64>()
);

impl From<ChargeError> for Errno {
    fn from(error: ChargeError) -> Self {
        match error {
            ChargeError::InSection => misuse(
                libc::EDEADLK,
                "a charge that meets a limit inside a read-side critical section or a callback",
            ),
            ChargeError::InShrinker => Self(libc::EAGAIN),
            ChargeError::TooLarge => Self(libc::E2BIG),
            ChargeError::NoTenant => misuse(
                libc::EINVAL,
                "a charge of no bytes cannot grow: make a new one",
            ),
            _ => Self(libc::ENOMEM),
        }
    }
}

/// Creates a hierarchy with only a root tenant. -ENOMEM.
///
/// # Safety
///
/// The handle can be written to `hierarchy`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_hierarchy_new(hierarchy: *mut *mut Hierarchy) -> c_int {
    let make = || {
        let made = stillpoint_lru::Hierarchy::try_new();
        made.map(Hierarchy).ok_or(Errno(libc::ENOMEM))
    };
    // SAFETY: the caller's promise.
    unsafe { new_handle(hierarchy, make) }
}

/// Releases a handle. The hierarchy lives as long as any object created for it. NULL does nothing.
///
/// # Safety
///
/// The handle is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_hierarchy_free(hierarchy: *mut Hierarchy) {
    // SAFETY: the caller's promise.
    unsafe { free_handle(hierarchy) };
}

/// Frees memory through the shrinkers until no more than `target` bytes are charged; UINT64_MAX
/// stands for a quarter less than now. If nothing is charged, it frees about 71 % of the objects of
/// each shrinker of the default cost (`seeks` 2), whatever the target. `relieved` may be NULL. Does
/// not wait for grace periods.
///
/// # Safety
///
/// The handle is valid; `relieved` is NULL or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_hierarchy_relieve(
    hierarchy: *mut Hierarchy,
    target: u64,
    relieved: *mut Reclaimed,
) -> c_int {
    done(|| {
        // SAFETY: the caller's promise.
        let hierarchy = &unsafe { deref(hierarchy) }?.0;
        let reclaimed = match target {
            u64::MAX => hierarchy.reclaim(),
            _ => hierarchy.reclaim_to(target),
        };
        // SAFETY: the caller's promise.
        unsafe { write_if_wanted(relieved, reclaimed) };
        Ok(())
    })
}

/// Creates a handle of the hierarchy's root. -ENOMEM.
///
/// # Safety
///
/// The handle is valid; the new one can be written to `tenant`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_hierarchy_root(
    hierarchy: *mut Hierarchy,
    tenant: *mut *mut Tenant,
) -> c_int {
    let root = || {
        // SAFETY: the caller's promise.
        let hierarchy = unsafe { deref(hierarchy) }?.0.clone();
        let tenant = hierarchy.root().clone();
        Ok(Tenant { tenant, hierarchy })
    };
    // SAFETY: the caller's promise.
    unsafe { new_handle(tenant, root) }
}

/// Creates a tenant below another one, without limits. -ENOENT if the parent has been deleted,
/// -ENOMEM.
///
/// # Safety
///
/// The handle is valid; the new one can be written to `tenant`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_tenant_create(
    parent: *mut Tenant,
    tenant: *mut *mut Tenant,
) -> c_int {
    let create = || {
        // SAFETY: the caller's promise.
        let parent = unsafe { deref(parent) }?;
        let tenant = parent.tenant.create().map_err(|error| match error {
            CreateError::ParentDeleted => libc::ENOENT,
            _ => libc::ENOMEM,
        })?;
        let hierarchy = parent.hierarchy.clone();
        Ok(Tenant { tenant, hierarchy })
    };
    // SAFETY: the caller's promise.
    unsafe { new_handle(tenant, create) }
}

/// Deletes the tenant: its items on LRU lists go to its nearest ancestor, and so do later charges.
/// Handles stay valid, and must be released. -EBUSY if it has children, -EINVAL for a root.
///
/// # Safety
///
/// The handle is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_tenant_delete(tenant: *mut Tenant) -> c_int {
    done(|| {
        // SAFETY: the caller's promise.
        let deleted = unsafe { deref(tenant) }?.tenant.delete();
        deleted.map_err(|error| match error {
            DeleteError::Root => Errno(libc::EINVAL),
            _ => Errno(libc::EBUSY),
        })
    })
}

/// Releases a handle; releasing the last one deletes the tenant. NULL does nothing.
///
/// # Safety
///
/// The handle is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_tenant_free(tenant: *mut Tenant) {
    // SAFETY: the caller's promise.
    unsafe { free_handle(tenant) };
}

/// The limits of a tenant. UINT64_MAX means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub enum Limit {
    /// Below this, never reclaimed from.
    Min,
    /// Below this, reclaimed from only if there is nothing else.
    Low,
    /// Above this, a background thread reclaims.
    High,
    /// Above this, the charging thread reclaims; a charge that would still exceed it fails.
    Max,
}

/// Sets a limit, one of `enum stillpoint_limit`, in bytes. A max below the usage reclaims at once.
/// -EINVAL for an unknown limit.
///
/// # Safety
///
/// The handle is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_tenant_set_limit(
    tenant: *mut Tenant,
    limit: c_int,
    bytes: u64,
) -> c_int {
    done(|| {
        // SAFETY: the caller's promise.
        let tenant = &unsafe { deref(tenant) }?.tenant;
        match limit {
            0 => tenant.set_min(bytes),
            1 => tenant.set_low(bytes),
            2 => tenant.set_high(bytes),
            3 => _ = tenant.set_max(bytes),
            _ => {
                let mistake = "stillpoint_tenant_set_limit() with an invalid limit";
                return Err(misuse(libc::EINVAL, mistake));
            }
        }
        Ok(())
    })
}

/// Returns the bytes charged to the tenant and all below it; 0 for NULL.
///
/// # Safety
///
/// The handle is valid or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_tenant_usage(tenant: *const Tenant) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { get(tenant, 0, |tenant| tenant.tenant.usage()) }
}

/// Tries to reclaim `bytes` bytes from the tenant and all below it, whatever its usage:
/// memory.reclaim. Returns by how many bytes its usage has fallen, not counting memory that waits
/// for a grace period. Calls shrinkers on this thread; does not wait. 0 for NULL, and inside a
/// shrinker.
///
/// # Safety
///
/// The handle is valid or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_tenant_reclaim(tenant: *mut Tenant, bytes: u64) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { get(tenant, 0, |tenant| tenant.tenant.reclaim(bytes)) }
}

/// Writes the statistics, as stillpoint_domain_statistics() does.
///
/// # Safety
///
/// The handle is valid; `size` bytes can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_tenant_get_statistics(
    tenant: *const Tenant,
    statistics: *mut TenantStatistics,
    size: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    done(|| unsafe { write_sized(&deref(tenant)?.tenant.statistics(), statistics, size) })
}

/// Charges bytes to the tenant and its ancestors, until stillpoint_uncharge(): keep the charge in
/// the object that the bytes are for. It may be copied if only one copy is used. Past a max it
/// reclaims, and waits for up to a tenth of a second.
///
/// -ENOMEM if `bytes` alone exceed the max, or reclaiming does not free enough; where it cannot
/// reclaim, -EDEADLK inside a section or a callback, -EAGAIN inside a shrinker. -E2BIG for more
/// bytes than any memory has. The charge is then empty.
///
/// # Safety
///
/// The handle is valid; `charge` can be written to, and its old value is lost.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_tenant_charge(
    tenant: *mut Tenant,
    bytes: usize,
    charge: *mut Charge,
) -> c_int {
    done(|| {
        check_output(charge)?;
        // SAFETY: the caller's promise. Zeroes are an empty charge: see `stillpoint_uncharge`.
        unsafe { ptr::write_bytes(charge, 0, 1) };
        // SAFETY: the caller's promise.
        let charged = unsafe { deref(tenant) }?.tenant.charge(bytes)?;
        // SAFETY: the caller's promise.
        unsafe { charge.write(Charge(charged)) };
        Ok(())
    })
}

/// Changes the number of bytes charged. Errors as for stillpoint_tenant_charge(), with the charge
/// unchanged; -EINVAL for an empty charge.
///
/// # Safety
///
/// The charge was made by stillpoint_tenant_charge() and not given back, or is
/// STILLPOINT_CHARGE_INIT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_charge_resize(charge: *mut Charge, bytes: usize) -> c_int {
    done(|| {
        // SAFETY: the caller's promise.
        let charge = unsafe { charge.as_mut() }
            .ok_or_else(|| misuse(libc::EINVAL, "stillpoint_charge_resize() of NULL"))?;
        Ok(charge.0.resize(bytes)?)
    })
}

/// Gives the bytes back; the charge is then STILLPOINT_CHARGE_INIT. Does nothing for that and for
/// NULL. Costs some ten nanoseconds.
///
/// # Safety
///
/// The charge was made by stillpoint_tenant_charge(), or is STILLPOINT_CHARGE_INIT; no other copy
/// of it is used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_uncharge(charge: *mut Charge) {
    catch_panic_or((), || {
        // SAFETY: the caller's promise. Sixteen zero bytes are an empty charge, which refers to no
        // tenant.
        let charged = unsafe {
            let Some(_) = charge.as_ref() else { return };
            let charged = charge.read();
            ptr::write_bytes(charge, 0, 1);
            charged
        };
        drop(charged);
    });
}
