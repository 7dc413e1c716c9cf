//! Model-checked tests of what readers and writers of a store share: the index, as it is; the stage
//! of segments and the word of an item that changes, as they are; flushes and ceilings. Grace periods
//! are the real ones.
//!
//! Detects no waiting, changes without the lock, and each acquire and release of `index`,
//! `stage.rs` and `flush.rs` weakened (but one: design/029).
mod ceilings;
mod flushes;
mod index;
mod items;
mod segments;
mod world;

use super::rcu::be;
use stillpoint_platform::{
    model::{
        self as loom,
        thread::{self, JoinHandle},
    },
    sync::Arc,
};

fn model(test: impl Fn() + Sync + Send + 'static) {
    model_of(3, test);
}

/// With so many preemptions.
fn model_of(preemptions: usize, test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(test);
}

/// A thread of that number; the model's first is 0.
fn spawn<T: 'static>(number: u64, run: impl FnOnce() -> T + 'static) -> JoinHandle<T> {
    thread::spawn(move || {
        be(number);
        run()
    })
}

/// The same, of a thread that has `shared` too.
fn beside<T: 'static, R: 'static>(
    number: u64,
    shared: &Arc<T>,
    run: impl FnOnce(&T) -> R + 'static,
) -> JoinHandle<R> {
    let shared = Arc::clone(shared);
    spawn(number, move || run(&shared))
}
