//! The sequence count of a slot: what a reader finds between two equal even counts belongs together.
//!
//! There is one writer at a time. Nothing orders the other words of a page: values that are read together may
//! be of different moments.
//!
//! * [Q1] Release: the odd count comes before the change's words, so that a reader which has found
//!   one of these sees by Q4 that the count has moved.
//! * [Q2] Release: the change comes before the even count that ends it, which Q3 reads.
//! * [Q3] Acquire: the words are read after the first count.
//! * [Q4] Acquire: the words are read before the second count.

use crate::sync::{AtomicU64, Ordering, fence};

/// Changes words that the count guards, by stores of single words. The caller keeps other writers away.
#[allow(dead_code, reason = "elsewhere there is no page to write to")]
pub(super) fn change(sequence: &AtomicU64, how: impl FnOnce()) {
    let before = sequence.load(Ordering::Relaxed);
    sequence.store(before.wrapping_add(1), Ordering::Relaxed);
    // Release [Q1], for Q4: a reader that has found a word of the change finds an odd count, or
    // a later one, at its second look.
    fence(Ordering::Release);
    how();
    // Release [Q2], for Q3: a reader that has found this count finds the whole change.
    sequence.store(before.wrapping_add(2), Ordering::Release);
}

/// Returns the result of `look` if all that it has read belongs together; `None` if a change was under
/// way. `count` reads the sequence count.
///
/// The writer is another process, and the words are read by system calls: these fences order them, as
/// neither the entry into the kernel nor the return does on all processors.
pub(super) fn read<T, E>(
    count: impl Fn() -> Result<u64, E>,
    look: impl FnOnce() -> T,
) -> Result<Option<T>, E> {
    let before = count()?;
    if !before.is_multiple_of(2) {
        return Ok(None);
    }
    // Acquire [Q3], after Q2.
    fence(Ordering::Acquire);
    let found = look();
    // Acquire [Q4], after Q1.
    fence(Ordering::Acquire);
    Ok((count()? == before).then_some(found))
}
