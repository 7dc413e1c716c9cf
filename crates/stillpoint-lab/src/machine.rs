//! Where a run took place: the facts that figures of two machines differ by.

use std::fmt;
use std::thread;

use serde::Serialize;

use crate::load::{Load, Watch};

/// The machine, as the JSON names it.
#[derive(Serialize)]
pub struct Machine {
    /// CPUs that this process may run on.
    pub cpus: usize,
    /// The running kernel's release.
    pub kernel: String,
    /// True if Stillpoint's readers go without fences here; otherwise both sides fence.
    pub membarrier: bool,
    /// What else it did meanwhile, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<Load>,
}

impl Machine {
    /// This machine.
    pub fn here() -> Self {
        Self {
            cpus: thread::available_parallelism().map_or(1, usize::from),
            kernel: rustix::system::uname()
                .release()
                .to_string_lossy()
                .into_owned(),
            membarrier: stillpoint::membarrier_active(),
            load: None,
        }
    }

    /// This machine, at the end of a run that has watched it.
    pub fn watched_by(watch: &Watch) -> Self {
        Self {
            load: watch.so_far(),
            ..Self::here()
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let membarrier = if self.membarrier { "on" } else { "off" };
        let padded = if cfg!(padded) {
            ", branches padded to 32 bytes"
        } else {
            ""
        };
        write!(
            f,
            "{} CPUs, kernel {}, membarrier {membarrier}{padded}",
            self.cpus, self.kernel
        )
    }
}
