//! The ordered map: as [`super::map`], of a tree whose nodes are divided and merged all the time.
//!
//! Keys are such that the tree knows nothing of their order: so there are fences, which are keys of
//! entries that may have been removed. Walks also see whether keys come in their order.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use stillpoint::{Domain, Guard};
use stillpoint_map::lab::{Ordered, OrderedInserted, Policy, Sound};

use super::elements::{Elements, Life};
use super::map::{Churned, FreesAtOnce, STAYING, check_visits, churn};
use crate::torture::session::{Session, ThreadCtx};
use crate::torture::tally::{Fault, add};

/// Numbers, of a type that hints tell nothing of.
type Key = (u64,);

/// Nothing left out.
pub fn run(session: &Arc<Session>) {
    torture::<Sound>(session);
}

/// Entries do not wait for readers.
pub fn busted(session: &Arc<Session>) {
    torture::<FreesAtOnce>(session);
}

struct Test<P: Policy> {
    tree: Ordered<Key, Life, P>,
    elements: Arc<Elements>,
}

fn torture<P: Policy>(session: &Arc<Session>) {
    let domain = Domain::starting_at(session.first_cookie());
    let test = Test::<P> {
        tree: Ordered::new(Some((&domain).into())),
        elements: Elements::new(),
    };
    churn(session, &domain, &test);
    test.end(session, &domain);
}

/// Keys that stay lie among those that come and go, and not in leaves of their own.
fn place(key: u64) -> Key {
    if key < STAYING {
        (key * 16,)
    } else {
        (key - STAYING + (key - STAYING) / 15 + 1,)
    }
}

impl<P: Policy> Churned for Test<P> {
    fn put(&self, session: &Session, key: u64) {
        let Some(number) = self.elements.take() else {
            // Its element has a value that waits for readers.
            add(&session.tally.exhausted, 1);
            return;
        };
        let value = Life::new(number, &self.elements);
        let section = self.tree.read_lock();
        let entry = self.tree.new_entry(place(key), value);
        add(&session.tally.published, 1);
        let inserted = self.tree.insert(entry, true, &section);
        if let Ok(OrderedInserted { old: Some(_), .. }) = inserted {
            add(&session.tally.retired, 1);
        }
    }

    fn remove(&self, session: &Session, key: u64) {
        let section = self.tree.read_lock();
        if let Some(at) = self.tree.locate(&place(key), &section)
            && self.tree.remove(at, &section)
        {
            add(&session.tally.retired, 1);
        }
    }

    fn look(&self, ctx: &mut ThreadCtx) {
        let key = ctx.random.u64(0..STAYING);
        let section = self.tree.read_lock();
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
        let section = self.tree.read_lock();
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
        let section = self.tree.read_lock();
        let mut last = None;
        let mut cursor = self.tree.cursor(&section);
        while let Some(found) = cursor.next_of_all() {
            let key = *found.key();
            if last.is_some_and(|last| last >= key) {
                session
                    .tally
                    .fault(Fault::Count, || format!("{key:?} behind {last:?}"));
            }
            last = Some(key);
            if key.0.is_multiple_of(16)
                && let Some(visits) = visits.get_mut(key.0 as usize / 16)
            {
                *visits += 1;
            }
        }
        drop(section);
        check_visits(session, &visits);
    }
}

impl<P: Policy> Test<P> {
    fn find(&self, key: u64, section: &Guard<'_>) -> Option<u64> {
        let found = self.tree.find(&place(key), section);
        found.map(|found| found.value().number())
    }

    /// All values have been dropped in the end, once.
    fn end(self, session: &Session, domain: &Domain) {
        let Self { tree, elements } = self;
        drop(tree);
        domain.kvfree_barrier();
        add(
            &session.tally.freed,
            session.tally.retired.load(Ordering::Relaxed),
        );
        elements.check_end(session);
    }
}
