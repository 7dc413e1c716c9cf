//! Tests of bounds: refused inserts, deleted tenants, evictions in batches.

mod helpers;

use helpers::{Weighed, weighed, with_listener};
use std::{
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};
use stillpoint_cache::{Cache, Cause, InsertError, ManualClock};

/// A value that says, when it is cloned, whether the cache has an entry with a key.
struct Asking {
    cache: Arc<OnceLock<Cache<u64, Asking>>>,
    heard: Arc<Mutex<Vec<bool>>>,
    weight: u64,
}

impl Clone for Asking {
    fn clone(&self) -> Self {
        let there = self.cache.get().unwrap().contains_key(&5000);
        self.heard.lock().unwrap().push(there);
        Self {
            cache: Arc::clone(&self.cache),
            heard: Arc::clone(&self.heard),
            weight: self.weight,
        }
    }
}

#[test]
fn an_entry_that_is_refused_is_not_found_by_user_code_of_what_it_has_evicted() {
    let cache = Cache::builder()
        .max_weight(1000, |_: &u64, value: &Asking| value.weight)
        .eviction_listener(|_: &u64, _: &Asking, _| {})
        .build();
    let (slot, heard) = (Arc::default(), Arc::default());
    let value = |weight| Asking {
        cache: Arc::clone(&slot),
        heard: Arc::clone(&heard),
        weight,
    };
    assert!(slot.set(cache.clone()).is_ok());
    let (a, b) = (cache.tenant("a"), cache.tenant("b"));
    // What is above the min can be taken by nothing but all of it.
    a.set_min(100);
    a.insert(0, value(600));
    (1..17).for_each(|key| b.insert(key, value(25)));
    let error = cache.tenant("c").try_insert(5000, value(500)).unwrap_err();
    assert!(matches!(error, InsertError::Full { .. }), "{error}");
    // Of these, and of itself.
    assert_eq!(*heard.lock().unwrap(), [false; 17]);
    // The cycle of the values and their cache ends here.
    cache.invalidate_all();
}

#[test]
fn what_is_refused_is_told_and_replaces_nothing() {
    let (told, clock) = (Arc::<Mutex<Vec<_>>>::default(), ManualClock::default());
    let own = Arc::clone(&told);
    let cache = Cache::builder()
        .max_weight(100, |_: &u64, &weight: &u64| weight)
        .eviction_listener(move |&key, &weight, cause| {
            own.lock().unwrap().push((key, weight, cause))
        })
        .clock(clock)
        .build();
    cache.insert(1, 5);
    assert!(cache.try_insert(1, 101).is_err() && cache.try_insert(2, 102).is_err());
    let expected = [
        (1, 5, Cause::Removed),
        (1, 101, Cause::Refused),
        (2, 102, Cause::Refused),
    ];
    assert_eq!(*told.lock().unwrap(), expected);
    let all = cache.statistics();
    assert_eq!((all.inserts, all.replaced, all.removed), (1, 0, 1));
    assert_eq!((all.refused, all.entries, all.bytes), (2, 0, 0));
}

#[test]
fn a_delete_of_a_large_tenant_ends_though_others_insert_into_it() {
    let entries = if cfg!(miri) { 200 } else { 20_000 };
    let (cache, over) = (weighed(u64::MAX), AtomicBool::new(false));
    let tenant = cache.tenant("tenant");
    (0..entries).for_each(|key| tenant.insert(key, 1));
    thread::scope(|scope| {
        for number in 1..4 {
            let (tenant, over) = (tenant.clone(), &over);
            scope.spawn(move || {
                let mut key = number << 32;
                while !over.load(Ordering::Relaxed) {
                    tenant.insert(key, 1);
                    key += 1;
                }
            });
        }
        assert!(tenant.delete());
        over.store(true, Ordering::Relaxed);
    });
    assert!((0..entries).all(|key| !cache.contains_key(&key)));
    assert!(!tenant.delete());
    assert_eq!(cache.tenant("tenant").entry_count(), 0);
}

/// Each entry that is removed is followed by two new ones.
#[test]
fn an_invalidation_ends_though_more_is_inserted_meanwhile_than_it_removes() {
    let (entries, most) = (200, 100_000);
    let (slot, inserted) = (
        Arc::<OnceLock<Weighed>>::default(),
        Arc::new(AtomicU64::new(0)),
    );
    let (own, number) = (Arc::clone(&slot), Arc::clone(&inserted));
    let cache = Cache::builder()
        .max_entries(2 * most)
        .eviction_listener(move |_, _, cause| {
            if cause == Cause::Removed && number.load(Ordering::Relaxed) < most {
                let first = number.fetch_add(2, Ordering::Relaxed);
                let tenant = own.get().unwrap();
                (first..first + 2).for_each(|key| tenant.insert(1000 + key, 0));
            }
        })
        .build();
    // In all queues: the used ones go to the main one.
    let tenant = cache.tenant("tenant");
    assert!(slot.set(tenant.clone()).is_ok());
    (0..entries).for_each(|key| tenant.insert(key, 0));
    assert!((0..3 * entries).all(|key| cache.get(&(key % entries)).is_some()));
    assert!((0..5).all(|key| cache.pin(&key)));
    tenant.set_max(entries);
    (500..550).for_each(|key| tenant.insert(key, 0));
    tenant.set_max(u64::MAX);
    tenant.invalidate_all();
    let new = inserted.load(Ordering::Relaxed);
    assert_eq!((new, tenant.entry_count()), (2 * entries, 2 * entries));
    assert!((0..550).all(|key| !cache.contains_key(&key)));
}

/// What is inserted through a tenant's views from the listener of its deletion is the one above's.
#[test]
fn a_tenant_that_is_being_deleted_takes_no_entries() {
    let cache = with_listener(1000, |cache| {
        let tenant = cache.tenant("tenant");
        assert_eq!(
            (tenant.entry_count(), tenant.max()),
            (0, u64::MAX),
            "a new one"
        );
        tenant.insert(500, 1);
    });
    let tenant = cache.tenant("tenant");
    tenant.set_max(100);
    (0..100).for_each(|key| tenant.insert(key, 1));
    assert!(tenant.delete());
    assert_eq!(cache.tenant("tenant").entry_count(), 1);
    assert_eq!((cache.entry_count(), cache.weighted_bytes()), (1, 1));
}

/// Inserts between the batches of a deletion evict from the tenant, and choose it for later ones.
#[test]
fn a_tenant_that_gave_way_while_it_was_deleted_is_forgotten() {
    let cache = with_listener(1000, |cache| {
        let stays = cache.tenant("above").tenant("stays");
        (1000..1040).for_each(|key| stays.insert(key, 1));
    });
    let above = cache.tenant("above");
    above.set_max(200);
    let [stays, goes] = ["stays", "goes"].map(|name| above.tenant(name));
    (0..50).for_each(|key| stays.insert(key, 1));
    (50..200).for_each(|key| goes.insert(key, 1));
    assert!(goes.delete());
    assert_eq!(above.entry_count(), 90, "the one with more has given way");
    (2000..2200).for_each(|key| stays.insert(key, 1));
    assert_eq!(above.entry_count(), 200);
}

#[test]
fn what_has_expired_goes_in_batches_between_which_the_listener_is_told() {
    let clock = ManualClock::default();
    let slot: Arc<OnceLock<Weighed>> = Arc::default();
    let (own, left) = (Arc::clone(&slot), Arc::<Mutex<Vec<u64>>>::default());
    let lefts = Arc::clone(&left);
    let cache = Cache::builder()
        .max_entries(10_000)
        .time_to_live(Duration::from_secs(1))
        .clock(clock.clone())
        .eviction_listener(move |_, _, cause| {
            assert_eq!(cause, Cause::Expired);
            lefts.lock().unwrap().push(own.get().unwrap().entry_count());
        })
        .build();
    assert!(slot.set(cache.clone()).is_ok());
    (0..200).for_each(|key| cache.insert(key, key));
    clock.advance(Duration::from_secs(2));
    cache.run_pending();
    let left = left.lock().unwrap();
    assert_eq!((left.len(), cache.entry_count()), (200, 0));
    assert!(left[0] >= 200 - 32 && left[32] >= 200 - 64, "{left:?}");
}
