//! The kernel's own RCU: `membarrier(MEMBARRIER_CMD_GLOBAL)` is its `synchronize_rcu()`, as far as
//! user space can reach it. Its readers are in the kernel, so a thread's sections are plain code
//! here.

use rustix::io;
use rustix::thread::{MembarrierCommand, membarrier};

use crate::subject::{Peer, Reader, Registry, Updater};

/// The experiments that the peer takes part in.
pub fn register(to: &mut impl Registry) {
    to.waits::<Kernel>(Peer::new(NAME));
}

/// The subject's name.
pub const NAME: &str = "kernel";

/// Waits for one grace period, which kernels without the call, with a filter against it, or with
/// tickless CPUs refuse.
pub fn try_out() -> io::Result<()> {
    membarrier(MembarrierCommand::Global)
}

/// The kernel knows every thread.
#[derive(Default)]
pub struct Kernel;

impl Reader for Kernel {
    fn read(&mut self, section: impl FnOnce()) {
        section();
    }
}

impl Updater for Kernel {
    fn synchronize(&mut self) {
        try_out().expect("the kernel allowed it when the run began");
    }
}
