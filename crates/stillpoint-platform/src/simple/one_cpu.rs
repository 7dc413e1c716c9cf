//! A machine with one processor.

/// The processor that runs the calling thread.
pub fn current() -> usize {
    0
}

/// How many there are.
pub fn count() -> usize {
    1
}
