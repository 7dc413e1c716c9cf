//! A machine with one processor.

/// Returns the processor that runs the calling thread.
pub fn current() -> usize {
    0
}

/// Returns the number of processors.
pub fn count() -> usize {
    1
}
