//! Numbers for threads: small, and used again, the smallest first.
//!
//! A bit each, set while a thread has the number. There is no lock, so a fork leaves no number half
//! taken; those of threads that a fork has removed stay taken in the child.

use std::{
    ptr,
    sync::atomic::{AtomicPtr, AtomicU64, Ordering},
};

const WORDS: usize = 64;

/// How many numbers a chunk has.
const NUMBERS: usize = WORDS * 64;

struct Chunk {
    taken: [AtomicU64; WORDS],
    /// The numbers after these; null until they are needed. Never freed.
    next: AtomicPtr<Chunk>,
}

static FIRST: Chunk = Chunk::new();

impl Chunk {
    const fn new() -> Self {
        Self {
            taken: [const { AtomicU64::new(0) }; WORDS],
            next: AtomicPtr::new(ptr::null_mut()),
        }
    }

    fn next(&self) -> &'static Self {
        // Acquire, pairs with the exchange below, in `next`: the chunk is complete.
        let next = self.next.load(Ordering::Acquire);
        // SAFETY: null, or leaked below.
        if let Some(next) = unsafe { next.as_ref() } {
            return next;
        }
        let made = Box::into_raw(Box::new(Self::new()));
        // AcqRel, pairs with the load above, in `next`: ours is complete before it is found, and so
        // is the faster thread's.
        match self.next.compare_exchange(
            ptr::null_mut(),
            made,
            Ordering::AcqRel,
            Ordering::Acquire, // As above: the faster thread's is complete.
        ) {
            // SAFETY: leaked.
            Ok(_) => unsafe { &*made },
            Err(faster) => {
                // SAFETY: out of a box just now, and nothing else knows it.
                drop(unsafe { Box::from_raw(made) });
                // SAFETY: the faster thread leaked it.
                unsafe { &*faster }
            }
        }
    }
}

/// The smallest number that no thread has; what its last thread did with it happens before.
pub(crate) fn take() -> usize {
    let (mut chunk, mut base) = (&FIRST, 0);
    loop {
        for (n, word) in chunk.taken.iter().enumerate() {
            let mut taken = word.load(Ordering::Relaxed);
            while taken != u64::MAX {
                let bit = taken.trailing_ones();
                // Acquire, pairs with `give_back`: what the last thread did with the number is done.
                match word.compare_exchange_weak(
                    taken,
                    taken | 1 << bit,
                    Ordering::Acquire,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => return base + n * 64 + bit as usize,
                    Err(now) => taken = now,
                }
            }
        }
        (chunk, base) = (chunk.next(), base + NUMBERS);
    }
}

/// Where a number's bit is.
fn word_of(id: usize) -> &'static AtomicU64 {
    let mut chunk = &FIRST;
    for _ in 0..id / NUMBERS {
        chunk = chunk.next();
    }
    &chunk.taken[id % NUMBERS / 64]
}

/// Whether a thread has a number that [`take`] gave; if none has, what the last one did with it
/// happens before.
pub(crate) fn is_taken(id: usize) -> bool {
    // Acquire, pairs with `give_back`: what the last thread did with the number is done.
    word_of(id).load(Ordering::Acquire) & 1 << (id % 64) != 0
}

/// Gives a number back that [`take`] gave.
pub(crate) fn give_back(id: usize) {
    let word = word_of(id);
    // Release, pairs with `take` and `is_taken`: what we did with the number is done before another thread has it.
    let before = word.fetch_and(!(1 << (id % 64)), Ordering::Release);
    debug_assert!(before & 1 << (id % 64) != 0, "it was taken");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::BTreeSet, thread};

    /// One test, as the numbers are the process's.
    #[test]
    fn numbers_are_distinct_while_taken_and_used_again() {
        let count = if cfg!(miri) { 70 } else { NUMBERS + 70 };
        let first: Vec<usize> = (0..count).map(|_| take()).collect();
        assert_eq!(first, (0..count).collect::<Vec<_>>());
        for id in [5, 64, count - 1] {
            give_back(id);
        }
        assert!(is_taken(4) && !is_taken(5) && is_taken(6));
        assert_eq!([take(), take(), take()], [5, 64, count - 1]);
        assert!(is_taken(5) && !is_taken(count));
        first.into_iter().for_each(give_back);
        let held: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| (0..20).map(|_| take()).collect::<Vec<_>>()))
                .collect();
            threads
                .into_iter()
                .flat_map(|t| t.join().unwrap())
                .collect()
        });
        assert_eq!(held.iter().collect::<BTreeSet<_>>().len(), 80);
        held.into_iter().for_each(give_back);
        assert_eq!(take(), 0);
        give_back(0);
    }
}
