//! The words that a counter is copied to.
//!
//! The thread that has counted makes the copy. Threads may be delayed between count and copy; the copy is
//! still right once no thread counts any more: a counter's copy is only raised, and a gauge's copy is
//! compared with the gauge once more.
//!
//! * [T1] SeqCst: a copy has the gauge's value after the thread's own change, or a later one.
//! * [T2] SeqCst: the gauge is looked at again after the copy is stored. Of two threads that copy at
//!   once, the one whose store comes last has its T2 behind the other's T1, and so sees its change.

use super::{fields::TEXT_WORDS, page};
use crate::{
    barrier::full_fence,
    sync::{AtomicU64, Ordering},
};
use std::{fmt::Display, sync::OnceLock};

/// Words of a block in the statistics page.
#[derive(Debug, Clone, Copy)]
pub struct Words {
    pub(super) words: &'static [AtomicU64],
    /// The first word of the slot, in the page.
    #[allow(dead_code, reason = "elsewhere there is no page to write to")]
    pub(super) slot: usize,
}

impl Words {
    /// Returns `len` of these words, from `at` on.
    ///
    /// # Panics
    ///
    /// If there are fewer.
    #[must_use]
    pub fn part(self, at: usize, len: usize) -> Self {
        let words = &self.words[at..at + len];
        Self { words, ..self }
    }
}

/// Words in the process's statistics page, or nothing while there is no page: then each call is a
/// load and a branch. No call waits, except [`Tap::set_text`].
#[derive(Debug, Default)]
pub struct Tap(OnceLock<Words>);

impl Tap {
    /// Makes a tap that is closed.
    #[must_use]
    pub const fn new() -> Self {
        Self(OnceLock::new())
    }

    /// Opens the tap; a second call does nothing.
    pub fn open(&self, words: Words) {
        let _ = self.0.set(words);
    }

    /// Returns whether the tap is open.
    #[inline]
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.0.get().is_some()
    }

    /// Copies a counter that is at least `count` now.
    #[inline]
    pub fn raise(&self, at: usize, count: u64) {
        if let Some(words) = self.0.get()
            && words.words[at].load(Ordering::Relaxed) < count
        {
            words.words[at].fetch_max(count, Ordering::Relaxed);
        }
    }

    /// Copies a gauge, which the caller has changed.
    #[inline]
    pub fn follow(&self, at: usize, gauge: impl Fn() -> u64) {
        if let Some(words) = self.0.get() {
            follow(&words.words[at], gauge);
        }
    }

    /// Overwrites the text that begins at the word `at`. Takes a lock for a moment; allocates
    /// nothing. `text` runs no user code.
    ///
    /// # Panics
    ///
    /// If there are fewer words than a text has.
    pub fn set_text(&self, at: usize, text: impl Display) {
        if let Some(words) = self.0.get() {
            let words = words.part(at, TEXT_WORDS);
            page::set_text(words, text);
        }
    }
}

/// Copies a gauge.
///
/// If two threads copy at once, the one whose store comes last has its second fence after the other's first:
/// otherwise the other's store would be the last. So its second look sees the other's change. A thread
/// copies again only if another has changed the gauge meanwhile. If it gave up instead, its old value could
/// replace the copy of the thread that has changed the gauge last.
#[cold]
pub(super) fn follow(word: &AtomicU64, gauge: impl Fn() -> u64) {
    loop {
        // SeqCst [T1], with T2 of other threads.
        full_fence();
        let value = gauge();
        word.store(value, Ordering::Relaxed);
        // SeqCst [T2], with T1 of other threads.
        full_fence();
        if gauge() == value {
            break;
        }
    }
}
