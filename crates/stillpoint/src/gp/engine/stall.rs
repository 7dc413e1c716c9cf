//! Stall detection, like the kernel's RCU CPU stall warnings: which readers block a grace period
//! for too long, and which threads wait for it.
//!
//! A waiter times its wait and reports a stall once: the readers that block the grace period, and
//! all threads that have waited for a while. So a deadlock (the waiter holds a lock that a reader
//! wants) ends in a report that names both sides. A service thread that is blocked, by a callback
//! say, is reported in the same way by the threads that need it.
//!
//! Nothing here is on a fast path: a waiter calls it after it has spun in vain, and is listed under
//! a lock only after its first sleep.

use super::Engine;
use crate::{
    gp::{
        policy::Policy,
        record::Record,
        report::{Holdout, HoldoutsOnly, StallReport, Stalled, ThreadName, WithoutPrefix},
        seq::{Cookie, Seq},
        stalls::{Handler, Listed, NEVER, Unreclaimed, Verdict, Waiter, Waiters, Watch, list},
    },
    platform::{
        clock::{self, Nanos},
        environment::{self, Print},
        memory,
        stats::fields::{SERVICE_STALLED_SINCE, SERVICE_STALLS, STALL, STALLED_SINCE, STALLS},
        stderr,
        sync::{Ordering, lock},
        thread, user_code,
    },
    trace,
};
use std::{panic::Location, time::Duration};

/// Number of readers that a report names at most.
const LISTED_HOLDOUTS: usize = 16;

/// Upper bound in bytes on a report of [`LISTED_HOLDOUTS`] readers, with names and places.
const REPORTS_MEMORY: usize = 32 << 10;

/// Upper bound in bytes on what each further reader or waiter adds, to sort and to copy.
const ENTRYS_MEMORY: usize = 256;

impl<P: Policy> Engine<P> {
    /// Records that the calling thread finds `cookie` blocked, and reports a stall if it is due.
    /// Returns when to check again at the latest.
    pub(crate) fn note_held_up(&self, cookie: Cookie, now: Nanos) -> Nanos {
        let watch = &self.stalls.grace_period;
        let since = watch.start(now, || self.stalls.bytes_unreclaimed());
        if self.has_ended(cookie) {
            // It ended before the watch was started, so no end will stop the watch: the next grace
            // period must not look old.
            watch.stop();
            self.publish_stalls();
            return now;
        }
        self.report_if_due(Stalled::GracePeriod(cookie), watch, since, now)
    }

    /// Reports a stall of the service thread if it is due. Returns when to check again at the
    /// latest. Called now and then by threads that need the service thread.
    pub(crate) fn note_service(&self, now: Nanos) -> Nanos {
        let watch = &self.stalls.service;
        let since = watch.since.load(Ordering::Relaxed);
        if since == 0 {
            return now.saturating_add(self.stalls.timeout());
        }
        self.report_if_due(Stalled::Service, watch, since, now)
    }

    /// Reports a stall that `watch` has timed `since`, if it is due. Returns when to check again at
    /// the latest.
    fn report_if_due(&self, stalled: Stalled, watch: &Watch, since: u64, now: Nanos) -> Nanos {
        match watch.verdict(since, now, self.stalls.timeout()) {
            Verdict::Early(due) => return due,
            Verdict::Reported => {}
            Verdict::Due(lasted) => self.report(stalled, watch, lasted),
        }
        Nanos::MAX
    }

    /// Stops the service thread's watch when a pass begins: the pass reaches all work that the thread
    /// was kicked for. Called in the pass's turn and not before, since the pass before it may be
    /// stuck.
    pub(super) fn service_came(&self) {
        self.stalls.service.stop();
        self.publish_stalls();
    }

    /// Records progress, after each callback and each page of objects: a slow thread is not stuck. The
    /// watch goes on, because a kick since the pass began has started it, and no other kick will do so
    /// before the next pass, however long the next callback takes.
    pub(crate) fn service_advanced(&self) {
        if self.stalls.service.advance(clock::now) {
            self.publish_stalls();
        }
    }

    /// Reports a stall to the page, subscribers, the handler and stderr. No lock of the engine is held here,
    /// because the handler and a subscriber may read.
    fn report(&self, stalled: Stalled, watch: &Watch, lasted: Duration) {
        let report = self.describe(stalled, watch, lasted);
        trace::rcu_stall_warning(
            self.domain,
            clock::nanos(lasted),
            report.bytes_pending,
            (report.holdouts.len() + report.more_holdouts) as u64,
        );
        self.publish_report(&report);
        let handler = self.stalls.handler();
        let is_heard = self.emit(&report) || handler.is_some();
        if match environment::stall().print {
            Print::Never => false,
            Print::Unheard => !is_heard,
            Print::Always => true,
        } {
            stderr::line(format_args!("{}", WithoutPrefix(&report)));
        }
        if let Some(handler) = handler {
            self.stalls
                .note_panic(user_code::panics(self.domain, || handler(&report)));
            self.stalls.drop_handler(handler);
        }
    }

    /// Copies the stall into the statistics page, where others can see it while the process is
    /// stuck: which readers, and since when.
    fn publish_report(&self, report: &StallReport) {
        if let Stalled::GracePeriod(_) = report.stalled {
            self.tap.set_text(STALL, HoldoutsOnly(report));
        }
        self.publish_counts();
        self.publish_stalls();
    }

    /// Returns for how long the present grace period has been stalled, in nanoseconds; 0 if it is not.
    pub(crate) fn stalled_for(&self) -> Nanos {
        match self.stalls.grace_period.reported_since() {
            0 => 0,
            since => clock::now().saturating_sub(since),
        }
    }

    /// Copies into the statistics page what is stalled now.
    pub(super) fn publish_stalls(&self) {
        let stalls = &self.stalls;
        self.tap.raise(STALLS, self.stalls());
        self.tap.raise(SERVICE_STALLS, self.service_stalls());
        self.tap
            .follow(STALLED_SINCE, || stalls.grace_period.reported_since());
        self.tap
            .follow(SERVICE_STALLED_SINCE, || stalls.service.reported_since());
    }

    /// Returns the report. If there is no memory for names, it only counts: a stall must not end
    /// the process.
    fn describe(&self, stalled: Stalled, watch: &Watch, lasted: Duration) -> StallReport {
        let Unreclaimed {
            objects: objects_pending,
            bytes: bytes_pending,
        } = self.stalls.unreclaimed();
        let mut report = StallReport {
            stalled,
            domain: self.domain,
            domain_name: None,
            lasted,
            refusal: match stalled {
                Stalled::Service => self.refusal(),
                Stalled::GracePeriod(_) => None,
            },
            callbacks_pending: self.callbacks_pending(),
            objects_pending,
            bytes_pending,
            bytes_grown: watch.grown_to(bytes_pending),
            holdouts: Vec::new(),
            more_holdouts: 0,
            waiters: Vec::new(),
            futures: Vec::new(),
        };
        let goal = match stalled {
            Stalled::GracePeriod(cookie) => Some(cookie.seq()),
            Stalled::Service => None,
        };
        let in_the_way = || goal.into_iter().flat_map(|goal| self.holdouts(goal));
        let (mut holdouts, readers) = (Vec::new(), in_the_way().count());
        let needed = REPORTS_MEMORY + ENTRYS_MEMORY * (readers + self.stalls.listed());
        if !memory::is_there_for(needed) || holdouts.try_reserve(2 * readers).is_err() {
            report.more_holdouts = readers;
            return report;
        }
        report.domain_name = self.name().map(str::to_owned);
        let most = holdouts.capacity();
        holdouts.extend(in_the_way().take(most));
        if let Some(goal) = goal {
            oldest_first(&mut holdouts, goal);
        }
        report.more_holdouts = holdouts.len().saturating_sub(LISTED_HOLDOUTS);
        let Waiters {
            threads,
            futures,
            pollers,
        } = lock(&self.stalls.waiters).clone();
        let pollers: Vec<_> = pollers.into_iter().map(|(tid, _)| tid).collect();
        report.holdouts = holdouts
            .iter()
            .take(LISTED_HOLDOUTS)
            .map(|(record, _)| Holdout::of(record, &pollers))
            .collect();
        report.waiters = threads.into_iter().map(ThreadName::of).collect();
        report.futures = futures;
        report
    }

    /// Emits the `tracing` event. Returns whether a subscriber receives it.
    #[cfg(feature = "tracing")]
    fn emit(&self, report: &StallReport) -> bool {
        let mut is_heard = false;
        self.stalls.note_panic(user_code::tell(self.domain, || {
            is_heard = tracing::enabled!(tracing::Level::WARN);
            tracing::warn!(domain = report.domain, lasted = ?report.lasted, "{report}");
        }));
        is_heard
    }

    #[cfg(not(feature = "tracing"))]
    fn emit(&self, _: &StallReport) -> bool {
        false
    }

    /// Lists a future that was made at `made_at` among the waiters, until the returned value is
    /// dropped.
    pub(crate) fn list_future(&self, made_at: &'static Location<'static>) -> Listed<'_> {
        list(&self.stalls.waiters, Waiter::Future(made_at, thread::tid()))
    }

    /// Returns true if the present grace period has been reported as stalled and has not ended
    /// since.
    pub(crate) fn is_stalled(&self) -> bool {
        self.stalls.grace_period.is_reported()
    }

    /// Returns true if there is a service thread, and it has made progress since a stall was last
    /// reported.
    pub(crate) fn is_served(&self) -> bool {
        self.service_runs() && !self.stalls.service.is_reported()
    }

    pub(crate) fn stalls(&self) -> u64 {
        self.stalls.grace_period.count.load(Ordering::Relaxed)
    }

    pub(crate) fn service_stalls(&self) -> u64 {
        self.stalls.service.count.load(Ordering::Relaxed)
    }

    /// Sets the function that returns how much is unreclaimed. Called once, by the layer above the
    /// engine.
    pub(crate) fn set_gauge(&self, gauge: impl Fn() -> Unreclaimed + Send + Sync + 'static) {
        assert!(
            self.stalls.gauge.set(Box::new(gauge)).is_ok(),
            "an engine has one gauge"
        );
    }

    pub(crate) fn set_stall_timeout(&self, timeout: Duration) {
        let timeout = match clock::nanos(timeout) {
            0 => NEVER,
            nanos => nanos,
        };
        self.stalls.timeout.store(timeout, Ordering::Relaxed);
    }

    pub(crate) fn set_stall_handler(&self, handler: Option<Handler>) {
        self.stalls.set_handler(handler);
    }
}

/// Sorts by the number of the section, then by the time at which an owned guard was made. Each key
/// is read once: a record may change hands meanwhile, and a sort whose keys change may panic.
fn oldest_first(holdouts: &mut [(&Record, Seq)], goal: Seq) {
    holdouts.sort_by_cached_key(|(record, section)| (section.since(goal), record.entry().since()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gp::{
        barrier_mode::BarrierMode, flavour::Flavour, registry::Registry, seq::Sequence,
        shared::Shared,
    };
    use crate::platform::sync::AtomicBool;

    #[test]
    fn readers_that_change_while_they_are_sorted_do_no_harm() {
        let seq = Cookie::from_raw(0).seq();
        let registry = Registry::new(
            1,
            BarrierMode::Fence,
            crate::platform::sync::Arc::new(Shared::new(Sequence::new(seq))),
        );
        // More than the sort handles by insertion.
        let readers = if cfg!(miri) { 60 } else { 500 };
        let mut holdouts = Vec::new();
        registry.claim_some(thread::token(), 0, Flavour::Owned, readers, |record| {
            holdouts.push((record, seq))
        });
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut number = 1_u64;
                while !over.load(Ordering::Relaxed) {
                    for record in registry.iter() {
                        number = number
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1);
                        record.entry().note_section(Location::caller(), number);
                    }
                }
            });
            let sorts = || {
                (0..if cfg!(miri) { 2 } else { 500 }).for_each(|_| oldest_first(&mut holdouts, seq))
            };
            let sorted = std::panic::catch_unwind(std::panic::AssertUnwindSafe(sorts));
            over.store(true, Ordering::Relaxed);
            assert!(sorted.is_ok());
        });
    }
}
