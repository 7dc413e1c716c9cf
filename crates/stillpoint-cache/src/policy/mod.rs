//! The policy of one tenant: which entry goes next. Single-threaded, and without knowledge of keys,
//! values, limits or locks; `model.rs` is the same policy told a second time, on plain vectors.
//!
//! S3-FIFO (Yang and others, SOSP 2023): a *small* queue of newcomers, a *main* queue, and ghosts.
//! A hit sets a frequency of two bits and moves nothing.

mod ghost;
mod queue;

pub use queue::Links;

use ghost::Ghosts;
use queue::Queue;
use std::fmt::Debug;

/// The largest frequency of an entry: hits beyond it write nothing.
pub const MOST: u8 = 3;

/// What a policy knows of entries.
pub trait Nodes {
    type Id: Copy + Eq + Debug;

    fn links(&mut self, id: Self::Id) -> &mut Links<Self::Id>;
    /// In which queue an entry is. Belongs to the policy.
    fn place(&mut self, id: Self::Id) -> &mut Place;
    fn weight(&self, id: Self::Id) -> u64;
    fn fingerprint(&self, id: Self::Id) -> u32;
    fn frequency(&self, id: Self::Id) -> u8;
    fn set_frequency(&mut self, id: Self::Id, frequency: u8);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In no queue.
    None,
    Small,
    Main,
}

/// The queues of one tenant.
#[derive(Debug)]
pub struct Policy<I> {
    small: Queue<I>,
    main: Queue<I>,
    ghosts: Ghosts,
    ghost_hits: u64,
}

impl<I: Copy + Eq + Debug> Policy<I> {
    pub fn new() -> Self {
        Self {
            small: Queue::new(),
            main: Queue::new(),
            ghosts: Ghosts::default(),
            ghost_hits: 0,
        }
    }

    /// The weight of all entries.
    pub fn weight(&self) -> u64 {
        self.small.weight() + self.main.weight()
    }

    /// How many entries there are.
    pub fn entries(&self) -> usize {
        self.small.entries() + self.main.entries()
    }

    /// How often an entry came back that had been evicted lately.
    pub fn ghost_hits(&self) -> u64 {
        self.ghost_hits
    }

    /// Adds an entry that is in no queue. Returns whether it was a ghost.
    pub fn insert(&mut self, nodes: &mut impl Nodes<Id = I>, id: I) -> bool {
        let returned = self
            .ghosts
            .take(nodes.fingerprint(id), self.entries().max(1));
        self.ghost_hits += u64::from(returned);
        self.push(nodes, id, if returned { Place::Main } else { Place::Small });
        returned
    }

    /// Takes an entry out of its queue. Returns false if it was in none.
    pub fn remove(&mut self, nodes: &mut impl Nodes<Id = I>, id: I) -> bool {
        match std::mem::replace(nodes.place(id), Place::None) {
            Place::None => return false,
            Place::Small => self.small.remove(nodes, id),
            Place::Main => self.main.remove(nodes, id),
        }
        true
    }

    /// The entry that is to be evicted next, which stays in its queue. `None` if there is none.
    pub fn candidate(&mut self, nodes: &mut impl Nodes<Id = I>) -> Option<I> {
        loop {
            let from_small = self.small.weight() * 10 >= self.weight() || self.main.entries() == 0;
            if from_small {
                let id = self.small.oldest()?;
                if nodes.frequency(id) < 2 {
                    return Some(id);
                }
                self.small.remove(nodes, id);
                nodes.set_frequency(id, 0);
                self.push(nodes, id, Place::Main);
                continue;
            }
            let id = self.main.oldest()?;
            let frequency = nodes.frequency(id);
            if frequency == 0 {
                return Some(id);
            }
            self.main.remove(nodes, id);
            nodes.set_frequency(id, frequency - 1);
            self.push(nodes, id, Place::Main);
        }
    }

    /// Evicts an entry, which leaves a ghost.
    pub fn evict(&mut self, nodes: &mut impl Nodes<Id = I>, id: I) {
        let newcomer = *nodes.place(id) == Place::Small;
        if self.remove(nodes, id) && newcomer {
            self.ghosts.add(nodes.fingerprint(id), self.entries());
        }
    }

    /// Any entry; `None` if there is none.
    pub fn any(&self) -> Option<I> {
        self.small.oldest().or(self.main.oldest())
    }

    fn push(&mut self, nodes: &mut impl Nodes<Id = I>, id: I, place: Place) {
        *nodes.place(id) = place;
        match place {
            Place::Small => self.small.push(nodes, id),
            Place::Main => self.main.push(nodes, id),
            Place::None => unreachable!("not a queue"),
        }
    }
}
