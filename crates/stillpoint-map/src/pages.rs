//! Which huge pages have memory of a table that another one moves to.
//!
//! The first access to a huge page takes long: the system clears 2 MiB, and its host may have to find
//! them. Threads that move neighbours come there at the same time, and each of them clears a page, of
//! which one is kept. So that is the service thread's work, which is a page ahead of what is moved. A
//! thread that changes the map is let off its part of the move where there is no page yet: but not for
//! ever, as the service thread may have no processor, or wait for a reader.

use crate::bucket::Bucket;
use stillpoint_platform::sync::{AtomicU64, Ordering};

/// The buckets of a huge page. A mapped table's begin where one does.
const PAGE: usize = (2 << 20) / size_of::<Bucket>();

/// So many changes are let off for a page: one for each bucket that grows to it. While the service
/// thread is there, more: a second thread would not be faster.
const LET_OFF: u64 = PAGE as u64 / 2;
const LET_OFF_MEANWHILE: u64 = 4 * LET_OFF;

const READY_SHIFT: u32 = 32;
/// The service thread touches a page.
const TOUCHES: u64 = 1 << 31;
/// How many were let off.
const COUNT: u64 = TOUCHES - 1;

/// How many pages have memory, from the first one on; and in the low bits what has happened since that
/// was so. Relaxed: nothing but time depends on it.
#[derive(Debug)]
pub struct Pages(AtomicU64);

impl Pages {
    /// Of a table whose pages have no memory, if it `is_mapped`; or all have it, or are small.
    pub fn new(is_mapped: bool, buckets: usize) -> Self {
        let waits = is_mapped && buckets >= PAGE;
        let ready = if waits { 0 } else { u64::MAX };
        Self(AtomicU64::new(ready << READY_SHIFT))
    }

    fn ready(word: u64) -> usize {
        (word >> READY_SHIFT) as usize
    }

    /// The first bucket of the page that the service thread touches now, while others move to the
    /// bucket of this number.
    #[inline]
    pub fn to_touch(&self, bucket: usize, buckets: usize) -> Option<usize> {
        let ready = Self::ready(self.0.load(Ordering::Relaxed));
        let touches = ready <= bucket / PAGE + 1 && ready * PAGE < buckets;
        if touches {
            self.0.fetch_or(TOUCHES, Ordering::Relaxed);
        }
        touches.then_some(ready * PAGE)
    }

    /// The page of that bucket has memory.
    #[inline]
    pub fn has_touched(&self, bucket: usize) {
        let ready = bucket / PAGE + 1;
        if Self::ready(self.0.load(Ordering::Relaxed)) < ready {
            let word = (ready as u64) << READY_SHIFT;
            self.0.fetch_max(word, Ordering::Relaxed);
        }
    }

    /// Whether a change is let off moving to the bucket of that number.
    #[inline]
    pub fn lets_off(&self, bucket: usize) -> bool {
        let word = self.0.load(Ordering::Relaxed);
        Self::ready(word) <= bucket / PAGE && self.counts_one()
    }

    #[cold]
    fn counts_one(&self) -> bool {
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        let most = if before & TOUCHES == 0 {
            LET_OFF
        } else {
            LET_OFF_MEANWHILE
        };
        let is_last = before & COUNT >= most;
        if is_last {
            // The others go on as if there had been none: one thread is enough for the page.
            self.0.fetch_and(!COUNT, Ordering::Relaxed);
        }
        !is_last
    }
}

// Detects changes that leave the move alone for ever or never, and a service thread that goes two
// pages ahead.
#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    #[cfg(all(target_os = "linux", not(miri)))]
    use crate::{
        growth::tests::Alone,
        table::{Kind, References},
    };

    #[test]
    fn the_service_thread_is_one_page_ahead() {
        let (pages, all) = (Pages::new(true, 3 * PAGE), 3 * PAGE);
        assert_eq!(pages.to_touch(0, all), Some(0));
        pages.has_touched(0);
        assert_eq!(pages.to_touch(PAGE - 1, all), Some(PAGE));
        pages.has_touched(PAGE);
        assert_eq!(pages.to_touch(PAGE - 1, all), None);
        assert_eq!(pages.to_touch(PAGE, all), Some(2 * PAGE));
        // Others may have been there before.
        pages.has_touched(3 * PAGE - 1);
        pages.has_touched(0);
        assert_eq!(pages.to_touch(2 * PAGE, all), None);
    }

    #[test]
    #[cfg_attr(miri, ignore = "some 300,000 changes")]
    fn a_change_is_let_off_until_there_is_a_page_and_not_for_ever() {
        let pages = Pages::new(true, 2 * PAGE);
        for page in [0, PAGE] {
            let let_off = || (0..9 * PAGE).take_while(|_| pages.lets_off(page)).count() as u64;
            assert_eq!([let_off(), let_off()], [LET_OFF; 2]);
            assert_eq!(pages.to_touch(page, 2 * PAGE), Some(page));
            assert_eq!([let_off(), let_off()], [LET_OFF_MEANWHILE; 2]);
            pages.has_touched(page);
            assert!(!pages.lets_off(page));
        }
        for pages in [Pages::new(false, 2 * PAGE), Pages::new(true, PAGE / 2)] {
            assert!(!pages.lets_off(PAGE / 2 - 1));
            assert_eq!(pages.to_touch(0, 2 * PAGE), None);
        }
    }

    /// Where there is none, or it was at a page and is gone, as in the child of a fork: changes alone
    /// end a move to a table of two pages, and so many of them are let off at most.
    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn a_move_ends_without_the_service_thread() {
        for (is_lost, most) in [(false, 2 * LET_OFF), (true, LET_OFF_MEANWHILE + LET_OFF)] {
            let map = Alone::new(References::capacity(15), true);
            // As if entries had been everywhere.
            let from = map.table();
            assert!((0..from.buckets()).all(|index| from.used().claim(index)));
            (0..from.buckets()).for_each(|_| map.count.add(1));
            assert!(
                map.writer()
                    .reserve(References::capacity(16) - from.buckets())
            );
            let to = map.table().next().expect("it moves");
            assert_eq!(to.buckets(), 2 * PAGE);
            if is_lost {
                assert_eq!(to.header().pages.to_touch(0, to.buckets()), Some(0));
            }
            // As many as are let off, and one for each chunk of 16.
            let most = most as usize + PAGE / 16;
            let ends = |_: &usize| {
                map.writer().help();
                map.capacity() == References::capacity(16)
            };
            assert_eq!((1..2 * most).find(ends), Some(most));
        }
    }
}
