//! Caches and their tenants in the statistics page, as another process sees them.
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
use std::{thread, time::Duration};
use stillpoint::publish_statistics;
use stillpoint_cache::{Cache, Statistics};
use stillpoint_platform::stats::read::Thing;

fn shown(name: &str) -> Thing {
    thing(&seen(), "cache", name).expect("it is in the page")
}

/// That the page has what the view has, which has no tenants below it.
#[track_caller]
fn assert_same(name: &str, view: &Cache<u64, u64>) {
    assert_eq!(view.get(&u64::MAX), None);
    assert_has(name, view, &view.statistics());
}

#[track_caller]
fn assert_has(name: &str, view: &Cache<u64, u64>, statistics: &Statistics) {
    let thing = shown(name);
    for (field, expected) in [
        ("weight_bytes", statistics.bytes),
        ("pinned_bytes", statistics.pinned_bytes),
        ("entries", statistics.entries),
        ("min_bytes", view.min()),
        ("low_bytes", view.low()),
        ("high_bytes", view.high()),
        ("capacity_bytes", view.max()),
        ("inserts", statistics.inserts),
        ("evictions", statistics.evicted),
        ("expirations", statistics.expired),
        ("replaced", statistics.replaced),
        ("removed", statistics.removed),
        ("hits", statistics.hits),
        ("misses", statistics.misses),
        ("loads", statistics.loads),
        ("load_failures", statistics.load_failures),
        ("load_nanos", statistics.load_nanos),
        ("refused", statistics.refused),
    ] {
        assert_eq!(thing.number_of(field), expected, "{field} of {name}");
    }
}

/// What there is to count: hits and misses of four threads, evictions, replacements, removals, loads,
/// refusals, and pins. Keys are those from `base` on.
fn work(view: &Cache<u64, u64>, base: u64) {
    thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                for round in 0..3000 {
                    let key = base + (round * (thread + 1)) % 700;
                    if view.get(&key).is_none() {
                        view.insert(key, round);
                    }
                }
                // A miss brings the thread's hits.
                assert_eq!(view.get(&u64::MAX), None);
            });
        }
    });
    (base..base + 20).for_each(|key| view.insert(key, 1));
    let removed = (base..base + 20).filter(|key| view.invalidate(key));
    assert!(removed.count() > 0);
    assert_eq!(view.get_with(base + 1000, || 5), 5);
    assert!(
        view.try_get_with(base + 1001, || Err::<u64, _>("no"))
            .is_err()
    );
    view.insert(base + 1002, 1);
    assert!(view.pin(&(base + 1002)));
    view.insert(u64::MAX - 1, 1);
    assert!(view.get(&(u64::MAX - 1)).is_none(), "it weighs too much");
    view.set_low(10);
    view.set_high(490);
    // The service thread has nothing to do after this.
    eventually(|| view.weighted_bytes() <= 490);
    view.set_high(100_000);
}

fn build(name: &str) -> Cache<u64, u64> {
    Cache::builder()
        .max_bytes(1000)
        .weigher(|&key, _| if key == u64::MAX - 1 { 5000 } else { 1 })
        .name(name)
        .build()
}

#[test]
fn caches_are_in_the_page_while_they_exist() {
    if !is_apart("caches_are_in_the_page_while_they_exist") {
        return;
    }
    let early = build("early");
    work(&early, 0);
    publish_statistics().expect("the system has memory files");
    assert_same("early", &early);
    work(&early, 0);
    assert_same("early", &early);
    let statistics = early.statistics();
    assert!(
        statistics.pinned_bytes == 1 && statistics.refused == 2,
        "{statistics:?}"
    );

    let tenant = early.tenant("tenant");
    tenant.set_max(300);
    tenant.set_min(20);
    work(&tenant, 10_000);
    assert!(tenant.statistics().evicted > 0);
    assert_same("early/tenant", &tenant);
    let below = tenant.tenant("below");
    work(&below, 20_000);
    assert_same("early/tenant/below", &below);
    // What weighs counts above; what was counted, once the tenant is gone.
    assert_eq!(
        shown("early").number_of("weight_bytes"),
        early.weighted_bytes()
    );
    assert!(below.delete() && tenant.delete());
    drop((below, tenant));
    let names = || {
        let page = seen();
        let caches = page.things.iter().filter(|thing| thing.kind == "cache");
        caches.map(|thing| thing.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(), ["early"]);
    assert_same("early", &early);
    let nameless = build("");
    assert!(names()[1].starts_with("cache "), "{:?}", names());
    drop((nameless, early));
    assert!(names().is_empty());
}

/// A tenant that has been deleted takes no other's place, though it is counted above.
#[test]
fn deleted_tenants_leave_their_places_in_the_page() {
    if !is_apart("deleted_tenants_leave_their_places_in_the_page") {
        return;
    }
    publish_statistics().expect("the system has memory files");
    let cache = build("places");
    let aboves: Vec<_> = (0..20)
        .map(|above| cache.tenant(&above.to_string()))
        .collect();
    for above in &aboves {
        (0..10).for_each(|number| assert!(above.tenant(&number.to_string()).delete()));
    }
    let last = cache.tenant("last");
    assert_same("places/last", &last);
}

/// What views of deleted tenants count is in the page once it is counted above: when that is asked for,
/// and when the last view goes.
#[test]
fn what_views_of_a_deleted_tenant_count_is_in_the_page_of_the_one_above() {
    if !is_apart("what_views_of_a_deleted_tenant_count_is_in_the_page_of_the_one_above") {
        return;
    }
    publish_statistics().expect("the system has memory files");
    let cache = build("above");
    let deleted = cache.tenant("deleted");
    assert!(deleted.delete());
    deleted.insert(1, 1);
    for hits in 1..3 {
        assert_eq!(deleted.get(&1), Some(1));
        let statistics = cache.statistics();
        assert_eq!((statistics.hits, statistics.misses), (hits, 0));
        assert_has("above", &cache, &statistics);
    }
    assert_eq!((deleted.get(&1), deleted.get(&2)), (Some(1), None));
    drop(deleted);
    let above = shown("above");
    let counted = ["hits", "misses"].map(|field| above.number_of(field));
    assert_eq!(counted, [3, 1]);
}

/// The first thread has other counts since there is a second one: those that it had are not lost.
#[test]
fn hits_before_there_were_other_threads_are_in_the_page() {
    if !is_apart("hits_before_there_were_other_threads_are_in_the_page") {
        return;
    }
    publish_statistics().expect("the system has memory files");
    let cache = build("alone");
    cache.insert(1, 1);
    let hit = || assert_eq!(cache.get(&1), Some(1));
    (0..10).for_each(|_| hit());
    thread::scope(|scope| {
        scope.spawn(|| {
            hit();
            assert_eq!(cache.get(&u64::MAX), None);
        });
    });
    assert_same("alone", &cache);
    assert_eq!(cache.statistics().hits, 11);
}

#[test]
fn what_expires_unasked_is_in_the_page() {
    if !is_apart("what_expires_unasked_is_in_the_page") {
        return;
    }
    publish_statistics().expect("the system has memory files");
    let cache: Cache<u64, u64> = Cache::builder()
        .max_bytes(100_000)
        .time_to_live(Duration::from_millis(20))
        .name("short")
        .build();
    (0..100).for_each(|key| cache.insert(key, key));
    eventually(|| shown("short").number_of("expirations") == 100);
    assert_same("short", &cache);
    assert_eq!(shown("short").number_of("entries"), 0);
}

#[test]
fn the_child_of_a_fork_shows_its_own() {
    if !is_apart("the_child_of_a_fork_shows_its_own") {
        return;
    }
    publish_statistics().expect("the system has memory files");
    let cache = build("both");
    work(&cache, 0);
    let tenant = cache.tenant("tenant");
    tenant.set_max(10);
    work(&tenant, 10_000);
    fork(|| {
        assert_same("both/tenant", &tenant);
        work(&tenant, 10_000);
        assert_same("both/tenant", &tenant);
    })
    .well();
    assert_same("both/tenant", &tenant);
}
