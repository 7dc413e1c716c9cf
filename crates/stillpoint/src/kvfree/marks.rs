//! The parts of an open page that flushes have marked, which may be freed without the rest.

use super::page::Fill;
use crate::gp::Cookie;

/// Parts of a thread's open page, each from the page's beginning, that may be freed without the
/// rest once a grace period has ended. Otherwise a flush would have to seal the page, and waste it
/// on a few objects.
///
/// Two are enough. A third replaces the second, whose objects it includes. The first is kept, so
/// its grace period ends at some time however often the thread flushes.
#[derive(Debug)]
pub(super) struct Marks {
    older: Option<Mark>,
    newer: Option<Mark>,
}

/// Once the grace period of `cookie` has ended, what was in the page when it was `fill` full may be
/// freed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    pub(super) fill: Fill,
    pub(super) cookie: Cookie,
}

impl Marks {
    pub(super) const fn new() -> Self {
        Self {
            older: None,
            newer: None,
        }
    }

    /// Marks a page that is `fill` full. If there is no such mark, `name` names its grace period.
    /// Returns the mark's cookie.
    pub(super) fn note(&mut self, fill: Fill, name: impl FnOnce() -> Cookie) -> Cookie {
        match self.newer {
            Some(newer) if newer.fill.len() == fill.len() => newer.cookie,
            newer => {
                self.older = self.older.or(newer);
                let cookie = name();
                self.newer = Some(Mark { fill, cookie });
                cookie
            }
        }
    }

    /// Returns the newer mark, which is the larger one.
    pub(super) fn newest(&self) -> Option<Mark> {
        self.newer
    }

    /// Takes the largest mark out that is due.
    pub(super) fn take_due(&mut self, is_due: impl Fn(Cookie) -> bool) -> Option<Fill> {
        let due = |mark: &mut Mark| is_due(mark.cookie);
        let taken = match self.newer.take_if(due) {
            Some(newer) => {
                self.older = None;
                newer
            }
            None => self.older.take_if(due)?,
        };
        Some(taken.fill)
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use crate::gp::Seq;
    use proptest::prelude::*;

    /// Returns the cookie with the number `age`.
    fn cookie(age: u8) -> Cookie {
        Cookie::new((0..age).fold(Seq::from_bits(0), |seq, _| seq.next()))
    }

    fn fill(objects: u16) -> Fill {
        (0..objects).fold(Fill::EMPTY, |fill, _| fill.with(100))
    }

    /// However often a thread flushes, what it has marked first stays marked as it was.
    #[test]
    fn the_oldest_mark_stays() {
        let mut marks = Marks::new();
        (1..=5).for_each(|n| {
            marks.note(fill(n.into()), || cookie(n));
        });
        let ended = |age| move |at| cookie(age).at_least(at);
        assert_eq!(marks.take_due(ended(1)).map(Fill::len), Some(1));
        assert_eq!(marks.take_due(ended(4)).map(Fill::len), None);
        assert_eq!(marks.take_due(ended(5)).map(Fill::len), Some(5));
    }

    proptest! {
        /// Appends, marks and grace periods that end: what is taken had been appended before a
        /// cookie that has ended, and nothing that was marked is left when all have.
        #[test]
        fn marks_tell_what_is_due(steps in prop::collection::vec((0..3_u16, any::<bool>(), 0..4_u8), 1..40)) {
            let mut marks = Marks::new();
            let (mut objects, mut started, mut ended, mut taken) = (0, 0_u8, 0_u8, 0);
            // For each object, by its number, the first cookie that was started after it.
            let mut due_by: Vec<u8> = Vec::new();
            for (more, flushes, ends) in steps {
                objects += more;
                if flushes && usize::from(objects) > taken {
                    let known = marks.note(fill(objects), || { started += 1; cookie(started) });
                    prop_assert_eq!(known, cookie(started), "the newest mark has all of them");
                    due_by.resize(usize::from(objects), started);
                }
                ended = (ended + ends).min(started);
                let due = marks.take_due(|at| cookie(ended).at_least(at));
                prop_assert!(marks.newer.is_some() || marks.older.is_none(), "an older one alone");
                if let Some(until) = due {
                    prop_assert!(until.len() > taken);
                    prop_assert!(due_by[..until.len()].iter().all(|&by| by <= ended));
                    taken = until.len();
                }
            }
            if started > 0 && marks.take_due(|_| true).is_some_and(|until| until.len() < due_by.len()) {
                prop_assert!(false, "something marked is left");
            }
            prop_assert!(marks.take_due(|_| true).is_none());
        }
    }
}
