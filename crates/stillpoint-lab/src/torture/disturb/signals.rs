//! Signals to the threads that take some.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use stillpoint::lab::Policy;

use crate::torture::harness::Harness;
use crate::torture::session::Session;

/// Sends a signal to every thread that takes some. The handler counts those that come: a second one
/// that finds the first still waiting is lost.
pub fn send<P: Policy>(session: &Arc<Session>, harness: &Harness<P>, _round: u64) {
    assert!(
        harness.visit_in_handler.is_some(),
        "a flavour without a handler is deaf to --signals"
    );
    let threads = session.threads.lock();
    for handle in threads.iter().filter_map(|thread| thread.handle) {
        // SAFETY: under the lock, so the thread has not deregistered, and not ended.
        unsafe { libc::pthread_kill(handle, libc::SIGUSR1) };
    }
    drop(threads);
    thread::sleep(Duration::from_micros(200));
}
