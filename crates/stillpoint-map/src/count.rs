//! How many entries a map has.

use crate::shown::{Figure, Shown, Stripe, stripes};
use crossbeam_utils::CachePadded;
use std::{
    ptr::{self, NonNull},
    sync::{Arc, OnceLock},
};
use stillpoint_platform::{
    sync::{AtomicPtr, AtomicU64, Ordering},
    thread,
};

type Padded = CachePadded<Stripe>;

/// The low bits of a stripe's address, which hold how many there are, as a logarithm.
const COUNT_MASK: usize = 7;

/// The bit of the address that says that the map has a name: so a change of one that has none
/// touches nothing else to know it, and needs no fence.
const NAMED: usize = 8;

const _: () = assert!(
    align_of::<Padded>() > COUNT_MASK | NAMED && crate::shown::MOST_STRIPES < 2 << COUNT_MASK
);

/// A sum, of one number while the map is small, and then of one for each of some threads, so that
/// they do not write the same cache line.
#[derive(Debug)]
pub struct Count {
    first: AtomicU64,
    /// Null, or the first of them and, in the low bits, how many there are, and [`NAMED`].
    stripes: AtomicPtr<Padded>,
    /// What the statistics page has of the map, if that has a name. It has the stripes, then.
    shown: OnceLock<Arc<Shown>>,
}

impl Count {
    pub fn new() -> Self {
        Self {
            first: AtomicU64::new(0),
            stripes: AtomicPtr::new(ptr::null_mut()),
            shown: OnceLock::new(),
        }
    }

    /// Adds 1, or `-1` as it wraps.
    #[inline]
    pub fn add(&self, difference: u64) {
        let Some(word) = self.word() else {
            self.first.fetch_add(difference, Ordering::Relaxed);
            return;
        };
        // SAFETY: as in `stripes`.
        let stripes = unsafe { &*Self::stripes_of(word) };
        let stripe = &stripes[thread::token().get() as usize & (stripes.len() - 1)];
        stripe.add(difference);
        if word.addr().get() & NAMED != 0 {
            stripe.copy();
        }
    }

    /// The sum; exact while no thread adds.
    pub fn get(&self) -> usize {
        let first = self.first.load(Ordering::Relaxed);
        let stripes = self.stripes().unwrap_or(&[]).iter();
        let sum = stripes.fold(first, |sum, stripe| sum.wrapping_add(stripe.get()));
        // A removal may be seen before its insert.
        usize::try_from(sum.cast_signed()).unwrap_or(0)
    }

    #[inline]
    fn stripes(&self) -> Option<&[Padded]> {
        // SAFETY: `spread_out` has leaked them, or `show` has what owns them.
        self.leaked().map(|stripes| unsafe { &*stripes })
    }

    #[inline]
    fn leaked(&self) -> Option<*mut [Padded]> {
        self.word().map(Self::stripes_of)
    }

    #[inline]
    fn word(&self) -> Option<NonNull<Padded>> {
        // Acquire, pairs with `spread_out` and `show`: the stripes are complete.
        NonNull::new(self.stripes.load(Ordering::Acquire))
    }

    #[inline]
    fn stripes_of(word: NonNull<Padded>) -> *mut [Padded] {
        let word = word.as_ptr();
        let count = 1 << (word.addr() & COUNT_MASK);
        let first = word.map_addr(|address| address & !(COUNT_MASK | NAMED));
        ptr::slice_from_raw_parts_mut(first, count)
    }

    fn word_of(stripes: *mut [Padded]) -> *mut Padded {
        let count = stripes.len();
        stripes
            .cast::<Padded>()
            .map_addr(|address| address | count.trailing_zeros() as usize)
    }

    /// Whether [`Count::spread_out`] has been called, and there was memory.
    pub fn is_spread_out(&self) -> bool {
        // With a name it has stripes while it is small, too.
        let is_large = |shown: &Arc<Shown>| shown.is_large.load(Ordering::Relaxed);
        self.stripes().is_some() && self.shown.get().is_none_or(is_large)
    }

    /// From now on threads add to numbers of their own, if there is memory for them.
    pub fn spread_out(&self) {
        if let Some(shown) = self.shown.get() {
            shown.is_large.store(true, Ordering::Relaxed);
        }
        if self.stripes().is_some() {
            return;
        }
        let Some(made) = stripes() else { return };
        let made = Box::into_raw(made);
        // Release, pairs with `word`: they are complete.
        let set = self.stripes.compare_exchange(
            ptr::null_mut(),
            Self::word_of(made),
            Ordering::Release,
            Ordering::Relaxed,
        );
        if set.is_err() {
            // SAFETY: from a box just now, and no other thread knows it.
            drop(unsafe { Box::from_raw(made) });
        }
    }

    /// Has the map, which has no name yet, shown by this one. Returns false without memory.
    ///
    /// # Safety
    ///
    /// No other thread uses it meanwhile.
    pub unsafe fn show(&self, name: Box<str>, is_ordered: bool) -> bool {
        debug_assert!(self.shown.get().is_none(), "it has one name");
        let entries = self.get() as u64;
        let Some(shown) = Shown::new(name, is_ordered, entries) else {
            return false;
        };
        shown
            .is_large
            .store(self.is_spread_out(), Ordering::Relaxed);
        let stripes = ptr::from_ref(&*shown.stripes).cast_mut();
        // SAFETY: they are not used any more, by the caller's promise.
        unsafe { self.free_stripes() };
        self.first.store(entries, Ordering::Relaxed);
        let word = Self::word_of(stripes).map_addr(|address| address | NAMED);
        // Release, pairs with `word`: they are complete.
        self.stripes.store(word, Ordering::Release);
        self.shown.get_or_init(|| shown);
        true
    }

    /// What the map shows, if it has a name.
    pub fn shown(&self) -> Option<&Arc<Shown>> {
        self.shown.get()
    }

    /// Adds to what the map shows, if it has a name.
    pub fn add_shown(&self, figure: Figure, difference: u64) {
        if let Some(shown) = self.shown.get() {
            shown.add(figure, difference);
        }
    }

    /// A table has been replaced: so many bytes have gone, and what it had room for is another
    /// number.
    pub fn show_move(&self, bytes: u64, before: usize, now: usize) {
        self.add_shown(Figure::Tables, bytes.wrapping_neg());
        self.add_shown(Figure::Capacity, (now as u64).wrapping_sub(before as u64));
        self.add_shown(Figure::Moving, 1_u64.wrapping_neg());
        self.add_shown(Figure::Moves, 1);
    }

    /// There are a table of so many bytes, with room for so many entries, and perhaps one that it
    /// moves to.
    pub fn show_tables(&self, bytes: u64, room: usize, next: Option<u64>) {
        self.add_shown(Figure::Tables, bytes + next.unwrap_or(0));
        self.add_shown(Figure::Capacity, room as u64);
        self.add_shown(Figure::Moving, next.is_some().into());
    }

    /// The map has ended, and is not shown any more.
    pub fn end_shown(&self) {
        if let Some(shown) = self.shown.get() {
            shown.end();
        }
    }

    /// # Safety
    ///
    /// They are not used any more.
    unsafe fn free_stripes(&self) {
        if let Some(stripes) = self.leaked()
            && self.shown.get().is_none()
        {
            // SAFETY: `spread_out` made them of a box; the caller's promise.
            drop(unsafe { Box::from_raw(stripes) });
        }
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        // SAFETY: no other thread has it any more.
        unsafe { self.free_stripes() };
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;

    #[test]
    fn counts_before_and_after_it_is_spread_out() {
        let count = Count::new();
        count.add(1);
        count.spread_out();
        count.spread_out();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|_| count.add(1)));
            }
        });
        assert_eq!(count.get(), 4001);
        (0..4002).for_each(|_| count.add(u64::MAX));
        assert_eq!(count.get(), 0, "a removal may be seen first");
    }
}
