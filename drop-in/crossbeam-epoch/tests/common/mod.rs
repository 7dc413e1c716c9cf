//! What the tests share.
#![allow(dead_code, reason = "each test program uses a part")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// Counts what is dropped.
#[derive(Clone, Default)]
pub struct Drops(Arc<AtomicUsize>);

impl Drops {
    pub fn count(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }

    pub fn note(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }

    /// One that is counted when it is dropped.
    pub fn one(&self) -> Counted {
        Counted(self.clone())
    }

    /// Waits until `count` have been counted.
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

/// Waits until `done`; a minute or two is as good as for ever.
pub fn wait_until(mut done: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(120);
    while !done() {
        assert!(Instant::now() < until, "it never came");
        thread::sleep(Duration::from_millis(1));
    }
}

/// How many objects a test uses.
pub const fn some(count: usize) -> usize {
    if cfg!(miri) { count / 100 + 3 } else { count }
}

/// Runs `test` of this program in its own process, with `value` in the environment; returns
/// its output. The test sees it by [`child`].
pub fn run_alone(test: &str, value: &str) -> std::process::Output {
    std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env("STILLPOINT_TEST_CHILD", value)
        .output()
        .unwrap()
}

/// What the parent has said, in a process of [`run_alone`].
pub fn child() -> Option<String> {
    std::env::var("STILLPOINT_TEST_CHILD").ok()
}
