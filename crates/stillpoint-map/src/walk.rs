//! All entries of a map, in the order of their hashes' homes.
//!
//! A walk is at a hash: it has visited all homes below. A step visits the home of that hash,
//! wherever it is at the moment, and goes on behind it. Tables of all sizes have their buckets in
//! the order of the hashes, so a resize between two steps changes only how much one step visits. If
//! the table has shrunk, a home begins below the position; the entries' own hashes tell which have
//! been visited.
//!
//! A key that is in the map throughout is in its home's chain when the step loads the word, and
//! found there once ([`crate::bucket`]): if its slot is a link by then, it is behind the link, and
//! else the walk does not go there, but if the word had said so.

use crate::{
    chain::Chain,
    core::Core,
    memory::prefetch,
    section::{Live, Pinned},
    slot::Head,
    table::Table,
    used::STRETCH,
    word::{SLOTS, Word},
};
use std::ptr;

/// A walk over a map, inside a section of its domain.
#[derive(Clone, Debug)]
pub struct Walk<'g> {
    /// Not a reference: an owner of the map has a walk beside it.
    core: Option<Live<'g, Pinned<Core>>>,
    /// The lowest hash whose home has not been visited; `None` behind the last.
    position: Option<u64>,
    /// The home that is being visited.
    chain: Chain<'g>,
    /// Entries with lower hashes have been visited.
    from: u64,
}

// SAFETY: it leads to a core and its buckets, which threads may share.
unsafe impl Send for Walk<'_> {}
// SAFETY: the same.
unsafe impl Sync for Walk<'_> {}

impl<'g> Walk<'g> {
    /// A walk that begins at a hash.
    pub(crate) fn from(core: Option<Live<'g, Pinned<Core>>>, position: Option<u64>) -> Self {
        Self {
            core,
            // A map without a core has nothing to visit.
            position: core.and(position),
            chain: Chain::ENDED,
            from: 0,
        }
    }

    /// Another walk, from a hash on, in the same section.
    #[cfg(feature = "rayon")]
    pub fn at(&self, first: u64) -> Self {
        Self::from(self.core, Some(first))
    }

    /// Where another walk would go on, once this one is through with the bucket.
    pub fn position(&self) -> Option<u64> {
        self.position
    }

    /// The entries of the next home, if there is one.
    pub fn next_home(&mut self) -> impl Iterator<Item = Live<'g, Head>> + '_ {
        self.step();
        std::iter::from_fn(|| self.next_here())
    }

    /// Visits the next home that may have been used, if there is one, for a caller that is alone with the
    /// map: so its end costs what has been in it, and not its capacity.
    pub fn step_to_used(&mut self) -> Option<()> {
        let table = self.core?.get().table();
        self.position = table.first_used(self.position?, u64::MAX);
        self.step()
    }

    /// Visits the next home, if there is one.
    #[inline]
    pub fn step(&mut self) -> Option<()> {
        let (table, index, word) = self.next_bucket()?;
        self.chain = Chain::new(table.at(index), word, Word::taken);
        Some(())
    }

    /// The next home, with its word, which the caller visits from `self.from` on.
    #[inline]
    fn next_bucket(&mut self) -> Option<(Table<'g>, usize, Word)> {
        let from = self.position?;
        let current = self.core?.get().table();
        let (table, index, word) = current.home(from);
        self.from = from;
        self.position = current.hash_behind((table, index, word));
        // What a bucket has may have changed when the walk comes there, and may be free by then:
        // nothing but time depends on it.
        fetch(table, index);
        Some((table, index, word))
    }

    /// Visits homes in their order, from the next one on, as long as they are in the table where that
    /// is, and one bucket each: as most are. Then there is nothing to ask of an entry, and no place to
    /// keep.
    #[inline]
    fn visit_plain<B>(&mut self, init: B, visit: &mut impl FnMut(B, Live<'g, Head>) -> B) -> B {
        let mut folded = init;
        let (Some(from), Some(core)) = (self.position, self.core) else {
            return folded;
        };
        // If it is replaced meanwhile, all of its buckets have moved.
        let table = core.get().table();
        let mut index = table.index(from);
        // There are two buckets at least, so the first one begins behind the last.
        if table.index(from.wrapping_sub(1)) == index {
            return folded;
        }
        let buckets = table.buckets();
        // An entry that stays in the map is in no bucket that a move has passed, or will pass.
        let moves = table.next().is_some();
        while index < buckets {
            // SAFETY: there are `buckets`.
            let bucket = unsafe { table.at_unchecked(index) };
            let word = bucket.word();
            // The step that follows may pass stretches without entries.
            let is_passed = word == Word::EMPTY && (moves || index.is_multiple_of(STRETCH));
            if word.is_moved() || word.has_link() || is_passed {
                break;
            }
            fetch(table, index);
            let mut link = None;
            for slot in word.taken() {
                let slot = bucket.slot(slot);
                if let Some(entry) = slot.as_entry() {
                    folded = visit(folded, entry);
                } else if slot.is_link() {
                    // The last slot became a link after the word was loaded.
                    link = bucket.next();
                }
            }
            index += 1;
            if let Some(next) = link {
                self.chain = Chain::new(next, next.word(), Word::taken);
                break;
            }
        }
        // The chain that is left is of the last home before this: no entry in it has a lower hash.
        self.from = from;
        let last = index.checked_sub(1).map_or(0, |last| table.last_hash(last));
        self.position = if index == 0 {
            Some(0)
        } else {
            last.checked_add(1)
        };
        folded
    }
}

/// Fetches what a walk that is at the bucket of number `index` will visit, if the table has that many.
#[inline(always)]
fn fetch(table: Table<'_>, index: usize) {
    if index + FAR >= table.buckets() {
        return;
    }
    prefetch(table.behind(index + FAR));
    // SAFETY: `NEAR < FAR`, and `index + FAR` was checked above.
    let near = unsafe { table.at_unchecked(index + NEAR) };
    // All slots, as how many have an entry cannot be foretold; in place of one without, the bucket.
    for slot in 0..SLOTS {
        let entry = near.slot(slot).pointer();
        prefetch(entry.map_or(ptr::from_ref(near).cast(), |entry| {
            entry.as_ptr().cast_const()
        }));
    }
}

impl<'g> Walk<'g> {
    /// The next entry of the home that is being visited.
    #[inline]
    pub fn next_here(&mut self) -> Option<Live<'g, Head>> {
        let from = self.from;
        let is_ahead = |entry: Live<'g, Head>| entry.hash() >= from;
        self.chain.next(Word::taken, is_ahead)
    }
}

impl<'g> Iterator for Walk<'g> {
    type Item = Live<'g, Head>;

    #[inline]
    fn next(&mut self) -> Option<Live<'g, Head>> {
        loop {
            if let Some(entry) = self.next_here() {
                return Some(entry);
            }
            self.step()?;
        }
    }

    #[inline]
    fn fold<B, F: FnMut(B, Live<'g, Head>) -> B>(mut self, init: B, mut visit: F) -> B {
        let mut folded = init;
        loop {
            while let Some(entry) = self.next_here() {
                folded = visit(folded, entry);
            }
            folded = self.visit_plain(folded, &mut visit);
            // What is left of a home, or one that is not as most are.
            if self.chain.has_ended() && self.step().is_none() {
                return folded;
            }
        }
    }
}

/// Number of buckets by which buckets are prefetched.
const FAR: usize = 16;
/// Number of buckets by which their entries are prefetched.
const NEAR: usize = 4;
const _: () = assert!(NEAR < FAR);
