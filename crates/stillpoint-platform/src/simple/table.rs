//! A boxed table.

use crate::mmap::Zeroed;
use std::{convert::Infallible, ops::Deref};

/// Nothing: memory for a table is the process's own.
pub type NoTable = Infallible;

/// A table of atomics that starts out zero.
#[derive(Debug)]
pub struct Table<T>(Box<[T]>);

impl<T: Zeroed> Table<T> {
    /// Returns a table of `len` zeroes.
    ///
    /// # Errors
    ///
    /// None.
    pub fn new(len: usize) -> Result<Self, NoTable> {
        Ok(Self((0..len).map(|_| T::default()).collect()))
    }
}

impl<T> Deref for Table<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}
