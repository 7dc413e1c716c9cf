//! Nobody forks.

use crate::fork::{ForkReset, Process};

/// The one process.
pub fn process() -> Process {
    Process(0)
}

/// What is told of forks, of which there are none.
#[derive(Debug)]
pub struct AtForkHandle;

impl AtForkHandle {
    /// A place for something that is about to be made.
    pub fn reserve() -> Self {
        Self
    }

    /// From now on `subject` would be told of forks.
    ///
    /// # Safety
    ///
    /// None.
    pub unsafe fn occupy<T: ForkReset>(&self, _subject: &T) {}
}
