//! The standard library's `RwLock`, taken for reading: what a program without deferred reclamation
//! would use.

use std::hint::black_box;
use std::sync::RwLock;

use crate::subject::{Participant, Peer, ReadSide, Registry};

const PEER: Peer = Peer::new("std-rwlock");

/// What it takes part in.
pub fn register(to: &mut impl Registry) {
    to.reads::<StdRwLock>(PEER);
}

/// The lock that all threads share.
static LOCK: RwLock<()> = RwLock::new(());

/// A lock needs nothing of its own on a thread.
pub struct StdRwLock;

impl Participant for StdRwLock {
    fn register_thread() -> Self {
        Self
    }
}

impl ReadSide for StdRwLock {
    #[inline(never)]
    fn pairs(&mut self, count: u64) {
        for _ in 0..count {
            let guard = LOCK.read();
            black_box(());
            drop(guard);
        }
    }
}
