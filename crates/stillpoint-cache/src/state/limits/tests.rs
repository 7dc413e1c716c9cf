//! Effective protection beside the arithmetic of the kernel (`mm/page_counter.c`, without
//! `memory_recursiveprot`).

use super::*;
use crate::{Cache, node::Locked, state::Claimed, tenant::Handle};
use proptest::prelude::*;

/// What of its setting a group has, as the kernel computes it.
fn of_the_kernel(usage: u64, setting: u64, parent_effective: u64, siblings_protected: u64) -> u64 {
    let protected = usage.min(setting);
    if siblings_protected > parent_effective {
        protected * parent_effective / siblings_protected
    } else {
        protected
    }
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

/// What a search in one tenant looks at, with so many tenants beside it.
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

/// What an insert into a full cache looks at, with so many tenants beside it that have nothing to give.
fn looks_of_an_insert(idle: u64) -> u64 {
    let cache: Cache<u64, u64> = Cache::with_entries(64);
    let busy = cache.tenant("busy");
    let tenants: Vec<_> = (0..idle)
        .map(|number| cache.tenant(&number.to_string()))
        .collect();
    // Some have had an entry, some have a pinned one.
    for (key, tenant) in (0..).zip(&tenants).step_by(5) {
        tenant.insert(key, key);
        assert!(cache.invalidate(&key));
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

/// What a search looks at where each tenant of so deep a chain has a min that is more than there is.
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
        above: ROOT,
        inserter: Some(inserter),
        among_own: false,
        spares_own: false,
        protect: Protect::MinAndLow,
    };
    assert!(state.may_take(number, 0, search) && !state.may_take(number, 1, search));
    assert_eq!(state.protection(number, Protect::Min, Some(inserter)), 10);
    assert!(state.may_fit(inserter).is_ok());
    state.looks.get()
}

#[test]
fn a_search_in_a_chain_of_tenants_is_linear_in_its_depth() {
    let depth = if cfg!(miri) { 20 } else { 300 };
    let [short, long] = [depth, 2 * depth].map(looks_of_a_chain);
    assert!(long <= 3 * short, "{long}, and {short} for half of it");
}

/// All of them are above their high limits, and none has anything that may be taken.
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
