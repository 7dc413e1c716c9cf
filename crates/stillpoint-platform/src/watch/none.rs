//! Nothing can be watched.

use crate::clock::Nanos;
use std::{io, path::Path};

/// What files would be watched by. Never open; the functions are those of Linux.
#[derive(Debug)]
pub struct Watch(());

impl Watch {
    #[expect(clippy::new_without_default, reason = "it has no use by itself")]
    pub const fn new() -> Self {
        Self(())
    }

    pub fn is_open(&self) -> bool {
        false
    }

    /// # Errors
    ///
    /// Always.
    pub fn add(&self, _: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub fn ring(&self) {}

    /// # Errors
    ///
    /// Always.
    pub fn wait(&self, _: Nanos, _: bool) -> io::Result<bool> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// # Safety
    ///
    /// None is needed.
    pub unsafe fn close(&self) {}
}
