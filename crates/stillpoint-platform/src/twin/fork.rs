//! The model does not fork.

use crate::fork::{ForkReset, Process};

/// Returns the one process.
pub fn process() -> Process {
    Process(0)
}

/// Stands for an entry in the list of what a fork resets; does nothing.
#[derive(Debug)]
pub struct AtForkHandle;

impl AtForkHandle {
    /// Returns a handle that does nothing.
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
