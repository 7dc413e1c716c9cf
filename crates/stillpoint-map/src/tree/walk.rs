//! Walks over all entries, in order, from both ends.
//!
//! A walk goes from leaf to leaf by the fences of the inner nodes that it has passed. Their children
//! have the same ranges for ever, so it begins nowhere again, and finds each key that is there
//! throughout once. Where its two ends meet, its caller sees by the keys.

use super::{
    core::Tree,
    node::{Item, Leaf, prefetch_all},
    order::Order,
    search::{Path, Place},
};
use crate::{
    memory::prefetch,
    section::{Live, Pinned},
};

/// One end of a walk.
#[derive(Clone, Debug)]
struct End<'g> {
    path: Path<'g>,
    leaf: Live<'g, Leaf>,
    order: Order,
    /// How many entries of the leaf are before it.
    at: usize,
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
    /// All of a tree.
    pub fn of(tree: Option<Live<'g, Pinned<Tree>>>) -> Self {
        Self {
            tree,
            front: None,
            back: None,
        }
    }

    /// Has the front begin before that place.
    pub fn begin_at(&mut self, path: Path<'g>, place: &Place<'g>) {
        self.front = Some(End::at(path, place));
    }

    /// Has memory read that a walk from the front will need.
    pub fn read_ahead(&mut self) {
        if let Some(front) = &mut self.front {
            front.read_ahead(true);
        }
    }

    /// Has the back begin before that place.
    pub fn end_at(&mut self, path: Path<'g>, place: &Place<'g>) {
        self.back = Some(End::at(path, place));
    }

    /// A place about the middle between the two ends: before the first entry of a leaf. `None` if they
    /// are near each other, and where nodes have been replaced between the two were found.
    #[cfg(feature = "rayon")]
    pub fn middle(&mut self) -> Option<(Path<'g>, Place<'g>)> {
        let tree = self.tree?;
        let front = &*self
            .front
            .get_or_insert_with(|| End::outermost(tree, false));
        let back = &*self.back.get_or_insert_with(|| End::outermost(tree, true));
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

    /// Moves the back to the leaf of the entry that comes next from there.
    #[cfg(feature = "rayon")]
    pub fn settle_back(&mut self) {
        if let Some(back) = &mut self.back {
            while back.at == 0 && back.move_on(false).is_some() {}
        }
    }

    /// The next entry from the front.
    #[inline]
    pub fn next(&mut self) -> Option<Item> {
        if self.front.is_none() {
            self.front = Some(End::outermost(self.tree?, false));
        }
        let end = self.front.as_mut()?;
        while end.at >= end.order.len() {
            end.move_on(true)?;
        }
        end.at += 1;
        Some(end.item(end.at - 1))
    }

    /// The next entry from the back.
    #[inline]
    pub fn next_back(&mut self) -> Option<Item> {
        if self.back.is_none() {
            self.back = Some(End::outermost(self.tree?, true));
        }
        let end = self.back.as_mut()?;
        while end.at == 0 {
            end.move_on(false)?;
        }
        end.at -= 1;
        Some(end.item(end.at))
    }
}

impl Walk<'_> {
    /// As [`next`](Self::next), for a caller that is alone with the tree: the two ends stop where they meet,
    /// whatever keys say. So each entry is returned once.
    pub fn next_alone(&mut self) -> Option<Item> {
        let tree = self.tree?;
        let front = self
            .front
            .get_or_insert_with(|| End::outermost(tree, false));
        while !front.has_met(&self.back) {
            if front.at < front.order.len() {
                front.at += 1;
                return Some(front.item(front.at - 1));
            }
            front.move_on(true)?;
        }
        None
    }

    /// As [`next_alone`](Self::next_alone), from the back.
    pub fn next_back_alone(&mut self) -> Option<Item> {
        let tree = self.tree?;
        let back = self.back.get_or_insert_with(|| End::outermost(tree, true));
        while !back.has_met(&self.front) {
            if back.at > 0 {
                back.at -= 1;
                return Some(back.item(back.at));
            }
            back.move_on(false)?;
        }
        None
    }
}

impl<'g> End<'g> {
    /// Returns whether it is where the other end is, in a tree that no thread changes. The two come to each
    /// other leaf by leaf, so neither passes the other.
    fn has_met(&self, other: &Option<Self>) -> bool {
        let is_here = |other: &Self| self.leaf.pointer() == other.leaf.pointer();
        other
            .as_ref()
            .is_some_and(|other| is_here(other) && self.at == other.at)
    }

    fn at(path: Path<'g>, place: &Place<'g>) -> Self {
        Self {
            path,
            leaf: place.leaf,
            order: place.order,
            at: place.at,
            has_entries: false,
            has_next: false,
        }
    }

    fn outermost(tree: Live<'g, Pinned<Tree>>, is_last: bool) -> Self {
        let mut path = Path::new();
        let leaf = path.outermost(tree.get().root(), is_last);
        let order = leaf.order();
        Self {
            path,
            leaf,
            order,
            at: if is_last { order.len() } else { 0 },
            has_entries: false,
            has_next: false,
        }
    }

    #[inline]
    fn item(&self, at: usize) -> Item {
        let slot = self.order.slot(at);
        Item {
            hint: self.leaf.hint(slot),
            entry: self.leaf.entry(slot),
        }
    }

    /// Goes to the next leaf; `None` if there is none.
    fn move_on(&mut self, is_behind: bool) -> Option<()> {
        self.leaf = self.path.beside(is_behind)?;
        self.order = self.leaf.order();
        self.at = if is_behind { 0 } else { self.order.len() };
        self.read_ahead(is_behind);
        Some(())
    }

    /// Entries lie anywhere: those of a leaf are read at once, and not one after the other, while the
    /// leaf before is visited; and before that the lines of their leaf.
    fn read_ahead(&mut self, is_behind: bool) {
        let prefetch_entries = |leaf: &Leaf, order: Order| {
            for slot in order.slots() {
                prefetch(leaf.entry(slot).as_ptr());
            }
        };
        if !self.has_entries {
            prefetch_entries(&self.leaf, self.order);
        }
        let next = self.path.neighbour(is_behind, 1);
        self.has_entries = next.is_some() && self.has_next;
        if let Some(next) = next {
            if self.has_entries {
                prefetch_entries(next, next.order());
            } else {
                prefetch_all(next);
            }
        }
        let after = self.path.neighbour(is_behind, 2);
        self.has_next = after.is_some();
        if let Some(after) = after {
            prefetch_all(after);
        }
    }
}
