//! Effective protection beside the arithmetic of the kernel (`mm/page_counter.c`, without
//! `memory_recursiveprot`).

use super::*;
use crate::{node::Locked, state::Claimed, tenant::Handle};
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
    let number = handle.number(0);
    state.set_limits(number, |limits| limits.min = min / 2);
    state.account(number, |before| before + usage);
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
        let mut state = State::new(Arc::clone(&root), 10_000, 0);
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
            let found = state.protection(handle.number(0), Protect::Min, None);
            prop_assert_eq!(found.min(usage), of_the_kernel(usage, min, promised, all));
        }
        // Whatever is taken and deleted, the sums are those of what is there.
        for (handle, &(_, usage)) in below.iter().zip(&children) {
            state.account(handle.number(0), |before| before - usage);
            let doomed = state.begin_delete(handle.number(0)).expect("no child");
            // SAFETY: no other thread has the state, which has no entries.
            let mut locked = unsafe { Locked::assume() };
            prop_assert!(!state.drain(&mut locked, doomed, &mut Claimed::default()));
        }
        let left = state.tenant(above.number(0));
        prop_assert_eq!((left.usage, left.claims_used.min, left.claims.min), (0, 0, 0));
    }
}

#[test]
fn one_that_has_less_than_its_share_gets_it_from_siblings() {
    let root = Handle::root();
    let mut state = State::new(Arc::clone(&root), 1000, 0);
    let a = tenant(&mut state, &root, "a", 1500, 900).number(0);
    let number = tenant(&mut state, &root, "b", 500, 100).number(0);
    let from_a = |weight| state.protection(a, Protect::Min, Some(Inserter { number, weight }));
    assert_eq!((from_a(150), from_a(151)), (750, 900));
}
