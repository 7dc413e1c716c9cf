//! Hooks for measuring the locks of LRU lists.

/// Watches the locks of LRU lists: for measurements. No part of the stable interface.
#[doc(hidden)]
pub trait Probe: 'static {
    /// The calling thread is about to take a list's lock.
    #[inline(always)]
    fn acquiring() {}

    /// Another thread has it.
    #[inline(always)]
    fn waiting() {}

    /// The calling thread has it, after that.
    #[inline(always)]
    fn waited() {}
}

/// Watches nothing, at no cost.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub enum Unwatched {}

impl Probe for Unwatched {}
