//! Programs of random steps, and models that say what they must do. A program is bytes, so that
//! property tests (`tests/random_programs.rs`) and fuzzers (`fuzz/`) run the same.

pub mod kvfree;
pub mod sequence;

use std::collections::BTreeMap;
use stillpoint::{Domain, Guard};

/// The remaining steps. The program ends with its input.
#[derive(Debug)]
pub struct Steps<'a>(pub &'a [u8]);

impl Steps<'_> {
    /// The next byte.
    pub fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }
}

/// Open sections by number, in one thread. What happens may depend on which are open.
#[derive(Debug)]
pub struct Sections<'d> {
    domain: &'d Domain,
    open: BTreeMap<usize, Guard<'d>>,
    next: usize,
}

impl<'d> Sections<'d> {
    pub fn new(domain: &'d Domain) -> Self {
        Self {
            domain,
            open: BTreeMap::new(),
            next: 0,
        }
    }

    pub fn enter(&mut self) {
        if self.open.len() < 100 {
            self.open.insert(self.next, self.domain.read_lock());
            self.next += 1;
        }
    }

    /// Ends one of them.
    pub fn leave(&mut self, which: usize) {
        if let Some(&number) = self.open.keys().nth(which % self.open.len().max(1)) {
            self.open.remove(&number);
        }
    }

    pub fn leave_all(&mut self) {
        self.open.clear();
    }

    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Returns which sections are open now.
    pub fn numbers(&self) -> Vec<usize> {
        self.open.keys().copied().collect()
    }

    /// Returns whether one of `numbers` still is.
    pub fn any(&self, numbers: &[usize]) -> bool {
        numbers.iter().any(|number| self.open.contains_key(number))
    }
}
