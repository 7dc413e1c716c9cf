//! Decides which tenants have separate series, and adds up the others.
//!
//! A tenant with separate series keeps them until its end. A tenant in the sum of the others stays
//! there until its end, when its counts are added to the sum for good. So no counter falls, whichever
//! tenants come and go.

use crate::family::TenantSample;
use std::collections::HashMap;

/// A tenant, as far as its samples are concerned. Tests have others.
pub(crate) trait Source {
    fn is_deleted(&self) -> bool;
    fn sample(&self) -> TenantSample;
}

impl Source for stillpoint_lru::Tenant {
    fn is_deleted(&self) -> bool {
        self.is_deleted()
    }

    fn sample(&self) -> TenantSample {
        self.statistics().into()
    }
}

/// Number of the others below which a search for ended ones is not worth it.
const FEWEST_OTHERS: usize = 64;

#[derive(Debug)]
pub(crate) struct Tenants<T> {
    most: usize,
    own: Vec<(String, T)>,
    others: Vec<(String, T)>,
    /// Number of the others at which those that have ended are taken out, as there may be no scrape.
    others_full_at: usize,
    /// The tenant that was added last under each name.
    named: HashMap<String, T>,
    /// Counts of tenants that have ended and were among the others.
    ended: TenantSample,
    /// Whether any tenant has ever been among the others.
    has_others: bool,
}

impl<T: Source + Clone> Tenants<T> {
    /// Creates a set in which up to `most` tenants have separate series.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            own: Vec::new(),
            others: Vec::new(),
            others_full_at: FEWEST_OTHERS,
            named: HashMap::new(),
            ended: TenantSample::default(),
            has_others: false,
        }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.named
            .get(name)
            .is_some_and(|tenant| !tenant.is_deleted())
    }

    pub(crate) fn add(&mut self, name: String, tenant: T) {
        if self.others.len() >= self.others_full_at {
            self.forget(|_, tenant| tenant.is_deleted());
            self.others_full_at = FEWEST_OTHERS.max(2 * self.others.len());
        } else if self.own.len() >= self.most {
            Self::forget_own(&mut self.own, &mut self.named, |_, tenant| {
                tenant.is_deleted()
            });
        }
        self.named.insert(name.clone(), tenant.clone());
        if self.own.len() < self.most {
            self.own.push((name, tenant));
        } else {
            self.others.push((name, tenant));
            self.has_others = true;
        }
    }

    /// Removes the tenant of that name. Returns whether there was one.
    pub(crate) fn remove(&mut self, name: &str) -> bool {
        let before = self.own.len() + self.others.len();
        self.forget(|other, _| other == name);
        self.own.len() + self.others.len() < before
    }

    fn forget(&mut self, ends: impl Fn(&str, &T) -> bool) {
        let named = &mut self.named;
        Self::forget_own(&mut self.own, named, &ends);
        let ended = &mut self.ended;
        self.others.retain(|(name, tenant)| {
            let stays = !ends(name, tenant);
            if !stays {
                ended.add_counts(&tenant.sample());
                Self::forget_name(named, name, &ends);
            }
            stays
        });
    }

    fn forget_own(
        own: &mut Vec<(String, T)>,
        named: &mut HashMap<String, T>,
        ends: impl Fn(&str, &T) -> bool,
    ) {
        own.retain(|(name, tenant)| {
            let stays = !ends(name, tenant);
            if !stays {
                Self::forget_name(named, name, &ends);
            }
            stays
        });
    }

    /// Frees the name, unless another tenant has it by now.
    fn forget_name(named: &mut HashMap<String, T>, name: &str, ends: impl Fn(&str, &T) -> bool) {
        if named.get(name).is_some_and(|last| ends(name, last)) {
            named.remove(name);
        }
    }

    /// Returns the samples of the tenants with separate series, and the sum of the others, if there
    /// ever were any.
    pub(crate) fn samples(&mut self) -> (Vec<(String, TenantSample)>, Option<TenantSample>) {
        self.forget(|_, tenant| tenant.is_deleted());
        let own = self.own.iter();
        let own = own.map(|(name, tenant)| (name.clone(), tenant.sample()));
        let mut sum = self.ended;
        for (_, tenant) in &self.others {
            let sample = tenant.sample();
            sum.add_counts(&sample);
            sum.usage = sum.usage.saturating_add(sample.usage);
        }
        (own.collect(), self.has_others.then_some(sum))
    }
}

impl TenantSample {
    fn add_counts(&mut self, other: &Self) {
        for (sum, count) in [
            (&mut self.low_events, other.low_events),
            (&mut self.high_events, other.high_events),
            (&mut self.max_events, other.max_events),
            (&mut self.failed_charges, other.failed_charges),
            (&mut self.objects_reclaimed, other.objects_reclaimed),
        ] {
            *sum = sum.wrapping_add(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{cell::Cell, collections::HashMap, rc::Rc};

    /// A tenant that is deleted if the number is negative.
    #[derive(Clone)]
    struct Fake(Rc<Cell<i64>>);

    impl Source for Fake {
        fn is_deleted(&self) -> bool {
            self.0.get() < 0
        }

        fn sample(&self) -> TenantSample {
            let count = self.0.get().unsigned_abs();
            TenantSample {
                usage: 7,
                limits: Some([0; 5]),
                max_events: count,
                ..TenantSample::default()
            }
        }
    }

    /// The names are few, so that they come again, and there are more tenants than separate series.
    #[test]
    fn no_counter_falls_while_tenants_come_and_go() {
        let mut tenants = Tenants::new(3);
        let mut fakes: HashMap<String, Fake> = HashMap::new();
        let mut last: HashMap<String, u64> = HashMap::new();
        let mut last_sum = 0;
        let mut state = 1_u64;
        for step in 0..5_000 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let (what, which) = (state >> 60, (state >> 40) % 8);
            let name = which.to_string();
            match what {
                0..=5 if !tenants.has(&name) => {
                    let fake = Fake(Rc::new(Cell::new(1)));
                    // A new tenant's counters begin anew.
                    last.remove(&name);
                    fakes.insert(name.clone(), fake.clone());
                    tenants.add(name, fake);
                }
                6 => {
                    if let Some(fake) = fakes.remove(&name) {
                        fake.0.set(-fake.0.get());
                    }
                }
                7 => {
                    fakes.remove(&name);
                    tenants.remove(&name);
                }
                _ => fakes.values().for_each(|fake| fake.0.set(fake.0.get() + 1)),
            }
            let (own, sum) = tenants.samples();
            assert!(own.len() <= 3);
            let present = fakes.len() - own.len();
            for (name, sample) in own {
                let before = last.insert(name, sample.max_events).unwrap_or(0);
                assert!(sample.max_events >= before, "step {step}");
            }
            if let Some(sum) = sum {
                assert!(sum.max_events >= last_sum, "step {step}");
                last_sum = sum.max_events;
                assert_eq!((sum.usage, sum.limits), (7 * present as u64, None));
            }
        }
        assert!(last_sum > 100, "some were among the others");
    }

    #[test]
    fn tenants_that_have_ended_are_not_kept_until_a_scrape() {
        let mut tenants = Tenants::new(0);
        for number in 0..10_000 {
            let fake = Fake(Rc::new(Cell::new(1)));
            tenants.add(number.to_string(), fake.clone());
            fake.0.set(-1);
        }
        assert!(tenants.others.len() <= FEWEST_OTHERS && tenants.named.len() <= FEWEST_OTHERS);
        let (_, sum) = tenants.samples();
        assert_eq!(sum.map(|sum| sum.max_events), Some(10_000));
    }
}
