//! tokio's `RwLock`, whose read guard a task may hold across an `.await`: what an async program
//! without deferred reclamation would use.

use std::time::Duration;

use tokio::time::sleep;

use crate::subject::{Cell, Peer, Registry, Value};

const PEER: Peer = Peer::new("tokio");

/// What it takes part in.
pub fn register(to: &mut impl Registry) {
    to.shares(PEER.variant("rwlock"), RwLock::new);
}

/// The lock of all tasks, around the value.
pub type RwLock = ::tokio::sync::RwLock<Value>;

impl Cell for RwLock {
    const REPLACE: Option<fn(&Self, Value)> = Some(|lock, value| *lock.blocking_write() = value);

    async fn section(&self, nap: Duration) {
        let found = self.read().await;
        found.check(&found);
        sleep(nap).await;
        found.check(&found);
    }
}
