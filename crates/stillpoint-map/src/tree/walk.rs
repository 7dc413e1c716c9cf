//! Walks over all entries, in order, from both ends.
//!
//! A walk goes from leaf to leaf by the fences of the inner nodes that it has passed. Their children
//! have the same ranges for ever, so it begins nowhere again, and finds each key that is there
//! throughout once. How far an end may go is found out leaf by leaf ([`Walk::next_by`]): if other threads
//! change the tree, by the keys ([`super::cursor`]), and otherwise by the places of the two ends.

use super::{
    core::Tree,
    node::{Head, Item, Leaf, prefetch_all},
    order::{Order, SLOTS},
    search::{Path, Place},
};
use crate::{
    memory::prefetch,
    section::{Live, Pinned},
};
use std::{mem, ptr::NonNull};

/// One end of a walk.
#[derive(Clone, Debug)]
pub(super) struct End<'g> {
    path: Path<'g>,
    leaf: Live<'g, Leaf>,
    order: Order,
    /// Number of the leaf's entries before this end.
    at: usize,
    /// Number of entries of the leaf that this end may go on by, before it has to look where the other end is. They
    /// are its own: the other end stops before them.
    left: usize,
    /// Whether the leaf's entries are being read already, and the lines of the leaf that comes then.
    has_entries: bool,
    has_next: bool,
}

/// A walk over a tree's entries. None of its fields is a reference: it may be an argument of what
/// frees the tree.
#[derive(Clone, Debug)]
pub struct Walk<'g> {
    tree: Option<Live<'g, Pinned<Tree>>>,
    front: Option<End<'g>>,
    back: Option<End<'g>>,
}

// SAFETY: it leads to a tree and its nodes, which threads may share.
unsafe impl Send for Walk<'_> {}
// SAFETY: the same.
unsafe impl Sync for Walk<'_> {}

impl<'g> Walk<'g> {
    /// Returns a walk over all of a tree.
    pub fn of(tree: Option<Live<'g, Pinned<Tree>>>) -> Self {
        Self {
            tree,
            front: None,
            back: None,
        }
    }

    /// Makes an end begin at that place: before its entry.
    pub fn begin_at(&mut self, is_back: bool, path: Path<'g>, place: &Place<'g>) {
        let end = End::of(path, place.leaf, place.order, place.at);
        *if is_back {
            &mut self.back
        } else {
            &mut self.front
        } = Some(end);
    }

    /// Prefetches what a walk from the front needs.
    pub fn read_ahead(&mut self) {
        if let Some(front) = &mut self.front {
            front.read_ahead(false);
        }
    }

    /// Returns the path to a leaf about halfway between the two ends, and the place before its first entry.
    /// Returns `None` if the ends are near each other, and where nodes have been replaced between the two were
    /// found.
    #[cfg(feature = "rayon")]
    pub fn middle(&mut self) -> Option<(Path<'g>, Place<'g>)> {
        self.ends(true)?;
        let (front, Some(back)) = self.ends(false)? else {
            return None;
        };
        let (path, leaf) = front.path.halfway_to(&back.path)?;
        let place = Place {
            leaf,
            order: leaf.order(),
            at: 0,
            entry: None,
            generation: 0,
        };
        Some((path, place))
    }

    /// Returns an end, and the other one if there is one. Returns `None` if the map never had an entry.
    #[inline]
    pub(super) fn ends(&mut self, is_back: bool) -> Option<(&mut End<'g>, Option<&mut End<'g>>)> {
        let tree = self.tree?;
        let (end, other) = if is_back {
            (&mut self.back, &mut self.front)
        } else {
            (&mut self.front, &mut self.back)
        };
        let end = end.get_or_insert_with(|| End::outermost(tree, is_back));
        Some((end, other.as_mut()))
    }

    /// Moves an end to the leaf of the entry that comes next from there, and returns that.
    pub fn settle(&mut self, is_back: bool) -> Option<Item> {
        let (end, _) = self.ends(is_back)?;
        while end.rest(is_back) == 0 {
            end.move_on(is_back)?;
        }
        Some(end.ahead(is_back, 0))
    }

    /// Returns the next entry from an end. `look` is called if the end does not know how far it may go: then it
    /// moves the end to the leaf of the next entry, and [allows](End::allow) it some of that leaf's.
    #[inline(always)]
    pub(super) fn next_by(
        &mut self,
        is_back: bool,
        look: impl FnOnce(&mut Self) -> Option<()>,
    ) -> Option<NonNull<Head>> {
        let end = |walk: &mut Self| {
            let end = if is_back {
                &mut walk.back
            } else {
                &mut walk.front
            };
            end.as_mut().and_then(|end| end.step(is_back))
        };
        if let Some(entry) = end(self) {
            return Some(entry);
        }
        look(self)?;
        end(self)
    }

    /// Returns the next entry from an end, wherever the other end is.
    #[inline(always)]
    pub fn next(&mut self, is_back: bool) -> Option<NonNull<Head>> {
        self.next_by(is_back, |walk| walk.look(is_back))
    }

    #[inline(never)]
    fn look(&mut self, is_back: bool) -> Option<()> {
        self.settle(is_back)?;
        let (end, _) = self.ends(is_back)?;
        end.allow(is_back, SLOTS)
    }

    /// Returns the next entry from an end, for a caller that is alone with the tree: the two ends stop where they
    /// meet, whatever keys say. So each entry is returned once.
    #[inline(always)]
    pub fn next_alone(&mut self, is_back: bool) -> Option<NonNull<Head>> {
        self.next_by(is_back, |walk| walk.look_alone(is_back))
    }

    /// The two ends come to each other leaf by leaf, so neither passes the other.
    #[inline(never)]
    fn look_alone(&mut self, is_back: bool) -> Option<()> {
        let (end, mut other) = self.ends(is_back)?;
        loop {
            if let Some(other) = &mut other
                && end.leaf == other.leaf
            {
                if end.distance(is_back, other) == 0 {
                    other.left = 0;
                }
                return end.allow(is_back, end.distance(is_back, other));
            }
            if let Some(allowed) = end.allow(is_back, SLOTS) {
                return Some(allowed);
            }
            end.move_on(is_back)?;
        }
    }
}

impl<'g> End<'g> {
    fn of(path: Path<'g>, leaf: Live<'g, Leaf>, order: Order, at: usize) -> Self {
        Self {
            path,
            leaf,
            order,
            at,
            left: 0,
            has_entries: false,
            has_next: false,
        }
    }

    fn outermost(tree: Live<'g, Pinned<Tree>>, is_back: bool) -> Self {
        let mut path = Path::new();
        let leaf = path.outermost(tree.get().root(), is_back);
        let order = leaf.order();
        Self::of(path, leaf, order, if is_back { order.len() } else { 0 })
    }

    /// Returns how many entries of the leaf are ahead.
    #[inline]
    pub(super) fn rest(&self, is_back: bool) -> usize {
        if is_back {
            self.at
        } else {
            self.order.len() - self.at
        }
    }

    /// Returns how many entries are ahead, up to those of the other end, which is in the same leaf.
    fn distance(&self, is_back: bool, other: &Self) -> usize {
        let (low, high) = if is_back {
            (other.at + other.left, self.at)
        } else {
            (self.at, other.at - other.left)
        };
        high.saturating_sub(low)
    }

    /// As [`distance`](Self::distance), if the other end is in the same leaf, which has not changed in between.
    pub(super) fn distance_here(&self, is_back: bool, other: &Self) -> Option<usize> {
        let is_here = self.leaf == other.leaf && self.order == other.order;
        is_here.then(|| self.distance(is_back, other))
    }

    /// Returns an entry of the leaf: the one behind the next `nth`.
    #[inline]
    pub(super) fn ahead(&self, is_back: bool, nth: usize) -> Item {
        self.item(if is_back {
            self.at - 1 - nth
        } else {
            self.at + nth
        })
    }

    #[inline]
    fn item(&self, at: usize) -> Item {
        let slot = self.order.slot(at);
        Item {
            hint: self.leaf.hint(slot),
            entry: self.leaf.entry(slot),
        }
    }

    /// Allows the end `count` more entries of its leaf, or as many as are left there. Returns `None` if none are.
    pub(super) fn allow(&mut self, is_back: bool, count: usize) -> Option<()> {
        self.left = count.min(self.rest(is_back));
        (self.left > 0).then_some(())
    }

    /// Goes on by one entry, if it may.
    #[inline(always)]
    fn step(&mut self, is_back: bool) -> Option<NonNull<Head>> {
        self.left = self.left.checked_sub(1)?;
        let at = if is_back {
            self.at -= 1;
            self.at
        } else {
            self.at += 1;
            self.at - 1
        };
        Some(self.leaf.entry(self.order.slot(at)))
    }

    /// Stops the end where it is. Returns the last entry that it has passed; `None` if it had none left.
    pub(super) fn stop(&mut self, is_back: bool) -> Option<Item> {
        let had_some = mem::take(&mut self.left) > 0;
        had_some.then(|| self.item(if is_back { self.at } else { self.at - 1 }))
    }

    /// Goes to the next leaf; `None` if there is none.
    pub(super) fn move_on(&mut self, is_back: bool) -> Option<()> {
        self.leaf = self.path.beside(!is_back)?;
        self.order = self.leaf.order();
        self.at = if is_back { self.order.len() } else { 0 };
        self.read_ahead(is_back);
        Some(())
    }

    /// Entries lie anywhere: those of a leaf are read at once, and not one after the other, while the
    /// leaf before is visited; and before that the lines of their leaf.
    fn read_ahead(&mut self, is_back: bool) {
        let prefetch_entries = |leaf: &Leaf, order: Order| {
            for slot in order.slots() {
                prefetch(leaf.entry(slot).as_ptr());
            }
        };
        if !self.has_entries {
            prefetch_entries(&self.leaf, self.order);
        }
        let next = self.path.neighbour(!is_back, 1);
        self.has_entries = next.is_some() && self.has_next;
        if let Some(next) = next {
            if self.has_entries {
                prefetch_entries(next, next.order());
            } else {
                prefetch_all(next);
            }
        }
        let after = self.path.neighbour(!is_back, 2);
        self.has_next = after.is_some();
        if let Some(after) = after {
            prefetch_all(after);
        }
    }
}
