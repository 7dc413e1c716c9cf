//! Effective protection beside the arithmetic of the kernel (`mm/page_counter.c`, without
//! `memory_recursiveprot`).

use super::*;
use crate::{Cache, node::Locked, state::Claimed, tenant::Handle};
use proptest::prelude::*;

/// Returns the protection of a group as the kernel computes it.
fn of_the_kernel(usage: u64, setting: u64, parent_effective: u64, siblings_protected: u64) -> u64 {
    let protected = usage.min(setting);
    if siblings_protected > parent_effective {
        protected * parent_effective / siblings_protected
    } else {
        protected
    }
}

/// Returns a cache whose values are weights.
fn weighed(max: u64) -> Cache<u64, u64> {
    Cache::builder()
        .max_weight(max, |_, &weight| weight)
        .build()
}

fn tenant(state: &mut State, above: &Arc<Handle>, name: &str, min: u64, usage: u64) -> Arc<Handle> {
    let handle = state.child(above, name);
    let number = handle.number();
    state.set_limits(number, |limits| limits.min = min / 2);
    state.charge(number, usage, false);
    state.set_limits(number, |limits| limits.min = min);
    handle
}

proptest! {
    #[test]
    fn protection_is_that_of_the_kernel(
        promised in 0..300_u64,
        children in prop::collection::vec((0..300_u64, 0..300_u64), 1..6),
    ) {
        let root = Handle::root();
        let mut state = State::new(Arc::clone(&root), 10_000);
        let above = tenant(&mut state, &root, "above", promised, 0);
        let below: Vec<_> = children
            .iter()
            .enumerate()
            .map(|(number, &(min, usage))| {
                let name = number.to_string();
                tenant(&mut state, &above, &name, min, usage)
            })
            .collect();
        let all: u64 = children.iter().map(|&(min, usage)| min.min(usage)).sum();
        for (handle, &(min, usage)) in below.iter().zip(&children) {
            let found = state.protection(handle.number(), Protect::Min, None);
            prop_assert_eq!(found.min(usage), of_the_kernel(usage, min, promised, all));
        }
        // Whatever is taken and deleted, the sums are those of what is there.
        for (handle, &(_, usage)) in below.iter().zip(&children) {
            state.uncharge(handle.number(), usage, false);
            let doomed = state.begin_delete(handle.number()).expect("no child");
            // SAFETY: no other thread has the state, which has no entries.
            let mut locked = unsafe { Locked::assume() };
            prop_assert!(!state.drain(&mut locked, doomed, &mut Claimed::default()));
        }
        let left = state.tenant(above.number());
        prop_assert_eq!((left.usage, left.claims_used.min, left.claims.min), (0, 0, 0));
    }
}

#[test]
fn one_that_has_less_than_its_share_gets_it_from_siblings() {
    let root = Handle::root();
    let mut state = State::new(Arc::clone(&root), 1000);
    let a = tenant(&mut state, &root, "a", 1500, 900).number();
    let number = tenant(&mut state, &root, "b", 500, 100).number();
    let from_a = |weight| state.protection(a, Protect::Min, Some(Inserter { number, weight }));
    assert_eq!((from_a(150), from_a(151)), (750, 900));
}

/// Pins and minima together leave too little, and neither alone.
#[test]
fn an_insert_that_pins_and_minima_of_siblings_refuse_evicts_nothing() {
    for pins_above in [false, true] {
        let cache = weighed(100);
        let [pinned, safe, inserter] =
            ["pinned", "safe", "inserter"].map(|name| cache.tenant(name));
        let pinned = if pins_above { cache.clone() } else { pinned };
        (0..40).for_each(|key| pinned.insert(key, 1));
        assert!((0..40).all(|key| pinned.pin(&key)));
        safe.set_min(40);
        (100..140).for_each(|key| safe.insert(key, 1));
        (200..219).for_each(|key| inserter.insert(key, 1));
        assert!(inserter.try_insert(300, 25).is_err());
        assert_eq!(
            (cache.statistics().evicted, inserter.entry_count()),
            (0, 19)
        );
        assert_eq!(inserter.try_insert(300, 20), Ok(()));
        assert_eq!(cache.weighted_bytes(), 100);
    }
}

/// Returns the number of looks of a search in one tenant, with `siblings` tenants beside it.
fn looks_of_a_leaf(siblings: usize, what_for: For) -> u64 {
    let root = Handle::root();
    let mut state = State::new(Arc::clone(&root), 10_000);
    let leaf = tenant(&mut state, &root, "leaf", 0, 100).number();
    for number in 0..siblings {
        tenant(&mut state, &root, &number.to_string(), 1, 1);
    }
    state.looks.set(0);
    // SAFETY: no other thread has the state, which has no entries.
    let mut locked = unsafe { Locked::assume() };
    assert_eq!(state.choose(&mut locked, leaf, what_for), None);
    state.looks.get()
}

#[test]
fn room_within_one_tenant_is_sought_there_alone() {
    let siblings = if cfg!(miri) { 20 } else { 1000 };
    for what_for in [For::Limit, For::Pressure] {
        let alone = looks_of_a_leaf(0, what_for);
        assert_eq!(looks_of_a_leaf(siblings, what_for), alone);
        assert!((1..100).contains(&alone), "{alone}");
    }
}

/// Also below a limit that is being lowered.
#[test]
fn to_find_or_make_a_tenant_evicts_nothing() {
    let part = if cfg!(miri) { 16 } else { 1 };
    let cache: Cache<u64, u64> = Cache::with_bytes((1 << 20) / part);
    let above = cache.tenant("above");
    above.set_max((1 << 16) / part);
    (0..1000 / part).for_each(|key| above.insert(key, key));
    (1000 / part..10_000 / part).for_each(|key| cache.insert(key, key));
    let count = || {
        let all = cache.statistics();
        (all.evicted, all.bytes, above.weighted_bytes())
    };
    let before = count();
    let many: Vec<_> = (0..100)
        .map(|name| above.tenant(&name.to_string()))
        .collect();
    assert_eq!(count(), before);
    cache.with_state(|state| state.set_limits(ROOT, |limits| limits.max = 1 << 10));
    cache.with_state(|state| state.looks.set(0));
    assert_eq!(above.tenant("7").handle.number(), many[7].handle.number());
    let looks = cache.with_state(|state| state.looks.get());
    assert!(looks < 10, "{looks}");
    assert_eq!(count(), before);
}

/// Returns the number of looks of inserts into a full cache, beside `idle` tenants with nothing to give.
fn looks_of_an_insert(idle: u64) -> u64 {
    let cache: Cache<u64, u64> = Cache::with_entries(64);
    let busy = cache.tenant("busy");
    let tenants: Vec<_> = (0..idle)
        .map(|number| cache.tenant(&number.to_string()))
        .collect();
    // Some have had an entry, some have a pinned one.
    for (key, tenant) in (0..).zip(&tenants).step_by(5) {
        tenant.insert(key, key);
        assert!(cache.remove(&key));
    }
    for (key, tenant) in (0..).zip(&tenants).step_by(5).take(8) {
        tenant.insert(1000 + key, key);
        assert!(cache.pin(&(1000 + key)));
    }
    (0..200).for_each(|key| busy.insert(2000 + key, key));
    cache.with_state(|state| state.looks.set(0));
    (0..200).for_each(|key| busy.insert(3000 + key, key));
    cache.with_state(|state| state.looks.get())
}

#[test]
fn inserts_do_not_look_at_tenants_that_have_nothing_to_give() {
    let some = looks_of_an_insert(50);
    assert!(some < 200 * 50, "{some}");
    let many = if cfg!(miri) { 80 } else { 5000 };
    assert_eq!(looks_of_an_insert(many), some);
}

/// Returns the number of looks of inserts into a full cache, beside `idle` tenants with two entries each.
/// `protect` sets the limits of these and of the tenant that inserts.
fn looks_beside(idle: u64, weight: u64, protect: impl Fn(&Cache<u64, u64>, bool)) -> u64 {
    let cache: Cache<u64, u64> = weighed(2 * weight * idle + 64);
    let busy = cache.tenant("busy");
    for number in 0..idle {
        let tenant = cache.tenant(&number.to_string());
        protect(&tenant, true);
        (2 * number..2 * number + 2).for_each(|key| tenant.insert(key, weight));
    }
    protect(&busy, false);
    let insert = |keys: std::ops::Range<u64>| keys.for_each(|key| busy.insert(1 << 32 | key, 1));
    insert(0..2000);
    assert_eq!(cache.entry_count(), 2 * idle + 64);
    cache.with_state(|state| state.looks.set(0));
    insert(2000..2200);
    let looks = cache.with_state(|state| state.looks.get());
    assert_eq!(cache.entry_count(), 2 * idle + 64);
    looks
}

#[test]
#[cfg_attr(miri, ignore = "long, and without unsafe code")]
fn inserts_do_not_look_at_tenants_that_their_guarantees_protect() {
    let check = |weight, protect: fn(&Cache<u64, u64>, bool)| {
        let [some, many] = [200, 2000].map(|idle| looks_beside(idle, weight, protect));
        assert!(
            many <= some + some / 4,
            "{many} beside many, {some} beside some"
        );
    };
    let set_min = |tenant: &Cache<u64, u64>, is_idle: bool| {
        if is_idle {
            tenant.set_min(2);
        }
    };
    check(1, set_min);
    // Each entry is larger than what is not protected.
    check(2, |tenant, is_idle| {
        tenant.set_min(if is_idle { 3 } else { 0 })
    });
    check(1, |tenant, is_idle| {
        tenant.set_low(if is_idle { 2 } else { 0 })
    });
    // More is promised than there is.
    check(1, |tenant, is_idle| {
        tenant.set_min(if is_idle { 1000 } else { 0 })
    });
    // Only the tenant itself is left to take from.
    check(1, |tenant, is_idle| {
        tenant.set_min(if is_idle { 2 } else { 64 })
    });
}

/// Tenants, each with the place of its parent among those before it, its min, low and usage, and what is
/// pinned beside that.
type Tree = Vec<(prop::sample::Index, u64, u64, [u64; 2])>;

fn tree() -> impl Strategy<Value = Tree> {
    let limit = || prop_oneof![Just(0), 0..100_u64, 0..1000_u64];
    prop::collection::vec(
        (
            any::<prop::sample::Index>(),
            limit(),
            limit(),
            [0..100_u64, 0..30],
        ),
        1..20,
    )
}

fn grown(tree: Tree, max: u64) -> (State, Vec<u32>) {
    let mut handles = vec![Handle::root()];
    let mut state = State::new(Arc::clone(&handles[0]), max);
    for (number, (parent, min, low, [usage, pinned])) in tree.into_iter().enumerate() {
        let parent = &handles[parent.index(handles.len())];
        let handle = tenant(&mut state, parent, &number.to_string(), min, usage);
        state.set_limits(handle.number(), |limits| limits.low = low);
        state.charge(handle.number(), pinned, true);
        handles.push(handle);
    }
    let numbers = handles.iter().map(Handle::number).collect();
    (state, numbers)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 1000 }))]

    /// Also from one whose oldest entries are too large, whether they are used or not.
    #[test]
    fn a_search_finds_an_entry_while_there_is_one_that_it_may_take(
        tree in tree(),
        max in 1..1000_u64,
        [above, number] in any::<[prop::sample::Index; 2]>(),
        weight in prop_oneof![Just(0), 1..20_u64],
        entries in prop::collection::vec((any::<prop::sample::Index>(), 1..20_u64), 1..60),
        uses in prop_oneof![Just(0), 0..60_usize].prop_flat_map(|uses| {
            prop::collection::vec(any::<prop::sample::Index>(), uses)
        }),
    ) {
        let cache = weighed(u64::MAX);
        let mut tenants = vec![cache.clone()];
        for (number, &(parent, ..)) in tree.iter().enumerate() {
            tenants.push(tenants[parent.index(tenants.len())].tenant(&number.to_string()));
        }
        for (key, &(owner, weight)) in (0..).zip(&entries) {
            owner.get(&tenants).insert(key, weight);
        }
        for (tenant, (_, min, low, _)) in tenants[1..].iter().zip(tree) {
            // Often so that some entries are too large to go.
            let near = tenant.weighted_bytes().saturating_sub(min % 20);
            tenant.set_min(if min % 4 == 0 { min } else { near });
            tenant.set_low(low);
        }
        let numbers: Vec<u32> = tenants.iter().map(|tenant| tenant.handle.number()).collect();
        let above = *above.get(&numbers);
        let store = &cache.inner.section();
        let (mut state, mut locked) = cache.inner.lock(store);
        state.set_limits(ROOT, |limits| limits.max = max);
        let within: Vec<u32> = state.below(above).collect();
        let inserter = (weight > 0).then(|| Inserter { number: *number.get(&within), weight });
        let what_for = inserter.map_or(For::Pressure, For::Insert);
        // A search before that takes nothing, and what it has looked at is used.
        state.choose(&mut locked, above, what_for);
        drop(state);
        for key in uses.iter().flat_map(|key| [key; 2]) {
            let _ = cache.get(&(key.index(entries.len()) as u64));
        }
        let (mut state, _) = cache.inner.lock(store);
        let own = inserter.map_or(above, |inserter| inserter.number);
        let levels: Vec<u32> = state.path(own).take_while(|&level| level != above).collect();
        let below = [Protect::MinAndLow, Protect::Min].map(|protect| (above, protect));
        let beside = levels.iter().map(|&level| (level, Protect::Min));
        let searches: Vec<_> = below.into_iter().chain(beside).collect();
        let may_take = |state: &State, number, weight, (above, protect)| {
            let search = Search {
                inserter,
                spares_own: inserter.is_none(),
                protect,
                ..Search::for_any(above)
            };
            state.is_within(number, above) && state.may_take(number, weight, search)
        };
        let owned: Vec<(u32, u64)> = entries
            .iter()
            .map(|&(owner, weight)| (*owner.get(&numbers), weight))
            .collect();
        let finds_one = |&search: &_| {
            let mut all = owned.iter();
            all.any(|&(number, weight)| may_take(&state, number, weight, search))
        };
        let has_many = |&number: &u32| state.tenant(number).policy.entries() > LOOKS;
        let is_exact = !within.iter().any(has_many);
        let first = searches.iter().position(finds_one);
        let chosen = state.choose(&mut locked, above, what_for);
        prop_assert_eq!(chosen.is_some(), first.is_some());
        if let (Some(id), Some(first)) = (chosen, first) {
            let (number, weight) = (locked.of(id).tenant, locked.weight(id));
            let takes = |search| may_take(&state, number, weight, search);
            prop_assert!(searches[first..].iter().copied().any(takes));
            // Nothing that is better protected goes before it, if the first searches look at all entries.
            prop_assert!(first >= below.len() || !is_exact || takes(searches[first]));
        }
    }

    #[test]
    fn what_is_protected_from_an_insert_is_the_sum_of_what_siblings_on_its_way_keep(
        tree in tree(),
        max in 1..1000_u64,
        (above, number) in any::<(prop::sample::Index, prop::sample::Index)>(),
        weight in 1..200_u64,
    ) {
        let (state, all) = grown(tree, max);
        let number = all[number.index(all.len())];
        let path: Vec<u32> = state.path(number).collect();
        let above = above.index(path.len());
        let inserter = Inserter { number, weight };
        let beside = |level: usize| {
            let child = level.checked_sub(1).map(|below| path[below]);
            state.children(path[level]).filter(move |&other| Some(other) != child)
        };
        let kept = |other: u32| {
            let protection = state.protection(other, Protect::Min, Some(inserter));
            let tenant = state.tenant(other);
            tenant.usage.min(protection).max(tenant.pinned_bytes)
        };
        let sum: u64 = (0..=above).flat_map(beside).map(kept).sum();
        prop_assert_eq!(state.protected_from(inserter, path[above]), sum);
    }
}

/// Returns the number of looks of a search in a chain of `depth` tenants, each with a min larger than the
/// cache.
fn looks_of_a_chain(depth: u32) -> u64 {
    let root = Handle::root();
    let mut state = State::new(Arc::clone(&root), 20);
    let mut handle = root;
    for level in 0..depth {
        handle = tenant(&mut state, &handle, "below", 20_000 + u64::from(level), 0);
    }
    let other = tenant(&mut state, &Handle::root(), "other", 20_000, 10).number();
    let number = handle.number();
    state.charge(number, 10, false);
    state.looks.set(0);
    let inserter = Inserter {
        number: other,
        weight: 1,
    };
    let search = Search {
        inserter: Some(inserter),
        protect: Protect::MinAndLow,
        ..Search::for_any(ROOT)
    };
    assert!(state.may_take(number, 0, search) && !state.may_take(number, 1, search));
    assert_eq!(state.protection(number, Protect::Min, Some(inserter)), 10);
    assert!(state.may_fit(inserter).is_ok());
    state.looks.get()
}

/// Returns the number of looks of inserts into the last tenant of such a chain, in which only its own may go.
/// If `siblings`, there is a tenant beside each that its min protects.
fn looks_of_inserts_into_a_chain(depth: u32, siblings: bool) -> u64 {
    let others = if siblings { u64::from(depth) } else { 0 };
    let cache: Cache<u64, u64> = Cache::with_entries(20 + others);
    let mut last = cache.clone();
    for level in 0..u64::from(depth) {
        if siblings {
            let sibling = last.tenant("beside");
            sibling.set_min(1);
            sibling.insert(1000 + level, 0);
        }
        last = last.tenant("below");
        last.set_min(20_000 + level);
    }
    (0..20).for_each(|key| last.insert(key, key));
    cache.with_state(|state| state.looks.set(0));
    (20..30).for_each(|key| last.insert(key, key));
    let looks = cache.with_state(|state| state.looks.get());
    assert_eq!((last.entry_count(), cache.entry_count()), (20, 20 + others));
    looks
}

#[test]
fn a_search_in_a_chain_of_tenants_is_linear_in_its_depth() {
    let depth = if cfg!(miri) { 20 } else { 300 };
    let of_inserts = |depth| looks_of_inserts_into_a_chain(depth, false);
    for looks in [looks_of_a_chain, of_inserts] {
        let [short, long] = [depth, 2 * depth].map(looks);
        assert!(long <= 3 * short, "{long}, and {short} for half of it");
    }
    // Quadratic, and no worse, beside protected tenants at each level.
    let depth = depth / 6;
    let [short, long] = [depth, 2 * depth].map(|depth| looks_of_inserts_into_a_chain(depth, true));
    assert!(long <= 5 * short, "{long}, and {short} for half of it");
}

/// Returns the frequencies of the entries of the first `keys` keys, which are in the cache.
fn frequencies(cache: &Cache<u64, u64>, keys: u64) -> impl Iterator<Item = u8> {
    let store = &cache.inner.section();
    let find = |key| Id::of(cache.find(&key, store).expect("it is there"));
    let found: Vec<Id> = (0..keys).map(find).collect();
    let (_state, locked) = cache.inner.lock(store);
    let all: Vec<u8> = found.iter().map(|&id| locked.frequency(id)).collect();
    all.into_iter()
}

/// Also where the first looks find only larger ones. A refusal wears nothing out.
#[test]
fn no_insert_is_refused_for_ever_while_there_is_an_entry_that_it_may_take() {
    for heavy in [1, 10, 100, 500] {
        let cache = weighed(20 * heavy + 64);
        let [safe, other] = ["safe", "other"].map(|name| cache.tenant(name));
        let keys = heavy + 64;
        (0..keys).for_each(|key| safe.insert(key, if key < heavy { 20 } else { 1 }));
        safe.set_min(cache.max() - 5);
        for key in (0..keys).cycle().take(3 * keys as usize) {
            assert!(cache.get(&key).is_some());
        }
        let mut refused = 0;
        while other.try_insert(keys, 5).is_err() {
            refused += 1;
            assert!(refused <= heavy / TURNS as u64, "behind {heavy}");
            assert!(frequencies(&cache, keys).all(|frequency| frequency == 3));
        }
        assert_eq!(refused > 0, heavy > TURNS as u64);
        assert_eq!(
            (safe.weighted_bytes(), other.weighted_bytes()),
            (safe.min(), 5)
        );
    }
}

/// A refused insert searches twice, first without what the low protects. Both searches look at the same
/// entries, or the second would never see half of them.
#[test]
fn each_entry_comes_to_the_search_that_may_take_it() {
    let weight = |&key: &u64| if (4..64).contains(&key) { 4 } else { 20 };
    let keys = 128;
    let max = (0..keys).map(|key| weight(&key)).sum();
    let cache = weighed(max);
    let [safe, other] = ["safe", "other"].map(|name| cache.tenant(name));
    (0..keys).for_each(|key| safe.insert(key, weight(&key)));
    safe.set_min(max - 5);
    safe.set_low(max - 3);
    for key in (0..keys).cycle().take(3 * keys as usize) {
        assert!(cache.get(&key).is_some());
    }
    let mut refused = 0;
    while other.try_insert(keys, 4).is_err() {
        refused += 1;
        assert!(refused <= keys / TURNS as u64);
    }
    assert_eq!(safe.weighted_bytes(), max - 4);
}

#[test]
fn what_a_low_protects_stays_while_a_tenant_has_more_than_its_min() {
    let cache = weighed(30);
    let [spare, low, inserter] = ["spare", "low", "inserter"].map(|name| cache.tenant(name));
    spare.set_min(15);
    (0..11).for_each(|key| spare.insert(key, if key == 0 { 10 } else { 1 }));
    low.set_low(10);
    (100..110).for_each(|key| low.insert(key, 1));
    inserter.set_min(10);
    (200..205).for_each(|key| inserter.insert(key, 1));
    assert_eq!((spare.weighted_bytes(), low.weighted_bytes()), (15, 10));
    inserter.insert(205, 1);
    assert_eq!((spare.weighted_bytes(), low.weighted_bytes()), (15, 9));
}

/// Looks at it cost it nothing and earn it nothing.
#[test]
fn inserts_of_others_leave_a_protected_tenant_as_it_is() {
    let cache = weighed(60);
    let [safe, busy] = ["safe", "busy"].map(|name| cache.tenant(name));
    safe.set_min(39);
    (0..20).for_each(|key| safe.insert(key, 2));
    for key in (0..20).cycle().take(60) {
        assert!(cache.get(&key).is_some());
    }
    (100..1000).for_each(|key| busy.insert(key, 1));
    // All but what the tenant keeps goes for it.
    assert!(busy.try_insert(1000, 21).is_err());
    assert_eq!(cache.weighted_bytes(), 40);
    assert!(frequencies(&cache, 20).all(|frequency| frequency == 3));
    let store = &cache.inner.section();
    let (state, _) = cache.inner.lock(store);
    let tenant = state.tenant(safe.handle.number());
    assert_eq!((tenant.worth.earned, tenant.next_weight), (0.0, 2));
}

/// Makes tenants above their high limits from which nothing may be taken.
fn stuck(tenants: u64, pinned: u64) -> State {
    let root = Handle::root();
    let mut state = State::new(Arc::clone(&root), u64::MAX);
    for number in 0..tenants {
        let number = tenant(&mut state, &root, &number.to_string(), 0, 0).number();
        state.set_limits(number, |limits| limits.high = 10);
        state.charge(number, 100 - pinned, false);
        state.charge(number, pinned, true);
    }
    assert_eq!(state.high.len() as u64, tenants);
    state
}

#[test]
fn tenants_from_which_nothing_can_be_taken_are_looked_at_in_batches() {
    // SAFETY: no other thread has a state of these, which have no entries.
    let mut locked = unsafe { Locked::assume() };
    let tenants = if cfg!(miri) { 35 } else { 100 };
    for (pinned, batch) in [(100, crate::state::BATCH), (99, 1)] {
        let mut state = stuck(tenants, pinned);
        state.looks.set(0);
        let mut left = tenants as usize;
        while left > 0 {
            let more = state.reclaim_high(&mut locked, &mut Claimed::default());
            left = left.saturating_sub(batch);
            assert_eq!((state.high.len(), more), (left, left > 0));
        }
        assert!(state.looks.get() < tenants * 200, "{}", state.looks.get());
        // As long as they are no larger, nothing is tried again.
        state.charge(1, 1, false);
        assert!(!state.has_high());
    }
}
