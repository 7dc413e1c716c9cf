//! The tree of tenants. Each knows its children as a list through them, so that what is done below
//! a tenant looks at nothing else, and allocates nothing.

use super::{ROOT, State};

/// Where a tenant is in the tree.
#[derive(Debug, Clone, Copy, Default)]
pub struct Place {
    pub parent: Option<u32>,
    /// The oldest and the newest child.
    first: Option<u32>,
    last: Option<u32>,
    /// Its siblings, in the order in which they were made.
    prev: Option<u32>,
    next: Option<u32>,
}

impl Place {
    pub fn has_children(&self) -> bool {
        self.first.is_some()
    }
}

impl State {
    /// Puts a tenant below another one, as its newest child.
    pub(super) fn hang(&mut self, number: u32, parent: u32) {
        let above = &mut self.tenant_mut(parent).place;
        let prev = above.last.replace(number);
        if prev.is_none() {
            above.first = Some(number);
        }
        if let Some(prev) = prev {
            self.tenant_mut(prev).place.next = Some(number);
        }
        let own = &mut self.tenant_mut(number).place;
        (own.parent, own.prev) = (Some(parent), prev);
    }

    /// Takes a tenant without children out of the tree.
    pub(super) fn unhang(&mut self, number: u32) {
        let Place {
            parent, prev, next, ..
        } = std::mem::take(&mut self.tenant_mut(number).place);
        let Some(parent) = parent else {
            return;
        };
        match prev {
            Some(prev) => self.tenant_mut(prev).place.next = next,
            None => self.tenant_mut(parent).place.first = next,
        }
        match next {
            Some(next) => self.tenant_mut(next).place.prev = prev,
            None => self.tenant_mut(parent).place.last = prev,
        }
    }

    /// The tenant and all above it.
    pub fn path(&self, number: u32) -> impl Iterator<Item = u32> + use<'_> {
        std::iter::successors(Some(number), |&number| self.tenant(number).place.parent)
    }

    /// Whether there is a tenant of that number.
    pub fn is_there(&self, number: u32) -> bool {
        let tenant = self.tenants.get(number as usize);
        tenant.is_some_and(Option::is_some)
    }

    pub fn is_within(&self, number: u32, above: u32) -> bool {
        above == ROOT || self.path(number).any(|number| number == above)
    }

    /// The tenants right below one.
    pub(super) fn children(&self, number: u32) -> impl Iterator<Item = u32> + use<'_> {
        let first = self.tenant(number).place.first;
        std::iter::successors(first, |&number| self.tenant(number).place.next)
    }

    /// The tenants from that one down, each before those below it.
    pub fn below(&self, above: u32) -> impl Iterator<Item = u32> + use<'_> {
        std::iter::successors(Some(above), move |&number| self.after(number, above, true))
    }

    /// The tenants from `above` down, each once: from `from` on, if that is one of them, and round
    /// to it. Of one that has nothing but pinned entries, nothing below is looked at.
    pub(super) fn round(&self, above: u32, from: u32) -> impl Iterator<Item = u32> + use<'_> {
        let is_in = self.is_there(from) && self.is_within(from, above);
        let mut between = self.path(from).take_while(|&level| level != above).skip(1);
        let is_met = is_in && between.all(|level| self.has_evictable(level));
        let from = if is_met { from } else { above };
        let walk = move |from| {
            std::iter::successors(Some(from), move |&number| {
                self.after(number, above, self.has_evictable(number))
            })
        };
        walk(from).chain(walk(above).take_while(move |&number| number != from))
    }

    /// The tenant that comes after one in the order of [`below`](Self::below); its children only
    /// if `descends`.
    pub(super) fn after(&self, number: u32, above: u32, descends: bool) -> Option<u32> {
        if let Some(child) = self.tenant(number).place.first.filter(|_| descends) {
            return Some(child);
        }
        let mut levels = self.path(number).take_while(|&level| level != above);
        levels.find_map(|level| self.tenant(level).place.next)
    }

    /// Whether it, or one below it, has an entry that is not pinned.
    pub(super) fn has_evictable(&self, number: u32) -> bool {
        let tenant = self.tenant(number);
        tenant.usage > tenant.pinned_bytes
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use crate::{node::Locked, state::Claimed, tenant::Handle};
    use proptest::prelude::*;
    use std::sync::Arc;

    /// The order of a walk, told a second time.
    fn walk(children: &[(Arc<Handle>, usize)], from: usize) -> Vec<usize> {
        let below = children.iter().enumerate().skip(from + 1);
        let own = below.filter(|(_, (_, parent))| *parent == from);
        let below = own.flat_map(|(number, _)| walk(children, number));
        [from].into_iter().chain(below).collect()
    }

    proptest! {
        #[test]
        fn walks_meet_each_tenant_once_in_the_order_in_which_they_were_made(
            steps in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 1..60),
            above in any::<prop::sample::Index>(),
            from in any::<prop::sample::Index>(),
            pinned in any::<prop::sample::Index>(),
        ) {
            let root = Handle::root();
            let mut state = State::new(Arc::clone(&root), 1000);
            // Each with its parent's place among them.
            let mut all = vec![(Arc::clone(&root), 0)];
            for (number, (adds, which)) in steps.into_iter().enumerate() {
                let which = which.index(all.len());
                if adds {
                    let handle = state.child(&Arc::clone(&all[which].0), &number.to_string());
                    state.charge(handle.number(), 1, false);
                    all.push((handle, which));
                    continue;
                }
                if which > 0 && !all[1..].iter().any(|&(_, parent)| parent == which) {
                    let (handle, _) = all.remove(which);
                    state.uncharge(handle.number(), 1, false);
                    let doomed = state.begin_delete(handle.number()).expect("a leaf");
                    // SAFETY: no other thread has the state, which has no entries.
                    let mut locked = unsafe { Locked::assume() };
                    prop_assert!(!state.drain(&mut locked, doomed, &mut Claimed::default()));
                    for (_, parent) in &mut all {
                        *parent -= usize::from(*parent > which);
                    }
                }
            }
            let number = |at: usize| all[at].0.number();
            let (above, from) = (above.index(all.len()), from.index(all.len()));
            let expected: Vec<u32> = walk(&all, above).into_iter().map(number).collect();
            prop_assert_eq!(state.below(number(above)).collect::<Vec<_>>(), &expected[..]);
            // The same from another place on.
            state.charge(ROOT, 1, false);
            let mut turned = expected.clone();
            if let Some(at) = expected.iter().position(|&other| other == number(from)) {
                turned.rotate_left(at);
            }
            prop_assert_eq!(state.round(number(above), number(from)).collect::<Vec<_>>(), turned);
            // Without what is below one that has nothing that may go.
            let pinned = pinned.index(all.len());
            let without = walk(&all, pinned);
            for &at in &without {
                state.uncharge(number(at), 1, false);
                state.charge(number(at), 1, true);
            }
            if without.contains(&above) {
                return Ok(());
            }
            let mut met: Vec<u32> = state.round(number(above), number(from)).collect();
            let mut expected: Vec<u32> = expected.into_iter()
                .filter(|other| !without[1..].iter().any(|&at| number(at) == *other))
                .collect();
            met.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(met, expected);
        }
    }
}
