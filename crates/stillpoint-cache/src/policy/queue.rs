//! Queues of a policy: doubly linked through their entries.

use super::Nodes;

/// The neighbours of an entry in its queue.
#[derive(Debug, Clone, Copy)]
pub struct Links<I> {
    pub prev: Option<I>,
    pub next: Option<I>,
}

/// Entries from the newest to the oldest.
#[derive(Debug)]
pub struct Queue<I> {
    newest: Option<I>,
    oldest: Option<I>,
    entries: usize,
    weight: u64,
}

impl<I: Copy> Queue<I> {
    pub const fn new() -> Self {
        Self {
            newest: None,
            oldest: None,
            entries: 0,
            weight: 0,
        }
    }

    pub fn oldest(&self) -> Option<I> {
        self.oldest
    }

    pub fn entries(&self) -> usize {
        self.entries
    }

    pub fn weight(&self) -> u64 {
        self.weight
    }

    /// Adds an entry that is in no queue, as the newest.
    pub fn push(&mut self, nodes: &mut impl Nodes<Id = I>, id: I) {
        let next = self.newest.replace(id);
        nodes.set_links(id, Links { prev: None, next });
        match next {
            Some(second) => nodes.set_prev(second, Some(id)),
            None => self.oldest = Some(id),
        }
        self.entries += 1;
        self.weight += nodes.weight(id);
    }

    /// Puts an entry that is in no queue where one of this queue is, which is taken out.
    pub fn replace(&mut self, nodes: &mut impl Nodes<Id = I>, old: I, new: I) {
        let links = nodes.links(old);
        nodes.set_links(new, links);
        match links.prev {
            Some(prev) => nodes.set_next(prev, Some(new)),
            None => self.newest = Some(new),
        }
        match links.next {
            Some(next) => nodes.set_prev(next, Some(new)),
            None => self.oldest = Some(new),
        }
        let weights = [old, new].map(|id| nodes.weight(id));
        if weights[0] != weights[1] {
            self.weight = self.weight - weights[0] + weights[1];
        }
    }

    /// Takes out an entry of this queue.
    pub fn remove(&mut self, nodes: &mut impl Nodes<Id = I>, id: I) {
        let Links { prev, next } = nodes.links(id);
        match prev {
            Some(prev) => nodes.set_next(prev, next),
            None => self.newest = next,
        }
        match next {
            Some(next) => nodes.set_prev(next, prev),
            None => self.oldest = prev,
        }
        self.entries -= 1;
        self.weight -= nodes.weight(id);
    }
}
