//! An object that is being retired: what it weighs, and where it is freed.

use super::page::{self, Destructor, HEAVIEST, Slot, footprint};
use std::{alloc::Layout, mem, ptr::NonNull, sync::Arc};

/// Where an object is freed: on any thread, or on the service thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Channel {
    /// Freeing runs no user code, or code that its author has declared plain.
    Plain = 0,
    /// Freeing runs a destructor, which may take locks that the retiring thread holds.
    Drop = 1,
}

pub(super) const CHANNELS: [Channel; 2] = [Channel::Plain, Channel::Drop];

/// The least weight, in bytes, of an object with a destructor that no user has weighed: a
/// collection is three words that own a table.
const UNWEIGHED: usize = 1024;

/// An object that is being retired.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RetireRequest {
    pub(super) channel: Channel,
    pub(super) slot: Slot,
    /// Size in bytes, with the weight that the user gave. The counts include it; the slot does not keep it.
    pub(super) bytes: usize,
    /// Whether `bytes` is a guess: it counts towards the budget, and seals no page early.
    pub(super) is_guess: bool,
}

impl RetireRequest {
    /// Makes a request for an object whose block has `size` bytes.
    #[inline(always)]
    fn new(channel: Channel, slot: Slot, size: usize) -> Self {
        Self {
            channel,
            slot,
            bytes: footprint(size),
            is_guess: false,
        }
    }

    /// Makes a request for a boxed object, which is dropped on the service thread if it has a destructor.
    #[inline(always)]
    pub(crate) fn boxed<T>(object: NonNull<T>) -> Self {
        Self::weighed(object, 0).guess::<T>()
    }

    /// Makes a request for a boxed object that owns `heap_bytes` bytes beside its block.
    #[inline(always)]
    pub(crate) fn weighed<T>(object: NonNull<T>, heap_bytes: usize) -> Self {
        let channel = if mem::needs_drop::<T>() {
            Channel::Drop
        } else {
            Channel::Plain
        };
        Self::new(channel, Slot::boxed(object), size_of::<T>()).owning(heap_bytes)
    }

    /// Makes a request for a reference to a shared object, which is dropped on the service thread.
    pub(crate) fn shared<T>(object: Arc<T>) -> Self {
        // As if the reference were the last one: the value, and the two counts before it.
        let size = size_of::<T>() + 2 * size_of::<usize>();
        Self::new(Channel::Drop, Slot::shared(object), size).guess::<T>()
    }

    /// Returns the object, with a guess of its weight if it is small and its `T` has a destructor.
    #[inline(always)]
    fn guess<T>(self) -> Self {
        if mem::needs_drop::<T>() {
            self.unweighed()
        } else {
            self
        }
    }

    /// Makes a request for what `how` frees, on the service thread.
    #[inline(always)]
    pub(crate) fn with(object: *mut u8, how: &'static Destructor) -> Self {
        Self::new(Channel::Drop, Slot::with(object, how), how.bytes()).owning(0)
    }

    /// Makes a request for a block of the C library's `malloc()`.
    #[cfg(unix)]
    #[inline(always)]
    pub(crate) fn malloced(block: NonNull<u8>, bytes: usize) -> Self {
        Self::new(
            Channel::Plain,
            Slot::block(block, bytes, page::MALLOCED),
            bytes,
        )
    }

    /// Makes a request for a block of the global allocator.
    #[inline(always)]
    pub(crate) fn memory(block: NonNull<u8>, layout: Layout) -> Self {
        Self::new(Channel::Plain, Slot::memory(block, layout), layout.size())
    }

    /// Returns the object, which may be freed on any thread.
    #[inline(always)]
    pub(crate) fn plain(mut self) -> Self {
        self.channel = Channel::Plain;
        self
    }

    /// Returns the object, which has a destructor, with a guess of its weight if it is small.
    #[inline(always)]
    pub(crate) fn unweighed(mut self) -> Self {
        if self.bytes < UNWEIGHED {
            self.bytes = UNWEIGHED;
            self.is_guess = true;
        }
        self
    }

    /// Returns the object. `is_guess` says whether its weight is a guess.
    #[inline(always)]
    pub(crate) fn guessed(mut self, is_guess: bool) -> Self {
        self.is_guess = is_guess;
        self
    }

    /// Returns the object with `heap_bytes` more bytes, which it owns beside its block; it counts for
    /// [`HEAVIEST`] at most.
    #[inline(always)]
    pub(crate) fn owning(mut self, heap_bytes: usize) -> Self {
        self.bytes = self.bytes.saturating_add(heap_bytes).min(HEAVIEST);
        self
    }
}
