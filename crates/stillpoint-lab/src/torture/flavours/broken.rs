//! The policies of the broken flavours: each leaves one part out. No build but the torture's has
//! them.

use stillpoint::lab::{GracePeriodPolicy, Policy};

/// Grace periods do not wait for readers.
#[derive(Debug)]
pub enum NoWaiting {}

// SAFETY: this and all below: the torture reads type-stable elements of atomics alone, whose state
// is wrong when a reader has been missed.
unsafe impl GracePeriodPolicy for NoWaiting {
    const WAITS_FOR_READERS: bool = false;
}
// SAFETY: of deferred frees everything is present.
unsafe impl Policy for NoWaiting {}

/// The heavy barrier is left out.
#[derive(Debug)]
pub enum NoHeavyBarrier {}

// SAFETY: as for `NoWaiting`.
unsafe impl GracePeriodPolicy for NoHeavyBarrier {
    const HEAVY_BARRIER: bool = false;
}
// SAFETY: of deferred frees everything is present.
unsafe impl Policy for NoHeavyBarrier {}

/// Cookies name one grace period too few.
#[derive(Debug)]
pub enum ShortCookies {}

// SAFETY: as for `NoWaiting`.
unsafe impl GracePeriodPolicy for ShortCookies {
    const WHOLE_GRACE_PERIODS: bool = false;
}
// SAFETY: of deferred frees everything is present.
unsafe impl Policy for ShortCookies {}

/// Pages of deferred frees have cookies that are one too old. What they free are notes that are
/// never read, on type-stable elements.
#[derive(Debug)]
pub enum EarlyPages {}

// SAFETY: as for `NoWaiting`.
unsafe impl GracePeriodPolicy for EarlyPages {}
// SAFETY: as for `NoWaiting`.
unsafe impl Policy for EarlyPages {
    const WHOLE_PAGE_COOKIES: bool = false;
}

/// A scan passes over one reader.
#[derive(Debug)]
pub enum SkipsOneHoldout {}

// SAFETY: as for `NoWaiting`.
unsafe impl GracePeriodPolicy for SkipsOneHoldout {
    const EVERY_HOLDOUT: bool = false;
}
// SAFETY: of deferred frees everything is present.
unsafe impl Policy for SkipsOneHoldout {}

/// Barriers return at once.
#[derive(Debug)]
pub enum NoBarriers {}

// SAFETY: as for `NoWaiting`.
unsafe impl GracePeriodPolicy for NoBarriers {
    const BARRIER_WAITS: bool = false;
}
// SAFETY: of deferred frees everything is present.
unsafe impl Policy for NoBarriers {}

/// Nothing is left out but that sleepers look again after a while. Sound: nothing rests on that.
#[derive(Debug)]
pub enum UnboundedSleeps {}

// SAFETY: it changes how long is slept, and nothing else.
unsafe impl GracePeriodPolicy for UnboundedSleeps {
    const BOUNDED_SLEEPS: bool = false;
}
// SAFETY: of deferred frees everything is present.
unsafe impl Policy for UnboundedSleeps {}

/// Waiters sleep without the second barrier, and without bound.
#[derive(Debug)]
pub enum NoFlagBarrier {}

// SAFETY: as for `NoWaiting`; nothing is freed early by it.
unsafe impl GracePeriodPolicy for NoFlagBarrier {
    const FLAG_BARRIER: bool = false;
    const BOUNDED_SLEEPS: bool = false;
}
// SAFETY: of deferred frees everything is present.
unsafe impl Policy for NoFlagBarrier {}

/// The service thread does not complete what `start_poll` has named.
#[derive(Debug)]
pub enum NoPolledCompletion {}

// SAFETY: as for `NoWaiting`; nothing is freed early by it.
unsafe impl GracePeriodPolicy for NoPolledCompletion {
    const COMPLETES_POLLED: bool = false;
}
// SAFETY: of deferred frees everything is present.
unsafe impl Policy for NoPolledCompletion {}
