//! What happens through views of tenants that have been deleted is in the statistics of the one above.

use std::sync::{Arc, Mutex};
use stillpoint_cache::{Cache, Cause, Statistics};

fn cache() -> Cache<u64, u64> {
    Cache::builder().max_weight(100, |_, &v| v).build()
}

/// Two hits, a miss, a load, one that fails, and a refusal: six look-ups miss less one.
fn use_it(view: &Cache<u64, u64>) {
    view.insert(1, 1);
    assert_eq!((view.get(&1), view.get(&1)), (Some(1), Some(1)));
    assert_eq!(view.get(&2), None);
    assert_eq!(view.get_with(&3, || 1), 1);
    assert!(view.try_get_with(&4, || Err::<u64, _>("no")).is_err());
    assert!(view.try_insert(5, 101).is_err());
    assert!(view.remove(&1) && view.remove(&3));
}

/// What is counted in handles.
fn counts(of: &Statistics) -> [u64; 5] {
    [of.hits, of.misses, of.loads, of.load_failures, of.refused]
}

#[test]
fn what_views_of_a_deleted_tenant_do_is_counted_above() {
    let cache = cache();
    use_it(&cache);
    let once = counts(&cache.statistics());
    assert!(once.iter().all(|&count| count > 0), "{once:?}");
    let times = |number| once.map(|count| count * number);
    let above = cache.tenant("above");
    let (deleted, other) = (above.tenant("deleted"), above.tenant("other"));
    use_it(&deleted);
    assert!(deleted.delete() && deleted.is_deleted());
    assert!(!other.is_deleted() && !above.is_deleted());
    assert_eq!(counts(&above.statistics()), times(1));
    use_it(&deleted);
    use_it(&deleted.clone());
    for view in [&above, &deleted] {
        assert_eq!(counts(&view.statistics()), times(3));
        assert_eq!(counts(&view.statistics()), times(3), "counted once");
    }
    assert_eq!(counts(&other.statistics()), times(0));
    assert_eq!(counts(&cache.statistics()), times(4));
    // The one above goes as well, with what it has not been asked for since.
    use_it(&deleted);
    assert!(other.delete() && above.delete());
    use_it(&deleted);
    use_it(&above);
    assert_eq!(counts(&cache.statistics()), times(7));
    let again = cache.tenant("above");
    use_it(&deleted);
    assert_eq!(counts(&again.statistics()), times(0));
    // What the last view has counted stays when it goes.
    drop((deleted, above, other));
    assert_eq!(counts(&cache.statistics()), times(8));
    assert_eq!(counts(&cache.statistics()), times(8));
}

/// All that is counted, also what the tenant's policy has.
#[test]
fn what_a_tenant_has_counted_stays_when_it_is_deleted() {
    let cache = cache();
    let above = cache.tenant("above");
    let deleted = above.tenant("deleted");
    deleted.set_max(10);
    use_it(&deleted);
    for _ in 0..2 {
        (0..15).for_each(|key| deleted.insert(key, 1));
    }
    let before = cache.statistics();
    assert!(before.ghost_hits > 0 && before.evicted > 0, "{before:?}");
    assert!(deleted.delete());
    let mut after = before;
    (after.entries, after.bytes) = (0, 0);
    after.removed += before.entries;
    assert_eq!(cache.statistics(), after);
    assert!(above.delete());
    assert_eq!(cache.statistics(), after);
}

/// From the beginning of a deletion on what is inserted belongs to the tenant above, also in place of an
/// entry that the deletion has not come to: it stays.
#[test]
fn what_replaces_an_entry_of_a_tenant_that_is_being_deleted_stays() {
    let keys = 0..100;
    let (slot, inserted) = <(Arc<Mutex<Option<_>>>, Arc<Mutex<Vec<u64>>>)>::default();
    let (view, note) = (Arc::clone(&slot), Arc::clone(&inserted));
    let cache = Cache::builder()
        .max_entries(1000)
        .eviction_listener(move |_: &u64, _: &u64, cause| {
            let mut inserted = note.lock().unwrap();
            if cause == Cause::Removed && inserted.is_empty() {
                let view: Cache<u64, u64> = view.lock().unwrap().clone().unwrap();
                inserted.extend((0..100).filter(|key| view.contains_key(key)));
                // Listeners that are told of these find that it is not empty.
                let there = inserted.clone();
                drop(inserted);
                there.iter().for_each(|&key| view.insert(key, 2));
            }
        })
        .build();
    let tenant = cache.tenant("tenant");
    keys.for_each(|key| tenant.insert(key, 1));
    *slot.lock().unwrap() = Some(tenant.clone());
    assert!(tenant.delete());
    *slot.lock().unwrap() = None;
    let inserted = inserted.lock().unwrap();
    assert!(!inserted.is_empty(), "it goes in batches");
    assert!(inserted.iter().all(|key| cache.get(key) == Some(2)));
    assert_eq!(cache.entry_count(), inserted.len() as u64);
}

/// Threads look up through views whose tenant another one deletes.
#[test]
fn no_look_up_is_lost_while_tenants_are_deleted() {
    let (cache, threads, each) = (cache(), 3, 2000);
    std::thread::scope(|scope| {
        let look_up = |thread| {
            let cache = &cache;
            move || {
                for number in 0..each {
                    let view = cache.tenant(&format!("{}", number % 5));
                    assert_eq!(view.get(&thread), None);
                    view.delete();
                    assert_eq!(view.get(&thread), None);
                }
            }
        };
        let all: Vec<_> = (0..threads)
            .map(|thread| scope.spawn(look_up(thread)))
            .collect();
        let mut before = 0;
        while !all.iter().all(|thread| thread.is_finished()) {
            let now = cache.statistics().misses;
            assert!(before <= now && now <= 2 * threads * each);
            before = now;
        }
    });
    assert_eq!(cache.statistics().misses, 2 * threads * each);
}
