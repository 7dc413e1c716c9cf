//! The hash map: writers insert, replace and remove, so that its table grows and shrinks all the
//! time; readers find entries and hold them.
//!
//! A value names an element, which is never freed and says who lives in it. The value's drop says
//! that it is dead: a section that has found a value must find its element alive until the section
//! ends. Some keys are there throughout: each look-up finds them, and each walk visits them once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use stillpoint::{Domain, lab::core_of};
use stillpoint_map::lab::{Inserted, Policy, Sound, Store, spread};

use super::elements::{Elements, Life};
use crate::torture::harness::{Harness, ThreadSpec};
use crate::torture::runner;
use crate::torture::session::{Session, ThreadCtx};
use crate::torture::tally::{Fault, add};

/// Keys that are there throughout: they are replaced, and not removed.
pub const STAYING: u64 = 64;

/// Keys of each writer, which come and go.
const KEYS: u64 = 600;

/// A removed entry is dropped at once.
pub enum FreesAtOnce {}

// SAFETY: the entries of this flavour are two numbers and a pointer to elements that stay, and the
// memory of a dropped one stays, too. What a reader finds there is a number, which it does not use
// as an address before it has compared it.
unsafe impl Policy for FreesAtOnce {
    const WAITS_FOR_READERS: bool = false;
}

/// Nothing left out.
pub fn run(session: &Arc<Session>) {
    torture::<Sound>(session);
}

/// Entries do not wait for readers.
pub fn busted(session: &Arc<Session>) {
    torture::<FreesAtOnce>(session);
}

struct Test<P: Policy> {
    store: Store<u64, Life, P>,
    elements: Arc<Elements>,
}

/// What threads do with a map.
pub trait Churned: Sync {
    /// Inserts a key, or replaces its value.
    fn put(&self, session: &Session, key: u64);

    /// Removes a key, if it is there.
    fn remove(&self, session: &Session, key: u64);

    /// Finds a key of those that stay, in a section.
    fn look(&self, ctx: &mut ThreadCtx);

    /// The same in a signal handler.
    fn look_in_handler(&self, session: &Session, key: u64);

    /// Visits all entries.
    fn walk(&self, session: &Session);
}

/// Writers, readers and walkers, until the session is over.
pub fn churn(session: &Arc<Session>, domain: &Domain, test: &impl Churned) {
    for key in 0..STAYING {
        test.put(session, key);
    }
    let visit = |ctx: &mut ThreadCtx| test.look(ctx);
    let reader = |number| {
        let visit = &visit;
        let body = move || {
            let mut ctx = session.thread_ctx("reader", number);
            while !session.is_over() {
                session.wait_while_paused(|| ());
                visit(&mut ctx);
            }
        };
        ThreadSpec::new(format!("reader {number}"), body).with_signals()
    };
    let writer = |number: usize| {
        let body = move || write(session, number, test);
        ThreadSpec::new(format!("writer {number}"), body).with_signals()
    };
    let walker = |number: usize| {
        ThreadSpec::new(format!("fakewriter {number}"), move || {
            let who = session.plan.writers + number;
            while !session.is_over() {
                session.beat(who);
                session.wait_while_paused(|| session.beat(who));
                test.walk(session);
                add(&session.tally.waits, 1);
                domain.synchronize();
            }
        })
    };
    let plan = &session.plan;
    let threads = (0..plan.readers)
        .map(reader)
        .chain((0..plan.writers).map(writer))
        .chain((0..plan.fakewriters).map(walker))
        .collect();
    let visit_in_handler = || {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        test.look_in_handler(session, NEXT.fetch_add(1, Ordering::Relaxed) % STAYING);
    };
    let harness = Harness {
        domain: core_of(domain),
        visit: &visit,
        visit_in_handler: Some(&visit_in_handler),
        in_child: &|| (),
    };
    runner::run(session, &harness, threads);
}

fn write(session: &Session, number: usize, test: &impl Churned) {
    let mut ctx = session.thread_ctx("writer", number);
    let first = STAYING + number as u64 * KEYS;
    while !session.is_over() {
        session.beat(number);
        session.wait_while_paused(|| session.beat(number));
        let grows = ctx.one_in(2);
        for key in first..first + KEYS {
            if grows {
                test.put(session, key);
            } else {
                test.remove(session, key);
            }
            if ctx.one_in(4) {
                test.put(session, ctx.random.u64(0..STAYING));
            }
            if session.is_over() {
                return;
            }
        }
        ctx.spin(1000);
    }
}

/// The visits of keys that stay: one each.
pub fn check_visits(session: &Session, visits: &[u64]) {
    if visits.iter().any(|visits| *visits != 1) {
        session
            .tally
            .fault(Fault::Count, || format!("a walk's visits: {visits:?}"));
    }
}

fn torture<P: Policy>(session: &Arc<Session>) {
    let domain = Domain::starting_at(session.first_cookie());
    let test = Test::<P> {
        store: Store::new(Some((&domain).into())),
        elements: Elements::new(),
    };
    churn(session, &domain, &test);
    test.end(session, &domain);
}

impl<P: Policy> Churned for Test<P> {
    fn put(&self, session: &Session, key: u64) {
        let Some(number) = self.elements.take() else {
            // Its element has a value that waits for readers.
            add(&session.tally.exhausted, 1);
            return;
        };
        let value = Life::new(number, &self.elements);
        let section = self.store.read_lock();
        let entry = self.store.new_entry(spread(key), key, value, &section);
        add(&session.tally.published, 1);
        let inserted = self
            .store
            .insert(entry, true, &section, |one, other| one == other);
        if let Ok(Inserted { old: Some(_), .. }) = inserted {
            add(&session.tally.retired, 1);
        }
    }

    fn remove(&self, session: &Session, key: u64) {
        let section = self.store.read_lock();
        if let Some(found) = self
            .store
            .find(spread(key), &section, |other| *other == key)
            && self.store.remove(found, &section)
        {
            add(&session.tally.retired, 1);
        }
    }

    fn look(&self, ctx: &mut ThreadCtx) {
        let key = ctx.random.u64(0..STAYING);
        let section = self.store.read_lock();
        let number = self.find(key, &section);
        ctx.delay();
        let alive = number.is_none_or(|number| self.elements.is_alive(number));
        drop(section);
        ctx.count(0, 0);
        let tally = &ctx.session.tally;
        if number.is_none() {
            tally.fault(Fault::Lost, || format!("key {key} was not found"));
        }
        if !alive {
            tally.fault(Fault::TooShort, || {
                format!("the value of key {key} was freed")
            });
        }
    }

    fn look_in_handler(&self, session: &Session, key: u64) {
        let section = self.store.read_lock();
        if !self
            .find(key, &section)
            .is_some_and(|number| self.elements.is_alive(number))
        {
            session.tally.fault_in_handler(Fault::Lost);
        }
        drop(section);
        session.tally.section_in_handler(0, 0);
    }

    fn walk(&self, session: &Session) {
        let mut visits = [0; STAYING as usize];
        let section = self.store.read_lock();
        for found in self.store.iter(&section) {
            if let Some(visits) = visits.get_mut(found.get().key as usize) {
                *visits += 1;
            }
        }
        drop(section);
        check_visits(session, &visits);
    }
}

impl<P: Policy> Test<P> {
    fn find(&self, key: u64, section: &stillpoint::Guard<'_>) -> Option<u64> {
        let found = self.store.find(spread(key), section, |other| *other == key);
        found.map(|found| found.get().value.number())
    }

    /// All values have been dropped in the end, once.
    fn end(self, session: &Session, domain: &Domain) {
        let Self { store, elements } = self;
        drop(store);
        domain.kvfree_barrier();
        add(
            &session.tally.freed,
            session.tally.retired.load(Ordering::Relaxed),
        );
        elements.check_end(session);
    }
}
