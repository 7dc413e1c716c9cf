//! Nothing can be watched.

use crate::clock::Nanos;
use std::{io, path::Path};

/// A watch that is never open, with the functions of the one for Linux.
#[derive(Debug)]
pub struct Watch(());

/// There is none.
#[derive(Debug, Clone, Copy)]
pub enum Bell {}

/// There is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watched {}

impl Bell {
    /// Is never called.
    ///
    /// # Safety
    ///
    /// None is needed.
    pub unsafe fn ring(self) {
        match self {}
    }
}

impl Watch {
    /// Makes a watch that is closed.
    #[expect(clippy::new_without_default, reason = "it has no use by itself")]
    pub const fn new() -> Self {
        Self(())
    }

    /// Returns `None`.
    pub fn bell(&self) -> Option<Bell> {
        None
    }

    /// Refuses.
    ///
    /// # Errors
    ///
    /// Always.
    pub fn add(&self, _: &Path) -> io::Result<Watched> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Is never called.
    pub fn remove(&self, watched: Watched) {
        match watched {}
    }

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

    /// Does nothing.
    ///
    /// # Safety
    ///
    /// None is needed.
    pub unsafe fn reset_in_child(&self) {}
}
