//! Values by prefixes of keys. The longest prefix that a key begins with decides.

/// A table of prefixes in their order.
///
/// A look-up is a binary search, which finds the last prefix that is not behind the key. All prefixes
/// that the key begins with are prefixes of that one too, so it goes on from each to the next shorter.
#[derive(Debug, Clone)]
pub struct Prefixes<T> {
    entries: Vec<Entry<T>>,
}

#[derive(Debug, Clone)]
struct Entry<T> {
    prefix: Box<[u8]>,
    /// Index of the longest other prefix that this one begins with.
    shorter: Option<u32>,
    value: T,
}

impl<T> Entry<T> {
    fn begins(&self, key: &[u8]) -> bool {
        #[cfg(test)]
        tests::COMPARED.set(tests::COMPARED.get() + 1);
        key.starts_with(&self.prefix)
    }

    fn is_behind(&self, key: &[u8]) -> bool {
        #[cfg(test)]
        tests::COMPARED.set(tests::COMPARED.get() + 1);
        *self.prefix > *key
    }
}

impl<T> Default for Prefixes<T> {
    fn default() -> Self {
        let entries = Vec::new();
        Self { entries }
    }
}

impl<T> FromIterator<(Box<[u8]>, T)> for Prefixes<T> {
    /// Makes a table of different prefixes.
    fn from_iter<I: IntoIterator<Item = (Box<[u8]>, T)>>(prefixes: I) -> Self {
        let entries = prefixes.into_iter().map(|(prefix, value)| Entry {
            prefix,
            shorter: None,
            value,
        });
        let mut entries: Vec<_> = entries.collect();
        entries.sort_by(|one, other| one.prefix.cmp(&other.prefix));
        for at in 1..entries.len() {
            let (before, rest) = entries.split_at_mut(at);
            let shorter = |index: usize| before[index].shorter.map(|index| index as usize);
            let mut candidate = Some(at - 1);
            while let Some(index) = candidate
                && !before[index].begins(&rest[0].prefix)
            {
                candidate = shorter(index);
            }
            rest[0].shorter = candidate.map(|index| index as u32);
        }
        Self { entries }
    }
}

impl<T> Prefixes<T> {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the value of the longest prefix that `key` begins with.
    pub fn longest(&self, key: &[u8]) -> Option<&T> {
        let behind = self.entries.partition_point(|entry| !entry.is_behind(key));
        let mut at = behind.checked_sub(1)?;
        loop {
            let entry = &self.entries[at];
            if entry.begins(key) {
                return Some(&entry.value);
            }
            at = entry.shorter? as usize;
        }
    }

    /// Returns all prefixes with their values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &T)> {
        let entries = self.entries.iter();
        entries.map(|entry| (&*entry.prefix, &entry.value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! {
        /// How often the calling thread has compared a prefix with a key.
        pub(super) static COMPARED: Cell<u32> = const { Cell::new(0) };
    }

    fn table<'a>(prefixes: impl IntoIterator<Item = &'a [u8]>) -> Prefixes<Box<[u8]>> {
        let prefixes = prefixes.into_iter();
        prefixes
            .map(|prefix| (prefix.into(), prefix.into()))
            .collect()
    }

    /// As a search of all, for random prefixes and keys of few letters.
    #[test]
    fn the_longest_prefix_is_found() {
        let mut number = 1u64;
        let mut word = |least: u64| {
            number = number.wrapping_mul(6_364_136_223_846_793_005) | 1;
            let len = least + (number >> 60) % 6;
            let letter = |at: u64| b'a' + (number >> (20 + 2 * at)) as u8 % 2;
            (0..len).map(letter).collect::<Vec<_>>()
        };
        for round in 0..200 {
            let mut prefixes: Vec<_> = (0..round % 20).map(|_| word(1)).collect();
            prefixes.sort();
            prefixes.dedup();
            let table = table(prefixes.iter().map(|prefix| &**prefix));
            for _ in 0..20 {
                let key = word(0);
                let all = prefixes.iter().filter(|prefix| key.starts_with(prefix));
                let longest = all.max_by_key(|prefix| prefix.len());
                let found = table.longest(&key).map(|found| &**found);
                assert_eq!(found, longest.map(|longest| &**longest), "{key:?}");
            }
        }
    }

    #[test]
    fn a_prefix_is_found_among_many_by_few_comparisons() {
        let name = |number: u32| format!("{:08x}:", number.wrapping_mul(0x9e37_79b1));
        let names: Vec<_> = (0..4096).map(name).collect();
        let table = table(names.iter().map(|name| name.as_bytes()));
        for name in &names {
            COMPARED.set(0);
            assert!(table.longest(format!("{name}key").as_bytes()).is_some());
            assert!(
                table
                    .longest(format!("{name}:").replace("::", "").as_bytes())
                    .is_none()
            );
            assert!(COMPARED.get() <= 2 * 14, "{}", COMPARED.get());
        }
    }
}
