//! The map of copies, as the hash map is tortured: slots are used again all the time, for other keys.
//!
//! All keys have the same tag, so that a look-up copies one entry after the other, each some time
//! after it has loaded their tags. A value says whose it is. A slot that was written meanwhile shows
//! as a key that is not found, although it is there throughout, or as the value of another one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use stillpoint::Domain;
use stillpoint_map::lab::{Copies, Policy, Sound};

use super::map::{Churned, STAYING, check_visits, churn};
use crate::torture::session::{Session, ThreadCtx};
use crate::torture::tally::{Fault, add};

/// Slots are used again at once.
enum WritesAtOnce {}

// SAFETY: the entries of this flavour are two numbers, which are no addresses. What a reader copies
// while they are written is compared, and nothing else.
unsafe impl Policy for WritesAtOnce {
    const WAITS_FOR_READERS: bool = false;
}

/// Nothing left out.
pub fn run(session: &Arc<Session>) {
    torture::<Sound>(session);
}

/// Slots do not wait for readers.
pub fn busted(session: &Arc<Session>) {
    torture::<WritesAtOnce>(session);
}

/// How many bits of a value say whose it is.
const KEY_BITS: u32 = 20;

fn is_of(value: u64, key: u64) -> bool {
    value % (1 << KEY_BITS) == key
}

/// The high bits choose the bucket; the tag is always the same.
fn hash_of(key: &u64) -> u64 {
    key.wrapping_mul(0x9e37_79b9_7f4a_7c15) & !0x1ff | 0xaa
}

struct Test<P> {
    map: Copies<P>,
    next: AtomicU64,
}

fn torture<P: Policy>(session: &Arc<Session>) {
    let domain = Domain::starting_at(session.first_cookie());
    let test = Test::<P> {
        map: Copies::new(&domain, hash_of),
        next: AtomicU64::new(0),
    };
    churn(session, &domain, &test);
    test.walk(session);
    let tally = &session.tally;
    add(&tally.freed, tally.retired.load(Ordering::Relaxed));
}

impl<P: Policy> Test<P> {
    /// Whether what was found is the key's.
    fn check(session: &Session, key: u64, found: Option<u64>) {
        match found {
            None => session
                .tally
                .fault(Fault::Lost, || format!("key {key} was not found")),
            Some(value) if !is_of(value, key) => session.tally.fault(Fault::Content, || {
                format!("key {key} was found with {value:#x}")
            }),
            Some(_) => {}
        }
    }
}

impl<P: Policy> Churned for Test<P> {
    fn put(&self, session: &Session, key: u64) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.map.put(key, number << KEY_BITS | key);
        add(&session.tally.published, 1);
    }

    fn remove(&self, session: &Session, key: u64) {
        self.map.remove(key);
        add(&session.tally.retired, 1);
    }

    fn look(&self, ctx: &mut ThreadCtx) {
        let key = ctx.random.u64(0..STAYING);
        let section = self.map.read_lock();
        let found = self.map.find(key, &section, || ctx.delay());
        drop(section);
        ctx.count(0, 0);
        Self::check(ctx.session, key, found);
    }

    fn look_in_handler(&self, session: &Session, key: u64) {
        let section = self.map.read_lock();
        let found = self.map.find(key, &section, || ());
        drop(section);
        if !found.is_some_and(|value| is_of(value, key)) {
            session.tally.fault_in_handler(Fault::Lost);
        }
        session.tally.section_in_handler(0, 0);
    }

    fn walk(&self, session: &Session) {
        let mut visits = [0; STAYING as usize];
        let section = self.map.read_lock();
        self.map.visit(&section, |key, value| {
            if let Some(visits) = visits.get_mut(key as usize) {
                *visits += 1;
            }
            Self::check(session, key, Some(value));
        });
        drop(section);
        check_visits(session, &visits);
    }
}
