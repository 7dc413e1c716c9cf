//! An eventfd, by which a thread is woken from its wait.

use rustix::{
    event::{EventfdFlags, eventfd},
    fd::OwnedFd,
    io,
};

#[derive(Debug)]
pub(crate) struct Waker(pub(crate) OwnedFd);

impl Waker {
    pub(crate) fn new() -> io::Result<Self> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(Self)
    }

    /// Wakes the thread, or makes its next wait return at once.
    pub(crate) fn wake(&self) {
        // It fails only if 2^64 wake-ups are pending.
        let _ = io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Forgets the wake-ups so far.
    pub(crate) fn clear(&self) {
        let _ = io::read(&self.0, &mut [0; 8]);
    }
}
