//! The tree of tenants. A tenant has linked lists of its children: one of all, and three of those from which
//! something may be evicted, by how well they are protected. A walk below a tenant meets no other tenant, and
//! allocates nothing. A search for a victim leaves out the lists from which it can take nothing.

use super::{
    ROOT, State, Tenant,
    limits::{Protect, Search},
};

/// A list of children from which something may be evicted: they have, or one below them has, an entry that
/// is not pinned, or reserved room. In the order in which they came into the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Giving {
    /// An entry may go that leaves the child with its low and its min, as far as is known.
    Spare,
    /// Each entry that a search looked at takes the child below its low.
    Low,
    /// Each entry that a search looked at takes the child below its min.
    Min,
}

impl Giving {
    const ALL: [Self; 3] = [Self::Spare, Self::Low, Self::Min];
}

/// A tenant's place in the tree.
#[derive(Debug, Clone, Copy, Default)]
pub struct Place {
    pub parent: Option<u32>,
    /// Number of tenants above it.
    depth: u32,
    /// All children, in the order in which they were made.
    children: Ends,
    siblings: Neighbours,
    /// The lists of [`Giving`].
    giving: [Ends; Giving::ALL.len()],
    /// The parent's list that has this tenant, and its neighbours there.
    list: Option<Giving>,
    beside: Neighbours,
}

/// The ends of a list of children.
#[derive(Debug, Clone, Copy, Default)]
struct Ends {
    first: Option<u32>,
    last: Option<u32>,
}

/// The tenants before and behind one in a list of its parent.
#[derive(Debug, Clone, Copy, Default)]
struct Neighbours {
    prev: Option<u32>,
    next: Option<u32>,
}

impl Place {
    pub fn has_children(&self) -> bool {
        self.children.first.is_some()
    }

    /// Returns the ends of a list of children; of the one of all for `None`.
    fn ends(&mut self, list: Option<Giving>) -> &mut Ends {
        match list {
            Some(list) => &mut self.giving[list as usize],
            None => &mut self.children,
        }
    }

    fn neighbours(&mut self, list: Option<Giving>) -> &mut Neighbours {
        match list {
            Some(_) => &mut self.beside,
            None => &mut self.siblings,
        }
    }
}

impl State {
    /// Puts a tenant below another one, as its newest child.
    pub(super) fn hang(&mut self, number: u32, parent: u32) {
        let depth = self.tenant(parent).place.depth + 1;
        let place = &mut self.tenant_mut(number).place;
        (place.parent, place.depth) = (Some(parent), depth);
        self.append(number, parent, None);
        self.sort_in(parent);
    }

    /// Takes a tenant without children, and without entries, out of the tree.
    pub(super) fn unhang(&mut self, number: u32) {
        if let Some(parent) = self.tenant(number).place.parent {
            self.unlink(number, parent, None);
            self.tenant_mut(number).place = Place::default();
            self.sort_in(parent);
        }
    }

    /// Moves a tenant that has changed to the list of its parent in which it belongs.
    #[inline]
    pub(super) fn sort_in(&mut self, number: u32) {
        let tenant = self.tenant(number);
        if let Some(parent) = tenant.place.parent {
            let list = tenant.list();
            if list != tenant.place.list {
                self.move_to(number, parent, list);
            }
        }
    }

    #[inline(never)]
    fn move_to(&mut self, number: u32, parent: u32, list: Option<Giving>) {
        let before = std::mem::replace(&mut self.tenant_mut(number).place.list, list);
        if before.is_some() {
            self.unlink(number, parent, before);
        }
        if list.is_some() {
            self.append(number, parent, list);
        }
    }

    fn append(&mut self, number: u32, parent: u32, list: Option<Giving>) {
        let ends = self.tenant_mut(parent).place.ends(list);
        let prev = ends.last.replace(number);
        if prev.is_none() {
            ends.first = Some(number);
        }
        if let Some(prev) = prev {
            self.tenant_mut(prev).place.neighbours(list).next = Some(number);
        }
        *self.tenant_mut(number).place.neighbours(list) = Neighbours { prev, next: None };
    }

    fn unlink(&mut self, number: u32, parent: u32, list: Option<Giving>) {
        let Neighbours { prev, next } = *self.tenant_mut(number).place.neighbours(list);
        match prev {
            Some(prev) => self.tenant_mut(prev).place.neighbours(list).next = next,
            None => self.tenant_mut(parent).place.ends(list).first = next,
        }
        match next {
            Some(next) => self.tenant_mut(next).place.neighbours(list).prev = prev,
            None => self.tenant_mut(parent).place.ends(list).last = prev,
        }
    }

    /// Returns the tenant and all above it.
    pub fn path(&self, number: u32) -> impl Iterator<Item = u32> + use<'_> {
        std::iter::successors(Some(number), |&number| self.tenant(number).place.parent)
    }

    /// Returns whether there is a tenant with that number.
    pub fn is_there(&self, number: u32) -> bool {
        let tenant = self.tenants.get(number as usize);
        tenant.is_some_and(Option::is_some)
    }

    pub fn is_within(&self, number: u32, above: u32) -> bool {
        let depth = self.depth(above);
        let is_at = |&number: &u32| self.depth(number) == depth;
        self.path(number).find(is_at) == Some(above)
    }

    /// Returns the number of tenants above one.
    pub(super) fn depth(&self, number: u32) -> u32 {
        self.tenant(number).place.depth
    }

    /// Returns the lowest tenant that two are within, and the child of that which the second is within, if it
    /// is not that tenant itself.
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

    /// Returns the children of a tenant.
    pub(super) fn children(&self, number: u32) -> impl Iterator<Item = u32> + use<'_> {
        let first = self.tenant(number).place.children.first;
        std::iter::successors(first, |&number| self.tenant(number).place.siblings.next)
    }

    /// Returns a tenant and all below it, each before those below it.
    pub fn below(&self, above: u32) -> impl Iterator<Item = u32> + use<'_> {
        std::iter::successors(Some(above), move |&number| self.after(number, above))
    }

    /// Returns the tenant that comes after one in the order of [`below`](Self::below).
    pub(super) fn after(&self, number: u32, above: u32) -> Option<u32> {
        let first = self.tenant(number).place.children.first;
        first.or_else(|| {
            let mut levels = self.path(number).take_while(|&level| level != above);
            levels.find_map(|level| self.tenant(level).place.siblings.next)
        })
    }

    /// Returns the tenants from which a search may take something, and those that lead to them, each once:
    /// from `from` on, if the search meets that one, and round to it.
    pub(super) fn round(&self, search: Search, from: u32) -> impl Iterator<Item = u32> + use<'_> {
        let above = search.above;
        let from = if self.meets(search, from) {
            from
        } else {
            above
        };
        let walk = move |from| {
            std::iter::successors(Some(from), move |&number| self.next_giving(number, search))
        };
        walk(from).chain(walk(above).take_while(move |&number| number != from))
    }

    /// Returns the tenant that a search meets after one.
    pub(super) fn next_giving(&self, number: u32, search: Search) -> Option<u32> {
        let first = self.first_giving(number, &Giving::ALL, search);
        first.or_else(|| {
            let mut levels = self.path(number).take_while(|&level| level != search.above);
            levels.find_map(|level| {
                let Place {
                    parent,
                    list,
                    beside,
                    ..
                } = self.tenant(level).place;
                let (list, parent) = (list? as usize, parent?);
                let behind = || self.first_giving(parent, &Giving::ALL[list + 1..], search);
                beside.next.or_else(behind)
            })
        })
    }

    /// Returns the first child that a search meets in some lists of a tenant.
    fn first_giving(&self, parent: u32, lists: &[Giving], search: Search) -> Option<u32> {
        lists.iter().find_map(|&list| {
            let first = self.tenant(parent).place.giving[list as usize].first?;
            self.is_searched(parent, list, search).then_some(first)
        })
    }

    /// Returns whether a search meets a tenant.
    pub(super) fn meets(&self, search: Search, number: u32) -> bool {
        self.is_there(number)
            && self.is_within(number, search.above)
            && self
                .path(number)
                .take_while(|&level| level != search.above)
                .all(|level| {
                    let Place { parent, list, .. } = self.tenant(level).place;
                    let both = parent.zip(list);
                    both.is_some_and(|(parent, list)| self.is_searched(parent, list, search))
                })
    }

    /// Returns whether a search may take something from tenants of a list.
    fn is_searched(&self, parent: u32, list: Giving, search: Search) -> bool {
        let kind = match (list, search.protect) {
            (Giving::Spare, _) | (Giving::Low, Protect::Min) | (_, Protect::Nothing) => {
                return true;
            }
            (Giving::Low, Protect::MinAndLow) => Protect::MinAndLow,
            (Giving::Min, Protect::Min | Protect::MinAndLow) => Protect::Min,
        };
        search.looks_again || !self.keep_what_they_use(parent, kind, search.inserter)
    }

    /// Returns whether nothing may be evicted from a tenant but what may be from one of its children.
    pub(super) fn only_leads_to(&self, number: u32, child: Option<u32>) -> bool {
        let tenant = self.tenant(number);
        let has_others =
            |list: &Ends| list.first.is_some() && (list.first, list.last) != (child, child);
        tenant.policy.entries() == 0 && !tenant.place.giving.iter().any(has_others)
    }
}

impl Tenant {
    /// Returns whether it, or one below it, has an entry that is not pinned, or reserved room.
    pub(super) fn gives(&self) -> bool {
        self.usage > self.pinned_bytes
    }

    /// Returns the list in which it belongs.
    #[inline]
    fn list(&self) -> Option<Giving> {
        // The next entry may belong to a tenant below it.
        let least = if self.place.has_children() {
            1
        } else {
            self.next_weight
        };
        let left = self.usage.saturating_sub(least);
        match self.limits {
            _ if !self.gives() => None,
            limits if left < limits.min => Some(Giving::Min),
            limits if left < limits.low => Some(Giving::Low),
            _ => Some(Giving::Spare),
        }
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use crate::{node::Locked, state::Claimed, tenant::Handle};
    use proptest::prelude::*;
    use std::sync::Arc;

    /// Returns the order of a walk, told a second time.
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
            let search = |above| Search::for_any(number(above));
            prop_assert_eq!(state.round(search(above), number(from)).collect::<Vec<_>>(), turned);
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
            let mut met: Vec<u32> = state.round(search(above), number(from)).collect();
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
            let mut expected = walk(&all, above);
            if let Some(at) = expected.iter().position(|&other| other == pinned) {
                let parent = all[pinned].1;
                let first = expected.iter().position(|&other| other == parent);
                let end = first.unwrap() + walk(&all, parent).len();
                expected[at..end].rotate_left(without.len());
            }
            let expected: Vec<u32> = expected.into_iter().map(number).collect();
            let met: Vec<u32> = state.round(search(above), number(above)).collect();
            prop_assert_eq!(met, expected);
        }
    }
}
