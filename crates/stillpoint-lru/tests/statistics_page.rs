//! Tenants in the statistics page, as another process sees them.
//!
//! Every test that publishes is in a process of its own.
#![cfg(all(target_os = "linux", target_pointer_width = "64", not(miri)))]

#[path = "../../stillpoint/tests/common/mod.rs"]
mod common;

use common::{
    eventually,
    forking::{fork, is_apart},
    page::{seen, thing},
};
use std::{sync::Arc, thread, time::Duration};
use stillpoint::publish_statistics;
use stillpoint_lru::{Entry, Hierarchy, Isolate, ListLru, Scope, Shrink, Tenant};
use stillpoint_platform::stats::{layout::MOST_OF_A_KIND, read::Thing};

fn shown(name: &str) -> Thing {
    thing(&seen(), "tenant", name).expect("it is in the page")
}

/// That the page has the tenant's statistics. What is in stock counts as used there, until a limit is
/// set.
#[track_caller]
fn assert_same(name: &str, tenant: &Tenant) {
    let statistics = tenant.statistics();
    assert_has(
        name,
        &[
            ("min_bytes", statistics.min),
            ("low_bytes", statistics.low),
            ("high_bytes", statistics.high),
            ("max_bytes", statistics.max),
        ],
    );
    tenant.set_max(statistics.max);
    let statistics = tenant.statistics();
    assert_has(
        name,
        &[
            ("usage_bytes", statistics.usage),
            ("peak_bytes", statistics.peak),
            ("low_events", statistics.low_events),
            ("high_events", statistics.high_events),
            ("max_events", statistics.max_events),
            ("failed_charges", statistics.failed_charges),
            ("objects_reclaimed", statistics.objects_reclaimed),
        ],
    );
}

#[track_caller]
fn assert_has(name: &str, fields: &[(&str, u64)]) {
    let thing = shown(name);
    for &(field, expected) in fields {
        assert_eq!(thing.number_of(field), expected, "{field} of {name}");
    }
}

struct Emptied(Arc<ListLru<u64>>);

impl Shrink for Emptied {
    fn count(&self, scope: &Scope<'_>) -> usize {
        self.0.count_one(scope.tenant, scope.node)
    }

    fn scan(&self, scope: &Scope<'_>, goal: usize) -> Option<usize> {
        let Scope { tenant, node, .. } = scope;
        Some(self.0.walk_one(*tenant, *node, goal, |_| Isolate::Removed))
    }
}

/// Threads charge and uncharge two tenants; limits are met, and items reclaimed.
fn work(hierarchy: &Hierarchy, tenants: &[&Tenant; 2]) {
    let lru = Arc::new(ListLru::for_tenants(hierarchy));
    let _registered = hierarchy.register(Arc::new(Emptied(Arc::clone(&lru))));
    thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                for round in 0..2000 {
                    let tenant = tenants[(thread + round) % 2];
                    let charges = [tenant.charge(3000 * (thread + 1)), tenant.charge(70_000)];
                    assert!(charges.iter().all(Result::is_ok));
                }
            });
        }
    });
    let tenant = tenants[0];
    tenant.set_high(1 << 20);
    drop(tenant.charge(2 << 20).expect("there is no max"));
    tenant.set_max(3 << 20);
    for item in 0..100 {
        assert!(lru.add(tenant, Arc::new(Entry::new(item))));
    }
    assert!(tenant.charge(4 << 20).is_err());
    let charge = tenant.charge(2 << 20).expect("it is below the max");
    assert!(tenant.charge(2 << 20).is_err(), "items are not charged");
    drop(charge);
    // The thread that reclaims above high limits may still be at it, and count.
    tenant.set_high(u64::MAX);
    let reclaimed = || tenant.statistics().objects_reclaimed;
    eventually(|| {
        let before = reclaimed();
        thread::sleep(Duration::from_millis(10));
        reclaimed() == before
    });
    // Last, so that no other copies them.
    tenant.set_low(2 << 10);
    tenant.set_min(1 << 10);
}

#[test]
fn tenants_are_in_the_page_while_they_exist() {
    if !is_apart("tenants_are_in_the_page_while_they_exist") {
        return;
    }
    let hierarchy = Hierarchy::try_named("all").expect("there is memory");
    let early = hierarchy
        .root()
        .create_named("early")
        .expect("there is memory");
    work(&hierarchy, &[&early, hierarchy.root()]);
    publish_statistics().expect("the system has memory files");
    assert_same("early", &early);
    assert_same("all", hierarchy.root());
    let late = hierarchy
        .root()
        .create_named("late")
        .expect("there is memory");
    work(&hierarchy, &[&late, &early]);
    for (name, tenant) in [
        ("early", &early),
        ("late", &late),
        ("all", hierarchy.root()),
    ] {
        assert_same(name, tenant);
        let thing = shown(name);
        assert!(
            thing.number_of("failed_charges") > 0 || name == "all",
            "{thing:?}"
        );
    }
    assert!(shown("late").number_of("objects_reclaimed") > 0);

    let nameless = late.create().expect("there is memory");
    let named = |page: &stillpoint_platform::stats::read::Page| {
        let tenants = page.things.iter().filter(|thing| thing.kind == "tenant");
        tenants.map(|thing| thing.name.clone()).collect::<Vec<_>>()
    };
    assert!(
        named(&seen())
            .iter()
            .any(|name| name.starts_with("tenant "))
    );
    drop(nameless);
    assert_eq!(named(&seen()), ["all", "early", "late"]);
    // What is charged keeps its memory, and nothing else of it.
    let charge = late.charge(100_000).expect("it is below the max");
    late.delete().expect("it has no children");
    assert!(thing(&seen(), "tenant", "late").is_none());
    let next = hierarchy
        .root()
        .create_named("next")
        .expect("there is memory");
    drop(charge);
    assert_same("next", &next);
    assert_same("all", hierarchy.root());
    drop((early, late, next, hierarchy));
    // The thread that reclaims above high limits may still have the root.
    eventually(|| named(&seen()).is_empty());
}

/// Those that are shown stay; the others are counted.
#[test]
fn there_are_no_more_than_a_hundred() {
    if !is_apart("there_are_no_more_than_a_hundred") {
        return;
    }
    publish_statistics().expect("the system has memory files");
    let hierarchy = Hierarchy::new();
    let create = |number: usize| {
        let name = number.to_string();
        hierarchy
            .root()
            .create_named(&name)
            .expect("there is memory")
    };
    let mut tenants: Vec<_> = (1..=MOST_OF_A_KIND + 50).map(create).collect();
    let count = || {
        let page = seen();
        let tenants = page.things.iter().filter(|thing| thing.kind == "tenant");
        (tenants.count(), page.refused)
    };
    assert_eq!(count(), (MOST_OF_A_KIND, 51), "the root is one");
    assert!(thing(&seen(), "tenant", "99").is_some());
    tenants[0].delete().expect("it has no children");
    drop(tenants.remove(0));
    assert_eq!(count(), (MOST_OF_A_KIND - 1, 51));
    // Its memory has its place, and goes after a grace period.
    stillpoint::kvfree_barrier();
    tenants.push(create(1000));
    assert_eq!(count(), (MOST_OF_A_KIND, 51));
    assert_same("1000", &tenants[tenants.len() - 1]);
}

#[test]
fn the_child_of_a_fork_shows_its_own() {
    if !is_apart("the_child_of_a_fork_shows_its_own") {
        return;
    }
    publish_statistics().expect("the system has memory files");
    let hierarchy = Hierarchy::new();
    let tenant = hierarchy
        .root()
        .create_named("both")
        .expect("there is memory");
    let kept = tenant.charge(200_000).expect("there is no max");
    tenant.set_low(5);
    assert!({
        tenant.set_max(300_000);
        tenant.charge(200_000).is_err()
    });
    fork(|| {
        assert_same("both", &tenant);
        let more = tenant.charge(50_000).expect("it is below the max");
        tenant.set_low(6);
        assert_same("both", &tenant);
        assert_eq!(shown("both").number_of("usage_bytes"), 250_000);
        drop(more);
    })
    .well();
    assert_same("both", &tenant);
    assert_eq!(shown("both").number_of("usage_bytes"), 200_000);
    drop(kept);
}
