//! A tenant's block in the statistics page: `docs/design/027-statistics-page.md`.
//!
//! The usage there counts what is in stock for the tenant (`stock.rs`), which no thread looks at for
//! it. The limits and events are what [`Tenant::statistics`](super::Tenant::statistics) has.

use super::{Event, Memcg};
use std::{fmt, sync::atomic::Ordering};
use stillpoint_platform::stats::{
    Subject,
    layout::{Field, Kind, MOST_OF_A_KIND},
};

const USAGE: usize = 0;
const PEAK: usize = 1;
const MIN: usize = 2;
const LOW: usize = 3;
const HIGH: usize = 4;
const MAX: usize = 5;
/// The first of the events, in the order of [`Event`].
const EVENTS: usize = 6;

static TENANT: Kind = Kind {
    name: "tenant",
    most: MOST_OF_A_KIND,
    fields: &[
        Field::bytes("usage_bytes"),
        Field::bytes("peak_bytes"),
        Field::bytes("min_bytes"),
        Field::bytes("low_bytes"),
        Field::bytes("high_bytes"),
        Field::bytes("max_bytes"),
        Field::counter("low_events"),
        Field::counter("high_events"),
        Field::counter("max_events"),
        Field::counter("failed_charges"),
        Field::counter("objects_reclaimed"),
    ],
};

impl Subject for Memcg {
    fn publish(&self) {
        if self.is_deleted() {
            return;
        }
        let number = self.tree.id() << 32 | u64::from(self.number);
        if self.published.open(&TENANT, number, Name(self)) {
            self.publish_all();
        }
        // SeqCst, pairs with `unpublish`: it finds the block, or we find the tenant deleted.
        std::sync::atomic::fence(Ordering::SeqCst);
        if self.is_deleted() {
            self.published.end();
        }
    }
}

/// A tenant as the statistics page calls it.
struct Name<'a>(&'a Memcg);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.0.name, self.0.parent()) {
            (Some(name), _) => f.write_str(name),
            (None, None) => write!(f, "hierarchy {}", self.0.tree.id()),
            (None, Some(_)) => write!(f, "tenant {}.{}", self.0.tree.id(), self.0.number),
        }
    }
}

impl Memcg {
    /// Copies all: what is changed meanwhile is copied by who changes it.
    pub(super) fn publish_all(&self) {
        self.show_usage();
        self.show_limits();
        Event::ALL
            .into_iter()
            .for_each(|event| self.count(event, 0));
    }

    /// After its usage has changed.
    #[inline]
    pub(super) fn show_usage(&self) {
        let tap = self.published.tap();
        if tap.is_open() {
            tap.follow(USAGE, || self.counter.usage());
            tap.raise(PEAK, self.counter.level().peak());
        }
    }

    /// After a limit has changed.
    pub(super) fn show_limits(&self) {
        let tap = self.published.tap();
        tap.follow(MIN, || self.min());
        tap.follow(LOW, || self.low());
        tap.follow(HIGH, || self.high());
        tap.follow(MAX, || self.max());
    }

    /// Something has happened so many times.
    pub(crate) fn count(&self, event: Event, times: u64) {
        let before = self.events[event as usize].fetch_add(times, Ordering::Relaxed);
        self.published
            .tap()
            .raise(EVENTS + event as usize, before.wrapping_add(times));
    }

    /// It has been marked as deleted, and is not shown any more.
    pub(super) fn unpublish(&self) {
        // SeqCst, pairs with `publish`: we find the block, or it finds the tenant deleted.
        std::sync::atomic::fence(Ordering::SeqCst);
        self.published.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_that_of_its_field() {
        let numbers = [
            ("usage_bytes", USAGE),
            ("peak_bytes", PEAK),
            ("min_bytes", MIN),
            ("low_bytes", LOW),
            ("high_bytes", HIGH),
            ("max_bytes", MAX),
            ("low_events", EVENTS + Event::Low as usize),
            ("high_events", EVENTS + Event::High as usize),
            ("max_events", EVENTS + Event::Max as usize),
            ("failed_charges", EVENTS + Event::Failed as usize),
            ("objects_reclaimed", EVENTS + Event::Reclaimed as usize),
        ];
        assert_eq!(numbers.len(), TENANT.fields.len());
        for (name, at) in numbers {
            assert_eq!(TENANT.place_of(name), Some(at), "{name}");
        }
    }
}
