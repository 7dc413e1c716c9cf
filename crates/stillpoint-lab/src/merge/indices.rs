//! A set of indices, as ranges: a whole array is one, however large.

use std::collections::BTreeMap;

use crate::array::Indices;

/// The ranges, by their first index; each with its last one.
#[derive(Default)]
pub struct Found(BTreeMap<u64, u64>);

impl Found {
    /// Adds an index, and returns whether it was not there.
    pub fn insert(&mut self, index: u64) -> bool {
        let before = self.0.range(..=index).next_back();
        let (mut first, mut last) = (index, index);
        if let Some((&start, &end)) = before {
            if index <= end {
                return false;
            }
            if end + 1 == index {
                first = start;
            }
        }
        if let Some(next) = index.checked_add(1)
            && let Some(end) = self.0.remove(&next)
        {
            last = end;
        }
        self.0.insert(first, last);
        true
    }

    /// Returns whether the index is there.
    pub fn contains(&self, index: u64) -> bool {
        let before = self.0.range(..=index).next_back();
        before.is_some_and(|(_, &end)| index <= end)
    }

    /// The ranges of `all` that are not there.
    pub fn missing(&self, all: Indices) -> Vec<(u64, u64)> {
        let (mut next, last) = all.all().into_inner();
        let mut missing = Vec::new();
        for (&start, &end) in &self.0 {
            if end < next {
                continue;
            }
            if start > last {
                break;
            }
            if next < start {
                missing.push((next, start - 1));
            }
            match end.checked_add(1) {
                Some(after) => next = after,
                None => return missing,
            }
        }
        if next <= last {
            missing.push((next, last));
        }
        missing
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_the_set(indices in proptest::collection::vec(0_u64..40, 0..60), first in 0_u64..20, more in 0_u64..30) {
            let mut found = Found::default();
            let mut set = std::collections::BTreeSet::new();
            for index in indices {
                prop_assert_eq!(found.contains(index), set.contains(&index));
                prop_assert_eq!(found.insert(index), set.insert(index));
                prop_assert!(found.contains(index));
            }
            let all: Indices = format!("{first}-{}", first + more).parse().expect("a range");
            let expected: Vec<u64> = all.all().filter(|index| !set.contains(index)).collect();
            let missing = found.missing(all);
            let named: Vec<u64> = missing.iter().flat_map(|&(first, last)| first..=last).collect();
            prop_assert_eq!(named, expected);
            // Ranges do not touch.
            prop_assert!(missing.windows(2).all(|pair| pair[0].1 + 1 < pair[1].0));
            prop_assert!(found.0.iter().zip(found.0.iter().skip(1)).all(|(one, other)| one.1 + 1 < *other.0));
        }
    }

    #[test]
    fn the_last_number_is_an_index_too() {
        let mut found = Found::default();
        assert!(found.insert(u64::MAX) && found.insert(u64::MAX - 1));
        assert!(!found.insert(u64::MAX));
        let all = format!("{}-{}", u64::MAX - 3, u64::MAX).parse();
        assert_eq!(
            found.missing(all.expect("a range")),
            [(u64::MAX - 3, u64::MAX - 2)]
        );
    }
}
