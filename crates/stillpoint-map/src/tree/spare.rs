//! Memory for nodes, taken before any lock.

use super::{
    gate::Gate,
    node::{Inner, Leaf, Link},
    search::DEPTH,
};
use crate::slab::{Arena, UsedSlot};
use std::{
    alloc::{Layout, alloc, dealloc},
    mem,
    ptr::NonNull,
};

/// Inner nodes that one change makes, at most: two at each level, and a root.
const MOST: usize = 2 * DEPTH + 1;

/// Where new nodes are to lie; `None` for boxes.
#[derive(Clone, Copy, Default, Debug)]
pub struct Arenas<'t> {
    pub leaves: Option<&'t Arena>,
    pub inners: Option<&'t Arena>,
}

/// Room for a node, in a slab or as a box's.
#[derive(Debug)]
struct Room<T> {
    place: NonNull<T>,
    is_in_slab: bool,
}

impl<T> Room<T> {
    /// `None` without memory.
    fn new(arena: Option<&Arena>) -> Option<Self> {
        let slot = arena.and_then(Arena::allocate_for);
        // SAFETY: nodes are not of size 0.
        let allocate = || NonNull::new(unsafe { alloc(Layout::new::<T>()) }.cast());
        Some(Self {
            place: slot.or_else(allocate)?,
            is_in_slab: slot.is_some(),
        })
    }

    /// Makes a node of it, whose gate this is.
    fn fill(&self, node: T, gate: impl FnOnce(&T) -> &Gate) -> NonNull<T> {
        if self.is_in_slab {
            // SAFETY: it is moved there below.
            unsafe { gate(&node).set_in_slab() };
        }
        // SAFETY: room for one, which is this thread's.
        unsafe { self.place.write(node) };
        self.place
    }
}

impl<T> Drop for Room<T> {
    fn drop(&mut self) {
        // SAFETY: from `new`, and no node is made of it: that would own it.
        unsafe {
            if self.is_in_slab {
                UsedSlot::of(self.place.cast()).free();
            } else {
                dealloc(self.place.as_ptr().cast(), Layout::new::<T>());
            }
        }
    }
}

/// Room for nodes. What is not made of it is given back.
#[derive(Debug)]
pub struct Spares {
    leaves: [Option<Room<Leaf>>; 2],
    inners: [Option<Room<Inner>>; MOST],
    used: (usize, usize),
}

impl Spares {
    /// None.
    pub fn new() -> Self {
        Self {
            leaves: [const { None }; 2],
            inners: [const { None }; MOST],
            used: (0, 0),
        }
    }

    /// Has room for so many, where the arenas have. Returns false without memory.
    pub fn provide(&mut self, leaves: usize, inners: usize, arenas: Arenas<'_>) -> bool {
        fn fill<T>(spares: &mut [Option<Room<T>>], arena: Option<&Arena>) -> bool {
            spares.iter_mut().all(|spare| {
                *spare = spare.take().or_else(|| Room::new(arena));
                spare.is_some()
            })
        }
        fill(&mut self.leaves[..leaves], arenas.leaves)
            && fill(&mut self.inners[..inners.min(MOST)], arenas.inners)
    }

    /// Whether there is room for leaves.
    pub fn has_leaves(&self) -> bool {
        self.leaves[0].is_some()
    }

    /// Makes a leaf; `None` if there is no room.
    pub fn leaf(&mut self, leaf: Leaf) -> Option<Link> {
        let room = self.leaves.get(self.used.0)?.as_ref()?;
        self.used.0 += 1;
        Some(Link::leaf(room.fill(leaf, |leaf| &leaf.gate)))
    }

    /// Makes an inner node; `None` if there is no room.
    pub fn inner(&mut self, inner: Inner) -> Option<Link> {
        let room = self.inners.get(self.used.1)?.as_ref()?;
        self.used.1 += 1;
        Some(Link::inner(room.fill(inner, |inner| &inner.gate)))
    }

    /// What was made is in the tree now, which owns it.
    pub fn keep(&mut self) {
        let (leaves, inners) = self.used;
        let made = self.leaves[..leaves].iter_mut().filter_map(Option::take);
        made.for_each(mem::forget);
        let made = self.inners[..inners].iter_mut().filter_map(Option::take);
        made.for_each(mem::forget);
        self.used = (0, 0);
    }

    /// What was made is not used, and can be made again.
    pub fn take_back(&mut self) {
        if cfg!(stillpoint_loom) {
            // The model's atomics own something.
            let leaves = self.leaves[..self.used.0].iter().flatten();
            let inners = self.inners[..self.used.1].iter().flatten();
            // SAFETY: made by `leaf` and `inner`, and no other thread knows them.
            unsafe {
                leaves.for_each(|leaf| leaf.place.as_ptr().drop_in_place());
                inners.for_each(|inner| inner.place.as_ptr().drop_in_place());
            }
        }
        self.used = (0, 0);
    }
}

impl Drop for Spares {
    fn drop(&mut self) {
        self.take_back();
    }
}
