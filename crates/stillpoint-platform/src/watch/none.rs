//! Nothing can be watched.

use crate::clock::Nanos;
use std::{io, path::Path};

/// What files would be watched by. Never open; the functions are those of Linux.
#[derive(Debug)]
pub struct Watch(());

impl Watch {
    /// One that is closed.
    #[expect(clippy::new_without_default, reason = "it has no use by itself")]
    pub const fn new() -> Self {
        Self(())
    }

    /// False.
    pub fn is_open(&self) -> bool {
        false
    }

    /// Refuses.
    ///
    /// # Errors
    ///
    /// Always.
    pub fn add(&self, _: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Does nothing.
    pub fn ring(&self) {}

    /// Refuses.
    ///
    /// # Errors
    ///
    /// Always.
    pub fn wait(&self, _: Nanos, _: bool) -> io::Result<bool> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Does nothing.
    ///
    /// # Safety
    ///
    /// None is needed.
    pub unsafe fn close(&self) {}
}
