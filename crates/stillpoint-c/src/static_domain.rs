//! Domains that are created at their first use and never destroyed.

use std::{
    ptr,
    sync::atomic::{AtomicPtr, Ordering},
};
use stillpoint::Domain;

pub(crate) struct StaticDomain {
    domain: AtomicPtr<Domain>,
    make: fn() -> Domain,
}

/// The domain of QSBR readers, which fence.
pub(crate) static QSBR: StaticDomain = StaticDomain::new(Domain::with_fences);
/// The domains of liburcu's flavours that have a separate one.
pub(crate) static URCU_MB: StaticDomain = StaticDomain::new(Domain::new);
pub(crate) static URCU_BP: StaticDomain = StaticDomain::new(Domain::new);

impl StaticDomain {
    const fn new(make: fn() -> Domain) -> Self {
        Self {
            domain: AtomicPtr::new(ptr::null_mut()),
            make,
        }
    }

    /// Returns the domain, and makes it if there is none.
    pub(crate) fn get(&'static self) -> &'static Domain {
        // SAFETY: made by `get_or_make`, and never dropped.
        unsafe { &*get_or_make(&self.domain, self.make) }
    }

    /// Returns the domain, if there is one.
    pub(crate) fn get_if_made(&'static self) -> Option<&'static Domain> {
        // Acquire, pairs with `get_or_make`: the domain that is found is complete.
        // SAFETY: null, or made by `get_or_make` and never dropped.
        unsafe { self.domain.load(Ordering::Acquire).as_ref() }
    }
}

/// Returns whether `domain` is one of these.
pub(crate) fn is_static(domain: &Domain) -> bool {
    [&QSBR, &URCU_MB, &URCU_BP]
        .iter()
        .any(|one| one.get_if_made().is_some_and(|made| ptr::eq(made, domain)))
}

/// Returns the domain at `place`, and makes it if there is none. It takes no lock, because a fork
/// may remove another thread that makes it.
pub(crate) fn get_or_make(place: &AtomicPtr<Domain>, make: fn() -> Domain) -> *mut Domain {
    // Acquire, pairs with the exchange below, in `get_or_make`: the domain that is found is
    // complete.
    let found = place.load(Ordering::Acquire);
    if !found.is_null() {
        return found;
    }
    let made = Box::into_raw(Box::new(make()));
    // Release, pairs with the loads in `get_or_make` and `get_if_made`: the domain is complete
    // before it is found. Acquire: so is the faster thread's.
    match place.compare_exchange(ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => made,
        Err(faster) => {
            // SAFETY: it came out of a box just now, and no other thread has seen it.
            drop(unsafe { Box::from_raw(made) });
            faster
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{pointer, stillpoint_domain_destroy};

    #[test]
    fn a_static_domain_cannot_be_destroyed() {
        for domain in [&QSBR, &URCU_MB, &URCU_BP] {
            assert_eq!(
                // SAFETY: the domain is alive, and is refused.
                unsafe { stillpoint_domain_destroy(pointer(domain.get())) },
                -libc::EINVAL
            );
        }
    }
}
