//! The policies of the broken flavours: each leaves one part out. No build but the torture's has them.

use stillpoint::torture::{GracePeriodPolicy, Policy};

/// Grace periods wait for nobody.
#[derive(Debug)]
pub enum Unwaiting {}

// SAFETY: this and all below: the torture reads type-stable elements of atomics alone, whose state is wrong when a reader has been missed.
unsafe impl GracePeriodPolicy for Unwaiting {
    const WAITS_FOR_READERS: bool = false;
}
// SAFETY: of deferred frees everything is present.
unsafe impl Policy for Unwaiting {}

/// The heavy barrier is left out.
#[derive(Debug)]
pub enum Unfenced {}

// SAFETY: as for `Unwaiting`.
unsafe impl GracePeriodPolicy for Unfenced {
    const HEAVY_BARRIER: bool = false;
}
// SAFETY: of deferred frees everything is present.
unsafe impl Policy for Unfenced {}

/// Cookies name one grace period too few.
#[derive(Debug)]
pub enum ShortCookies {}

// SAFETY: as for `Unwaiting`.
unsafe impl GracePeriodPolicy for ShortCookies {
    const WHOLE_GRACE_PERIODS: bool = false;
}
// SAFETY: of deferred frees everything is present.
unsafe impl Policy for ShortCookies {}

/// Pages of deferred frees have cookies that are one too old. What they free are notes that nobody reads, on type-stable elements.
#[derive(Debug)]
pub enum EarlyPages {}

// SAFETY: as for `Unwaiting`.
unsafe impl GracePeriodPolicy for EarlyPages {}
// SAFETY: as for `Unwaiting`.
unsafe impl Policy for EarlyPages {
    const WHOLE_PAGE_COOKIES: bool = false;
}

/// A scan passes over one reader.
#[derive(Debug)]
pub enum OneDropped {}

// SAFETY: as for `Unwaiting`.
unsafe impl GracePeriodPolicy for OneDropped {
    const EVERY_HOLDOUT: bool = false;
}
// SAFETY: of deferred frees everything is present.
unsafe impl Policy for OneDropped {}

/// Barriers return at once.
#[derive(Debug)]
pub enum NoBarriers {}

// SAFETY: as for `Unwaiting`.
unsafe impl GracePeriodPolicy for NoBarriers {
    const BARRIER_WAITS: bool = false;
}
// SAFETY: of deferred frees everything is present.
unsafe impl Policy for NoBarriers {}

/// Nothing is left out but that sleepers look again after a while. Sound: nothing rests on that.
#[derive(Debug)]
pub enum Netless {}

// SAFETY: it changes how long is slept, and nothing else.
unsafe impl GracePeriodPolicy for Netless {
    const BOUNDED_SLEEPS: bool = false;
}
// SAFETY: of deferred frees everything is present.
unsafe impl Policy for Netless {}

/// Waiters sleep without the second barrier, and without bound.
#[derive(Debug)]
pub enum Forgotten {}

// SAFETY: as for `Unwaiting`; nothing is freed early by it.
unsafe impl GracePeriodPolicy for Forgotten {
    const FLAG_BARRIER: bool = false;
    const BOUNDED_SLEEPS: bool = false;
}
// SAFETY: of deferred frees everything is present.
unsafe impl Policy for Forgotten {}

/// What `start_poll` has named ends when somebody else sees to it, and nobody does.
#[derive(Debug)]
pub enum Unkept {}

// SAFETY: as for `Unwaiting`; nothing is freed early by it.
unsafe impl GracePeriodPolicy for Unkept {
    const COMPLETES_POLLED: bool = false;
}
// SAFETY: of deferred frees everything is present.
unsafe impl Policy for Unkept {}
