//! The kinds of readers.

/// How a thread reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Flavour {
    /// By guards, [`Domain::read_lock`](crate::Domain::read_lock).
    Thread = 0,
    /// As a [`QsbrReader`](crate::QsbrReader).
    Qsbr = 1,
    /// By an [`OwnedGuard`](crate::tasks_trace::OwnedGuard), which belongs to a task and to no
    /// thread.
    Owned = 2,
}
