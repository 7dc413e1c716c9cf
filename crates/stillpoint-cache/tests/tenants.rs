//! Tenants: what is guaranteed to them, and what they are refused.

mod helpers;

use helpers::press;
use proptest::prelude::*;
use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, DefaultHasher},
};
use stillpoint_cache::{Cache, InsertError};

/// Keys are (tenant, number); the value is the weight. Hashes are the same in each run: of random
/// ones two had one fingerprint in a run of a thousand, and so a scan earned something.
type Weighed = Cache<(usize, u64), u64, BuildHasherDefault<DefaultHasher>>;

fn weighed(max: u64) -> Weighed {
    Cache::builder()
        .max_weight(max, |_, &weight| weight)
        .hasher(BuildHasherDefault::default())
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
fn what_a_tenant_does_not_use_of_its_min_is_its_siblings() {
    let cache = weighed(1000);
    let above = cache.tenant("above");
    above.set_min(100);
    let tenants = ["a", "b", "c"].map(|name| above.tenant(name));
    let weights = [80, 20, 100];
    for (number, (tenant, weight)) in tenants.iter().zip(weights).enumerate() {
        tenant.set_min(if number == 2 { 0 } else { 100 });
        (0..weight).for_each(|key| tenant.insert((number, key), 1));
    }
    let scan = cache.tenant("scan");
    scan.set_min(900);
    (0..10_000).for_each(|key| scan.insert((3, key), 1));
    // By what is promised, a and b would have 50 each.
    assert_eq!(
        tenants.map(|tenant| tenant.weighted_bytes()),
        [80, 20, 0],
        "what c had was not protected"
    );
    // What is promised to the one that has nothing is the other's meanwhile.
    let cache = weighed(1000);
    let (a, b, c) = (cache.tenant("a"), cache.tenant("b"), cache.tenant("c"));
    a.set_min(1500);
    b.set_min(500);
    (0..1000).for_each(|key| a.insert((0, key), 1));
    assert!(c.try_insert((2, 0), 1).is_err());
    assert_eq!(a.weighted_bytes(), 1000);
    assert!(b.try_insert((1, 0), 250).is_ok());
    assert_eq!(a.weighted_bytes(), 750);
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
fn tenants_just_above_their_minima_do_not_hide_which_one_earns_least() {
    let cache = weighed(8200);
    let useful = cache.tenant("useful");
    let insert_all = || (0..100).for_each(|key| useful.insert((0, key), 1));
    insert_all();
    useful.set_max(1);
    useful.set_max(u64::MAX);
    insert_all();
    assert!(useful.statistics().ghost_hits > 50, "it has earned");
    // What each has above its min is less than an entry of it, and more than the scan has.
    for number in 1..=10 {
        let stuck = cache.tenant(&number.to_string());
        stuck.set_min(410);
        (0..2).for_each(|key| stuck.insert((number, key), 400));
    }
    let scan = cache.tenant("scan");
    (0..10_000).for_each(|key| scan.insert((11, key), 1));
    // The scan had some before it was known to earn nothing.
    assert!(useful.weighted_bytes() >= 95);
}

#[test]
fn what_comes_back_from_the_main_queue_earns_memory() {
    let cache = weighed(600);
    let (used, other) = (cache.tenant("used"), cache.tenant("other"));
    // All are used twice, so that they go to the main queue.
    for key in 0..400 {
        used.insert((0, key), 1);
        (0..2).for_each(|_| assert!(used.get(&(0, key)).is_some()));
    }
    used.set_max(200);
    used.set_max(u64::MAX);
    let returned = used.statistics().ghost_hits;
    for key in 0..400 {
        if used.get(&(0, key)).is_none() {
            used.insert((0, key), 1);
        }
    }
    assert!(used.statistics().ghost_hits - returned > 100);
    (0..10_000).for_each(|key| other.insert((1, key), 1));
    assert_eq!(used.weighted_bytes(), 400);
}

#[test]
fn a_neighbour_that_loops_over_more_than_there_is_earns_nothing() {
    let cache = weighed(1000);
    let (used, looping) = (cache.tenant("used"), cache.tenant("loop"));
    let request = |tenant: &Weighed, key: (usize, u64)| {
        let hit = tenant.get(&key).is_some();
        if !hit {
            tenant.insert(key, 1);
        }
        hit
    };
    let (mut hits, mut random) = (0, 1_u64);
    for round in 0..60_000 {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        hits += u32::from(request(&used, (0, (random >> 32) % 500)) && round >= 30_000);
        request(&looping, (1, round % 5000));
    }
    assert!(hits >= 29_900, "{hits} of 30000");
}

/// The part of a tenant's requests that are hits, for random keys that all fit, beside a loop over
/// more than there is.
fn beside_a_loop(own: u64, loops_over: u64) -> f64 {
    const ALL: u64 = 1000;
    let cache = weighed(ALL);
    let (tenant, neighbour) = (cache.tenant("tenant"), cache.tenant("neighbour"));
    let (mut hits, mut random) = (0, 1_u64);
    let rounds = 60 * ALL;
    for round in 0..rounds {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        for (view, key, counts) in [
            (&tenant, random % own, round >= rounds / 3),
            (&neighbour, (1 << 32) + round % loops_over, false),
        ] {
            let key = (0, key);
            if view.get(&key).is_none() {
                view.insert(key, 1);
            } else if counts {
                hits += 1;
            }
        }
    }
    hits as f64 / (rounds - rounds / 3) as f64
}

#[test]
#[cfg_attr(miri, ignore = "long")]
fn a_neighbour_that_loops_takes_nothing_that_is_used() {
    for (own, loops_over, least) in [(500, 1200, 0.85), (500, 1050, 0.85), (300, 2000, 0.93)] {
        let hits = beside_a_loop(own, loops_over);
        assert!(hits > least, "{own} beside {loops_over}: {hits}");
    }
}

/// The whole cache has been used for long before it has a tenant, and is only scanned after that.
#[test]
#[cfg_attr(miri, ignore = "long")]
fn what_the_cache_has_earned_without_tenants_does_not_keep_memory_from_the_first_one() {
    const ALL: u64 = 1000;
    let cache = weighed(ALL);
    let (mut random, mut hits) = (1_u64, 0);
    let mut request = |view: &Weighed, space, keys| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let key = (space, random % keys);
        let found = view.get(&key).is_some();
        if !found {
            view.insert(key, 1);
        }
        found
    };
    for _ in 0..300 * ALL {
        request(&cache, 0, 2 * ALL);
    }
    let (tenant, rounds) = (cache.tenant("tenant"), 6 * ALL);
    for _ in 0..rounds {
        request(&cache, 1, u64::MAX);
        hits += u64::from(request(&tenant, 2, ALL / 2));
    }
    assert!(hits > rounds / 2, "{hits} of {rounds}");
}

#[test]
fn what_is_above_high_goes_first() {
    let cache = weighed(1000);
    let (a, b) = (cache.tenant("a"), cache.tenant("b"));
    a.set_high(100);
    (0..500).for_each(|key| a.insert((0, key), 1));
    (0..900).for_each(|key| b.insert((1, key), 1));
    // What the service thread has evicted beside that is a 64th of the limit.
    assert!((98..=100).contains(&a.weighted_bytes()));
    assert_eq!((b.weighted_bytes(), b.statistics().evicted), (900, 0));
}

#[test]
fn a_deleted_tenant_is_a_view_of_the_one_above() {
    let cache = weighed(100);
    let tenant = cache.tenant("tenant");
    tenant.insert((0, 1), 1);
    let child = tenant.tenant("child");
    child.insert((1, 1), 1);
    assert!(!tenant.delete() && !cache.delete());
    assert_eq!((tenant.entry_count(), child.entry_count()), (2, 1));
    assert!(child.delete() && tenant.delete() && !tenant.delete());
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

/// A tree may be deeper than any stack.
#[test]
fn a_chain_of_tenants_may_be_deep() {
    let depth = if cfg!(miri) { 50 } else { 2000 };
    let work = move || {
        let cache = weighed(100);
        let mut chain = vec![cache.clone()];
        for _ in 0..depth {
            let below = chain[chain.len() - 1].tenant("below");
            below.set_min(200);
            chain.push(below);
        }
        let leaf = chain.pop().unwrap();
        (0..110).for_each(|key| leaf.insert((0, key), 1));
        assert_eq!((leaf.entry_count(), cache.statistics().evicted), (100, 10));
        assert!(leaf.delete());
        chain.truncate(depth / 2);
        assert!(!chain[depth / 2 - 1].delete());
        // Those of which nothing but the last one is known.
        let mut deleted = cache.tenant("other");
        for _ in 0..depth {
            let below = deleted.tenant("below");
            assert!(!deleted.delete());
            deleted = below;
        }
        drop((leaf, chain, cache));
        assert_eq!(deleted.get(&(0, 0)), None);
    };
    let thread = std::thread::Builder::new().stack_size(128 << 10);
    thread.spawn(work).unwrap().join().unwrap();
}

#[test]
fn under_pressure_it_gives_way_down_to_the_minima() {
    let cache = weighed(1000);
    let (kept, other) = (cache.tenant("kept"), cache.tenant("other"));
    kept.set_min(200);
    (0..300).for_each(|key| kept.insert((0, key), 1));
    (0..700).for_each(|key| other.insert((1, key), 1));
    press(&cache);
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
        /// Through that view; a key that is there stays its tenant's.
        view: usize,
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
    Min {
        tenant: usize,
        bytes: u64,
    },
    Pin {
        tenant: usize,
        key: u64,
        pinned: bool,
    },
    /// And makes it anew.
    Delete {
        tenant: usize,
    },
    All {
        bytes: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let (tenant, key) = (0..4_usize, 0..60_u64);
    prop_oneof![
        8 => (tenant.clone(), key.clone(), 1..30_u64)
            .prop_map(|(tenant, key, weight)| Step::Insert { tenant, key, weight, view: tenant }),
        2 => (tenant.clone(), key.clone(), 1..30_u64, tenant.clone())
            .prop_map(|(tenant, key, weight, view)| Step::Insert { tenant, key, weight, view }),
        1 => (tenant.clone(), 0..20_u64).prop_map(|(tenant, bytes)| Step::Min { tenant, bytes }),
        1 => (tenant.clone(), key.clone(), any::<bool>())
            .prop_map(|(tenant, key, pinned)| Step::Pin { tenant, key, pinned }),
        1 => tenant.clone().prop_map(|tenant| Step::Delete { tenant }),
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
        let mut minima = minima;
        for (number, tenant) in tenants.iter().enumerate() {
            tenant.set_min(minima[number]);
        }
        // What the child has of its min is its parent's.
        let effective = |minima: &[u64; 4], number: usize| match number {
            3 => minima[3].min(minima[2]),
            _ => minima[number],
        };
        let usage = |tenants: &[Weighed]| -> Vec<u64> {
            tenants.iter().map(Cache::weighted_bytes).collect()
        };
        let mut values = HashMap::new();
        // Through which views a key was inserted: one of these tenants has it.
        let mut views: HashMap<_, Vec<usize>> = HashMap::new();
        for step in steps {
            let before = usage(&tenants);
            // Who may lose what it has, down to nothing.
            let mut own: Vec<usize> = Vec::new();
            match step {
                Step::Insert { tenant, key, weight, view } => {
                    let views = views.entry((tenant, key)).or_default();
                    views.push(view);
                    own.extend(&*views);
                    match tenants[view].try_insert((tenant, key), weight) {
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
                    own.extend(views.get(&(tenant, key)).into_iter().flatten());
                    cache.remove(&(tenant, key));
                    prop_assert!(!cache.contains_key(&(tenant, key)));
                }
                Step::Max { tenant, bytes } => {
                    own.extend([tenant, 2, 3]);
                    tenants[tenant].set_max(bytes);
                    let pinned = tenants[tenant].statistics().pinned_bytes;
                    prop_assert!(tenants[tenant].weighted_bytes() <= bytes.max(pinned));
                }
                Step::Min { tenant, bytes } => {
                    minima[tenant] = bytes;
                    tenants[tenant].set_min(bytes);
                }
                Step::Pin { tenant, key, pinned: true } => drop(cache.pin(&(tenant, key))),
                Step::Pin { tenant, key, .. } => drop(cache.unpin(&(tenant, key))),
                Step::Delete { tenant } => {
                    own.push(tenant);
                    prop_assert_eq!(tenants[tenant].delete(), tenant != 2);
                    let above = if tenant == 3 { &tenants[2] } else { &cache };
                    tenants[tenant] = above.tenant(&tenant.to_string());
                    tenants[tenant].set_min(minima[tenant]);
                }
                Step::All { bytes } => {
                    own.extend([0, 1, 2, 3]);
                    cache.set_max_bytes(bytes.max(80));
                }
            }
            if own.contains(&3) {
                own.push(2);
            }
            let after = usage(&tenants);
            for number in 0..4 {
                if !own.contains(&number) && after[number] < before[number] {
                    prop_assert!(
                        after[number] >= effective(&minima, number),
                        "tenant {} fell from {} to {}", number, before[number], after[number]
                    );
                }
                let pinned = tenants[number].statistics().pinned_bytes;
                prop_assert!(after[number] <= tenants[number].max().max(pinned));
            }
            let sum: u64 = cache.iter().map(|(_, weight)| weight).sum();
            prop_assert_eq!(cache.weighted_bytes(), sum);
            prop_assert!(sum <= cache.max_bytes().max(cache.statistics().pinned_bytes));
        }
    }
}
