//! NUMA nodes, read from `/sys` once. Without that information there is one node.

use super::{cpu, race::RaceCell};

/// The node of each processor.
#[derive(Debug)]
struct Topology {
    nodes: usize,
    node_of: Box<[usize]>,
}

impl Topology {
    #[cfg(all(target_os = "linux", not(miri)))]
    fn read() -> Self {
        let list = |path: &str| {
            std::fs::read_to_string(path)
                .ok()
                .and_then(|text| parse_list(&text))
        };
        let nodes = list("/sys/devices/system/node/online").unwrap_or_default();
        let mut node_of = vec![0; cpu::count()].into_boxed_slice();
        // Numbered from 0 without gaps, whatever numbers the system gives them: they are indices
        // here.
        for (index, node) in nodes.iter().enumerate() {
            for cpu in
                list(&format!("/sys/devices/system/node/node{node}/cpulist")).unwrap_or_default()
            {
                if let Some(place) = node_of.get_mut(cpu) {
                    *place = index;
                }
            }
        }
        Self {
            nodes: nodes.len().max(1),
            node_of,
        }
    }

    #[cfg(not(all(target_os = "linux", not(miri))))]
    fn read() -> Self {
        Self {
            nodes: 1,
            node_of: Box::new([]),
        }
    }
}

/// Returns the topology, which is read at the first call.
fn topology() -> &'static Topology {
    static KNOWN: RaceCell<Box<Topology>> = RaceCell::new();
    KNOWN
        .get()
        .unwrap_or_else(|| KNOWN.put(Box::new(Topology::read())))
}

/// Returns how many nodes there are, at least 1.
pub fn count() -> usize {
    topology().nodes
}

/// Returns the node of the processor that runs the calling thread at this moment; below [`count`].
#[inline]
pub fn current() -> usize {
    let topology = topology();
    if topology.nodes == 1 {
        return 0;
    }
    topology.node_of.get(cpu::current()).copied().unwrap_or(0)
}

/// Parses a list of numbers such as `0-3,8,10-11`. `None` if it is no such list.
#[cfg_attr(
    not(all(target_os = "linux", not(miri))),
    allow(dead_code, reason = "there is nothing to read here")
)]
fn parse_list(text: &str) -> Option<Vec<usize>> {
    /// Upper bound on numbers, which no system reaches: a broken list must not fill the memory.
    const MOST: usize = 1 << 16;
    let mut numbers = Vec::new();
    for range in text.trim().split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse().ok()?, last.parse::<usize>().ok()?);
        if last >= MOST {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read() {
        assert_eq!(parse_list("0\n"), Some(vec![0]));
        assert_eq!(parse_list("0-2,5"), Some(vec![0, 1, 2, 5]));
        assert_eq!(parse_list(""), Some(vec![]));
        assert_eq!(parse_list("0-99999999"), None);
        assert_eq!(parse_list("zero"), None);
    }

    #[test]
    fn there_is_a_node() {
        assert!(current() < count());
    }
}
