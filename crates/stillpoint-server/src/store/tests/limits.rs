//! Limits: eviction, refusals, pins, memory that comes back.

use super::*;
use crate::store::{Draft, ITEM_MAX, Limits, OnEvict, Refused, segment::Why};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

const KIB: u64 = if cfg!(miri) { 256 } else { 4096 };

fn tenants<const N: usize>(store: &Store, names: [&str; N]) -> [Tenant; N] {
    names.map(|name| store.create_tenant(name).unwrap())
}

fn prepare(tenant: &Tenant, key: u64, len: usize) -> Draft {
    tenant.prepare(&key.to_le_bytes(), 0, 0, len).unwrap()
}

fn fill(tenant: &Tenant, items: u64) {
    for number in 0..items {
        set(tenant, &number.to_le_bytes(), &pattern(number, 0, 1000)).unwrap();
    }
}

fn found(tenant: &Tenant, items: u64) -> Vec<u64> {
    let is_there = |number: &u64| {
        tenant.peek(&number.to_le_bytes(), |item| {
            assert_eq!(item.value(), pattern(*number, 0, 1000));
        })
    };
    (0..items)
        .filter(|number| is_there(number).is_some())
        .collect()
}

#[test]
fn the_limit_holds_and_what_is_used_stays() {
    let (_store, tenant, _) = store_of(KIB << 10, true);
    let hot = KIB / 16;
    for number in 0..4 * KIB {
        set(&tenant, &number.to_le_bytes(), &pattern(number, 0, 1000)).unwrap();
        let often = number % hot;
        drop(value_of(&tenant, &often.to_le_bytes()));
        assert!(tenant.statistics().segment_bytes <= KIB << 10);
    }
    let there = found(&tenant, 4 * KIB);
    assert!(
        there.len() as u64 > KIB / 2,
        "the memory is used: {}",
        there.len()
    );
    let hot_ones = there.iter().filter(|&&number| number < hot).count() as u64;
    assert!(hot_ones * 10 >= hot * 9, "{hot_ones} of {hot}");
    let figures = tenant.statistics();
    assert_eq!(figures.items, there.len() as u64);
    assert_eq!(figures.evicted + figures.items, 4 * KIB);
    assert!(figures.evicted_unfetched <= figures.evicted && figures.copied > 0);
}

#[test]
fn a_lower_limit_takes_effect_at_once_and_a_higher_one_evicts_nothing() {
    let (store, tenant, _) = store_of(KIB << 10, true);
    fill(&tenant, KIB / 2);
    let before = tenant.statistics();
    assert_eq!(before.evicted, 0);
    assert_eq!(store.set_limit(KIB << 8), 0);
    let after = store.statistics();
    assert!(after.segment_bytes <= KIB << 8);
    assert_eq!((after.limbo_bytes, after.spare_bytes), (0, 0));
    assert!(after.all.evicted >= KIB / 4 && after.all.items > KIB / 8);
    assert_eq!(store.set_limit(KIB << 10), 0);
    fill(&tenant, KIB / 4);
    assert_eq!(store.statistics().all.evicted, after.all.evicted);
    assert!(store.shrink(KIB << 7) > 0);
    assert!(store.statistics().all.evicted > after.all.evicted);
}

#[test]
fn without_eviction_stores_are_refused_until_there_is_room() {
    let (_store, tenant, _) = store_of(KIB << 10, false);
    let (mut items, mut refused) = (0u64, None);
    while refused.is_none() {
        refused = set(&tenant, &items.to_le_bytes(), &pattern(items, 0, 1000)).err();
        items += u64::from(refused.is_none());
    }
    let limit = Refused::Limit {
        tenant: "".into(),
        limit: KIB << 10,
    };
    assert_eq!(refused, Some(Outcome::Refused(limit)));
    assert_eq!(
        found(&tenant, items).len() as u64,
        items,
        "nothing was evicted"
    );
    // Every second one goes; then there is room for new ones, by compaction.
    for number in (0..items).step_by(2) {
        tenant.delete(&number.to_le_bytes(), None).unwrap();
    }
    for number in items..items + items / 4 {
        set(&tenant, &number.to_le_bytes(), &pattern(number, 0, 1000)).unwrap();
    }
    assert_eq!(found(&tenant, items).len() as u64, items / 2);
    assert_eq!(tenant.statistics().evicted, 0);
    assert!(tenant.statistics().copied > 0);
}

#[test]
fn overwriting_evicts_nothing_while_the_live_items_fit() {
    let (_store, tenant, _) = store_of(KIB << 10, true);
    let keys = KIB / 4;
    fill(&tenant, keys);
    // Every segment keeps some that are not overwritten.
    for round in 0..20 * KIB {
        let key = round.wrapping_mul(7919) % keys;
        if !key.is_multiple_of(4) {
            set(&tenant, &key.to_le_bytes(), &pattern(key, 0, 1000)).unwrap();
        }
    }
    let figures = tenant.statistics();
    assert_eq!((figures.items, figures.evicted), (keys, 0));
    assert_eq!(found(&tenant, keys).len() as u64, keys);
}

#[test]
fn a_minimum_is_kept_while_another_tenant_floods() {
    let (store, _, _) = store_of(KIB << 10, true);
    let [quiet, loud] = tenants(&store, ["quiet", "loud"]);
    quiet.set_limits(Limits {
        min: KIB << 9,
        ..Limits::default()
    });
    let kept = KIB / 4;
    fill(&quiet, kept);
    fill(&loud, 8 * KIB);
    assert_eq!(found(&quiet, kept).len() as u64, kept);
    assert_eq!(quiet.statistics().evicted, 0);
    assert!(loud.statistics().evicted > 0);
}

#[test]
fn a_maximum_is_the_tenants_alone() {
    let (store, _, _) = store_of(KIB << 12, true);
    let [small, other] = [store.create_tenant("small"), store.tenant("")].map(Result::unwrap);
    let max = KIB << 8;
    let limits = Limits::max(max);
    assert_eq!((small.set_limits(limits), small.limits()), (0, limits));
    fill(&other, KIB / 4);
    fill(&small, KIB);
    assert!(small.statistics().segment_bytes <= max && small.statistics().evicted > 0);
    assert_eq!(other.statistics().evicted, 0);
    // An item that is larger than the limit is refused, and says whose it is.
    let len = 2 * max as usize;
    let refused = small.prepare(b"large", 0, 0, len).err();
    let expected = match len > store.config().item_max {
        true => Refused::TooLarge {
            len,
            max: store.config().item_max,
        },
        false => Refused::Limit {
            tenant: "small".into(),
            limit: max,
        },
    };
    assert_eq!(refused, Some(expected));
}

#[test]
fn a_pin_keeps_its_bytes_and_is_capped() {
    let clock = ManualClock::new();
    let config = Config {
        limit: KIB << 10,
        pinned_max: Some(100 << 10),
        clock: Clock::Manual(clock),
        ..Config::default()
    };
    let store = Store::new(config).unwrap();
    let tenant = store.tenant("").unwrap();
    let value = |number| pattern(number, 1, 60_000);
    for number in 1..3u64 {
        set(&tenant, &number.to_be_bytes(), &value(number)).unwrap();
    }
    let pin = |number: u64| {
        tenant
            .get(&number.to_be_bytes(), |item| item.pin())
            .unwrap()
    };
    let first = pin(1).unwrap();
    let again = pin(1).unwrap();
    assert!(pin(2).is_none(), "past the cap");
    assert_eq!(tenant.statistics().pinned_bytes, 60 << 10);
    // What is pinned is not evicted, and what is overwritten or flushed stays until the pin goes.
    fill(&tenant, 4 * KIB);
    assert!(value_of(&tenant, &1u64.to_be_bytes()) == Some(value(1)));
    tenant.delete(&1u64.to_be_bytes(), None).unwrap();
    tenant.flush_all(0);
    store.maintain();
    fill(&tenant, 4 * KIB);
    assert!(*first == value(1)[..] && *again == value(1)[..]);
    drop(first);
    assert_eq!(tenant.statistics().pinned_bytes, 60 << 10);
    drop((tenant, store));
    assert!(*again == value(1)[..]);
}

/// A value that is only announced costs nothing; one that arrives is charged as far as it has.
#[test]
fn announced_values_evict_nothing_and_unfinished_ones_have_a_part() {
    let (store, _, _) = store_of(KIB << 10, true);
    let [tenant, other] = [store.tenant(""), store.create_tenant("other")].map(Result::unwrap);
    fill(&other, 2 * KIB);
    let before = store.statistics().all;
    let len = (KIB << 10) as usize / 16;
    let key = |number: usize| number.to_le_bytes();
    let announced = |number| tenant.prepare(&key(number), 0, 0, len);
    let mut drafts: Vec<_> = (0..100).map(|number| announced(number).unwrap()).collect();
    assert_eq!(store.statistics().all, before);
    // Half of it has arrived.
    drafts[0].push(&vec![1; len / 2]).unwrap();
    let usage = tenant.statistics().segment_bytes;
    let half = len as u64 / 2;
    assert!((half..half + 8192).contains(&usage), "{usage} of {half}");
    // All of others, but for their ends: they take a quarter of the store, and those go first that
    // have waited longest.
    for draft in &mut drafts[1..] {
        draft.push(&vec![2; len - 1]).unwrap();
        assert!(tenant.statistics().segment_bytes <= KIB << 8);
    }
    let ended = |draft: &mut Draft| draft.push(&[2]).is_err();
    assert_eq!(drafts.iter_mut().position(|draft| !ended(draft)), Some(97));
    assert_eq!(tenant.statistics().refused, 97);
    drafts.drain(..97);
    // Another tenant has its part, and can store.
    set(&other, b"k", &[0; 1000]).unwrap();
    let mut large = other.prepare(b"large", 0, 0, len).unwrap();
    large.push(&vec![3; len]).unwrap();
    large.store(Mode::Set, ANY).unwrap();
    // Those that have kept their place are finished.
    assert!(drafts[1..].iter_mut().all(|draft| draft.push(&[2]).is_ok()));
    for draft in drafts {
        draft.store(Mode::Set, ANY).unwrap();
    }
    let figures = tenant.statistics();
    assert_eq!(figures.items, 3);
    assert_eq!(value_of(&tenant, &key(98)), Some(vec![2; len]));
    assert!(figures.segment_bytes < 3 * len as u64 + (16 << 10));
}

/// Whatever values other tenants, and other clients of the same one, have begun and do not finish.
#[test]
fn a_client_that_sends_a_value_stores_it() {
    let (store, _, _) = store_of(KIB << 10, true);
    let len = (KIB << 10) as usize / 16;
    let tenants = tenants(&store, ["a", "b", "c"]);
    let mut stalled: Vec<Draft> = Vec::new();
    let stall = |tenant: &Tenant, key: u64| {
        let mut draft = tenant.prepare(&key.to_le_bytes(), 0, 0, len).unwrap();
        draft.push(&vec![1; len - 1]).map(|()| draft)
    };
    // Two tenants have half of the store, with values that lack a byte.
    for tenant in &tenants[..2] {
        stalled.extend((0..20).filter_map(|key| stall(tenant, key).ok()));
    }
    for tenant in &tenants {
        for key in 20..25 {
            let mut draft = stall(tenant, key).unwrap();
            draft.push(&[1]).unwrap();
            draft.store(Mode::Set, ANY).unwrap();
        }
    }
    drop(stalled);
    assert_eq!(tenants[2].statistics().refused, 0);
}

/// Two values arrive page by page, in turn, and are stored.
fn arrive_together(mut drafts: [Draft; 2]) {
    while drafts[1].missing() > 0 {
        for draft in &mut drafts {
            let page = draft.missing().min(4096);
            draft.push(&[2; 4096][..page]).unwrap();
        }
    }
    for draft in drafts {
        draft.store(Mode::Set, ANY).unwrap();
    }
}

/// Two other tenants hold the part of all tenants, with values that they do not finish.
#[test]
fn two_values_of_a_tenant_that_arrive_at_a_time_are_stored() {
    let (store, _, _) = store_of(KIB << 10, true);
    let len = (KIB << 10) as usize / 16;
    let [a, b, c] = tenants(&store, ["a", "b", "c"]);
    let prepare = |tenant: &Tenant, key| prepare(tenant, key, len);
    let mut stalled = Vec::new();
    for (tenant, key) in [&a, &b]
        .into_iter()
        .flat_map(|tenant| (0..3).map(move |key| (tenant, key)))
    {
        let mut draft = prepare(tenant, key);
        draft.push(&vec![1; len - 1]).unwrap();
        stalled.push(draft);
    }
    // A tenant that is deleted has its part until its clients go.
    store.delete_tenant("a").unwrap();
    arrive_together([prepare(&c, 0), prepare(&c, 1)]);
    let ended = stalled
        .iter_mut()
        .filter_map(|draft| draft.push(&[1]).err());
    assert_eq!(ended.count(), 1, "as many as needed");
}

/// Many tenants hold the part of all, each with one value that it does not finish: none has more than
/// the tenant that stores.
#[test]
fn values_of_a_tenant_do_not_end_each_other_where_others_have_as_much() {
    let (store, _, _) = store_of(8 << 20, true);
    let len = 128 << 10;
    let prepare = |tenant: &Tenant, key| prepare(tenant, key, len);
    let hogs: Vec<_> = (0..32)
        .map(|number| store.create_tenant(&format!("hog{number}")).unwrap())
        .collect();
    let mut stalled: Vec<_> = hogs
        .iter()
        .map(|hog| {
            let mut draft = prepare(hog, 0);
            draft.push(&vec![1; len - 1]).unwrap();
            draft
        })
        .collect();
    let tenant = store.create_tenant("c").unwrap();
    for round in 0..4 {
        arrive_together([prepare(&tenant, 2 * round), prepare(&tenant, 2 * round + 1)]);
    }
    assert_eq!(tenant.statistics().refused, 0);
    // As many as needed, and those that have waited longest.
    let is_open = |draft: &mut Draft| draft.push(&[1]).is_ok();
    let open: Vec<_> = stalled.iter_mut().map(is_open).collect();
    assert_eq!(open, [[false; 3].as_slice(), &[true; 29]].concat());
}

/// The same, where values that are only announced hold the address space.
#[test]
fn announced_values_of_a_tenant_do_not_end_each_other_where_others_have_as_much() {
    const LEN: usize = 90_000;
    let (store, _, _) = store_of(16 << 20, true);
    let common = &store.tenant("").unwrap().state.owner.common.clone();
    // A quarter has room for 16 of these values.
    common
        .pool
        .seeming_space
        .set(64 * (LEN as u64 + 4096))
        .unwrap();
    let hogs: Vec<_> = (0..16)
        .map(|number| store.create_tenant(&format!("hog{number}")).unwrap())
        .collect();
    let prepare = |tenant: &Tenant, key: u64| tenant.prepare(&key.to_le_bytes(), 0, 0, LEN);
    let stalled: Vec<_> = hogs.iter().map(|hog| prepare(hog, 0).unwrap()).collect();
    let tenant = store.create_tenant("c").unwrap();
    arrive_together([0, 1].map(|key| prepare(&tenant, key).unwrap()));
    drop(stalled);
}

/// Detects a client that keeps its place by sending a byte now and then.
#[test]
fn a_value_that_grows_by_less_than_a_page_keeps_its_place() {
    let (_store, tenant, _) = store_of(KIB << 10, true);
    let len = (KIB << 10) as usize / 16;
    let prepare = |key: &[u8]| tenant.prepare(key, 0, 0, len).unwrap();
    let push = |draft: &mut Draft, bytes: usize| draft.push(&vec![1; bytes]);
    let (mut first, mut second) = (prepare(b"a"), prepare(b"b"));
    push(&mut first, len / 2).unwrap();
    push(&mut second, len - 1).unwrap();
    push(&mut first, 1).unwrap();
    push(&mut first, 0).unwrap();
    let mut others = [prepare(b"c"), prepare(b"d"), prepare(b"e")];
    for draft in &mut others[..2] {
        push(draft, len - 1).unwrap();
    }
    // A quarter of the store is taken, and the next page is too much.
    push(&mut others[2], len / 2).unwrap();
    assert!(push(&mut first, 1).is_err());
    push(&mut second, 1).unwrap();
    assert_eq!(tenant.statistics().refused, 1);
}

/// Detects bytes that were refused and count as unfinished, for which other values would be ended.
#[test]
fn a_value_that_is_refused_takes_no_part() {
    let (_store, tenant, _) = store_of(KIB << 10, false);
    let mut draft = tenant.prepare(b"k", 0, 0, 90_000).unwrap();
    draft.push(&[1; 10_000]).unwrap();
    let mut keys = 0..u64::MAX;
    keys.find(|key| set(&tenant, &key.to_le_bytes(), &[0; 1000]).is_err());
    assert!(draft.push(&[1; 50_000]).is_err());
    let owner = &tenant.state.owner;
    assert_eq!(owner.sum(|sums| &sums.announced), [0; 2]);
    assert!(draft.push(&[1]).is_err());
}

/// Announced values reserve address space, of which each tenant has a part.
#[test]
fn a_tenant_that_announces_much_leaves_address_space_to_others() {
    const LEN: usize = 90_000;
    let (store, tenant, _) = store_of(16 << 20, true);
    let owner = &tenant.state.owner;
    owner.common.pool.seeming_space.set(800_000).unwrap();
    let tenants = tenants(&store, ["a", "b", "c"]);
    let announced: Vec<_> = tenants
        .iter()
        .flat_map(|tenant| [0; 30].map(|_| tenant.prepare(b"k", 0, 0, LEN)))
        .collect();
    assert!(announced.iter().all(Result::is_ok));
    // A quarter, and one of the tenant that came last.
    let all = owner.sum(|sums| &sums.announced)[1] as usize;
    assert!((2 * LEN..200_000 + 2 * LEN).contains(&all), "{all}");
    drop(announced);
    assert_eq!(owner.sum(|sums| &sums.announced)[1], 0);
}

/// Memory that is resident and charged to no tenant stays within its bound, whatever is announced.
#[test]
fn announced_values_are_lent_no_more_spare_memory_than_there_may_be() {
    let (_store, tenant, _) = store_of(16 << 20, true);
    let pool = &tenant.state.common().pool;
    let len = 300_000;
    let replace = || {
        set(&tenant, b"k", &vec![1; len]).unwrap();
        synchronize();
        pool.release();
    };
    let mut drafts = Vec::new();
    let mut lent = 0;
    for number in 0..20u8 {
        (0..3).for_each(|_| replace());
        let before = pool.fresh.load(Ordering::Relaxed);
        drafts.push(tenant.prepare(&[number], 0, 0, len).unwrap());
        lent += u64::from(pool.fresh.load(Ordering::Relaxed) == before);
        assert!(pool.spare_bytes() + pool.limbo_bytes() <= 2 << 20);
    }
    // Of 2 MiB half.
    assert_eq!(lent, 3);
    let spare = pool.spare_bytes();
    // Bytes that have arrived are charged, and the memory of a value that was given up is spare again.
    let mut first = drafts.remove(0);
    first.push(&vec![2; len]).unwrap();
    let charged = spare - pool.spare_bytes();
    assert!(charged >= len as u64, "{charged}");
    drop(first);
    drop(drafts);
    assert_eq!(pool.lent_bytes(), 0);
    assert!(pool.spare_bytes() >= 3 * len as u64);
}

/// Large values that are replaced, or evict others, are written to memory that is there: nearly none
/// is asked of the system.
#[test]
fn large_values_use_the_memory_of_those_before() {
    const LIMIT: u64 = 16 << 20;
    let (_store, tenant, _) = store_of(LIMIT, true);
    let pool = &tenant.state.common().pool;
    let fresh = || pool.fresh.load(Ordering::Relaxed);
    let (keys, rounds) = if cfg!(miri) { (4, 20) } else { (1000, 1200) };
    // Of one length, of two, of many; into a full store, and instead of others.
    let lengths: [fn(u64) -> usize; 3] = [
        |_| 40_000,
        |round| 40_000 + (round % 2 * 200_000) as usize,
        |round| 33_000 + (round.wrapping_mul(7919) % 60_000) as usize,
    ];
    for length in lengths {
        for keys in [keys, 10] {
            let mut stored = 0;
            let mut before = fresh();
            for round in 0..rounds {
                if round == rounds / 2 {
                    (before, stored) = (fresh(), 0);
                }
                let len = length(round);
                let key = (round % keys).to_le_bytes();
                set(&tenant, &key, &vec![round as u8; len]).unwrap();
                // Other tests' readers are waited for: what they keep is not used again.
                synchronize();
                stored += len as u64;
                assert!(pool.spare_bytes() + pool.limbo_bytes() <= 3 << 20);
            }
            let asked = fresh() - before;
            assert!(asked <= stored / 4, "{asked} of {stored} with {keys} keys");
        }
    }
    let found = tenant.get(&9u64.to_le_bytes(), |item| {
        item.value().iter().all(|&byte| byte == item.value()[0])
    });
    assert_eq!(found, Some(true));
}

/// Segments of a store that was small are smaller than those that it takes once it is full.
#[test]
#[cfg_attr(miri, ignore = "many items")]
fn segments_of_a_smaller_tenant_are_used_again() {
    const LIMIT: u64 = 4 << 20;
    let (_store, tenant, _) = store_of(LIMIT, true);
    let pool = &tenant.state.common().pool;
    let number = LIMIT / 500;
    let store_all = |first: u64| {
        let before = pool.fresh.load(Ordering::Relaxed);
        for key in first..first + number {
            set(&tenant, &key.to_le_bytes(), &[1; 500]).unwrap();
            if key % 100 == 0 {
                synchronize();
            }
        }
        pool.fresh.load(Ordering::Relaxed) - before
    };
    assert!(store_all(0) > LIMIT / 4 * 3);
    let fresh = store_all(number);
    assert!(fresh < LIMIT / 4, "{fresh}");
}

/// To ask whether readers have left costs a barrier of all threads.
#[test]
fn readers_are_not_asked_for_while_there_is_spare_memory() {
    let (_store, tenant, _) = store_of(16 << 20, true);
    let pool = &tenant.state.common().pool;
    let store_one = |key: &[u8]| set(&tenant, key, &[1; 100_000]).unwrap();
    let both = [b"a", b"b"];
    both.iter().for_each(|&key| _ = store_one(key));
    both.iter()
        .for_each(|&key| tenant.delete(key, None).unwrap());
    synchronize();
    pool.release();
    assert_eq!(pool.limbo_bytes(), 0);
    store_one(b"c");
    tenant.delete(b"c", None).unwrap();
    synchronize();
    store_one(b"d");
    assert!(pool.limbo_bytes() > 0);
    // Nothing is spare any more.
    store_one(b"e");
    assert_eq!(pool.limbo_bytes(), 0);
}

#[test]
fn without_memory_stores_are_refused_and_nothing_is_wrong_afterwards() {
    let (store, tenant, _) = store_of(KIB << 10, true);
    fill(&tenant, KIB / 4);
    store.refuse_memory(true);
    let mut refused = 0;
    for number in 0..KIB {
        match set(&tenant, &number.to_le_bytes(), &pattern(number, 0, 1000)) {
            Ok(_) => {}
            Err(outcome) => {
                assert_eq!(outcome, Outcome::Refused(Refused::OutOfMemory));
                refused += 1;
            }
        }
    }
    assert!(refused > 0);
    assert_eq!(
        tenant.prepare(b"large", 0, 0, 50_000).err(),
        Some(Refused::OutOfMemory)
    );
    assert_eq!(found(&tenant, KIB / 4).len() as u64, KIB / 4);
    // Without memory for copies, evicting goes on.
    assert!(store.shrink(KIB << 7) > 0);
    store.refuse_memory(false);
    fill(&tenant, KIB / 4);
    assert_eq!(found(&tenant, KIB / 4).len() as u64, KIB / 4);
    let figures = tenant.statistics();
    assert_eq!(figures.items, found(&tenant, KIB).len() as u64);
}

#[test]
fn each_eviction_is_told_and_a_panic_is_contained() {
    let told = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&told);
    let config = Config {
        limit: KIB << 10,
        clock: Clock::Manual(ManualClock::new()),
        on_evict: Some(OnEvict::new(move |evicted| {
            assert_eq!(
                (evicted.key.len(), evicted.len, evicted.tenant),
                (8, 1000, "")
            );
            let before = count.fetch_add(1, Ordering::Relaxed);
            if before == 3 {
                std::panic::resume_unwind(Box::new("a hook's own fault"));
            }
        })),
        ..Config::default()
    };
    let store = Store::new(config).unwrap();
    let tenant = store.tenant("").unwrap();
    fill(&tenant, 2 * KIB);
    store.shrink(KIB << 8);
    let figures = tenant.statistics();
    assert!(figures.evicted > 3);
    assert_eq!(figures.items, found(&tenant, 2 * KIB).len() as u64);
    assert_eq!(told.load(Ordering::Relaxed), figures.evicted);
}

#[test]
fn items_of_more_than_the_most_are_refused_from_the_start() {
    let config = |item_max| Config {
        item_max,
        clock: Clock::Manual(ManualClock::new()),
        ..Config::default()
    };
    let refused = Store::new(config(ITEM_MAX + 1)).err().unwrap();
    assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput);
    Store::new(config(ITEM_MAX)).unwrap();
}

/// A tenant whose memory is all in open segments: one that is written, one that copies went to.
#[test]
fn open_segments_give_way_where_nothing_else_can() {
    let (store, _, _) = store_of(64 << 20, true);
    let [small, other] = tenants(&store, ["small", "other"]);
    small.set_limits(Limits::max(512 << 10));
    for round in 0..200u64 {
        set(&small, &round.to_le_bytes(), &pattern(round, 0, 20_000)).unwrap();
        for back in 0..20 {
            let key = round.saturating_sub(back).to_le_bytes();
            small.get(&key, |_| {});
        }
    }
    assert!(small.statistics().refused == 0 && small.statistics().items > 3);
    // What others have open gives way, too, if it is the store's limit.
    fill(&other, 3);
    let indexes = store.statistics().all.index_bytes;
    assert!(store.set_limit(0) <= indexes + 1024);
    assert_eq!(store.statistics().all.items, 0);
    // The indexes follow in the background.
    rest(&store);
    assert_eq!(store.statistics().segment_bytes, 0);
}

/// Without eviction, what is left in an open segment is copied elsewhere.
#[test]
fn an_open_segment_that_is_mostly_dead_is_compacted() {
    let (_store, tenant, _) = store_of(512 << 10, false);
    let store = |number: u8| set(&tenant, &[number], &[number; 20_000]);
    // Two segments of 256 KiB, of which one is open.
    let refused = (0..40).find(|&number| store(number).is_err()).unwrap();
    for number in (0..refused).filter(|number| number % 8 != 0) {
        tenant.delete(&[number], None).unwrap();
    }
    assert!((50..55).all(|number| store(number).is_ok()));
    for number in (0..refused).step_by(8).chain(50..55) {
        assert_eq!(value_of(&tenant, &[number]), Some(vec![number; 20_000]));
    }
}

/// Without eviction, what was flushed makes room at once, not with the next pass.
#[test]
fn a_flush_makes_room_without_eviction() {
    let (_store, tenant, _) = store_of(512 << 10, false);
    let fill = || {
        (0..200u8)
            .take_while(|&n| set(&tenant, &[n], &[n; 20_000]).is_ok())
            .count()
    };
    let first = fill();
    assert!((10..200).contains(&first));
    // The reader keeps the old index.
    beside_a_reader(|| {
        tenant.flush_all(0);
        assert_eq!(fill(), first);
    });
}

/// Values with segments of their own that are all asked for again and again.
#[test]
fn hot_large_items_give_way_where_nothing_else_can() {
    let (_store, tenant, _) = store_of(KIB << 10, true);
    for round in 0..KIB / 8 {
        set(&tenant, &round.to_le_bytes(), &pattern(round, 0, 40_000)).unwrap();
        for back in 0..=round {
            for _ in 0..3 {
                tenant.get(&back.to_le_bytes(), |_| {});
            }
        }
    }
    let figures = tenant.statistics();
    assert_eq!(figures.refused, 0);
    assert!(figures.evicted > 0 && figures.items > KIB / 64);
}

/// What is overwritten waits for readers; a writer that adds to it waits for them, too.
#[test]
fn writers_wait_for_readers_while_much_is_in_limbo() {
    let (store, tenant, _) = store_of(1 << 20, true);
    let overwrite = |times: usize| {
        for _ in 0..times {
            set(&tenant, b"k", &[1; 40_000]).unwrap();
        }
    };
    let waits = || tenant.state.common().pool.waits.load(Ordering::Relaxed);
    overwrite(4);
    assert_eq!(waits(), 0);
    beside_a_reader(|| {
        // The most in limbo is 2 MiB.
        overwrite(44);
        let before = (waits(), store.statistics().limbo_bytes);
        overwrite(10);
        let after = (waits(), store.statistics().limbo_bytes);
        assert_eq!(before.0, 0);
        assert!(
            before.1 < 2 << 20 && after.1 > 2 << 20 && after.0 > 0,
            "{before:?} {after:?}"
        );
    });
    assert_eq!(store.tenant("").unwrap().statistics().refused, 0);
}

#[test]
fn pins_leave_room_for_stores() {
    let (store, _, _) = store_of(1 << 20, true);
    let pins = |tenant: &Tenant| -> Vec<_> {
        (0..20u8)
            .filter_map(|key| {
                set(tenant, &[key], &[key; 40_000]).unwrap();
                tenant.get(&[key], |item| item.pin()).unwrap()
            })
            .collect()
    };
    let all: Vec<_> = (0..8u8)
        .map(|number| store.create_tenant(&number.to_string()).unwrap())
        .map(|tenant| pins(&tenant).len())
        .collect();
    // Three of 40 KiB are an eighth of the limit.
    assert_eq!(all, [3; 8], "they were dropped in between");
    let kept: Vec<_> = store
        .names()
        .iter()
        .map(|name| pins(&store.tenant(name).unwrap()))
        .collect();
    assert_eq!(
        kept.iter().map(Vec::len).sum::<usize>(),
        12,
        "half of the limit"
    );
    let small = store.create_tenant("small").unwrap();
    drop(kept);
    small.set_limits(Limits::max(400 << 10));
    assert_eq!(pins(&small).len(), 1);
}

/// A reader that comes to a large item which is about to go does not have it copied.
#[test]
fn an_item_with_a_segment_of_its_own_is_not_copied() {
    let (_store, tenant, _) = store_of(1 << 20, true);
    set(&tenant, b"k", &[1; 40_000]).unwrap();
    tenant.get(b"k", |_| {}).unwrap();
    let owner = &tenant.state.owner;
    let lists = &owner.common.lists;
    lists.for_each(&owner.limit.memcg, |segment| {
        lists.evacuate(segment, Why::Evict)
    });
    let figures = tenant.statistics();
    assert_eq!((figures.evicted, figures.segments), (1, 0));
    assert_eq!(figures.segment_bytes, 0);
}

/// Threads that take the memory that others have freed: each frees enough in the end.
#[test]
fn stores_go_on_where_others_take_the_room() {
    let (store, _, _clock) = store_of(8 << 20, true);
    let stores = if cfg!(miri) { 20 } else { 4000 };
    thread::scope(|scope| {
        for writer in 0..8u32 {
            let tenant = store.tenant("").unwrap();
            scope.spawn(move || {
                for number in 0..stores {
                    let key = [writer, number % 1000].map(u32::to_le_bytes).concat();
                    tenant
                        .set(&key, 0, 0, &[1; 10_000], Mode::Set, ANY)
                        .unwrap();
                }
            });
        }
    });
}
