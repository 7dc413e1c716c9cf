//! The hash map.
//!
//! A value names an element, which is never freed and says who lives in it. The value's drop says
//! that it is dead: a section that has found a value must find its element alive until the section
//! ends.

use std::sync::Arc;

use stillpoint::Domain;
use stillpoint_map::lab::{Inserted, Policy, Store, spread};

use super::elements::{Elements, Life};
use super::keyed::{self, Keyed};
use crate::torture::session::Session;
use crate::torture::tally::{Fault, add};

/// A removed entry is dropped at once.
pub enum FreesAtOnce {}

// SAFETY: the entries of this flavour are two numbers and a pointer to elements that stay, and the
// memory of a dropped one stays, too. What a reader finds there is a number, which it does not use
// as an address before it has compared it.
unsafe impl Policy for FreesAtOnce {
    const WAITS_FOR_READERS: bool = false;
}

struct Test<P: Policy> {
    store: Store<u64, Life, P>,
    elements: Arc<Elements>,
}

/// Tortures a map with the policy `P`.
pub fn torture<P: Policy>(session: &Arc<Session>) {
    let domain = Domain::starting_at(session.first_cookie());
    let test = Test::<P> {
        store: Store::new(Some((&domain).into())),
        elements: Elements::new(),
    };
    keyed::torture(session, &domain, &test);
    let Test { store, elements } = test;
    drop(store);
    elements.end(session, &domain);
}

impl<P: Policy> Keyed for Test<P> {
    fn put(&self, session: &Session, key: u64) {
        let Some(value) = self.elements.live(session) else {
            return;
        };
        let section = self.store.read_lock();
        let store = self.store.with_guard(&section);
        let entry = store.new_entry(spread(key), key, value);
        let inserted = store.insert(entry, true, |one, other| one == other);
        if let Ok(Inserted { old: Some(_), .. }) = inserted {
            add(&session.tally.retired, 1);
        }
    }

    fn remove(&self, session: &Session, key: u64) {
        let section = self.store.read_lock();
        let store = self.store.with_guard(&section);
        if let Some(found) = store.find(spread(key), |other| *other == key)
            && store.remove(found)
        {
            add(&session.tally.retired, 1);
        }
    }

    fn find(&self, key: u64, pause: impl FnMut()) -> Option<Fault> {
        let section = self.store.read_lock();
        let store = self.store.with_guard(&section);
        let found = store.find(spread(key), |other| *other == key);
        let number = found.map(|found| found.get().value.number());
        self.elements.fault_of(number, pause)
    }

    fn visit(&self, mut visit: impl FnMut(u64)) -> Option<Fault> {
        let section = self.store.read_lock();
        for found in self.store.with_guard(&section).iter() {
            visit(found.get().key);
        }
        None
    }
}
