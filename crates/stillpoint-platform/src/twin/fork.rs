//! The model does not fork.

use crate::fork::{ForkReset, Process};

/// Returns the one process.
pub fn process() -> Process {
    Process(0)
}

/// An entry in the list of what a fork resets; does nothing.
#[derive(Debug)]
pub struct AtForkHandle;

impl AtForkHandle {
    /// Returns a storage cell for a value that is about to be made.
    pub fn reserve() -> Self {
        Self
    }

    /// Does nothing.
    ///
    /// # Safety
    ///
    /// None.
    pub unsafe fn occupy<T: ForkReset>(&self, _subject: &T) {}
}
