//! A boxed table.

use crate::mmap::Zeroed;
use std::{convert::Infallible, ops::Deref};

/// The error of a table, which does not occur: a boxed table aborts if out of memory.
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
