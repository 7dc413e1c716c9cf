//! Events for a person who looks into a running program: probes for the system's tracers (USDT), and
//! events of the crate `tracing`.
//!
//! An event is a function of [`trace_event!`](crate::trace_event). It may be called anywhere, under
//! locks too. The probe is there, as one `nop`. The event of `tracing` is put into a queue of the
//! thread, and given to the subscriber by [`emit`]: a subscriber is user code, which may panic, block
//! and use the library, so [`emit`] is called where no lock is held, and outside of sections.
//!
//! The queue has 32 places. What finds it full is lost, and counted in an event of its own;
//! what is in it when the thread ends is lost, too. A forked child has none of its parent's events.
//! While a thread gives events to a subscriber, what it does causes none: a subscriber that waits for
//! a grace period in each event would never return.
//!
//! What lasts also has a span, a function of [`trace_span!`](crate::trace_span). It is entered on the
//! spot, so only where [`emit`] may be called.

#[cfg(all(feature = "usdt", target_os = "linux", not(any(miri, stillpoint_loom))))]
#[doc(hidden)]
pub use probe;
#[cfg(all(feature = "tracing", not(stillpoint_loom)))]
#[doc(hidden)]
pub use queue::{Values, defer};
#[cfg(all(feature = "tracing", not(stillpoint_loom)))]
pub use span::Entered;
#[cfg(all(feature = "tracing", not(stillpoint_loom)))]
#[doc(hidden)]
pub use tracing;

/// Whether this build has probes.
pub const HAS_PROBES: bool = cfg!(all(
    feature = "usdt",
    target_os = "linux",
    not(any(miri, stillpoint_loom))
));

/// Defines the function of an event: its probe is `stillpoint:NAME`, its event of `tracing` has
/// that message, the target `stillpoint`, and the arguments as fields. At most six of them, all
/// `u64`. Behind `for` comes the number of the domain for which the subscriber runs.
#[doc(hidden)]
#[macro_export]
macro_rules! trace_event {
    ($(#[$attribute:meta])* $level:ident $name:ident($($argument:ident),+) for $domain:expr) => {
        $(#[$attribute])*
        #[inline]
        pub(crate) fn $name($($argument: u64),+) {
            $crate::usdt_probe!($name, $($argument),+);
            $crate::defer_event!($level, $name, $domain, $($argument),+);
        }
    };
}

/// The probe: a `nop`, with its arguments where they happen to be.
#[cfg(all(feature = "usdt", target_os = "linux", not(any(miri, stillpoint_loom))))]
#[doc(hidden)]
#[macro_export]
macro_rules! usdt_probe {
    ($name:ident, $($argument:ident),+) => {
        $crate::trace::probe::probe!(stillpoint, $name, $($argument),+)
    };
}

/// Nothing: without the feature `usdt`, and where there are no such probes.
#[cfg(not(all(feature = "usdt", target_os = "linux", not(any(miri, stillpoint_loom)))))]
#[doc(hidden)]
#[macro_export]
macro_rules! usdt_probe {
    ($name:ident, $($argument:ident),+) => {
        // As arguments that are used.
        let _ = ($($argument),+);
    };
}

/// The event of `tracing`, for later.
#[cfg(all(feature = "tracing", not(stillpoint_loom)))]
#[doc(hidden)]
#[macro_export]
macro_rules! defer_event {
    ($level:ident, $name:ident, $domain:expr, $($argument:ident),+) => {
        $crate::trace::defer($crate::trace::tracing::Level::$level, $domain, [$($argument),+], |values| {
            let [$($argument),+, ..] = *values;
            $crate::trace::tracing::event!(
                target: "stillpoint",
                $crate::trace::tracing::Level::$level,
                $($argument),+,
                stringify!($name)
            );
        });
    };
}

/// Nothing: without the feature `tracing`.
#[cfg(not(all(feature = "tracing", not(stillpoint_loom))))]
#[doc(hidden)]
#[macro_export]
macro_rules! defer_event {
    ($level:ident, $name:ident, $domain:expr, $($argument:ident),+) => {
        let _ = $domain;
    };
}

/// Defines the function of a span of `tracing`, of the level `TRACE`, which the calling thread is in
/// until it drops what the function returns. Name, arguments, domain and target as for
/// [`trace_event!`](crate::trace_event).
#[doc(hidden)]
#[macro_export]
macro_rules! trace_span {
    ($(#[$attribute:meta])* $name:ident($($argument:ident),+) for $domain:expr) => {
        $(#[$attribute])*
        #[inline]
        pub(crate) fn $name($($argument: u64),+) -> $crate::trace::Entered {
            $crate::enter_span!($name, $domain, $($argument),+)
        }
    };
}

/// The span.
#[cfg(all(feature = "tracing", not(stillpoint_loom)))]
#[doc(hidden)]
#[macro_export]
macro_rules! enter_span {
    ($name:ident, $domain:expr, $($argument:ident),+) => {
        $crate::trace::Entered::new($domain, || {
            $crate::trace::tracing::span!(
                target: "stillpoint",
                $crate::trace::tracing::Level::TRACE,
                stringify!($name),
                $($argument),+
            )
        })
    };
}

/// Nothing: without the feature `tracing`.
#[cfg(not(all(feature = "tracing", not(stillpoint_loom))))]
#[doc(hidden)]
#[macro_export]
macro_rules! enter_span {
    ($name:ident, $domain:expr, $($argument:ident),+) => {{
        // As arguments that are used.
        let _ = ($domain, $($argument),+);
        $crate::trace::Entered
    }};
}

/// A span that the thread is in: without the feature `tracing`, nothing.
#[cfg(not(all(feature = "tracing", not(stillpoint_loom))))]
#[derive(Debug)]
#[must_use]
pub struct Entered;

/// Returns whether a subscriber may want spans.
#[inline(always)]
#[must_use]
pub fn wants_spans() -> bool {
    #[cfg(all(feature = "tracing", not(stillpoint_loom)))]
    return span::is_wanted();
    #[cfg(not(all(feature = "tracing", not(stillpoint_loom))))]
    false
}

/// Gives what the thread has queued to the subscriber. Called where user code may be: no lock is
/// held, and the caller relies on nothing that such code may change. One load if nothing is queued;
/// nothing without the feature `tracing`.
#[inline(always)]
pub fn emit() {
    #[cfg(all(feature = "tracing", not(stillpoint_loom)))]
    queue::emit();
}

/// Like [`emit`], for a thread that does work of the domain `id` which user code must not wait for:
/// the events may be other domains'.
#[inline(always)]
pub fn emit_within(id: u64) {
    if is_pending() {
        let panicked = crate::user_code::panics(id, emit);
        debug_assert!(!panicked, "a subscriber's panic is caught");
    }
}

/// Returns whether the thread has something for [`emit`].
#[inline(always)]
#[must_use]
pub fn is_pending() -> bool {
    #[cfg(all(feature = "tracing", not(stillpoint_loom)))]
    return queue::is_pending();
    #[cfg(not(all(feature = "tracing", not(stillpoint_loom))))]
    false
}

#[cfg(all(feature = "tracing", not(stillpoint_loom)))]
mod span {
    use crate::user_code;
    use std::marker::PhantomData;
    use tracing::{Level, Span, level_filters::LevelFilter};

    #[inline]
    pub fn is_wanted() -> bool {
        Level::TRACE <= LevelFilter::current() && !user_code::is_telling()
    }

    /// A span that the thread is in until this is dropped. Its subscriber may panic in each step, so
    /// each is a call of its own: a destructor of `tracing`'s guards would take two at once.
    #[derive(Debug)]
    #[must_use]
    pub struct Entered {
        domain: u64,
        span: Span,
        is_entered: bool,
        /// The thread that has entered leaves.
        thread: PhantomData<*const ()>,
    }

    impl Entered {
        /// Enters the span of domain `domain` that `span` makes, if a subscriber may want it.
        #[inline]
        pub fn new(domain: u64, span: impl FnOnce() -> Span) -> Self {
            let mut entered = Self {
                domain,
                span: Span::none(),
                is_entered: false,
                thread: PhantomData,
            };
            if is_wanted() {
                entered.enter(span);
            }
            entered
        }

        #[cold]
        fn enter(&mut self, span: impl FnOnce() -> Span) {
            user_code::tell(self.domain, || self.span = span());
            let enters = || self.span.with_subscriber(|(id, to)| to.enter(id));
            self.is_entered = !user_code::tell(self.domain, || _ = enters());
        }
    }

    impl Drop for Entered {
        #[inline]
        fn drop(&mut self) {
            if !self.span.is_none() {
                let exits = || self.span.with_subscriber(|(id, to)| to.exit(id));
                if self.is_entered {
                    user_code::tell(self.domain, || _ = exits());
                }
                let span = std::mem::replace(&mut self.span, Span::none());
                user_code::tell(self.domain, || drop(span));
            }
        }
    }
}

#[cfg(all(feature = "tracing", not(stillpoint_loom)))]
mod queue {
    use crate::{
        fork::{self, Process},
        user_code,
    };
    use std::cell::Cell;
    use tracing::{Level, level_filters::LevelFilter};

    /// How many events a thread queues.
    const QUEUED: usize = 32;

    /// The most arguments of an event.
    const VALUES: usize = 6;

    /// The arguments of an event; 0 behind them.
    pub type Values = [u64; VALUES];

    #[derive(Clone, Copy)]
    struct Queued {
        domain: u64,
        values: Values,
        emit: fn(&Values),
    }

    impl Queued {
        const NONE: Self = Self {
            domain: 0,
            values: [0; VALUES],
            emit: |_| (),
        };
    }

    /// A thread's events, oldest first. Without a destructor, so that it works in those of other
    /// thread-local variables.
    struct Queue {
        events: [Cell<Queued>; QUEUED],
        len: Cell<usize>,
        lost: Cell<u64>,
        /// In which they have happened; `None` before the first.
        process: Cell<Option<Process>>,
    }

    impl Queue {
        /// Forgets what was queued in another process: it is the parent's to give to a subscriber.
        fn forget_parents(&self) {
            let process = Some(fork::process());
            if self.process.replace(process) != process {
                self.len.set(0);
                self.lost.set(0);
            }
        }
    }

    thread_local! {
        static QUEUE: Queue = const {
            Queue {
                events: [const { Cell::new(Queued::NONE) }; QUEUED],
                len: Cell::new(0),
                lost: Cell::new(0),
                process: Cell::new(None),
            }
        };
    }

    /// Queues an event, if a subscriber may want events of its level.
    #[inline]
    pub fn defer<const N: usize>(
        level: Level,
        domain: u64,
        arguments: [u64; N],
        emit: fn(&Values),
    ) {
        if level <= LevelFilter::current() {
            let mut values = [0; VALUES];
            values[..N].copy_from_slice(&arguments);
            push(Queued {
                domain,
                values,
                emit,
            });
        }
    }

    #[cold]
    fn push(event: Queued) {
        if user_code::is_telling() {
            return;
        }
        QUEUE.with(|queue| {
            queue.forget_parents();
            let len = queue.len.get();
            match queue.events.get(len) {
                Some(place) => {
                    place.set(event);
                    queue.len.set(len + 1);
                }
                None => queue.lost.set(queue.lost.get() + 1),
            }
        });
    }

    #[inline]
    pub fn is_pending() -> bool {
        QUEUE.with(|queue| queue.len.get() > 0)
    }

    #[inline]
    pub fn emit() {
        if is_pending() && !user_code::is_telling() {
            emit_all();
        }
    }

    #[cold]
    fn emit_all() {
        QUEUE.with(|queue| {
            queue.forget_parents();
            let process = fork::process();
            // What the subscriber does adds nothing meanwhile, see `push`.
            let events = queue.events.each_ref().map(Cell::get);
            let (len, lost) = (queue.len.replace(0), queue.lost.replace(0));
            for event in &events[..len] {
                user_code::tell(event.domain, || (event.emit)(&event.values));
                if fork::process() != process {
                    return;
                }
            }
            if lost > 0 {
                let domain = events[0].domain;
                user_code::tell(domain, || {
                    tracing::event!(target: "stillpoint", Level::TRACE, domain, lost, "events_lost");
                });
            }
        });
    }
}
