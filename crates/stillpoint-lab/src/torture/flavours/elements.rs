//! Elements that are never freed, and say who lives in them: whether a value that a section has found
//! was dropped before the section's end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

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

    /// A number whose element is its own from now on; `None` if the element is still another's.
    pub fn take(&self) -> Option<u64> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.of(number)
            .compare_exchange(0, number, Ordering::AcqRel, Ordering::Relaxed)
            .ok()?;
        Some(number)
    }

    pub fn is_alive(&self, number: u64) -> bool {
        self.of(number).load(Ordering::Acquire) == number
    }

    /// How many lives have ended.
    pub fn ended(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// All that was published has been dropped in the end, once.
    pub fn check_end(&self, session: &Session) {
        let tally = &session.tally;
        let (made, dropped) = (tally.published.load(Ordering::Relaxed), self.ended());
        if made != dropped && !tally.is_faulty() {
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
    /// Of an element that was [taken](Elements::take).
    pub fn new(number: u64, elements: &Arc<Elements>) -> Self {
        let elements = Arc::clone(elements);
        Self { number, elements }
    }

    /// The number.
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
