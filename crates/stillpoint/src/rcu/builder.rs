//! Domains with a name, and with settings from the start.

use super::{core::Core, domain::Domain};
use crate::gp::{BarrierMode, Cookie};

/// Settings of a new domain, from [`Domain::builder`]; what [`std::thread::Builder`] is for
/// threads. All others have a setter of [`Domain`].
///
/// ```
/// let routes = stillpoint::Domain::builder().name("routes").budget(1 << 20).build();
/// assert_eq!(routes.name(), Some("routes"));
/// assert_eq!(routes.budget(), 1 << 20);
/// ```
#[derive(Debug, Default)]
#[must_use = "there is no domain before `build`"]
pub struct DomainBuilder {
    name: Option<Box<str>>,
    fences: bool,
    budget: Option<usize>,
}

impl Domain {
    /// Makes a domain with a name, or with settings from the start.
    ///
    /// ```
    /// let routes = stillpoint::Domain::builder().name("routes").build();
    /// assert_eq!(routes.name(), Some("routes"));
    /// ```
    pub fn builder() -> DomainBuilder {
        DomainBuilder::default()
    }
}

impl DomainBuilder {
    /// Names the domain. Stall reports, its `Debug` and messages of panics show the name; its
    /// service thread is called `rcu/` and as much of the name as fits into the 15 bytes that the
    /// kernel keeps. Names need not differ.
    ///
    /// # Panics
    ///
    /// If the name contains a null byte, which a thread's name cannot contain.
    ///
    /// ```
    /// let domain = stillpoint::Domain::builder().name("routes").build();
    /// assert!(format!("{domain:?}").contains("routes"));
    /// ```
    #[track_caller]
    pub fn name(mut self, name: impl Into<Box<str>>) -> Self {
        let name = name.into();
        assert!(
            !name.contains('\0'),
            "stillpoint: the name of a domain may not contain a null byte"
        );
        self.name = Some(name);
        self
    }

    /// Makes readers fence and grace periods make no system call, as [`Domain::with_fences`].
    ///
    /// ```
    /// let domain = stillpoint::Domain::builder().with_fences().build();
    /// domain.synchronize();
    /// ```
    pub fn with_fences(mut self) -> Self {
        self.fences = true;
        self
    }

    /// Sets the budget in bytes, as [`Domain::set_budget`]; 8 MiB by default.
    ///
    /// ```
    /// let domain = stillpoint::Domain::builder().budget(1 << 20).build();
    /// assert_eq!(domain.budget(), 1 << 20);
    /// ```
    pub fn budget(mut self, bytes: usize) -> Self {
        self.budget = Some(bytes);
        self
    }

    /// Makes the domain. Starts no thread; allocates 2.6 KiB; does not block.
    ///
    /// For a domain whose readers may sleep, see [`DomainBuilder::build_trace`].
    ///
    /// ```
    /// let domain = stillpoint::Domain::builder().build();
    /// assert_eq!(domain.name(), None);
    /// ```
    #[must_use]
    pub fn build(self) -> Domain {
        let readers = if self.fences {
            BarrierMode::Fence
        } else {
            BarrierMode::Membarrier
        };
        let core = Core::with_readers(readers, Cookie::from_raw(0), self.name);
        let domain = Domain::of(core);
        if let Some(bytes) = self.budget {
            domain.set_budget(bytes);
        }
        domain
    }
}
