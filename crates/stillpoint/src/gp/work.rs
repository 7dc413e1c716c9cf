//! The work that the service thread does for the layers above the engine, and the error of waits
//! that are refused.

use super::seq::Cookie;
use crate::platform::clock::Nanos;

/// The work that remains after a pass. Empty if there is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Outlook {
    /// The next pass can go on once this has ended.
    pub(crate) cookie: Option<Cookie>,
    /// When the next pass is due at the latest.
    pub(crate) at: Option<Nanos>,
}

/// The work of an engine's service thread.
pub(crate) trait Work: Send + Sync + 'static {
    /// Does what can be done now. One thread at a time.
    fn pass(&self) -> Outlook;
}

/// The error of an operation that would wait for the caller's own section, or for the user code
/// that it is called from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WouldDeadlock;
