//! The tree of tenants. Each knows its children as lists through them, so that what is done below
//! a tenant looks at nothing else, and allocates nothing: all of them, and those from which something
//! may be evicted, which is what a search for a victim looks at.

use super::{ROOT, State, Tenant};

/// A list of children.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum List {
    /// All, in the order in which they were made.
    All,
    /// Those that have, or one below them has, an entry that is not pinned, or room that is reserved; in
    /// the order in which that began.
    Giving,
}

/// Where a tenant is in the tree.
#[derive(Debug, Clone, Copy, Default)]
pub struct Place {
    pub parent: Option<u32>,
    /// How many are above it.
    depth: u32,
    lists: [Links; 2],
}

/// A tenant's part of a list: the ends of that of its children, and its neighbours among its siblings.
#[derive(Debug, Clone, Copy, Default)]
struct Links {
    first: Option<u32>,
    last: Option<u32>,
    prev: Option<u32>,
    next: Option<u32>,
}

impl Place {
    pub fn has_children(&self) -> bool {
        self.links(List::All).first.is_some()
    }

    fn links(&self, list: List) -> &Links {
        &self.lists[list as usize]
    }
}

impl State {
    fn links_mut(&mut self, number: u32, list: List) -> &mut Links {
        &mut self.tenant_mut(number).place.lists[list as usize]
    }

    /// Puts a tenant below another one, as its newest child.
    pub(super) fn hang(&mut self, number: u32, parent: u32) {
        let depth = self.tenant(parent).place.depth + 1;
        let place = &mut self.tenant_mut(number).place;
        (place.parent, place.depth) = (Some(parent), depth);
        self.append(number, parent, List::All);
    }

    /// Takes a tenant without children, and without entries, out of the tree.
    pub(super) fn unhang(&mut self, number: u32) {
        if let Some(parent) = self.tenant(number).place.parent {
            self.unlink(number, parent, List::All);
            self.tenant_mut(number).place = Place::default();
        }
    }

    /// Notes whether something may be evicted from a tenant, which has changed.
    #[inline(never)]
    pub(super) fn set_giving(&mut self, number: u32, parent: u32, gives: bool) {
        if gives {
            self.append(number, parent, List::Giving);
        } else {
            self.unlink(number, parent, List::Giving);
        }
    }

    fn append(&mut self, number: u32, parent: u32, list: List) {
        let above = self.links_mut(parent, list);
        let prev = above.last.replace(number);
        if prev.is_none() {
            above.first = Some(number);
        }
        if let Some(prev) = prev {
            self.links_mut(prev, list).next = Some(number);
        }
        let own = self.links_mut(number, list);
        (own.prev, own.next) = (prev, None);
    }

    fn unlink(&mut self, number: u32, parent: u32, list: List) {
        let Links { prev, next, .. } = *self.links_mut(number, list);
        match prev {
            Some(prev) => self.links_mut(prev, list).next = next,
            None => self.links_mut(parent, list).first = next,
        }
        match next {
            Some(next) => self.links_mut(next, list).prev = prev,
            None => self.links_mut(parent, list).last = prev,
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
        let depth = self.depth(above);
        let is_at = |&number: &u32| self.depth(number) == depth;
        self.path(number).find(is_at) == Some(above)
    }

    /// How many tenants are above one.
    pub(super) fn depth(&self, number: u32) -> u32 {
        self.tenant(number).place.depth
    }

    /// The lowest tenant that two are within, and which one right below that the second is within, unless
    /// it is that itself.
    pub(super) fn common(&self, mut first: u32, mut second: u32) -> (u32, Option<u32>) {
        let mut below = None;
        while first != second {
            let [one, other] = [first, second].map(|number| self.tenant(number).place);
            if one.depth > other.depth {
                first = one.parent.unwrap_or(ROOT);
            } else {
                below = Some(second);
                second = other.parent.unwrap_or(ROOT);
            }
        }
        (first, below)
    }

    /// The tenants right below one.
    pub(super) fn children(&self, number: u32) -> impl Iterator<Item = u32> + use<'_> {
        let links = |number| self.tenant(number).place.links(List::All);
        std::iter::successors(links(number).first, move |&number| links(number).next)
    }

    /// The tenants from that one down, each before those below it.
    pub fn below(&self, above: u32) -> impl Iterator<Item = u32> + use<'_> {
        std::iter::successors(Some(above), move |&number| {
            self.after(number, above, List::All)
        })
    }

    /// The tenants from `above` down from which something may be evicted, each once: from `from` on, if
    /// that is one of them, and round to it.
    pub(super) fn round(&self, above: u32, from: u32) -> impl Iterator<Item = u32> + use<'_> {
        let is_met = self.is_there(from) && self.has_evictable(from) && self.is_within(from, above);
        let from = if is_met { from } else { above };
        let walk = move |from| {
            std::iter::successors(Some(from), move |&number| {
                self.after(number, above, List::Giving)
            })
        };
        walk(from).chain(walk(above).take_while(move |&number| number != from))
    }

    /// The tenant of a list that comes after one in the order of [`below`](Self::below).
    pub(super) fn after(&self, number: u32, above: u32, list: List) -> Option<u32> {
        let links = |number| self.tenant(number).place.links(list);
        if let Some(child) = links(number).first {
            return Some(child);
        }
        let mut levels = self.path(number).take_while(|&level| level != above);
        levels.find_map(|level| links(level).next)
    }

    /// Whether something may be evicted from a tenant.
    pub(super) fn has_evictable(&self, number: u32) -> bool {
        self.tenant(number).gives()
    }
}

impl Tenant {
    /// Whether it, or one below it, has an entry that is not pinned, or reserved room.
    pub(super) fn gives(&self) -> bool {
        self.usage > self.pinned_bytes
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
            for &one in &expected {
                for &other in &expected {
                    let (lowest, below) = state.common(one, other);
                    let is_common = |level| state.is_within(one, level) && state.is_within(other, level);
                    let lower = state.children(lowest).find(|&level| is_common(level));
                    prop_assert!(is_common(lowest) && lower.is_none());
                    let mut children = state.children(lowest);
                    prop_assert_eq!(below, children.find(|&level| state.is_within(other, level)));
                }
            }
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
                .filter(|other| !without.iter().any(|&at| number(at) == *other))
                .collect();
            met.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(met, &expected[..]);
            // They come back as the last of their parents' children.
            for &at in &without {
                state.uncharge(number(at), 1, true);
                state.charge(number(at), 1, false);
            }
            let met: Vec<u32> = state.round(number(above), number(above)).collect();
            prop_assert_eq!(met.len(), state.below(number(above)).count());
        }
    }
}
