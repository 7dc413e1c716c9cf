//! How many entries a map has.

use crossbeam_utils::CachePadded;
use std::ptr::{self, NonNull};
use stillpoint_platform::{
    cpu,
    memory::try_several,
    sync::{AtomicPtr, AtomicU64, Ordering},
    thread,
};

type Stripe = CachePadded<AtomicU64>;

/// More stripes than that take more memory than they save time.
const MOST_STRIPES: usize = 64;

/// The low bits of the first stripe's address, which hold the logarithm of the number of stripes.
const COUNT_MASK: usize = 7;

const _: () = assert!(align_of::<Stripe>() > COUNT_MASK && MOST_STRIPES < 2 << COUNT_MASK);

/// An entry counter: one atomic while the map is small, striped over threads once it is large, so
/// that they do not write the same cache line.
#[derive(Debug)]
pub struct Count {
    first: AtomicU64,
    /// Null, or the first stripe with the logarithm of their number in the low bits.
    stripes: AtomicPtr<Stripe>,
}

impl Count {
    pub fn new() -> Self {
        Self {
            first: AtomicU64::new(0),
            stripes: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Adds 1, or `-1` as it wraps.
    #[inline]
    pub fn add(&self, difference: u64) {
        let count = match self.stripes() {
            Some(stripes) => &stripes[thread::token().get() as usize & (stripes.len() - 1)],
            None => &self.first,
        };
        count.fetch_add(difference, Ordering::Relaxed);
    }

    /// The sum; exact while no thread adds.
    pub fn get(&self) -> usize {
        let first = self.first.load(Ordering::Relaxed);
        let stripes = self.stripes().unwrap_or(&[]).iter();
        let sum = stripes.fold(first, |sum, stripe| {
            sum.wrapping_add(stripe.load(Ordering::Relaxed))
        });
        // A removal may be seen before its insert.
        usize::try_from(sum.cast_signed()).unwrap_or(0)
    }

    #[inline]
    fn stripes(&self) -> Option<&[Stripe]> {
        // SAFETY: `spread_out` has leaked them.
        self.leaked().map(|stripes| unsafe { &*stripes })
    }

    #[inline]
    fn leaked(&self) -> Option<*mut [Stripe]> {
        // Acquire, pairs with `spread_out`: the stripes are complete.
        let word = NonNull::new(self.stripes.load(Ordering::Acquire))?.as_ptr();
        let count = 1 << (word.addr() & COUNT_MASK);
        let first = word.map_addr(|address| address & !COUNT_MASK);
        Some(ptr::slice_from_raw_parts_mut(first, count))
    }

    /// Whether [`Count::spread_out`] has been called, and there was memory.
    pub fn is_spread_out(&self) -> bool {
        self.stripes().is_some()
    }

    /// From now on threads add to numbers of their own, if there is memory for them.
    pub fn spread_out(&self) {
        if self.is_spread_out() {
            return;
        }
        let count = cpu::count().next_power_of_two().min(MOST_STRIPES);
        let Some(made) = try_several(count, Stripe::default) else {
            return;
        };
        let made = Box::into_raw(made);
        let first = made.cast::<Stripe>();
        let word = first.map_addr(|address| address | count.trailing_zeros() as usize);
        // Release, pairs with `leaked`: they are complete.
        let set = self.stripes.compare_exchange(
            ptr::null_mut(),
            word,
            Ordering::Release,
            Ordering::Relaxed,
        );
        if set.is_err() {
            // SAFETY: from a box just now, and no other thread knows it.
            drop(unsafe { Box::from_raw(made) });
        }
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        if let Some(stripes) = self.leaked() {
            // SAFETY: `spread_out` made them of a box, and no other thread uses them.
            drop(unsafe { Box::from_raw(stripes) });
        }
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
