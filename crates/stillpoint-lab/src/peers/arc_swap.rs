//! arc-swap: a reader that sleeps holds a reference count (`load_full`), as the documentation
//! advises for values that are kept across an `.await`; short looks take a guard (`load`). Its
//! writers wait for no reader and defer nothing: they settle the readers' debts, and the last count
//! frees.

use std::sync::LazyLock;
use std::time::Duration;

use tokio::time::sleep;

use crate::subject::{Cell, Guarded, Participant, Peer, Registry, Value};

const PEER: Peer = Peer::new("arc-swap");

/// What it takes part in.
pub fn register(to: &mut impl Registry) {
    to.shares(PEER, ArcSwap::from_pointee);
    to.reads::<ArcSwapLoad>(PEER);
}

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

/// What all threads look at in `scale read`.
static CELL: LazyLock<::arc_swap::ArcSwap<u64>> =
    LazyLock::new(|| ::arc_swap::ArcSwap::from_pointee(1));

/// A thread that takes guards.
pub struct ArcSwapLoad(&'static ::arc_swap::ArcSwap<u64>);

impl Participant for ArcSwapLoad {
    fn register_thread() -> Self {
        Self(&CELL)
    }
}

impl Guarded for ArcSwapLoad {
    #[inline(always)]
    fn enter(&self) -> impl Sized {
        self.0.load()
    }
}
