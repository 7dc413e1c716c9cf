//! A thing's block, from when it has one.

use super::{Block, Tap, layout::Kind, write};
use std::{fmt::Display, sync::OnceLock};

/// The place of a thing in the statistics page: none at first.
///
/// A [`Subject`](super::Subject) has one, [opens](Self::open) it when it is told to publish, and
/// counts through its [tap](Self::tap). It is dropped after all that counts in it.
#[derive(Debug, Default)]
pub struct Published {
    tap: Tap,
    block: OnceLock<Block>,
}

impl Published {
    /// None.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            tap: Tap::new(),
            block: OnceLock::new(),
        }
    }

    /// Takes a block, unless there is none. Returns true if the tap has been opened by this call: the
    /// block has zeros, so the caller copies all that has been counted. `name` runs no user code.
    pub fn open(&self, kind: &'static Kind, number: u64, name: impl Display) -> bool {
        if self.tap.is_open() {
            return false;
        }
        let Some(block) = Block::new(kind, number, name) else {
            return false;
        };
        let words = block.words();
        let is_first = self.block.set(block).is_ok();
        if is_first {
            self.tap.open(words);
        }
        is_first
    }

    /// What is counted is copied to it.
    #[inline]
    #[must_use]
    pub fn tap(&self) -> &Tap {
        &self.tap
    }

    /// The thing has ended, and is not shown any more. Its tap may still be used.
    pub fn end(&self) {
        if let Some(block) = self.block.get() {
            block.end();
        }
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        write::forget();
    }
}
