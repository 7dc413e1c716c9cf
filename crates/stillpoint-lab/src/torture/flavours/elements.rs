//! Elements that are never freed, and say who lives in them: whether a value that a section has found
//! was dropped before the section's end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use stillpoint::Domain;

use crate::torture::session::Session;
use crate::torture::tally::{Fault, add};

/// More than there can be values, unless deferred frees are held up for long.
const ELEMENTS: u64 = 1 << 16;

/// Who lives where; 0 for none.
pub struct Elements {
    numbers: Box<[AtomicU64]>,
    next: AtomicU64,
    dropped: AtomicU64,
    twice: AtomicBool,
}

impl Elements {
    pub fn new() -> Arc<Self> {
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

    /// Returns a value that lives in an element from now on, and counts it as published. `None` if
    /// the next element is still another's, which waits for readers.
    pub fn live(self: &Arc<Self>, session: &Session) -> Option<Life> {
        // Relaxed: numbers, and no more.
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let element = self.of(number);
        let taken = element.compare_exchange(0, number, Ordering::AcqRel, Ordering::Relaxed);
        if taken.is_err() {
            add(&session.tally.exhausted, 1);
            return None;
        }
        add(&session.tally.published, 1);
        let elements = Arc::clone(self);
        Some(Life { number, elements })
    }

    /// Returns what is wrong with a value that was found in a section which lasts: it is not there,
    /// or dies during `pause`.
    pub fn fault_of(&self, found: Option<u64>, mut pause: impl FnMut()) -> Option<Fault> {
        pause();
        match found {
            None => Some(Fault::Lost),
            Some(number) => (!self.is_alive(number)).then_some(Fault::TooShort),
        }
    }

    /// Returns whether the value with this number has not been dropped.
    pub fn is_alive(&self, number: u64) -> bool {
        self.of(number).load(Ordering::Acquire) == number
    }

    /// How many lives have ended.
    pub fn ended(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Ends a run whose structure has been dropped: waits for what was retired in `domain`, and
    /// checks that all values have been dropped.
    pub fn end(&self, session: &Session, domain: &Domain) {
        domain.kvfree_barrier();
        let tally = &session.tally;
        add(&tally.freed, tally.retired.load(Ordering::Relaxed));
        self.check_end(session);
    }

    /// Checks that all that was published has been dropped, once.
    pub fn check_end(&self, session: &Session) {
        let tally = &session.tally;
        let (made, dropped) = (tally.published.load(Ordering::Relaxed), self.ended());
        if !tally.is_faulty() && made != dropped {
            tally.fault(Fault::Lost, || {
                format!("of {made} values {dropped} were dropped")
            });
        }
        if self.twice.load(Ordering::Relaxed) {
            tally.fault(Fault::Twice, || "a value was dropped twice".to_owned());
        }
    }
}

/// What lives in an element, until this is dropped.
pub struct Life {
    number: u64,
    elements: Arc<Elements>,
}

impl Life {
    /// Returns the number, which no other value has.
    pub fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        if self.elements.of(self.number).swap(0, Ordering::AcqRel) != self.number {
            self.elements.twice.store(true, Ordering::Relaxed);
        }
        add(&self.elements.dropped, 1);
    }
}
