//! Tenants: what is guaranteed to them, and what they are refused.

use proptest::prelude::*;
use std::{collections::HashMap, sync::Arc};
use stillpoint_cache::{Cache, InsertError};
use stillpoint_lru::Hierarchy;

/// Keys are (tenant, number); the value is the weight.
type Weighed = Cache<(usize, u64), u64>;

fn weighed(max: u64) -> Weighed {
    Cache::builder()
        .max_bytes(max)
        .weigher(|_, &weight| weight)
        .build()
}

#[test]
fn a_tenant_within_its_min_loses_nothing_to_a_scan() {
    let cache = weighed(1000);
    let quiet = cache.tenant("quiet");
    quiet.set_min(300);
    (0..300).for_each(|key| quiet.insert((0, key), 1));
    let scan = cache.tenant("scan");
    (0..100_000).for_each(|key| scan.insert((1, key), 1));
    assert!((0..300).all(|key| quiet.get(&(0, key)).is_some()));
    assert_eq!((quiet.weighted_bytes(), scan.weighted_bytes()), (300, 700));
    assert_eq!(quiet.statistics().evicted, 0);
}

#[test]
fn low_is_taken_when_nothing_else_is_left() {
    let cache = weighed(1000);
    let (low, other) = (cache.tenant("low"), cache.tenant("other"));
    low.set_low(500);
    (0..500).for_each(|key| low.insert((0, key), 1));
    (0..10_000).for_each(|key| other.insert((1, key), 1));
    assert_eq!(low.weighted_bytes(), 500);
    other.set_min(800);
    (0..10_000).for_each(|key| other.insert((1, key), 1));
    assert_eq!(
        (low.weighted_bytes(), other.weighted_bytes()),
        (199, 801),
        "a min counts for more than a low"
    );
}

#[test]
fn minima_that_are_more_than_there_is_are_kept_in_proportion() {
    let cache = weighed(1000);
    let (a, b) = (cache.tenant("a"), cache.tenant("b"));
    a.set_min(1500);
    b.set_min(500);
    (0..1000).for_each(|key| a.insert((0, key), 1));
    assert_eq!(a.weighted_bytes(), 1000);
    (0..5000).for_each(|key| b.insert((1, key), 1));
    assert_eq!((a.weighted_bytes(), b.weighted_bytes()), (750, 250));
}

#[test]
fn a_max_holds_for_all_below_and_its_tenant_is_named() {
    let cache = weighed(1000);
    let above = cache.tenant("above");
    let below = above.tenant("below");
    above.set_max(100);
    (0..1000).for_each(|key| below.insert((0, key), 1));
    assert_eq!((above.weighted_bytes(), cache.weighted_bytes()), (100, 100));
    assert_eq!(below.parent().unwrap().tenant_name(), above.tenant_name());
    let error = below.try_insert((0, 0), 101).unwrap_err();
    assert!(
        matches!(&error, InsertError::TooLarge { tenant, limit: 100, .. } if &**tenant == "above"),
        "{error}"
    );
    above.set_max(10);
    assert_eq!(below.weighted_bytes(), 10, "at once");
}

#[test]
fn a_write_that_finds_no_room_is_refused_and_nothing_is_lost() {
    let cache = weighed(100);
    let (full, late) = (cache.tenant("full"), cache.tenant("late"));
    full.set_min(100);
    (0..100).for_each(|key| full.insert((0, key), 1));
    let error = late.try_insert((1, 1), 1).unwrap_err();
    assert!(
        matches!(error, InsertError::Full { limit: 100, .. }),
        "{error}"
    );
    assert_eq!((full.entry_count(), late.statistics().refused), (100, 1));
}

#[test]
fn what_is_above_high_goes_first() {
    let cache = weighed(1000);
    let (a, b) = (cache.tenant("a"), cache.tenant("b"));
    a.set_high(100);
    (0..500).for_each(|key| a.insert((0, key), 1));
    (0..900).for_each(|key| b.insert((1, key), 1));
    assert_eq!((a.weighted_bytes(), b.weighted_bytes()), (100, 900));
}

#[test]
fn a_deleted_tenant_is_a_view_of_the_one_above() {
    let cache = weighed(100);
    let tenant = cache.tenant("tenant");
    tenant.insert((0, 1), 1);
    let child = tenant.tenant("child");
    assert!(!tenant.delete() && child.delete() && tenant.delete());
    assert!(!cache.delete());
    assert_eq!(cache.entry_count(), 0);
    tenant.insert((0, 2), 5);
    assert_eq!((cache.weighted_bytes(), tenant.weighted_bytes()), (5, 5));
    let again = cache.tenant("tenant");
    assert_eq!(again.weighted_bytes(), 0);
    assert!(
        !tenant.delete(),
        "there is one of that name, which is not this"
    );
}

#[test]
fn there_may_be_ten_thousand() {
    let cache = weighed(100_000);
    let tenants: Vec<_> = (0..10_000)
        .map(|number| cache.tenant(&format!("tenant {number}")))
        .collect();
    for (number, tenant) in tenants.iter().enumerate() {
        tenant.set_min(5);
        (0..20).for_each(|key| tenant.insert((number, key), 1));
    }
    assert_eq!(cache.weighted_bytes(), 100_000);
    assert!(tenants.iter().all(|tenant| tenant.weighted_bytes() >= 5));
    assert!(tenants.iter().all(Cache::delete));
    assert_eq!(cache.weighted_bytes(), 0);
}

#[test]
fn under_pressure_it_gives_way_down_to_the_minima() {
    let cache = weighed(1000);
    let (kept, other) = (cache.tenant("kept"), cache.tenant("other"));
    kept.set_min(200);
    (0..300).for_each(|key| kept.insert((0, key), 1));
    (0..700).for_each(|key| other.insert((1, key), 1));
    let hierarchy = Hierarchy::new();
    let _registered = hierarchy.register(Arc::new(cache.shrinker())).unwrap();
    // Nothing is charged: the pass asks for all that there is.
    let tenant = hierarchy.root();
    let _charge = tenant.charge(1000).unwrap();
    tenant.reclaim(1000);
    assert_eq!((kept.weighted_bytes(), other.weighted_bytes()), (200, 0));
    cache.insert((2, 0), 800);
    assert_eq!(cache.weighted_bytes(), 1000, "its limit is as before");
}

#[derive(Debug, Clone)]
enum Step {
    Insert {
        tenant: usize,
        key: u64,
        weight: u64,
    },
    Get {
        tenant: usize,
        key: u64,
    },
    Remove {
        tenant: usize,
        key: u64,
    },
    Max {
        tenant: usize,
        bytes: u64,
    },
    All {
        bytes: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let (tenant, key) = (0..4_usize, 0..60_u64);
    prop_oneof![
        8 => (tenant.clone(), key.clone(), 1..30_u64)
            .prop_map(|(tenant, key, weight)| Step::Insert { tenant, key, weight }),
        4 => (tenant.clone(), key.clone()).prop_map(|(tenant, key)| Step::Get { tenant, key }),
        1 => (tenant.clone(), key).prop_map(|(tenant, key)| Step::Remove { tenant, key }),
        1 => (tenant, 20..200_u64).prop_map(|(tenant, bytes)| Step::Max { tenant, bytes }),
        1 => (60..200_u64).prop_map(|bytes| Step::All { bytes }),
    ]
}

proptest! {
    /// Tenant 3 is below tenant 2.
    #[test]
    fn no_sequence_takes_a_tenant_below_its_min_for_others(
        minima in prop::array::uniform4(0..20_u64),
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let cache = weighed(200);
        let mut tenants: Vec<_> = (0..3).map(|number| cache.tenant(&number.to_string())).collect();
        tenants.push(tenants[2].tenant("3"));
        // What the child has of its min is its parent's.
        for (number, tenant) in tenants.iter().enumerate() {
            tenant.set_min(minima[number]);
        }
        let effective = |number: usize| match number {
            3 => minima[3].min(minima[2]),
            _ => minima[number],
        };
        let usage = |tenants: &[Weighed]| -> Vec<u64> {
            tenants.iter().map(Cache::weighted_bytes).collect()
        };
        let mut values = HashMap::new();
        for step in steps {
            let before = usage(&tenants);
            // Who may lose what it has, down to nothing.
            let mut own: Vec<usize> = Vec::new();
            match step {
                Step::Insert { tenant, key, weight } => {
                    own.push(tenant);
                    if tenant == 3 {
                        own.push(2);
                    }
                    match tenants[tenant].try_insert((tenant, key), weight) {
                        Ok(()) => {
                            values.insert((tenant, key), weight);
                            prop_assert_eq!(cache.get(&(tenant, key)), Some(weight));
                        }
                        Err(_) => prop_assert_eq!(cache.get(&(tenant, key)), None),
                    }
                }
                Step::Get { tenant, key } => {
                    if let Some(found) = tenants[0].get(&(tenant, key)) {
                        prop_assert_eq!(Some(&found), values.get(&(tenant, key)));
                    }
                }
                Step::Remove { tenant, key } => {
                    own.extend([tenant, 2]);
                    cache.remove(&(tenant, key));
                    prop_assert!(!cache.contains_key(&(tenant, key)));
                }
                Step::Max { tenant, bytes } => {
                    own.extend([tenant, 2, 3]);
                    tenants[tenant].set_max(bytes);
                    prop_assert!(tenants[tenant].weighted_bytes() <= bytes);
                }
                Step::All { bytes } => {
                    own.extend([0, 1, 2, 3]);
                    cache.set_max_bytes(bytes.max(minima.iter().sum()));
                }
            }
            let after = usage(&tenants);
            for number in 0..4 {
                if !own.contains(&number) && after[number] < before[number] {
                    prop_assert!(
                        after[number] >= effective(number),
                        "tenant {} fell from {} to {}", number, before[number], after[number]
                    );
                }
                prop_assert!(after[number] <= tenants[number].max());
            }
            let sum: u64 = cache.iter().map(|(_, weight)| weight).sum();
            prop_assert_eq!(cache.weighted_bytes(), sum);
            prop_assert!(sum <= cache.max_bytes());
        }
    }
}
