//! arc-swap: a reader that sleeps holds a reference count (`load_full`), as the documentation advises for values that are kept across
//! an `.await`; short looks take a guard (`load`).

use std::time::Duration;

use tokio::time::sleep;

use crate::scale::trace::{Cell, Value};

/// The cell of all tasks.
pub type ArcSwap = ::arc_swap::ArcSwap<Value>;

impl Cell for ArcSwap {
    const REPLACE: Option<fn(&Self, Value)> = Some(|cell, value| cell.store(value.into()));

    async fn section(&self, nap: Duration) {
        let found = self.load_full();
        found.check(&found);
        sleep(nap).await;
        found.check(&self.load());
    }
}
