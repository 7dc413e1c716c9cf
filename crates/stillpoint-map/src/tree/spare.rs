//! Memory for nodes, taken before any lock.

use super::{
    node::{Inner, Leaf, give_back, room},
    search::DEPTH,
};
use std::ptr::NonNull;

/// Inner nodes that one change makes, at most: two at each level, and a root.
const MOST: usize = 2 * DEPTH + 1;

/// Room for nodes. What is not made of it is given back.
#[derive(Debug)]
pub struct Spares {
    leaves: [Option<NonNull<Leaf>>; 2],
    inners: [Option<NonNull<Inner>>; MOST],
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

    /// Has room for so many. Returns false without memory.
    pub fn provide(&mut self, leaves: usize, inners: usize) -> bool {
        fn fill<T>(spares: &mut [Option<NonNull<T>>]) -> bool {
            spares.iter_mut().all(|spare| {
                *spare = spare.or_else(room);
                spare.is_some()
            })
        }
        fill(&mut self.leaves[..leaves]) && fill(&mut self.inners[..inners.min(MOST)])
    }

    /// Makes a leaf; `None` if there is no room.
    pub fn leaf(&mut self, leaf: Leaf) -> Option<NonNull<Leaf>> {
        let place = (*self.leaves.get(self.used.0)?)?;
        self.used.0 += 1;
        // SAFETY: room for one, which is this thread's.
        unsafe { place.write(leaf) };
        Some(place)
    }

    /// Makes an inner node; `None` if there is no room.
    pub fn inner(&mut self, inner: Inner) -> Option<NonNull<Inner>> {
        let place = (*self.inners.get(self.used.1)?)?;
        self.used.1 += 1;
        // SAFETY: room for one, which is this thread's.
        unsafe { place.write(inner) };
        Some(place)
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
                made.0.for_each(|leaf| leaf.as_ptr().drop_in_place());
                made.1.for_each(|inner| inner.as_ptr().drop_in_place());
            }
        }
        self.used = (0, 0);
    }
}

impl Drop for Spares {
    fn drop(&mut self) {
        self.take_back();
        // SAFETY: from `room`, and no node is made of it.
        unsafe {
            self.leaves
                .into_iter()
                .flatten()
                .for_each(|spare| give_back(spare));
            self.inners
                .into_iter()
                .flatten()
                .for_each(|spare| give_back(spare));
        }
    }
}
