//! Memory for nodes, taken before any lock.

use super::{
    gate::Gate,
    node::{Inner, Leaf, give_back, room},
    search::DEPTH,
};
use crate::slab::Arena;
use std::ptr::NonNull;

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

impl<T> Clone for Room<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Room<T> {}

impl<T> Room<T> {
    fn new(arena: Option<&Arena>) -> Option<Self> {
        let slot = arena.and_then(Arena::allocate);
        Some(Self {
            place: slot.map_or_else(room, |slot| Some(slot.cast()))?,
            is_in_slab: slot.is_some(),
        })
    }

    /// Makes a node of it, whose gate this is.
    fn fill(self, node: T, gate: impl FnOnce(&T) -> &Gate) -> NonNull<T> {
        if self.is_in_slab {
            gate(&node).set_in_slab();
        }
        // SAFETY: room for one, which is this thread's.
        unsafe { self.place.write(node) };
        self.place
    }

    /// # Safety
    ///
    /// No node is made of it.
    unsafe fn give_back(self) {
        // SAFETY: from `new`; the caller's promise.
        unsafe {
            if self.is_in_slab {
                Arena::free(self.place.cast());
            } else {
                give_back(self.place);
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
            leaves: [None; 2],
            inners: [None; MOST],
            used: (0, 0),
        }
    }

    /// Has room for so many, where the arenas have. Returns false without memory.
    pub fn provide(&mut self, leaves: usize, inners: usize, arenas: Arenas<'_>) -> bool {
        fn fill<T>(spares: &mut [Option<Room<T>>], arena: Option<&Arena>) -> bool {
            spares.iter_mut().all(|spare| {
                *spare = spare.or_else(|| Room::new(arena));
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
    pub fn leaf(&mut self, leaf: Leaf) -> Option<NonNull<Leaf>> {
        let room = (*self.leaves.get(self.used.0)?)?;
        self.used.0 += 1;
        Some(room.fill(leaf, |leaf| &leaf.gate))
    }

    /// Makes an inner node; `None` if there is no room.
    pub fn inner(&mut self, inner: Inner) -> Option<NonNull<Inner>> {
        let room = (*self.inners.get(self.used.1)?)?;
        self.used.1 += 1;
        Some(room.fill(inner, |inner| &inner.gate))
    }

    /// What was made is in the tree now.
    pub fn keep(&mut self) {
        self.leaves[..self.used.0].fill(None);
        self.inners[..self.used.1].fill(None);
        self.take_back();
    }

    /// What was made is not used, and can be made again.
    pub fn take_back(&mut self) {
        let made = (
            self.leaves[..self.used.0].iter().flatten(),
            self.inners[..self.used.1].iter().flatten(),
        );
        if cfg!(stillpoint_loom) {
            // The model's atomics own something.
            // SAFETY: made by `leaf` and `inner`, and no other thread knows them.
            unsafe {
                made.0.for_each(|leaf| leaf.place.as_ptr().drop_in_place());
                made.1
                    .for_each(|inner| inner.place.as_ptr().drop_in_place());
            }
        }
        self.used = (0, 0);
    }
}

impl Drop for Spares {
    fn drop(&mut self) {
        self.take_back();
        // SAFETY: from `provide`, and no node is made of it.
        unsafe {
            self.leaves
                .into_iter()
                .flatten()
                .for_each(|spare| spare.give_back());
            self.inners
                .into_iter()
                .flatten()
                .for_each(|spare| spare.give_back());
        }
    }
}
