//! NUMA nodes, by number.

/// A NUMA node of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Node(pub(crate) usize);

impl Node {
    /// Returns all nodes. A machine without NUMA has one.
    pub fn all() -> impl Iterator<Item = Node> {
        (0..stillpoint_platform::numa::count()).map(Node)
    }

    /// Returns the node of the processor that runs the calling thread at this moment.
    #[must_use]
    pub fn current() -> Node {
        Node(stillpoint_platform::numa::current())
    }

    /// Returns its number, from 0.
    #[must_use]
    pub fn index(self) -> usize {
        self.0
    }
}
