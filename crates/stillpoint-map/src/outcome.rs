//! What the methods that change a map are told, and return.

use std::{error::Error, fmt};

/// What [`PinnedHashMap::compute`](crate::PinnedHashMap::compute) is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation<V, T> {
    /// Insert this value, or replace the present one by it.
    Insert(V),
    /// Remove the entry.
    Remove,
    /// Leave the map as it is, and return this.
    Abort(T),
}

/// What [`PinnedHashMap::compute`](crate::PinnedHashMap::compute) has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compute<'g, K, V, T> {
    /// It has inserted this entry.
    Inserted(&'g K, &'g V),
    /// It has replaced an entry.
    Updated {
        /// The entry that was replaced.
        old: (&'g K, &'g V),
        /// The one that has replaced it.
        new: (&'g K, &'g V),
    },
    /// It has removed this entry.
    Removed(&'g K, &'g V),
    /// It has done nothing.
    Aborted(T),
}

/// The error of [`PinnedHashMap::try_insert`](crate::PinnedHashMap::try_insert): the key is in the map already.
#[derive(Debug, PartialEq, Eq)]
pub struct OccupiedError<'g, V> {
    /// The value that is in the map.
    pub current: &'g V,
    /// The value that was not inserted.
    pub not_inserted: V,
}

impl<V> fmt::Display for OccupiedError<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the key is in the map already")
    }
}

impl<V: fmt::Debug> Error for OccupiedError<'_, V> {}

/// The error of [`PinnedHashMap::try_reserve`](crate::PinnedHashMap::try_reserve): there is no memory for the
/// table, or none can be so large.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TryReserveError {
    pub(crate) additional: usize,
}

impl fmt::Display for TryReserveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "no memory for a table with capacity for {} more entries",
            self.additional
        )
    }
}

impl Error for TryReserveError {}
