//! The map of copies, as the hash map is tortured: slots are used again all the time, for other keys.
//!
//! All keys have the same tag, so that a look-up copies one entry after the other, each some time
//! after it has loaded their tags. A value says whose it is. A slot that was written meanwhile shows
//! as a key that is not found, although it is there throughout, or as the value of another one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use stillpoint::Domain;
use stillpoint_map::lab::{Copies, Policy};

use super::keyed::{self, Keyed};
use crate::torture::session::Session;
use crate::torture::tally::{Fault, add};

/// Slots are used again at once.
pub enum WritesAtOnce {}

// SAFETY: the entries of this flavour are two numbers, which are no addresses. What a reader copies
// while they are written is compared, and nothing else.
unsafe impl Policy for WritesAtOnce {
    const WAITS_FOR_READERS: bool = false;
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

/// Tortures a map with the policy `P`.
pub fn torture<P: Policy>(session: &Arc<Session>) {
    let domain = Domain::starting_at(session.first_cookie());
    let test = Test::<P> {
        map: Copies::new(&domain, hash_of),
        next: AtomicU64::new(0),
    };
    keyed::torture(session, &domain, &test);
    let tally = &session.tally;
    add(&tally.freed, tally.retired.load(Ordering::Relaxed));
}

impl<P: Policy> Keyed for Test<P> {
    fn put(&self, session: &Session, key: u64) {
        // Relaxed: numbers, and no more.
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.map.put(key, number << KEY_BITS | key);
        add(&session.tally.published, 1);
    }

    fn remove(&self, session: &Session, key: u64) {
        self.map.remove(key);
        add(&session.tally.retired, 1);
    }

    /// Pauses between the copies, and has nothing to look at afterwards.
    fn find(&self, key: u64, pause: impl FnMut()) -> Option<Fault> {
        let section = self.map.read_lock();
        match self.map.find(key, &section, pause) {
            None => Some(Fault::Lost),
            Some(value) => (!is_of(value, key)).then_some(Fault::Content),
        }
    }

    fn visit(&self, mut visit: impl FnMut(u64)) -> Option<Fault> {
        let section = self.map.read_lock();
        let mut all_are_theirs = true;
        self.map.visit(&section, |key, value| {
            all_are_theirs &= is_of(value, key);
            visit(key);
        });
        (!all_are_theirs).then_some(Fault::Content)
    }
}
