//! Inserts whose steps other calls come between.

use super::*;
use crate::{
    node::Weight,
    state::{BATCH, ROOT},
};
use std::sync::{Arc, Mutex};

/// Returns a new entry whose value is its weight.
fn new_entry(
    cache: &Cache<u64, u64>,
    key: u64,
    weight: u64,
    expires: u64,
    store: &Pinned<u64, u64>,
) -> NewEntry<u64, Node<u64>> {
    let meta = Meta::new(
        Weight::of(weight),
        cache.hash(&key),
        expires,
        expires,
        false,
    );
    let node = Node {
        value: weight,
        meta,
    };
    store.new_entry(cache.hash(&key), key, node)
}

/// Publishes an entry: the first half of an insert.
fn publish<'g>(
    cache: &'g Cache<u64, u64>,
    key: u64,
    weight: u64,
    store: &'g Pinned<u64, u64>,
) -> Published<'g, u64, u64> {
    let new = new_entry(cache, key, weight, NEVER, store);
    let published = cache.publish(&mut Some(new), None, Origin::Insert, store, |_| ());
    published.expect("it replaces any")
}

/// As [`publish`], of an entry that was loaded, which weighs 1.
fn publish_loaded<'g>(
    cache: &'g Cache<u64, u64>,
    key: u64,
    load: &Arc<Load>,
    expires: u64,
    store: &'g Pinned<u64, u64>,
) -> Published<'g, u64, u64> {
    let new = new_entry(cache, key, 1, expires, store);
    let origin = Origin::Load(load, None);
    let published = cache.publish(&mut Some(new), None, origin, store, |_| ());
    published.expect("nothing is in its place")
}

/// Links an entry for `view`: the second half of an insert. Returns what is left to do.
fn link(
    view: &Cache<u64, u64>,
    published: Published<'_, u64, u64>,
    origin: Origin<'_>,
    expires: u64,
    store: &Pinned<u64, u64>,
) -> Option<Ticket> {
    let mut notes = view.inner.notes();
    let linked = view.link(published, origin, expires, store, &mut notes);
    linked.expect("it fits")
}

#[test]
fn an_entry_that_is_removed_before_it_is_linked_evicts_nothing() {
    let cache: Cache<u64, u64> = Cache::builder().max_entries(3).build();
    (0..3).for_each(|key| cache.insert(key, key));
    let store = &cache.inner.section();
    let weight = 2;
    let published = publish(&cache, 9, weight, store);
    assert!(cache.remove(&9));
    assert!(link(&cache, published, Origin::Insert, NEVER, store).is_none());
    assert_eq!((cache.entry_count(), cache.weighted_bytes()), (3, 3));
}

/// The tenant's number is in no use by the time that the insert takes the lock.
#[test]
fn an_entry_is_replaced_whose_tenant_is_deleted_meanwhile() {
    for is_evicted in [false, true] {
        let cache: Cache<u64, u64> = Cache::builder().max_entries(3).build();
        let tenant = cache.tenant("tenant");
        tenant.insert(9, 1);
        let store = &cache.inner.section();
        let published = publish(&cache, 9, 1, store);
        if is_evicted {
            assert_eq!(tenant.evict_some(1), 1);
        }
        assert!(tenant.delete());
        assert!(link(&cache, published, Origin::Insert, NEVER, store).is_none());
        assert_eq!((cache.get(&9), cache.entry_count()), (Some(1), 1));
        let all = cache.statistics();
        let gone = (all.evicted, all.removed, all.replaced);
        assert_eq!(gone, (u64::from(is_evicted), u64::from(!is_evicted), 0));
    }
}

/// An invalidation between the two steps of the insert of a load.
#[test]
fn what_was_loaded_is_not_found_before_it_is_linked_or_if_it_is_outdated() {
    for is_outdated in [false, true] {
        for expires in [NEVER, NEVER - 1] {
            let cache: Cache<u64, u64> = Cache::with_entries(3);
            let load = Load::of(Arc::clone(&cache.handle));
            let store = &cache.inner.section();
            let published = publish_loaded(&cache, 9, &load, expires, store);
            assert_eq!((cache.get(&9), cache.iter().count()), (None, 0));
            load.is_outdated.store(is_outdated, Ordering::Relaxed);
            assert!(link(&cache, published, Origin::Load(&load, None), expires, store).is_none());
            let expected = (!is_outdated).then_some(1);
            assert_eq!(
                (cache.get(&9), cache.peek(&9).map(|found| *found)),
                (expected, expected)
            );
            let all = cache.statistics();
            assert_eq!((all.inserts, all.removed), (1, u64::from(is_outdated)));
            assert_eq!(all.entries, u64::from(!is_outdated));
        }
    }
}

/// The thread that has claimed it for an eviction has not taken it out yet.
#[test]
fn what_was_claimed_before_an_invalidation_is_not_found_after_it() {
    let cache: Cache<u64, u64> = Cache::builder().max_entries(3).build();
    cache.insert(9, 9);
    let store = &cache.inner.section();
    let mut claimed = Claimed::default();
    let (mut state, mut locked) = cache.inner.lock(store);
    assert!(state.give_back(&mut locked, ROOT, &mut claimed));
    drop(state);
    let found = cache.find(&9, store).expect("it is in the map");
    cache.invalidate_all();
    assert_eq!(
        (cache.get(&9), cache.peek(&9).map(|found| *found)),
        (None, None)
    );
    assert_eq!(cache.iter().count(), 0);
    // A look-up that had begun before notes its use.
    found.get().value.meta.note_use(0);
    assert_eq!(cache.get(&9), None);
    let mut notes = cache.inner.notes();
    cache.take_out(&claimed, Cause::Evicted, store, &mut notes);
    assert!(cache.find(&9, store).is_none());
}

/// The removal waits for the lock while the load links it: others may have found it by then.
#[test]
fn what_has_appeared_before_it_is_removed_is_returned() {
    let cache: Cache<u64, u64> = Cache::with_entries(3);
    let load = Load::of(Arc::clone(&cache.handle));
    let store = &cache.inner.section();
    let published = publish_loaded(&cache, 9, &load, NEVER, store);
    std::thread::scope(|scope| {
        let (mut state, mut locked) = cache.inner.lock(store);
        let remove = || scope.spawn(|| cache.take(&9));
        let removal = cache.inner.shared.until_asked(remove);
        let entrant = Entrant {
            number: ROOT,
            expires: NEVER,
            standing: None,
        };
        let at = (Id::of(published.new), entrant, 0);
        let (load, claimed) = (Origin::Load(&load, None), &mut Claimed::default());
        let admitted = load.admit(&mut state, &mut locked, at, claimed);
        assert_eq!((admitted, cache.get(&9)), ((Ok(None), None), Some(1)));
        drop(state);
        assert_eq!(removal.join().expect("it removes"), Some(1));
    });
    assert_eq!((cache.get(&9), cache.statistics().removed), (None, 1));
}

/// An insert or a removal of the key meanwhile, and a removal of all.
#[test]
fn an_entry_that_a_load_has_not_linked_yet_has_not_expired() {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let hear = Arc::clone(&heard);
    let builder = Cache::builder().max_entries(3);
    let cache = builder.eviction_listener(move |&key: &u64, _: &u64, cause| {
        hear.lock().expect("it is whole").push((key, cause));
    });
    let cache = cache.build();
    let load = Load::of(Arc::clone(&cache.handle));
    let store = &cache.inner.section();
    let [replaced, invalidated, removed] =
        [7, 8, 9].map(|key| publish_loaded(&cache, key, &load, NEVER, store));
    assert_eq!(cache.invalidate_entries_if(|_, _| true), 0);
    cache.insert(7, 10);
    assert!(!cache.remove(&8) && cache.take(&9).is_none());
    for published in [replaced, invalidated, removed] {
        assert!(link(&cache, published, Origin::Load(&load, None), NEVER, store).is_none());
    }
    let all = cache.statistics();
    assert_eq!((all.replaced, all.expired, all.removed), (1, 0, 2));
    assert_eq!([7, 8, 9].map(|key| cache.get(&key)), [Some(10), None, None]);
    let expected = [
        (7, Cause::Replaced),
        (8, Cause::Removed),
        (9, Cause::Removed),
    ];
    assert_eq!(*heard.lock().expect("it is whole"), expected);
}

/// Two loads of one key, of which an invalidation outdates the first, before it has published its entry or
/// after that: the value of the other one is not lost by that, and no entry stays hidden.
#[test]
fn of_two_loads_of_one_key_none_stays_hidden() {
    use Step::{Link, Publish};
    for order in orders(2, false) {
        for outdated_at in [None, Some(0), Some(1)] {
            let cache: Cache<u64, u64> = Cache::with_entries(3);
            let loads = [(); 2].map(|()| Load::of(Arc::clone(&cache.handle)));
            let store = &cache.inner.section();
            let (mut published, mut last) = ([None, None], 1);
            for &step in &order {
                match step {
                    Publish(number) => {
                        let outdate = |at| {
                            let is_outdated = number == 0 && outdated_at == Some(at);
                            loads[0]
                                .is_outdated
                                .fetch_or(is_outdated, Ordering::Relaxed);
                        };
                        outdate(0);
                        let mut new = Some(new_entry(&cache, 9, 1 + number as u64, NEVER, store));
                        let origin = Origin::Load(&loads[number], None);
                        if let Some(new) = cache.publish(&mut new, None, origin, store, |_| ()) {
                            (published[number], last) = (Some(new), number);
                        }
                        outdate(1);
                    }
                    Link(number) => {
                        let Some(new) = published[number].take() else {
                            continue;
                        };
                        let origin = Origin::Load(&loads[number], None);
                        assert!(link(&cache, new, origin, NEVER, store).is_none());
                    }
                    Step::Invalidate => unreachable!("not asked for"),
                }
            }
            let said = format!("{order:?}, {outdated_at:?}");
            let is_kept = last == 1 || outdated_at.is_none();
            assert!(is_kept || outdated_at == Some(1), "{said}");
            assert_eq!(cache.get(&9), is_kept.then_some(1 + last as u64), "{said}");
            assert_eq!(cache.find(&9, store).is_some(), is_kept, "{said}");
            let all = cache.statistics();
            assert_eq!(all.entries, u64::from(is_kept), "{said}");
            assert_eq!(
                all.inserts - all.replaced - all.removed,
                all.entries,
                "{said}"
            );
        }
    }
}

/// The limit of all, in tests of large entries.
const MAX: u64 = 1000;

fn weighed() -> Cache<u64, u64> {
    let cache = Cache::builder().max_weight(MAX, |_, &weight| weight);
    let cache = cache.build();
    (0..MAX).for_each(|key| cache.insert(key, 1));
    cache
}

/// Makes the first batch of room for an entry of a view that needs more.
fn begin(view: &Cache<u64, u64>, key: u64, weight: u64) -> Ticket {
    let store = &view.inner.section();
    let published = publish(view, key, weight, store);
    let ticket = link(view, published, Origin::Insert, NEVER, store);
    ticket.expect("more than a batch is needed")
}

/// Makes another batch of room. Returns whether there is more to do.
fn go_on(view: &Cache<u64, u64>, ticket: &mut Ticket) -> bool {
    let next = view.link_in_more_room(*ticket, Origin::Insert);
    let next = next.expect("it fits");
    next.map(|next| *ticket = next).is_some()
}

#[test]
fn walks_of_a_tenant_meet_an_entry_that_is_being_replaced() {
    let cache = weighed();
    let tenant = cache.tenant("tenant");
    (5000..5003).for_each(|key| tenant.insert(key, 1));
    assert!(tenant.pin(&5000));
    let store = &cache.inner.section();
    let there = || {
        let mut all: Vec<_> = tenant.iter().collect();
        all.sort_unstable();
        all
    };
    // One after the other, before the first one has the lock.
    let first = publish(&cache, 5001, 2, store);
    assert_eq!(there(), [(5000, 1), (5001, 2), (5002, 1)]);
    let second = publish(&tenant, 5001, 3, store);
    assert_eq!(there(), [(5000, 1), (5001, 3), (5002, 1)]);
    let seen = cache.find(&5001, store).expect("it is there");
    assert_eq!(tenant.invalidate_entries_if(|key, _| *key == 5001), 1);
    assert!(!cache.contains_key(&5001) && tenant.has(seen, store, |view| Some(view.number())));
    for published in [first, second] {
        assert!(link(&cache, published, Origin::Insert, NEVER, store).is_none());
    }
    // While it waits for room.
    let large = publish(&cache, 5002, 500, store);
    assert!(link(&cache, large, Origin::Insert, NEVER, store).is_some());
    assert_eq!(there(), [(5000, 1), (5002, 500)]);
    assert_eq!(tenant.invalidate_entries_if(|_, _| true), 2);
    assert_eq!(there(), []);
    check(&cache);
}

/// Checks that the statistics agree with the entries.
fn check(cache: &Cache<u64, u64>) {
    let all = cache.statistics();
    let sum: u64 = cache.iter().map(|(_, weight)| weight).sum();
    assert_eq!((all.bytes, all.entries), (sum, cache.iter().count() as u64));
    let gone = all.evicted + all.replaced + all.removed;
    assert_eq!(all.inserts - gone, all.entries, "{all:?}");
    assert!(all.bytes <= MAX);
}

/// Between two batches they take more than a batch frees.
#[test]
fn what_is_freed_for_a_large_entry_is_not_taken_by_small_ones() {
    let (cache, weight) = (weighed(), 500);
    let mut pending = begin(&cache, 9999, weight);
    let (mut batches, mut key) = (2, 10_000);
    while go_on(&cache, &mut pending) {
        (key..key + 100).for_each(|key| cache.insert(key, 1));
        assert_eq!(cache.weighted_bytes(), MAX);
        (batches, key) = (batches + 1, key + 100);
        assert!(batches < MAX, "it is starved");
    }
    assert_eq!(batches, weight.div_ceil(BATCH as u64));
    assert_eq!(cache.get(&9999), Some(weight));
    check(&cache);
}

/// Neither fits beside what is reserved for the other one.
#[test]
fn two_large_entries_that_do_not_fit_together_are_both_inserted() {
    let (cache, weight) = (weighed(), 700);
    let mut pending = [1 << 20, 1 << 21].map(|key| (begin(&cache, key, weight), true));
    let mut batches = 0;
    while pending.iter().any(|&(_, more)| more) {
        for (pending, more) in &mut pending {
            *more = *more && go_on(&cache, pending);
        }
        batches += 1;
        assert!(batches < MAX, "they take the room from each other");
    }
    // The one that has ended first has made room for the other one.
    assert_eq!(
        [1 << 20, 1 << 21]
            .iter()
            .filter(|key| cache.contains_key(*key))
            .count(),
        1
    );
    check(&cache);
}

#[test]
fn what_is_reserved_goes_with_the_entry_and_with_its_tenant() {
    let cache = weighed();
    let mut pending = begin(&cache, 9999, 500);
    assert!(cache.remove(&9999) && !cache.contains_key(&9999));
    assert!(!go_on(&cache, &mut pending));
    check(&cache);
    // Replaced by one that fits at once.
    let mut pending = begin(&cache, 9999, 500);
    cache.insert(9999, 1);
    assert!(!go_on(&cache, &mut pending));
    assert_eq!(cache.get(&9999), Some(1));
    check(&cache);
    // The tenant above has it.
    let cache = weighed();
    let tenant = cache.tenant("tenant");
    let mut pending = begin(&tenant, 9999, 500);
    assert_eq!(tenant.weighted_bytes(), BATCH as u64);
    assert!(tenant.delete());
    assert_eq!(cache.tenant("tenant").weighted_bytes(), 0);
    while go_on(&tenant, &mut pending) {}
    assert_eq!(cache.get(&9999), Some(500));
    check(&cache);
}

/// The thread that has lowered it evicts the rest.
#[test]
fn an_insert_beside_a_limit_that_is_lowered_evicts_a_batch_at_most() {
    let cache = weighed();
    let max = |max| cache.with_state(|state| state.set_limits(ROOT, |limits| limits.max = max));
    max(100);
    cache.insert(5000, 10);
    let all = cache.statistics();
    assert_eq!((all.evicted, cache.get(&5000)), (BATCH as u64, Some(10)));
    cache.insert(5001, 90);
    let after = cache.statistics();
    assert!(
        after.bytes < all.bytes && cache.contains_key(&5001),
        "{after:?}"
    );
    assert!(after.evicted - all.evicted <= 4 * BATCH as u64);
    (6000..6100).for_each(|key| cache.insert(key, 1));
    assert_eq!(cache.weighted_bytes(), 100);
    max(MAX);
    check(&cache);
}

/// It was seen before the section of the insert had an entry to put there.
#[test]
fn what_has_gone_since_it_was_seen_is_not_replaced() {
    for comes_again in [false, true] {
        let cache: Cache<u64, u64> = Cache::builder().max_entries(3).build();
        cache.insert(9, 0);
        let store = &cache.inner.section();
        let seen = cache.find(&9, store);
        assert!(seen.is_some() && cache.remove(&9));
        if comes_again {
            cache.insert(9, 1);
        }
        let mut new = Some(new_entry(&cache, 9, 2, NEVER, store));
        let published = cache.publish(&mut new, seen, Origin::Insert, store, |_| ());
        let published = published.expect("it replaces any");
        let replaced = published.old.map(|(old, _)| old.get().value.value);
        assert_eq!(replaced, comes_again.then_some(1));
        assert!(link(&cache, published, Origin::Insert, NEVER, store).is_none());
        assert_eq!((cache.get(&9), cache.entry_count()), (Some(2), 1));
    }
}

/// A step of a thread that works on one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Publish(usize),
    Link(usize),
    Invalidate,
}

/// Returns all orders of the steps of `inserts` inserts, and of a removal if it `removes`.
fn orders(inserts: usize, removes: bool) -> Vec<Vec<Step>> {
    fn go(done: &[Step], inserts: usize, removes: bool, all: &mut Vec<Vec<Step>>) {
        let mut next = Vec::new();
        for number in 0..inserts {
            if !done.contains(&Step::Publish(number)) {
                next.push(Step::Publish(number));
            } else if !done.contains(&Step::Link(number)) {
                next.push(Step::Link(number));
            }
        }
        if removes && !done.contains(&Step::Invalidate) {
            next.push(Step::Invalidate);
        }
        if next.is_empty() {
            all.push(done.to_vec());
        }
        for step in next {
            go(&[done, &[step]].concat(), inserts, removes, all);
        }
    }
    let mut all = Vec::new();
    go(&[], inserts, removes, &mut all);
    all
}

/// Views of three tenants insert one key at once, and one removes it: in any order of their steps, the
/// entry that stays is charged once, to its tenant.
#[test]
fn tenants_that_insert_one_key_at_once_are_charged_for_what_is_there() {
    let orders = if cfg!(miri) {
        orders(2, false)
    } else {
        let mut all = orders(3, false);
        all.extend(orders(3, true));
        assert_eq!(all.len(), 90 + 630);
        all
    };
    let weights = [[3, 2, 1], [2, 2, 2], [1, 2, 3]];
    let some = if cfg!(miri) { 1 } else { weights.len() };
    for order in &orders {
        for &weights in &weights[..some] {
            for is_there in [false, true] {
                accounts_are_exact_after(order, weights, is_there);
            }
        }
    }
}

fn accounts_are_exact_after(order: &[Step], weights: [u64; 3], is_there: bool) {
    let cache: Cache<u64, u64> = Cache::builder().max_weight(9, |_, &v| v).build();
    let views = ["a", "b", "c"].map(|name| cache.tenant(name));
    if is_there {
        views[2].insert(9, 2);
    }
    let store = &cache.inner.section();
    let mut published = [None, None, None];
    let mut last = is_there.then_some(2);
    for &step in order {
        match step {
            Step::Publish(number) => {
                let weight = weights[number];
                let new = publish(&views[number], 9, weight, store);
                (published[number], last) = (Some(new), Some(weight));
            }
            Step::Link(number) => {
                let new = published[number].take().expect("it was published");
                assert!(link(&views[number], new, Origin::Insert, NEVER, store).is_none());
            }
            Step::Invalidate => {
                cache.remove(&9);
                last = None;
            }
        }
    }
    let said = format!("{order:?} with {weights:?}, {is_there}");
    assert_eq!(cache.get(&9), last, "{said}");
    let mut owner = None;
    if let Some(found) = cache.find(&9, store) {
        let (_state, mut locked) = cache.inner.lock(store);
        let guarded = locked.of(Id::of(found));
        assert_eq!(guarded.stage, Stage::Linked, "{said}");
        owner = Some(guarded.tenant);
    }
    let all = cache.statistics();
    assert_eq!(all.bytes, last.unwrap_or(0), "{said}");
    let gone = all.replaced + all.removed;
    assert_eq!(
        (all.evicted, all.inserts - gone),
        (0, all.entries),
        "{said}"
    );
    assert_eq!(all.entries, u64::from(last.is_some()), "{said}");
    for view in &views {
        let number = view.with_own(|_, number| number);
        let own = view.statistics();
        let is_owner = owner.is_some() && number == owner;
        assert_eq!(own.bytes > 0, is_owner, "{said}: {own:?}");
        assert_eq!(own.entries, u64::from(is_owner), "{said}: {own:?}");
        let gone = own.replaced + own.removed;
        assert_eq!(own.inserts - gone, own.entries, "{said}: {own:?}");
    }
}
