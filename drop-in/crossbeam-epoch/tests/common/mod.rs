//! Helpers of the tests.
#![allow(dead_code, reason = "each test program uses a part")]

use crossbeam_epoch::{Collector, Guard, LocalHandle, Owned};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Sender, channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Counts drops.
#[derive(Clone, Default)]
pub struct Drops(Arc<AtomicUsize>);

impl Drops {
    pub fn count(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }

    pub fn note(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }

    /// Returns an object whose drop is counted.
    pub fn one(&self) -> Counted {
        Counted(self.clone())
    }

    /// Defers the drop of an object.
    pub fn defer(&self, guard: &Guard) {
        let one = self.one();
        guard.defer(move || drop(one));
    }

    /// Waits until `count` drops have been counted.
    pub fn wait_for(&self, count: usize) {
        wait_until(|| self.count() >= count);
        assert_eq!(self.count(), count);
    }
}

pub struct Counted(Drops);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.note();
    }
}

/// Returns a new collector, and a handle of it.
pub fn registered() -> (Collector, LocalHandle) {
    let collector = Collector::new();
    let handle = collector.register();
    (collector, handle)
}

/// Defers the destruction of a new object.
pub fn destroy<T>(guard: &Guard, object: T) {
    let shared = Owned::new(object).into_shared(guard);
    // SAFETY: nothing else knows it.
    unsafe { guard.defer_destroy(shared) };
}

/// A thread that keeps a guard until told to leave.
pub struct Reader {
    leave: Sender<()>,
    thread: JoinHandle<()>,
}

impl Reader {
    /// Returns once the thread is pinned.
    pub fn start(name: &str, pin: impl FnOnce() -> Guard + Send + 'static) -> Self {
        let ((pinned, is_pinned), (leave, may_leave)) = (channel(), channel());
        let keep = move || {
            let _guard = pin();
            pinned.send(()).unwrap();
            let _ = may_leave.recv();
        };
        let thread = thread::Builder::new()
            .name(name.into())
            .spawn(keep)
            .unwrap();
        is_pinned.recv().unwrap();
        Self { leave, thread }
    }

    pub fn leave(self) {
        drop(self.leave);
        self.thread.join().unwrap();
    }
}

/// Waits until `done`; a minute or two is as good as for ever.
pub fn wait_until(mut done: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(120);
    while !done() {
        assert!(Instant::now() < until, "it never came");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Returns how many objects a test uses.
pub const fn some(count: usize) -> usize {
    if cfg!(miri) { count / 100 + 3 } else { count }
}
