//! Stripes: each is what some of the threads allocate from.

use super::region::Owned;
use stillpoint_platform::sync::{AtomicU64, Ordering, UnsafeCell};

/// A run for some threads, of which one at a time uses it.
#[derive(Debug)]
pub struct Stripe {
    locked: AtomicU64,
    owned: UnsafeCell<Option<Owned>>,
    /// How many free slots it has that are not in the run's word, as of the last use.
    left: AtomicU64,
}

impl Default for Stripe {
    fn default() -> Self {
        Self {
            locked: AtomicU64::new(0),
            owned: UnsafeCell::new(None),
            left: AtomicU64::new(0),
        }
    }
}

impl Stripe {
    /// Uses it, unless another thread does.
    #[inline(always)]
    pub fn try_with<R>(&self, work: impl FnOnce(&mut Option<Owned>) -> R) -> Option<R> {
        // Acquire, pairs with `try_with`: what the last thread did.
        self.locked
            .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
            .ok()?;
        let result = self.owned.with_mut(|owned| {
            // SAFETY: locked.
            let owned = unsafe { &mut *owned };
            let result = work(owned);
            // Relaxed: who frees a slot has got it from the thread that took it, after this.
            let left = owned.as_ref().map_or(0, Owned::left);
            self.left.store(left as u64, Ordering::Relaxed);
            result
        });
        // Release, pairs with `try_with`: what this thread did.
        self.locked.store(0, Ordering::Release);
        Some(result)
    }

    /// How many free slots it has that are not in the run's word. Of the slots that were taken, it
    /// knows all that the caller knows of; while a thread uses it, perhaps not the others.
    #[inline]
    pub fn left(&self) -> usize {
        self.left.load(Ordering::Relaxed) as usize
    }
}
