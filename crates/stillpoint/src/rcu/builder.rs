//! Domains with a name, and with settings from the start.

use super::{core::Core, domain::Domain};
use crate::gp::{BarrierMode, Cookie, StallReport};
use std::{fmt, time::Duration};

type Handler = Box<dyn Fn(&StallReport) + Send + Sync>;

/// Settings of a new domain, from [`Domain::builder`]; what [`std::thread::Builder`] is for
/// threads.
///
/// ```
/// use std::time::Duration;
/// let routes = stillpoint::Domain::builder()
///     .name("routes")
///     .budget(1 << 20)
///     .stall_timeout(Duration::from_secs(2))
///     .on_stall(|report| eprintln!("{report}"))
///     .build();
/// assert_eq!(routes.name(), Some("routes"));
/// assert_eq!(routes.budget(), 1 << 20);
/// ```
#[derive(Default)]
#[must_use = "there is no domain before `build`"]
pub struct DomainBuilder {
    name: Option<Box<str>>,
    fences: bool,
    budget: Option<usize>,
    callback_delay: Option<Duration>,
    stall_timeout: Option<Duration>,
    on_stall: Option<Handler>,
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

    /// Sets the callback delay, as [`Domain::set_callback_delay`]; by default the environment's, or
    /// 0.
    ///
    /// ```
    /// # use std::time::Duration;
    /// let second = Duration::from_secs(1);
    /// let domain = stillpoint::Domain::builder().callback_delay(second).build();
    /// assert_eq!(domain.callback_delay(), second);
    /// ```
    pub fn callback_delay(mut self, delay: Duration) -> Self {
        self.callback_delay = Some(delay);
        self
    }

    /// Sets the stall time-out, as [`Domain::set_stall_timeout`]; by default the environment's, or 10
    /// seconds.
    ///
    /// ```
    /// # use std::time::Duration;
    /// let _ = stillpoint::Domain::builder().stall_timeout(Duration::from_secs(1)).build();
    /// ```
    pub fn stall_timeout(mut self, timeout: Duration) -> Self {
        self.stall_timeout = Some(timeout);
        self
    }

    /// Sets the stall handler, as [`Domain::on_stall`].
    ///
    /// ```
    /// # use std::{sync::mpsc::channel, time::Duration};
    /// let (tell, told) = channel();
    /// let domain = stillpoint::Domain::builder()
    ///     .name("routes")
    ///     .stall_timeout(Duration::from_millis(1))
    ///     .on_stall(move |report| tell.send(report.to_string()).unwrap())
    ///     .build();
    /// let guard = domain.read_lock();
    /// let _ = domain.start_poll();
    /// assert!(told.recv().unwrap().contains("'routes'"));
    /// ```
    pub fn on_stall(mut self, handler: impl Fn(&StallReport) + Send + Sync + 'static) -> Self {
        self.on_stall = Some(Box::new(handler));
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
        if let Some(delay) = self.callback_delay {
            domain.set_callback_delay(delay);
        }
        if let Some(timeout) = self.stall_timeout {
            domain.set_stall_timeout(timeout);
        }
        if let Some(handler) = self.on_stall {
            domain.on_stall(handler);
        }
        domain
    }
}

impl fmt::Debug for DomainBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DomainBuilder")
            .field("name", &self.name)
            .field("fences", &self.fences)
            .field("budget", &self.budget)
            .field("callback_delay", &self.callback_delay)
            .field("stall_timeout", &self.stall_timeout)
            .field("on_stall", &self.on_stall.is_some())
            .finish()
    }
}
