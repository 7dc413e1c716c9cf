//! The blocks of a cache and of its tenants in the statistics page:
//! `docs/design/027-statistics-page.md`.
//!
//! What the lock of the queues guards is copied under it. Look-ups are counted without it, in stripes
//! ([`Handle::count`]), each of which has a word for each event.

use super::{Cause, Events, State, Tenant};
use crate::{
    statistics::{Event, STRIPES, Stripe},
    tenant::Handle,
};
use std::fmt;
use stillpoint_platform::stats::{
    self,
    layout::{Field, Kind, MOST_OF_A_KIND},
};

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
/// The first of what is counted without the lock, in the order of [`Event`], with all stripes.
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
        Field::counter("hits").in_parts(STRIPES),
        Field::counter("misses").in_parts(STRIPES),
        Field::counter("loads").in_parts(STRIPES),
        Field::counter("load_failures").in_parts(STRIPES),
        Field::nanoseconds("load_nanos").in_parts(STRIPES),
        Field::counter("refused").in_parts(STRIPES),
    ],
};

/// Hits of a stripe's owner, or of the others, from one copy to the next: see [`Handle::count`].
const HITS: u64 = 64;

/// A view as the statistics page calls it: the cache's name, and behind it those of the tenants down
/// to it, or of the last [`LEVELS`] of them.
struct Name<'a>(&'a Handle);

/// Of more tenants, one below the other, names would not fit.
const LEVELS: usize = 4;

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut levels = [None; LEVELS];
        let (mut handle, mut depth) = (self.0, 0);
        while let Some(parent) = &handle.parent {
            if let Some(level) = levels.get_mut(depth) {
                *level = Some(&*handle.name);
            }
            (handle, depth) = (parent, depth + 1);
        }
        let identity = &handle.identity;
        if identity.name.is_empty() {
            write!(f, "cache {}", identity.cache())?;
        } else {
            f.write_str(&identity.name)?;
        }
        if depth > LEVELS {
            f.write_str("/...")?;
        }
        let mut named = levels.iter().rev().flatten();
        named.try_for_each(|name| write!(f, "/{name}"))
    }
}

impl Handle {
    /// The state that has this root has been lost in a fork: the tenants have ended with it, and are not
    /// shown in this process.
    pub fn show_lost(&self, max: u64) {
        stats::end_all(&CACHE, |number| self.identity.is_beside(number));
        self.published.tap().set(CAPACITY, max);
        if self.published.tap().is_open() {
            self.copy_all();
        }
    }

    fn publish(&self) {
        let number = self.identity.number;
        self.published.open(&CACHE, number, Name(self));
    }

    /// Something has happened that is counted without a lock. The thread copies what its stripe has,
    /// but of hits only now and then: the page lacks up to 63 of a stripe's owner and 63 of the others,
    /// until a miss.
    #[inline(always)]
    pub fn count(&self, event: Event, times: u64) {
        let counted = self.counters.add(event, times);
        let is_due = !matches!(event, Event::Hit) || counted.counted.is_multiple_of(HITS);
        if is_due && self.published.tap().is_open() {
            self.copy(event, counted.stripe);
        }
    }

    /// A look-up has found nothing. Out of line: a hit, beside it, is to be of few instructions.
    #[inline(never)]
    pub fn count_miss(&self) {
        self.count(Event::Miss, 1);
    }

    /// Counts what has been counted elsewhere, and copies it.
    pub fn take_over(&self, event: Event, times: u64) {
        let counted = self.counters.add(event, times);
        if self.published.tap().is_open() {
            self.copy(event, counted.stripe);
        }
    }

    #[cold]
    fn copy(&self, event: Event, stripe: Option<&Stripe>) {
        let stripe = self.counters.number_of(stripe);
        self.raise(event, stripe);
        if matches!(event, Event::Miss) {
            self.raise(Event::Hit, stripe);
            // Its owner has another one since there were several threads.
            self.raise(Event::Hit, 0);
        }
    }

    fn raise(&self, event: Event, stripe: usize) {
        let counted = self.counters.in_stripes(event).nth(stripe);
        let tap = self.published.tap();
        tap.raise(at(event, stripe), counted.unwrap_or_default());
    }

    fn copy_all(&self) {
        for event in Event::ALL {
            for (stripe, counted) in self.counters.in_stripes(event).enumerate() {
                self.published.tap().raise(at(event, stripe), counted);
            }
        }
    }
}

/// The word of a stripe's count.
fn at(event: Event, stripe: usize) -> usize {
    EVENTS + event as usize * STRIPES + stripe
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
        if self.handle.published.tap().is_open() {
            self.handle.copy_all();
        }
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
            ("hits", at(Event::Hit, 0)),
            ("misses", at(Event::Miss, 0)),
            ("loads", at(Event::Load, 0)),
            ("load_failures", at(Event::LoadFailure, 0)),
            ("load_nanos", at(Event::LoadNanos, 0)),
            ("refused", at(Event::Refused, 0)),
        ];
        assert_eq!(numbers.len(), CACHE.fields.len());
        for (name, at) in numbers {
            assert_eq!(CACHE.place_of(name), Some(at), "{name}");
        }
    }
}
