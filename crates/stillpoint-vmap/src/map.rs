//! The page map: from an address to the area around it, in one load or two.
//!
//! One word for each page of the arena (`span.rs`), and above them one for each slot of 2 MiB. An
//! area writes the word of each of its pages, but where it covers a whole slot it writes the slot's
//! alone; so publishing a gigabyte takes 512 stores and not 262,144. A look-up reads the page's
//! word, and if that is empty the slot's. Nothing but the words is shared between the two sides: no
//! lock, no count, no tree.
//!
//! # Orderings
//!
//! ```text
//!   publish   memory accessible, zero, guarded; word = span               release
//!   find      word                                                        acquire
//!   clear     word = 0
//!             ... under the node's lock to the drain; its cookie          (W1)
//!   purge     the cookie's grace period has ended (W6); memory taken; publish of another area
//! ```
//!
//! * **`publish` with `find`.** A thread that finds the area sees what was done to its memory
//!   before it was handed out.
//! * **`find` with `clear` and the purge.** Take a section whose `find` read an area's word, and a
//!   purge of that area. Had the section begun after the cookie's grace period had started, its R1
//!   would have read W1's value or a later one: `clear` happens before `find`, which then reads 0,
//!   or the word of another area that was published later. So it began before, the grace period
//!   waits for it, and all that it does with the memory happens before the purge (`gp/README.md`,
//!   R4 with W4, W5 with W6).
//! * The words of one area are written one after the other. Each tells of the whole area, so a
//!   thread that sees one of them while others are still missing, or gone already, sees an area
//!   whose memory is all there: before `publish` all of it is ready, and until the purge none of it
//!   is touched.
//!
//! `loom_tests.rs` checks each pair on the code below.
//!
//! `used` counts the words that are set in a slot, so that a walk passes over empty ones. It is
//! raised before the words are set and lowered after they are cleared: a walk that knows of an area
//! (by what its `publish` happened before) finds it.

use super::span::{Extent, PAGE, PAGE_BITS, Span};
use stillpoint_platform::{
    mmap::{NoTable, Table},
    sync::{AtomicU32, AtomicU64, Ordering},
};

/// Number of pages of a slot. Smaller in the model, which looks at every word.
pub(crate) const SLOT_PAGES: u32 = 1 << SLOT_BITS;
const SLOT_BITS: u32 = if cfg!(stillpoint_loom) { 1 } else { 9 };

#[derive(Debug)]
pub(crate) struct Map {
    pages: Table<AtomicU64>,
    slots: Table<AtomicU64>,
    used: Table<AtomicU32>,
}

impl Map {
    /// Creates a map of `pages` pages, a multiple of [`SLOT_PAGES`].
    pub(crate) fn new(pages: u32) -> Result<Self, NoTable> {
        let slots = (pages >> SLOT_BITS) as usize;
        Ok(Self {
            pages: Table::new(pages as usize)?,
            slots: Table::new(slots)?,
            used: Table::new(slots)?,
        })
    }

    /// Returns the area whose pages the byte at `offset` lies in; `None` also past the map's end.
    /// Async-signal-safe.
    #[inline(always)]
    pub(crate) fn find(&self, offset: usize) -> Option<Extent> {
        let page = offset >> PAGE_BITS;
        match Span::from_bits(self.word(page)) {
            Some(span) => Some(span.extent(page << PAGE_BITS)),
            None => self.find_large(page),
        }
    }

    /// Returns the area that the byte at `offset` is part of: like [`Map::find`], but `None` behind
    /// the area's size. Async-signal-safe.
    #[inline(always)]
    pub(crate) fn find_byte(&self, offset: usize) -> Option<Extent> {
        let page = offset >> PAGE_BITS;
        let word = self.word(page);
        match Span::from_bits(word) {
            Some(span) if offset % PAGE < Span::left(word) => Some(span.extent(page << PAGE_BITS)),
            _ => self.find_byte_large(offset),
        }
    }

    /// Returns how many bytes of its area lie from `offset` on; 0 if the byte lies in none. If an
    /// area covers a whole slot of 2 MiB, this may also be 0, and [`Map::find_byte`] has the answer.
    /// Async-signal-safe.
    #[inline(always)]
    pub(crate) fn left(&self, offset: usize) -> usize {
        Span::left(self.word(offset >> PAGE_BITS)).saturating_sub(offset % PAGE)
    }

    /// Returns the page's word; past the map's end [`Span::NONE`].
    #[inline(always)]
    fn word(&self, page: usize) -> u64 {
        // Acquire, pairs with `set` (of `publish`): a thread that finds the area finds its memory
        // as it was made ready.
        self.pages
            .get(page)
            .map_or(Span::NONE, |word| word.load(Ordering::Acquire))
    }

    #[inline(never)]
    fn find_byte_large(&self, offset: usize) -> Option<Extent> {
        self.find(offset).filter(|extent| offset < extent.end())
    }

    #[inline(never)]
    fn find_large(&self, page: usize) -> Option<Extent> {
        self.slot_extent(page >> SLOT_BITS)
    }

    fn slot_extent(&self, slot: usize) -> Option<Extent> {
        // Acquire, pairs with `set` (of `publish`): a thread that finds the area finds its memory
        // as it was made ready.
        let span = Span::from_bits(self.slots.get(slot)?.load(Ordering::Acquire))?;
        Some(span.extent(slot << (SLOT_BITS + PAGE_BITS)))
    }

    /// Returns the first area below page `end` that does not end before `offset`.
    pub(crate) fn find_or_next(&self, offset: usize, end: u32) -> Option<Extent> {
        let end = end as usize;
        let mut page = offset >> PAGE_BITS;
        if page < end
            && let Some(around) = self.find(offset)
        {
            return Some(around);
        }
        while page < end {
            let slot = page >> SLOT_BITS;
            let past = (slot + 1) << SLOT_BITS;
            // Acquire, pairs with `clear`: a slot that has become empty has none of those words any
            // more.
            if self.used[slot].load(Ordering::Acquire) > 0 {
                if let Some(large) = self.slot_extent(slot) {
                    return Some(large);
                }
                for page in page..past {
                    if let Some(span) = Span::from_bits(self.word(page)) {
                        return Some(span.extent(page << PAGE_BITS));
                    }
                }
            }
            page = past;
        }
        None
    }

    /// Makes the area visible to look-ups. Its pages belong to no other area.
    pub(crate) fn publish(&self, start: u32, pages: u32, slack: u32) {
        self.set(
            start,
            pages,
            |back| Span::new(pages, back, slack).bits(),
            |used, count| {
                used.fetch_add(count, Ordering::Relaxed);
            },
        );
    }

    /// Hides the area from look-ups.
    pub(crate) fn clear(&self, start: u32, pages: u32) {
        self.set(start, pages, |_| Span::NONE, |_, _| ());
        self.each_slot(start, pages, |slot, count| {
            // Release, pairs with `find_or_next`: the words are cleared before they are no longer
            // counted.
            self.used[slot].fetch_sub(count, Ordering::Release);
        });
    }

    /// Takes the area out of the map that starts at page `start`, if there is one. Of several
    /// threads that try, one succeeds.
    pub(crate) fn claim(&self, start: u32) -> Option<Extent> {
        let at = (start as usize) << PAGE_BITS;
        let extent = self.find(at).filter(|extent| extent.start == at)?;
        let (_, pages) = extent.pages();
        let page = &self.pages[start as usize];
        let word = if page.load(Ordering::Relaxed) == Span::NONE {
            &self.slots[start as usize >> SLOT_BITS]
        } else {
            page
        };
        let expected = Span::new(
            pages,
            0,
            (((pages as usize) << PAGE_BITS) - extent.len) as u32,
        )
        .bits();
        // Acquire, pairs with `set`: of several that free the area one wins, and sees it as
        // `publish` left it. Release: as in `set`.
        word.compare_exchange(expected, Span::NONE, Ordering::AcqRel, Ordering::Relaxed)
            .ok()?;
        self.clear(start, pages);
        Some(extent)
    }

    /// Writes the words of an area. Before that, calls `before` with each slot's count and the number
    /// of words that will be set there.
    fn set(
        &self,
        start: u32,
        pages: u32,
        word: impl Fn(u32) -> u64,
        before: impl Fn(&AtomicU32, u32),
    ) {
        self.each_slot(start, pages, |slot, count| before(&self.used[slot], count));
        let (whole, end) = (whole_slots(start, pages), start + pages);
        let write = |from: u32, to: u32| {
            for page in from..to {
                // Release, pairs with `find`: the area's memory is ready before it is found. (For
                // `clear` the lock that follows would do.)
                self.pages[page as usize].store(word(page - start), Ordering::Release);
            }
        };
        if whole.is_empty() {
            write(start, end);
            return;
        }
        write(start, whole.start << SLOT_BITS);
        for slot in whole.clone() {
            // Release, pairs with `slot_extent`: the same for a whole slot.
            self.slots[slot as usize].store(word((slot << SLOT_BITS) - start), Ordering::Release);
        }
        write(whole.end << SLOT_BITS, end);
    }

    /// Calls `each` with every slot that an area has words in, and with their number.
    fn each_slot(&self, start: u32, pages: u32, mut each: impl FnMut(usize, u32)) {
        let (whole, end) = (whole_slots(start, pages), start + pages);
        let mut page = start;
        while page < end {
            let slot = page >> SLOT_BITS;
            let past = ((slot + 1) << SLOT_BITS).min(end);
            each(
                slot as usize,
                if whole.contains(&slot) {
                    1
                } else {
                    past - page
                },
            );
            page = past;
        }
    }
}

/// Returns the slots that an area covers from end to end.
fn whole_slots(start: u32, pages: u32) -> std::ops::Range<u32> {
    let (first, past) = (start.div_ceil(SLOT_PAGES), (start + pages) >> SLOT_BITS);
    first..past.max(first)
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const PAGES: u32 = 4 * SLOT_PAGES;

    fn extent(start: u32, pages: u32, slack: u32) -> Extent {
        Extent {
            start: start as usize * PAGE,
            len: pages as usize * PAGE - slack as usize,
        }
    }

    #[test]
    fn area_over_whole_slots() {
        let map = Map::new(PAGES).unwrap();
        let (start, pages) = (SLOT_PAGES - 3, 2 * SLOT_PAGES + 5);
        map.publish(start, pages, 7);
        for page in 0..PAGES as usize {
            let inside = (start as usize..(start + pages) as usize).contains(&page);
            assert_eq!(
                map.find(page * PAGE + 9),
                inside.then(|| extent(start, pages, 7)),
                "{page}"
            );
        }
        assert_eq!(map.find(PAGES as usize * PAGE), None);
        assert_eq!(map.find(usize::MAX), None);
        assert_eq!(map.claim(start + 1), None);
        assert_eq!(map.claim(start), Some(extent(start, pages, 7)));
        assert_eq!(map.claim(start), None);
        assert_eq!(map.find_or_next(0, PAGES), None);
        assert!(
            map.used
                .iter()
                .all(|used| used.load(Ordering::Relaxed) == 0)
        );
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_tree(steps in prop::collection::vec((0..PAGES, 1..2 * SLOT_PAGES, 0..PAGE as u32, any::<bool>()), 1..40)) {
            let map = Map::new(PAGES).unwrap();
            let mut model: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
            for (start, pages, slack, claim) in steps {
                let end = start + pages;
                let overlaps = model.iter().find(|&(&s, &(p, _))| s < end && start < s + p).map(|(&s, &(p, k))| (s, p, k));
                match overlaps {
                    Some((s, p, k)) => {
                        model.remove(&s);
                        if claim { prop_assert_eq!(map.claim(s), Some(extent(s, p, k))) } else { map.clear(s, p) }
                    }
                    None if end <= PAGES => {
                        model.insert(start, (pages, slack));
                        map.publish(start, pages, slack);
                    }
                    None => {}
                }
            }
            for page in (0..PAGES).step_by(if cfg!(miri) { 97 } else { 1 }) {
                let around = model.range(..=page).next_back().filter(|&(&s, &(p, _))| page < s + p);
                let next = around.or_else(|| model.range(page..).next());
                let of = |(&s, &(p, k)): (&u32, &(u32, u32))| extent(s, p, k);
                prop_assert_eq!(map.find(page as usize * PAGE + 1), around.map(of));
                prop_assert_eq!(map.find_or_next(page as usize * PAGE, PAGES), next.map(of));
            }
        }
    }
}
