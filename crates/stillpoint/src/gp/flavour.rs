//! The kinds of readers.

/// How a thread reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Flavour {
    /// A thread that reads with guards, [`Domain::read_lock`](crate::Domain::read_lock).
    Thread = 0,
    /// A thread that is a [`QsbrReader`](crate::QsbrReader).
    Qsbr = 1,
    /// A task, or any other holder of an [`OwnedGuard`](crate::tasks_trace::OwnedGuard), which
    /// belongs to no thread.
    Owned = 2,
}
