//! Where a thread waits for its callback.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Instant;

/// One callback at a time keeps it, one thread waits for it.
#[derive(Default)]
pub struct CallbackLatch {
    kept: Mutex<Option<Instant>>,
    changed: Condvar,
}

impl CallbackLatch {
    /// For the callback: records when it was invoked, and wakes the waiter.
    pub fn invoke(&self) {
        let now = Instant::now();
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
        self.changed.notify_one();
    }

    /// Sleeps until it has been kept; when that was. It can be kept again afterwards.
    pub fn wait(&self) -> Instant {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match kept.take() {
                Some(at) => return at,
                None => {
                    kept = self
                        .changed
                        .wait(kept)
                        .unwrap_or_else(PoisonError::into_inner)
                }
            }
        }
    }
}
