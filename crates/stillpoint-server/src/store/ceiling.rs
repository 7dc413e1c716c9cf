//! A limit that may be falling: the limit that was asked for, and the one in force.
//! `background/limits.rs` brings the latter to the former.

use super::config::Config;
use stillpoint_platform::sync::{AtomicU64, Ordering};

/// Part of the limit that is kept free in the background, so that a write finds room.
const HEADROOM: u64 = 64;

/// Returns the usage up to which the background keeps a limit of `max` bytes.
pub fn with_headroom(max: u64) -> u64 {
    match max {
        u64::MAX => max,
        _ => max - max / HEADROOM,
    }
}

/// The limit of a store or a tenant.
#[derive(Debug)]
pub struct Ceiling {
    asked: AtomicU64,
    holds: AtomicU64,
}

impl Ceiling {
    pub fn none() -> Self {
        Self {
            asked: AtomicU64::new(u64::MAX),
            holds: AtomicU64::new(u64::MAX),
        }
    }

    /// Returns the limit that was asked for.
    pub fn asked(&self) -> u64 {
        // Acquire, pairs with `ask`: a charge after this finds the limit that was raised.
        self.asked.load(Ordering::Acquire)
    }

    /// Returns the limit in force, which is higher while it falls.
    pub fn holds(&self) -> u64 {
        self.holds.load(Ordering::Relaxed)
    }

    pub fn is_falling(&self) -> bool {
        self.holds() > self.asked()
    }

    /// Asks for a limit of `bytes`. If that is above the limit in force, calls `set_max` before it shows, so
    /// that a store that sees it finds room. Called by one thread at a time, as [`Ceiling::follow`].
    pub fn ask(&self, bytes: u64, set_max: impl FnOnce(u64)) {
        if bytes > self.holds() {
            set_max(bytes);
            self.holds.store(bytes, Ordering::Relaxed);
        }
        // Release, pairs with `asked`: what is higher than before holds.
        self.asked.store(bytes, Ordering::Release);
    }

    /// Returns the usage that has to be reached.
    pub fn goal(&self, config: &Config) -> u64 {
        match config.evicts_ahead() {
            true => with_headroom(self.asked()),
            false => self.asked(),
        }
    }

    /// Lowers the limit in force to `usage`, or with `room` to a little more, for what other threads store
    /// meanwhile. Returns it.
    pub fn follow(&self, usage: u64, room: bool, config: &Config) -> u64 {
        let asked = self.asked();
        // Without eviction, stores are refused until enough has been deleted.
        let falls = config.evict && usage > self.goal(config);
        let room = if room { usage / (HEADROOM - 1) } else { 0 };
        let holds = match falls {
            true => asked.max(self.holds().min(usage + room)),
            false => asked,
        };
        self.holds.store(holds, Ordering::Relaxed);
        holds
    }
}
