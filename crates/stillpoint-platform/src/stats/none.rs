//! Where there is no statistics page: other systems, Miri, the model.

use super::Words;
use std::{fmt::Display, io, sync::Weak};

/// Why there is no page.
#[derive(Debug)]
pub struct Unpublished(());

impl From<Unpublished> for io::Error {
    fn from(_: Unpublished) -> Self {
        Self::from(io::ErrorKind::Unsupported)
    }
}

/// Something with statistics.
pub trait Subject: Send + Sync {
    /// Never called.
    fn publish(&self);
}

/// A block, of which there is none.
#[derive(Debug)]
pub struct Block(std::convert::Infallible);

impl Block {
    /// There is none.
    pub fn new(_number: u64, _name: impl Display) -> Option<Self> {
        None
    }

    /// Does nothing.
    pub fn show(&self, _number: u64, _name: impl Display) {
        match self.0 {}
    }

    /// Its words.
    #[must_use]
    pub fn words(&self) -> Words {
        match self.0 {}
    }

    /// Does nothing.
    pub fn end(&self) {
        match self.0 {}
    }
}

/// Does nothing.
pub(super) fn set_text(_words: Words, _text: impl Display) {}

/// Does nothing.
pub fn add(_subject: Weak<dyn Subject>) {}

/// There is no page.
///
/// # Errors
///
/// Always.
pub fn publish() -> Result<(), Unpublished> {
    Err(Unpublished(()))
}

/// Does nothing.
///
/// # Safety
///
/// None.
#[cfg(not(stillpoint_loom))]
pub(crate) unsafe fn reset_in_child() {}
