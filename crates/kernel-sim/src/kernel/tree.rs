//! The tree of `rcu_node`s: the CPUs that a grace period still waits for. A leaf has a bit for each
//! of its CPUs, an inner node one for each of its children; clearing a node's last bit clears the
//! node's own bit in its parent.

use std::ops::Range;

use super::seq::Seq;

/// One `rcu_node`.
#[derive(Debug)]
struct Node {
    /// Children that a grace period waits for, when it begins.
    init: u64,
    /// Those it still waits for (`qsmask`).
    waits_for: u64,
    /// The parent, and this node's bit there.
    parent: Option<(usize, u32)>,
}

/// The tree. The root is node 0, and a level's nodes lie side by side.
#[derive(Debug)]
pub struct Tree {
    nodes: Vec<Node>,
    leaves: Range<usize>,
    cpus: usize,
    cpus_per_leaf: usize,
    /// The sequence number in the nodes, which CPUs look at; it follows that of the machine.
    pub seq: Seq,
    /// The furthest grace period that was requested (the root's `gp_seq_needed`).
    pub needed: Seq,
}

impl Tree {
    /// For `cpus` CPUs, with at most `fanout_leaf` of them a leaf, and `fanout` children a node
    /// (`rcu_init_levelspread`).
    pub fn new(cpus: usize, fanout_leaf: usize, fanout: usize) -> Self {
        let mut capacity = vec![fanout_leaf];
        while capacity[capacity.len() - 1] < cpus {
            capacity.push(capacity[capacity.len() - 1] * fanout);
        }
        // Nodes of each level, the root's first; the last entry stands for the CPUs.
        let mut counts: Vec<usize> = capacity
            .iter()
            .rev()
            .map(|capacity| cpus.div_ceil(*capacity))
            .collect();
        counts.push(cpus);

        let mut nodes: Vec<Node> = Vec::new();
        let mut above = 0..0;
        let mut cpus_per_leaf = 0;
        for level in 0..counts.len() - 1 {
            let begin = nodes.len();
            let (here, below) = (counts[level], counts[level + 1]);
            let children = below.div_ceil(here);
            cpus_per_leaf = children;
            let parents = if level == 0 {
                1
            } else {
                here.div_ceil(counts[level - 1])
            };
            for index in 0..here {
                let own = children.min(below.saturating_sub(index * children));
                let init = if own == 64 { u64::MAX } else { (1 << own) - 1 };
                let parent =
                    (level > 0).then(|| (above.start + index / parents, (index % parents) as u32));
                nodes.push(Node {
                    init,
                    waits_for: 0,
                    parent,
                });
            }
            above = begin..nodes.len();
        }
        Self {
            nodes,
            leaves: above,
            cpus,
            cpus_per_leaf,
            seq: Seq::FIRST,
            needed: Seq::FIRST,
        }
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Begins a grace period, which waits for all CPUs.
    pub fn begin(&mut self, seq: Seq) {
        for node in &mut self.nodes {
            node.waits_for = node.init;
        }
        // A node too many, left empty by the rounding, waits for no CPU.
        for node in 0..self.nodes.len() {
            if self.nodes[node].init == 0 {
                self.clear_above(node);
            }
        }
        self.seq = seq;
    }

    /// Returns whether the grace period waits for `cpu`.
    pub fn waits_for(&self, cpu: usize) -> bool {
        let (leaf, bit) = self.place(cpu);
        self.nodes[leaf].waits_for & 1 << bit != 0
    }

    /// Returns whether it waits for any CPU.
    pub fn waits(&self) -> bool {
        self.nodes[0].waits_for != 0
    }

    /// Returns the CPUs that it waits for.
    pub fn holdouts(&self) -> impl Iterator<Item = usize> {
        (0..self.cpus).filter(|&cpu| self.waits_for(cpu))
    }

    /// `cpu` has passed through a quiescent state; true if it was the last.
    pub fn report(&mut self, cpu: usize) -> bool {
        if !self.waits_for(cpu) {
            return false;
        }
        let (leaf, bit) = self.place(cpu);
        self.nodes[leaf].waits_for &= !(1 << bit);
        self.nodes[leaf].waits_for == 0 && self.clear_above(leaf)
    }

    /// Clears the bit of an empty node above it, and so on; true if that empties the root.
    fn clear_above(&mut self, mut node: usize) -> bool {
        while let Some((parent, bit)) = self.nodes[node].parent {
            self.nodes[parent].waits_for &= !(1 << bit);
            if self.nodes[parent].waits_for != 0 {
                return false;
            }
            node = parent;
        }
        true
    }

    fn place(&self, cpu: usize) -> (usize, u32) {
        (
            self.leaves.start + cpu / self.cpus_per_leaf,
            (cpu % self.cpus_per_leaf) as u32,
        )
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_usual_shapes() {
        for (cpus, nodes) in [
            (1, 1),
            (16, 1),
            (17, 3),
            (32, 3),
            (64, 5),
            (1024, 65),
            (4096, 1 + 4 + 256),
        ] {
            assert_eq!(Tree::new(cpus, 16, 64).nodes(), nodes, "{cpus}");
        }
    }

    proptest! {
        #[test]
        fn it_is_empty_when_everyone_has_reported_and_not_before(
            (cpus, leaf, fanout) in (1_usize..600, 2_usize..=64, 2_usize..=64), turn in any::<usize>(),
        ) {
            let mut tree = Tree::new(cpus, leaf, fanout);
            tree.begin(Seq(5));
            for step in 0..cpus {
                prop_assert!(tree.waits());
                let cpu = (turn % cpus + step) % cpus;
                prop_assert!(tree.waits_for(cpu));
                prop_assert_eq!(tree.report(cpu), step == cpus - 1);
                prop_assert!(!tree.waits_for(cpu) && !tree.report(cpu));
            }
            prop_assert!(!tree.waits());
            prop_assert_eq!(tree.holdouts().count(), 0);
        }
    }
}
