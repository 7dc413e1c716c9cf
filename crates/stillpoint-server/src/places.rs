//! Places of connections: `-c` of them, and whose they are.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// The part of all places that is kept for tenants with few clients.
const PART: usize = 4;

/// Number of clients beyond `-c` that are accepted while others that have not logged in end for them.
pub(crate) const OVER: usize = 64;

/// A place, which is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Place(Arc<AtomicUsize>);

impl Place {
    /// Takes one of the places that `taken` counts if `may` allows that for the number of those that
    /// are taken.
    pub(crate) fn take(taken: &Arc<AtomicUsize>, may: impl FnOnce(usize) -> bool) -> Option<Self> {
        let before = taken.fetch_add(1, Ordering::Relaxed);
        // Dropping it undoes it.
        let place = Self(Arc::clone(taken));
        may(before).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Takes a place among `all` clients that are known, and one among a tenant's `own`, if `may` allows
/// that for the number of the latter and that of all, this one counted.
pub(crate) fn enter(
    all: &Arc<AtomicUsize>,
    own: &Arc<AtomicUsize>,
    may: impl FnOnce(usize, usize) -> bool,
) -> Option<(Place, Place)> {
    let mut known = 0;
    let place = Place::take(all, |before| {
        known = before + 1;
        true
    })?;
    Some((place, Place::take(own, |own| may(own, known))?))
}

/// Returns whether a tenant with `own` clients may have one more, which is counted in `all` already,
/// where `tenants` have clients. A quarter of `most` is kept: each of the other tenants has an equal
/// part of it, whatever one takes. Clients that have not logged in do not count: they leave their
/// places to those that come.
pub(crate) fn may_enter(own: usize, all: usize, most: usize, tenants: usize) -> bool {
    let kept = most / PART;
    let others = tenants.saturating_sub(1);
    others == 0 || own < (kept / others).max(1) || all <= most - kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_free_again_when_it_is_given_up_or_refused() {
        let taken = Arc::default();
        let two = [0, 1].map(|number| Place::take(&taken, |before| before == number).unwrap());
        assert!(Place::take(&taken, |before| before < 2).is_none());
        assert_eq!(taken.load(Ordering::Relaxed), 2);
        drop(two);
        assert_eq!(taken.load(Ordering::Relaxed), 0);
    }

    /// Whatever the others do, in any order.
    #[test]
    fn tenants_that_take_all_they_can_get_leave_places_to_each_other_one() {
        // Alone, it has all.
        assert!(may_enter(99, 100, 100, 1));
        for tenants in 2..20 {
            for hogs in 1..tenants {
                // `hogs` tenants take all that they can get.
                let (mut own, mut all) = (vec![0; hogs], 0);
                while let Some(hog) =
                    (0..hogs).find(|&hog| all < 100 && may_enter(own[hog], all + 1, 100, tenants))
                {
                    own[hog] += 1;
                    all += 1;
                }
                let left = 100 / PART / (tenants - 1) * (tenants - hogs);
                assert!(100 - all >= left, "{hogs} of {tenants}: {all}");
                assert!(all >= 100 - 100 / PART, "{hogs} of {tenants}: {all}");
            }
        }
    }
}
