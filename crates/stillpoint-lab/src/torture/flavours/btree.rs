//! The ordered map, as [`super::map`]: its nodes are divided and merged all the time.
//!
//! Keys are such that the tree knows nothing of their order: so there are fences, which are keys of
//! entries that may have been removed. Walks also see whether keys come in their order.

use std::sync::Arc;

use stillpoint::Domain;
use stillpoint_map::lab::{Ordered, OrderedInserted, Policy};

use super::elements::{Elements, Life};
use super::keyed::{self, Keyed, STAYING};
use crate::torture::session::Session;
use crate::torture::tally::{Fault, add};

/// Numbers, of a type that hints tell nothing of.
type Key = (u64,);

struct Test<P: Policy> {
    tree: Ordered<Key, Life, P>,
    elements: Arc<Elements>,
}

/// Tortures a map with the policy `P`.
pub fn torture<P: Policy>(session: &Arc<Session>) {
    let domain = Domain::starting_at(session.first_cookie());
    let test = Test::<P> {
        tree: Ordered::new(Some((&domain).into())),
        elements: Elements::new(),
    };
    keyed::torture(session, &domain, &test);
    let Test { tree, elements } = test;
    drop(tree);
    elements.end(session, &domain);
}

/// Keys that stay lie among those that come and go, and not in separate leaves.
fn place(key: u64) -> Key {
    if key < STAYING {
        (key * 16,)
    } else {
        (key - STAYING + (key - STAYING) / 15 + 1,)
    }
}

impl<P: Policy> Keyed for Test<P> {
    fn put(&self, session: &Session, key: u64) {
        let Some(value) = self.elements.live(session) else {
            return;
        };
        let section = self.tree.read_lock();
        let tree = self.tree.with_guard(&section);
        let inserted = tree.insert(tree.new_entry(place(key), value), true);
        if let Ok(OrderedInserted { old: Some(_), .. }) = inserted {
            add(&session.tally.retired, 1);
        }
    }

    fn remove(&self, session: &Session, key: u64) {
        let section = self.tree.read_lock();
        let tree = self.tree.with_guard(&section);
        if let Some(at) = tree.locate(&place(key))
            && at.remove()
        {
            add(&session.tally.retired, 1);
        }
    }

    fn find(&self, key: u64, pause: impl FnMut()) -> Option<Fault> {
        let section = self.tree.read_lock();
        let found = self.tree.with_guard(&section).find(&place(key));
        let number = found.map(|found| found.value().number());
        self.elements.fault_of(number, pause)
    }

    fn visit(&self, mut visit: impl FnMut(u64)) -> Option<Fault> {
        let section = self.tree.read_lock();
        let (mut last, mut in_order) = (None, true);
        let mut cursor = self.tree.with_guard(&section).cursor();
        while let Some(found) = cursor.next_of_all() {
            let key = *found.key();
            in_order &= last.is_none_or(|last| last < key);
            last = Some(key);
            if key.0.is_multiple_of(16) {
                visit(key.0 / 16);
            }
        }
        (!in_order).then_some(Fault::Count)
    }
}
