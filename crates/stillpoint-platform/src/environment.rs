//! The environment: all variables that the library reads, and how their values are parsed.
//!
//! Each is read once, at its first use, and kept in a word: no later read takes a lock that a thread which
//! vanishes in a fork could hold. The first takes std's, which keeps other threads from changing the
//! environment while the value is copied.
//!
//! Case does not matter, nor do blanks around a value. An empty value counts as unset. A value that
//! is not understood is ignored, with one warning on stderr.

use crate::{
    clock::{self, Nanos},
    stderr,
};
use std::{
    env,
    // std's also in the model, which has no statics.
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// A variable: its name, what it takes, and its value as a word.
struct Variable {
    name: &'static str,
    takes: &'static str,
    word: AtomicU64,
}

/// Not read yet. A variable whose value is this number is read each time, which does no harm.
const UNKNOWN: u64 = u64::MAX - 1;

impl Variable {
    const fn new(name: &'static str, takes: &'static str) -> Self {
        Self {
            name,
            takes,
            word: AtomicU64::new(UNKNOWN),
        }
    }

    /// Returns the value as `parse` understands it, or `unset` if the variable is not set or `parse`
    /// rejects it. The model has no environment, so there this returns `unset`.
    #[inline]
    fn read(&self, unset: u64, parse: impl FnOnce(&str) -> Option<u64>) -> u64 {
        match self.word.load(Ordering::Relaxed) {
            _ if cfg!(stillpoint_loom) => unset,
            UNKNOWN => self.find(unset, parse),
            known => known,
        }
    }

    #[cold]
    fn find(&self, unset: u64, parse: impl FnOnce(&str) -> Option<u64>) -> u64 {
        let value = env::var_os(self.name).unwrap_or_default();
        let text = value.to_string_lossy().trim().to_ascii_lowercase();
        let parsed = match text.as_str() {
            "" => Some(unset),
            text => parse(text),
        };
        let found = parsed.unwrap_or(unset);
        let is_first = self
            .word
            .compare_exchange(UNKNOWN, found, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok();
        if is_first && parsed.is_none() {
            stderr::line(format_args!(
                "{}={:.100} is not understood, and ignored; it takes {}",
                self.name,
                value.to_string_lossy(),
                self.takes
            ));
        }
        found
    }

    /// Reads a setting that is on or off.
    #[inline]
    fn switch(&self, unset: bool) -> bool {
        self.read(unset.into(), |text| switch(text).map(u64::from)) != 0
    }
}

/// Parses a word for on or off. Returns `None` for any other text.
fn switch(text: &str) -> Option<bool> {
    match text {
        "1" | "on" | "yes" | "true" => Some(true),
        "0" | "off" | "no" | "false" => Some(false),
        _ => None,
    }
}

/// Returns whether `membarrier(2)` may be used: `STILLPOINT_MEMBARRIER`.
pub fn membarrier() -> bool {
    static MEMBARRIER: Variable = Variable::new(
        "STILLPOINT_MEMBARRIER",
        "off (or 0, no, false): readers fence; or on (or 1, yes, true), the default",
    );
    MEMBARRIER.switch(true)
}

/// Returns whether the C library reports misuse: `STILLPOINT_DEBUG`.
#[inline]
pub fn debug() -> bool {
    static DEBUG: Variable = Variable::new(
        "STILLPOINT_DEBUG",
        "on (or 1, yes, true): misuse is reported; or off (or 0, no, false), the default",
    );
    DEBUG.switch(false)
}

/// Returns whether the process publishes its statistics: `STILLPOINT_STATS`.
pub fn statistics() -> bool {
    static STATS: Variable = Variable::new(
        "STILLPOINT_STATS",
        "on (or 1, yes, true): statistics are published for `stillpoint-top`; or off (or 0, no, false), the default",
    );
    STATS.switch(false)
}

/// Returns how long callbacks are kept, in nanoseconds: `STILLPOINT_CALLBACK_DELAY_MS`.
pub fn callback_delay() -> Nanos {
    static DELAY: Variable = Variable::new(
        "STILLPOINT_CALLBACK_DELAY_MS",
        "a whole number of milliseconds; callbacks are not delayed",
    );
    DELAY.read(0, |text| match text.parse() {
        Ok(milliseconds) => Some(clock::nanos(Duration::from_millis(milliseconds))),
        Err(_) => (switch(text) == Some(false)).then_some(0),
    })
}

/// When a stall is written to stderr.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Print {
    /// Not at all.
    Never,
    /// If the program has neither a handler nor a subscriber of `tracing`.
    Unheard,
    /// Always, in addition to a handler or subscriber.
    Always,
}

/// The setting of `STILLPOINT_STALL`.
#[derive(Debug, Clone, Copy)]
pub struct Stall {
    /// When a stall is written to stderr.
    pub print: Print,
    /// The time-out of domains that are not given one.
    pub timeout: Option<Nanos>,
}

/// Returns when stalls are reported, and where: `STILLPOINT_STALL`.
pub fn stall() -> Stall {
    static STALL: Variable = Variable::new(
        "STILLPOINT_STALL",
        "off (or 0, no, false); stderr (or on, yes, true); or the default time-out in seconds, such as 2.5",
    );
    /// Words that are not time-outs: they are less than the shortest one.
    const UNSET: u64 = 0;
    const OFF: u64 = 1;
    const STDERR: u64 = 2;
    const SHORTEST: Nanos = 1_000;
    let word = STALL.read(UNSET, |text| match text.parse() {
        Ok(0.0) => Some(OFF),
        Ok(seconds) => Duration::try_from_secs_f64(seconds)
            .ok()
            .map(|timeout| clock::nanos(timeout).max(SHORTEST)),
        Err(_) if text == "stderr" || switch(text) == Some(true) => Some(STDERR),
        Err(_) => switch(text).map(|_| OFF),
    });
    let (print, timeout) = match word {
        UNSET => (Print::Unheard, None),
        OFF => (Print::Never, None),
        STDERR => (Print::Always, None),
        timeout => (Print::Unheard, Some(timeout)),
    };
    Stall { print, timeout }
}
