//! The policies of the broken flavours: each leaves one part out. No build but the torture's has them.

use stillpoint::torture::Policy;

/// Grace periods wait for nobody.
#[derive(Debug)]
pub enum Unwaiting {}

// SAFETY: this and all below: the torture reads type-stable elements of atomics alone, whose state is wrong when a reader has been missed.
unsafe impl Policy for Unwaiting {
    const WAITS_FOR_READERS: bool = false;
}

/// The heavy barrier is left out.
#[derive(Debug)]
pub enum Unfenced {}

// SAFETY: as for `Unwaiting`.
unsafe impl Policy for Unfenced {
    const HEAVY_BARRIER: bool = false;
}

/// Cookies name one grace period too few.
#[derive(Debug)]
pub enum ShortCookies {}

// SAFETY: as for `Unwaiting`.
unsafe impl Policy for ShortCookies {
    const WHOLE_GRACE_PERIODS: bool = false;
}

/// Pages of deferred frees have cookies that are one too old. What they free are notes that nobody reads, on type-stable elements.
#[derive(Debug)]
pub enum EarlyPages {}

// SAFETY: as for `Unwaiting`.
unsafe impl Policy for EarlyPages {
    const WHOLE_PAGE_COOKIES: bool = false;
}

/// A scan passes over one reader.
#[derive(Debug)]
pub enum OneDropped {}

// SAFETY: as for `Unwaiting`.
unsafe impl Policy for OneDropped {
    const EVERY_HOLDOUT: bool = false;
}

/// Barriers return at once.
#[derive(Debug)]
pub enum NoBarriers {}

// SAFETY: as for `Unwaiting`.
unsafe impl Policy for NoBarriers {
    const BARRIER_WAITS: bool = false;
}

/// Nothing is left out but that sleepers look again after a while. Sound: nothing rests on that.
#[derive(Debug)]
pub enum Netless {}

// SAFETY: it changes how long is slept, and nothing else.
unsafe impl Policy for Netless {
    const BOUNDED_SLEEPS: bool = false;
}

/// Waiters sleep without the second barrier, and without bound.
#[derive(Debug)]
pub enum Forgotten {}

// SAFETY: as for `Unwaiting`; nothing is freed early by it.
unsafe impl Policy for Forgotten {
    const FLAG_BARRIER: bool = false;
    const BOUNDED_SLEEPS: bool = false;
}

/// What `start_poll` has named ends when somebody else sees to it, and nobody does.
#[derive(Debug)]
pub enum Unkept {}

// SAFETY: as for `Unwaiting`; nothing is freed early by it.
unsafe impl Policy for Unkept {
    const COMPLETES_POLLED: bool = false;
}
