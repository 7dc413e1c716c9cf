//! A node's lock, and what is only changed under it.

use super::order::SLOTS;
use crate::backoff::Backoff;
use stillpoint_platform::{
    fork,
    sync::{AtomicU32, Ordering},
};

/// Which process holds a lock: not 0.
fn mine() -> u32 {
    1 + (fork::process().generation() % u64::from(u32::MAX)) as u32
}

/// A node's lock, and what is only changed under it.
#[derive(Debug)]
pub struct Gate {
    /// 0, or the process of the thread that holds it: one that a fork has removed is known by that.
    lock: AtomicU32,
    /// Whether the node is dead, where it lies, and how many slots of a leaf have been used.
    state: AtomicU32,
}

const DEAD: u32 = 1 << 31;
const IN_SLAB: u32 = 1 << 30;

impl Gate {
    pub fn new(used: usize) -> Self {
        Self {
            lock: AtomicU32::new(0),
            state: AtomicU32::new(used as u32),
        }
    }

    /// Locks it until the result is dropped. A thread locks nodes below before those above, and left ones
    /// before right ones.
    ///
    /// A holder that a fork has removed has published its change, or none of it: what it has not
    /// marked as dead is not found from the root, and threads that have found it before the fork
    /// look again ([`super::change`]).
    pub fn lock(&self) -> Locked<'_> {
        let mine = mine();
        let mut backoff = Backoff::new();
        let mut seen = 0;
        while let Err(holder) =
            // Acquire, pairs with the drop of `Locked`: what the last holder has done.
            self.lock
                    .compare_exchange(seen, mine, Ordering::Acquire, Ordering::Relaxed)
        {
            if holder == mine {
                backoff.wait();
                seen = 0;
            } else {
                seen = holder;
            }
        }
        Locked(self)
    }

    /// Whether the node has been replaced. Under the lock.
    pub fn is_dead(&self) -> bool {
        self.state.load(Ordering::Relaxed) & DEAD != 0
    }

    /// How many slots have been used. Under the lock.
    pub fn used(&self) -> usize {
        (self.state.load(Ordering::Relaxed) & !(DEAD | IN_SLAB)) as usize
    }

    /// Says that the node lies in a slab.
    ///
    /// # Safety
    ///
    /// It does, or will when it is moved there before it is published.
    pub unsafe fn set_in_slab(&self) {
        let state = self.state.load(Ordering::Relaxed);
        self.state.store(state | IN_SLAB, Ordering::Relaxed);
    }

    /// Whether it lies in a slab, and not in a box.
    pub fn is_in_slab(&self) -> bool {
        self.state.load(Ordering::Relaxed) & IN_SLAB != 0
    }
}

/// A lock that is held.
#[derive(Debug)]
#[must_use]
pub struct Locked<'t>(&'t Gate);

impl<'t> Locked<'t> {
    /// Returns a `Locked` without taking the lock.
    #[cfg(all(test, stillpoint_loom))]
    pub fn unlocked(gate: &'t Gate) -> std::mem::ManuallyDrop<Self> {
        std::mem::ManuallyDrop::new(Self(gate))
    }

    /// Says that the node has been replaced.
    pub fn kill(&self) {
        let state = self.0.state.load(Ordering::Relaxed);
        self.0.state.store(state | DEAD, Ordering::Relaxed);
    }

    /// Counts a slot of a leaf that is used from now on. Returns its number.
    ///
    /// # Panics
    ///
    /// If all slots are used.
    pub fn use_another(&self) -> usize {
        let slot = self.0.used();
        assert!(slot < SLOTS, "a leaf that is full has no other slot");
        let state = self.0.state.load(Ordering::Relaxed);
        self.0.state.store(state + 1, Ordering::Relaxed);
        slot
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // Release, pairs with `lock`: what this thread has done.
        self.0.lock.store(0, Ordering::Release);
    }
}
