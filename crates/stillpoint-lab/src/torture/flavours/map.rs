//! The hash map: writers insert, replace and remove, so that its table grows and shrinks all the
//! time; readers find entries and hold them.
//!
//! A value names an element, which is never freed and says who lives in it. The value's drop says
//! that it is dead: a section that has found a value must find its element alive until the section
//! ends. Some keys are there throughout: each look-up finds them, and each walk visits them once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use stillpoint::{Domain, torture::core_of};
use stillpoint_map::torture::{Inserted, Policy, Sound, Store, spread};

use crate::torture::harness::{Harness, ThreadSpec};
use crate::torture::runner;
use crate::torture::session::{Session, ThreadCtx};
use crate::torture::tally::{Fault, add};

/// Keys that are there throughout: they are replaced, and not removed.
const STAYING: u64 = 64;

/// Keys of each writer, which come and go.
const KEYS: u64 = 600;

/// More than there can be values, unless deferred frees are held up for long.
const ELEMENTS: u64 = 1 << 16;

/// A removed entry is dropped at once.
enum FreesAtOnce {}

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

/// Who lives where; 0 for none.
struct Elements {
    numbers: Box<[AtomicU64]>,
    next: AtomicU64,
    dropped: AtomicU64,
    twice: AtomicBool,
}

impl Elements {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            numbers: (0..ELEMENTS).map(|_| AtomicU64::new(0)).collect(),
            next: AtomicU64::new(1),
            dropped: AtomicU64::new(0),
            twice: AtomicBool::new(false),
        })
    }

    fn of(&self, number: u64) -> &AtomicU64 {
        &self.numbers[(number % ELEMENTS) as usize]
    }

    /// A number whose element is its own from now on; `None` if the element is still another's.
    fn take(&self) -> Option<u64> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.of(number)
            .compare_exchange(0, number, Ordering::AcqRel, Ordering::Relaxed)
            .ok()?;
        Some(number)
    }

    fn is_alive(&self, number: u64) -> bool {
        self.of(number).load(Ordering::Acquire) == number
    }
}

struct Value {
    number: u64,
    elements: Arc<Elements>,
}

impl Drop for Value {
    fn drop(&mut self) {
        if self.elements.of(self.number).swap(0, Ordering::AcqRel) != self.number {
            self.elements.twice.store(true, Ordering::Relaxed);
        }
        add(&self.elements.dropped, 1);
    }
}

struct Test<P: Policy> {
    store: Store<u64, Value, P>,
    elements: Arc<Elements>,
}

fn torture<P: Policy>(session: &Arc<Session>) {
    let domain = Domain::starting_at(session.first_cookie());
    let test = Test::<P> {
        store: Store::new(Some((&domain).into())),
        elements: Elements::new(),
    };
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
        let test = &test;
        ThreadSpec::new(format!("writer {number}"), move || {
            test.write(session, number)
        })
        .with_signals()
    };
    let walker = |number: usize| {
        let test = &test;
        ThreadSpec::new(format!("fakewriter {number}"), move || {
            let who = session.plan.writers + number;
            while !session.is_over() {
                session.beat(who);
                session.wait_while_paused(|| session.beat(who));
                test.walk(session);
                add(&session.tally.waits, 1);
                test.store.domain().synchronize();
            }
        })
    };
    let plan = &session.plan;
    let threads = (0..plan.readers)
        .map(reader)
        .chain((0..plan.writers).map(writer))
        .chain((0..plan.fakewriters).map(walker))
        .collect();
    let visit_in_handler = || test.look_in_handler(session);
    let harness = Harness {
        domain: core_of(&domain),
        visit: &visit,
        visit_in_handler: Some(&visit_in_handler),
        in_child: &|| (),
    };
    runner::run(session, &harness, threads);
    test.end(session, &domain);
}

impl<P: Policy> Test<P> {
    /// Inserts a key, or replaces its value.
    fn put(&self, session: &Session, key: u64) {
        let Some(number) = self.elements.take() else {
            // Its element has a value that waits for readers.
            add(&session.tally.exhausted, 1);
            return;
        };
        let elements = Arc::clone(&self.elements);
        let section = self.store.read_lock();
        let value = Value { number, elements };
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

    fn write(&self, session: &Session, number: usize) {
        let mut ctx = session.thread_ctx("writer", number);
        let first = STAYING + number as u64 * KEYS;
        while !session.is_over() {
            session.beat(number);
            session.wait_while_paused(|| session.beat(number));
            let grows = ctx.one_in(2);
            for key in first..first + KEYS {
                if grows {
                    self.put(session, key);
                } else {
                    self.remove(session, key);
                }
                if ctx.one_in(4) {
                    self.put(session, ctx.random.u64(0..STAYING));
                }
                if session.is_over() {
                    return;
                }
            }
            ctx.spin(1000);
        }
    }

    /// Finds a key of those that stay, and holds it.
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

    fn find(&self, key: u64, section: &stillpoint::Guard<'_>) -> Option<u64> {
        let found = self.store.find(spread(key), section, |other| *other == key);
        found.map(|found| found.get().value.number)
    }

    /// The same in a signal handler.
    fn look_in_handler(&self, session: &Session) {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let key = NEXT.fetch_add(1, Ordering::Relaxed) % STAYING;
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

    /// Visits all entries: those that stay once each.
    fn walk(&self, session: &Session) {
        let mut visits = [0; STAYING as usize];
        let section = self.store.read_lock();
        for found in self.store.iter(&section) {
            if let Some(visits) = visits.get_mut(found.get().key as usize) {
                *visits += 1;
            }
        }
        drop(section);
        if visits.iter().any(|visits| *visits != 1) {
            session
                .tally
                .fault(Fault::Count, || format!("a walk's visits: {visits:?}"));
        }
    }

    /// All values have been dropped in the end, once.
    fn end(self, session: &Session, domain: &Domain) {
        let Self { store, elements } = self;
        drop(store);
        domain.kvfree_barrier();
        let tally = &session.tally;
        let (made, dropped) = (
            tally.published.load(Ordering::Relaxed),
            elements.dropped.load(Ordering::Relaxed),
        );
        add(&tally.freed, tally.retired.load(Ordering::Relaxed));
        if made != dropped && !tally.is_faulty() {
            tally.fault(Fault::Lost, || {
                format!("of {made} values {dropped} were dropped")
            });
        }
        if elements.twice.load(Ordering::Relaxed) {
            tally.fault(Fault::Twice, || "a value was dropped twice".to_owned());
        }
    }
}
