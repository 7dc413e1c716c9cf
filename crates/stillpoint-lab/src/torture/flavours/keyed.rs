//! What the flavours of maps share: writers insert, replace and remove, so that a map grows and shrinks
//! all the time; readers find entries and hold them. Some keys are there throughout: each look-up
//! finds them, and each walk visits them once.

use std::sync::Arc;

use stillpoint::Domain;

use super::subject::{self, Subject};
use crate::torture::session::{Session, ThreadCtx};
use crate::torture::tally::Fault;

/// Keys that are there throughout: they are replaced, and not removed.
pub const STAYING: u64 = 64;

/// Keys of each writer, which come and go.
const KEYS: u64 = 600;

/// A map.
pub trait Keyed: Sync {
    /// Inserts a key, or replaces its value.
    fn put(&self, session: &Session, key: u64);

    /// Removes a key, if it is there.
    fn remove(&self, session: &Session, key: u64);

    /// Finds a key in a section, and looks after a pause whether what was found is still there.
    /// Returns what is wrong. Async-signal-safe, if the pause is.
    fn find(&self, key: u64, pause: impl FnMut()) -> Option<Fault>;

    /// Gives the key of each entry to `visit`, in a section. Returns what is wrong with an entry, or
    /// with their order.
    fn visit(&self, visit: impl FnMut(u64)) -> Option<Fault>;
}

/// Tortures a map, and walks over it once more at the end.
pub fn torture(session: &Arc<Session>, domain: &Domain, map: &impl Keyed) {
    let keys = Keys(map);
    (0..STAYING).for_each(|key| map.put(session, key));
    subject::torture(session, domain, &keys);
    keys.check_visits(session);
}

struct Keys<'m, M>(&'m M);

impl<M: Keyed> Keys<'_, M> {
    fn check_visits(&self, session: &Session) {
        let mut visits = [0; STAYING as usize];
        let fault = self.0.visit(|key| {
            if let Some(visits) = visits.get_mut(key as usize) {
                *visits += 1;
            }
        });
        let tally = &session.tally;
        if let Some(fault) = fault {
            tally.fault(fault, || "a walk found what is wrong".to_owned());
        }
        if visits.iter().any(|visits| *visits != 1) {
            tally.fault(Fault::Count, || format!("a walk's visits: {visits:?}"));
        }
    }
}

impl<M: Keyed> Subject for Keys<'_, M> {
    fn look(&self, ctx: &mut ThreadCtx) {
        let key = ctx.random.u64(0..STAYING);
        let fault = self.0.find(key, || ctx.delay());
        ctx.count();
        let Some(fault) = fault else { return };
        ctx.session.tally.fault(fault, || match fault {
            Fault::Lost => format!("key {key} was not found"),
            Fault::TooShort => format!("the value of key {key} was freed"),
            _ => format!("key {key} was found with the value of another one"),
        });
    }

    const HANDLERS: bool = true;

    fn look_in_handler(&self, number: usize) -> Option<Fault> {
        self.0.find(number as u64 % STAYING, || ())
    }

    /// Inserts all keys of the writer, or removes them, and replaces some that stay.
    fn write(&self, ctx: &mut ThreadCtx, writer: usize) {
        let session = ctx.session;
        let first = STAYING + writer as u64 * KEYS;
        let grows = ctx.one_in(2);
        for key in first..first + KEYS {
            if grows {
                self.0.put(session, key);
            } else {
                self.0.remove(session, key);
            }
            if ctx.one_in(4) {
                self.0.put(session, ctx.random.u64(0..STAYING));
            }
            if session.is_over() {
                return;
            }
        }
        ctx.spin(1000);
    }

    fn walk(&self, ctx: &mut ThreadCtx) {
        self.check_visits(ctx.session);
    }
}
