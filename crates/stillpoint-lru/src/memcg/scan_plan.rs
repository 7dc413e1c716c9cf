//! How many objects a shrinker is asked to scan: the arithmetic of the kernel's `do_shrink_slab()`.

/// The part of a tenant's objects that is not protected, by the ratio of its usage.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unprotected {
    pub(super) protected: u64,
    pub(super) usage: u64,
}

impl Unprotected {
    pub(crate) const WHOLE: Self = Self {
        protected: 0,
        usage: 0,
    };

    /// Returns the number of `objects` that are not protected: at least one, so that a small overage is
    /// asked for, too.
    pub(crate) fn of(self, objects: u64) -> u64 {
        // The product fits; the quotient is less than `objects`.
        objects
            - (u128::from(objects) * u128::from(self.protected) / (u128::from(self.usage) + 1))
                as u64
    }
}

/// Upper bound on the objects of a shrinker, whatever its `count` returns.
pub(super) const MAX_OBJECTS: u64 = 1 << 60;

/// Numbers of objects that a shrinker is asked to scan.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ScanPlan {
    /// Objects to scan.
    pub(super) total: u64,
    /// Objects to scan now or later.
    due: u64,
    most: u64,
}

impl ScanPlan {
    /// Makes the plan for `freeable` objects, of which `unprotected` are not protected. `deferred`
    /// is a part of the unprotected ones of earlier calls.
    pub(super) fn new(
        freeable: u64,
        unprotected: u64,
        deferred: u64,
        priority: u32,
        seeks: u32,
    ) -> Self {
        let most = freeable.saturating_mul(2);
        let delta = match seeks {
            // Costs nothing to make again: half of the objects go, whatever the pressure.
            0 => unprotected / 2,
            seeks => (unprotected >> priority) * 4 / u64::from(seeks),
        };
        Self {
            total: (deferred >> priority).saturating_add(delta).min(most),
            due: deferred.saturating_add(delta),
            most,
        }
    }

    /// Returns the number of objects that are deferred once `scanned` have been scanned.
    pub(super) fn deferred_after(&self, scanned: u64) -> u64 {
        self.due.saturating_sub(scanned).min(self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scan_plan_matches_the_kernel() {
        // 1,000 objects at the usual cost: at the lowest pressure nothing, at the highest all of
        // them twice.
        assert_eq!(
            ScanPlan::new(1000, 1000, 0, 12, 2),
            ScanPlan {
                total: 0,
                due: 0,
                most: 2000
            }
        );
        assert_eq!(
            ScanPlan::new(1000, 1000, 0, 2, 2),
            ScanPlan {
                total: 500,
                due: 500,
                most: 2000
            }
        );
        assert_eq!(
            ScanPlan::new(1000, 1000, 0, 0, 2),
            ScanPlan {
                total: 2000,
                due: 2000,
                most: 2000
            }
        );
        // Twice the cost: half of it. No cost: half of all.
        assert_eq!(ScanPlan::new(1000, 1000, 0, 2, 4).total, 250);
        assert_eq!(ScanPlan::new(1000, 1000, 0, 12, 0).total, 500);
        // Nine tenths are protected: a tenth of it.
        assert_eq!(
            ScanPlan::new(1000, 100, 0, 2, 2),
            ScanPlan {
                total: 50,
                due: 50,
                most: 2000
            }
        );
        assert_eq!(ScanPlan::new(1000, 100, 0, 12, 0).total, 50);
        // Deferred work is shifted like the rest, and kept until it is done.
        let plan = ScanPlan::new(1000, 1000, 400, 2, 2);
        assert_eq!((plan.total, plan.due), (600, 900));
        assert_eq!(
            (plan.deferred_after(600), plan.deferred_after(5000)),
            (300, 0)
        );
        // A liar.
        let plan = ScanPlan::new(MAX_OBJECTS, MAX_OBJECTS, u64::MAX, 0, 1);
        assert_eq!(
            (plan.total, plan.deferred_after(0)),
            (2 * MAX_OBJECTS, 2 * MAX_OBJECTS)
        );
    }

    #[test]
    fn unprotected_part_is_the_overage() {
        let part = |protected, usage| Unprotected { protected, usage };
        assert_eq!(
            (
                Unprotected::WHOLE.of(7),
                Unprotected::WHOLE.of(0),
                Unprotected::WHOLE.of(u64::MAX)
            ),
            (7, 0, u64::MAX)
        );
        assert_eq!(part(90 << 20, 100 << 20).of(1_000), 101);
        assert_eq!(
            (part(100, 100).of(5), part(u64::MAX, u64::MAX).of(u64::MAX)),
            (1, 1),
            "something, however little is left"
        );
    }
}
