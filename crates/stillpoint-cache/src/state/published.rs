//! The blocks of a cache and of its tenants in the statistics page:
//! `docs/design/027-statistics-page.md`.
//!
//! What the lock of the queues guards is copied under it. Look-ups are counted without it
//! ([`Handle::count`]).

use super::{Cause, Events, State, Tenant};
use crate::{statistics::Event, tenant::Handle};
use std::fmt;
use stillpoint_platform::stats::layout::{Field, Kind, MOST_OF_A_KIND};

const WEIGHT: usize = 0;
const PINNED: usize = 1;
const ENTRIES: usize = 2;
const MIN: usize = 3;
const LOW: usize = 4;
const HIGH: usize = 5;
const CAPACITY: usize = 6;
const INSERTS: usize = 7;
const EVICTIONS: usize = 8;
const EXPIRATIONS: usize = 9;
const REPLACED: usize = 10;
const REMOVED: usize = 11;
/// The first of what is counted without the lock, in the order of [`Event`].
const EVENTS: usize = 12;

static CACHE: Kind = Kind {
    name: "cache",
    most: MOST_OF_A_KIND,
    fields: &[
        Field::bytes("weight_bytes"),
        Field::bytes("pinned_bytes"),
        Field::gauge("entries"),
        Field::bytes("min_bytes"),
        Field::bytes("low_bytes"),
        Field::bytes("high_bytes"),
        Field::bytes("capacity_bytes"),
        Field::counter("inserts"),
        Field::counter("evictions"),
        Field::counter("expirations"),
        Field::counter("replaced"),
        Field::counter("removed"),
        Field::counter("hits"),
        Field::counter("misses"),
        Field::counter("loads"),
        Field::counter("load_failures"),
        Field::nanoseconds("load_nanos"),
        Field::counter("refused"),
    ],
};

/// Hits of a stripe from one copy to the next: see [`Handle::count`].
const HITS: u64 = 64;

/// A view as the statistics page calls it: the cache's name, and the tenants' behind it.
struct Name<'a>(&'a Handle);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Handle { identity, name, .. } = self.0;
        match &self.0.parent {
            Some(parent) => write!(f, "{}/{name}", Name(parent)),
            None if identity.name.is_empty() => write!(f, "cache {}", identity.number),
            None => f.write_str(&identity.name),
        }
    }
}

impl Handle {
    fn publish(&self) {
        let number = self.identity.number;
        self.published.open(&CACHE, number, Name(self));
    }

    /// Something has happened that is counted without a lock. The thread copies the sum, but of hits
    /// only now and then: the page lacks some tens of them for each thread, until the next miss.
    #[inline(always)]
    pub fn count(&self, event: Event, times: u64) {
        let counted = self.counters.add(event, times);
        if !matches!(event, Event::Hit) || counted.is_multiple_of(HITS) {
            self.show(event);
        }
    }

    #[inline]
    fn show(&self, event: Event) {
        if self.published.tap().is_open() {
            self.copy(event);
            if matches!(event, Event::Miss) {
                self.copy(Event::Hit);
            }
        }
    }

    #[cold]
    fn copy(&self, event: Event) {
        let tap = self.published.tap();
        tap.raise(EVENTS + event as usize, self.counters.get(event));
    }
}

impl Tenant {
    /// Copies all; under the lock.
    pub(super) fn show(&self) {
        self.show_level();
        if self.handle.published.tap().is_open() {
            self.copy();
        }
    }

    /// What changes for all levels.
    pub(super) fn show_level(&self) {
        let tap = self.handle.published.tap();
        tap.set(WEIGHT, self.usage);
        tap.set(PINNED, self.pinned_bytes);
    }

    #[cold]
    fn copy(&self) {
        let tap = self.handle.published.tap();
        let Events {
            inserts,
            evicted,
            expired,
            replaced,
            removed,
        } = self.events;
        let counts = [
            (ENTRIES, self.entries() as u64),
            (INSERTS, inserts),
            (EVICTIONS, evicted),
            (EXPIRATIONS, expired),
            (REPLACED, replaced),
            (REMOVED, removed),
        ];
        counts
            .into_iter()
            .for_each(|(at, count)| tap.set(at, count));
    }

    pub(super) fn show_limits(&self) {
        let tap = self.handle.published.tap();
        tap.set(MIN, self.limits.min);
        tap.set(LOW, self.limits.low);
        tap.set(HIGH, self.limits.high);
        tap.set(CAPACITY, self.limits.max);
    }

    /// Has a block from now on, if there is a page.
    pub(super) fn publish(&self) {
        self.handle.publish();
        self.show_all();
    }

    /// Copies all, and what is counted without the lock.
    pub(super) fn show_all(&self) {
        self.show();
        self.show_limits();
        let handle = &self.handle;
        Event::ALL.into_iter().for_each(|event| handle.show(event));
    }
}

impl State {
    /// All tenants have blocks from now on, if there is a page.
    pub fn publish(&self) {
        self.tenants.iter().flatten().for_each(Tenant::publish);
    }

    /// Copies all into the page, which has zeros there.
    pub fn show_all(&self) {
        self.tenants.iter().flatten().for_each(Tenant::show_all);
    }
}

impl Events {
    /// An entry has left.
    pub(super) fn count(&mut self, cause: Cause) {
        *match cause {
            Cause::Replaced => &mut self.replaced,
            Cause::Expired => &mut self.expired,
            Cause::Evicted => &mut self.evicted,
            Cause::Removed => &mut self.removed,
        } += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_that_of_its_field() {
        let numbers = [
            ("weight_bytes", WEIGHT),
            ("pinned_bytes", PINNED),
            ("entries", ENTRIES),
            ("min_bytes", MIN),
            ("low_bytes", LOW),
            ("high_bytes", HIGH),
            ("capacity_bytes", CAPACITY),
            ("inserts", INSERTS),
            ("evictions", EVICTIONS),
            ("expirations", EXPIRATIONS),
            ("replaced", REPLACED),
            ("removed", REMOVED),
            ("hits", EVENTS + Event::Hit as usize),
            ("misses", EVENTS + Event::Miss as usize),
            ("loads", EVENTS + Event::Load as usize),
            ("load_failures", EVENTS + Event::LoadFailure as usize),
            ("load_nanos", EVENTS + Event::LoadNanos as usize),
            ("refused", EVENTS + Event::Refused as usize),
        ];
        assert_eq!(numbers.len(), CACHE.fields.len());
        for (name, at) in numbers {
            assert_eq!(CACHE.place_of(name), Some(at), "{name}");
        }
    }
}
