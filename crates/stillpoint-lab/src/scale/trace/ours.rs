//! Stillpoint's own variants, and the limit.

use std::sync::OnceLock;

use anyhow::Result;
use stillpoint::tasks_trace::{self, TraceDomain};

use crate::scale::subjects::{self, bare_membarrier, has_limit};
use crate::subject::{Guarded, Participant};

/// What readers do, so that a grace period can see them.
#[derive(Clone, Copy)]
pub enum Mode {
    /// Nothing, where membarrier works.
    Native,
    /// They fence.
    ReadMb,
}

impl Mode {
    /// The domain that all threads of the process have in common.
    pub fn domain(self) -> &'static TraceDomain {
        static FENCED: OnceLock<TraceDomain> = OnceLock::new();
        match self {
            Self::Native => tasks_trace::global(),
            Self::ReadMb => FENCED.get_or_init(TraceDomain::with_fences),
        }
    }

    /// A new one.
    #[cfg(feature = "peers")]
    pub fn another(self) -> TraceDomain {
        match self {
            Self::Native => TraceDomain::new(),
            Self::ReadMb => TraceDomain::with_fences(),
        }
    }

    /// Waits for a grace period of the common domain.
    pub fn synchronize(self) {
        self.domain().synchronize();
    }
}

/// A thread's guard in the common domain with fences. (That of the global domain is `scale
/// read`'s.)
pub struct Fenced(&'static TraceDomain);

impl Participant for Fenced {
    fn register_thread() -> Self {
        Self(Mode::ReadMb.domain())
    }
}

impl Guarded for Fenced {
    #[inline(always)]
    fn enter(&self) -> impl Sized {
        self.0.read_lock()
    }
}

/// A bare membarrier, where there is one.
pub fn limit_of_waits() -> Option<fn()> {
    has_limit().then_some(bare_membarrier)
}

/// Registers the process for the limit's membarriers, where there are any.
pub fn prepare_limit() -> Result<()> {
    if has_limit() {
        subjects::prepare_limit()
    } else {
        Ok(())
    }
}
