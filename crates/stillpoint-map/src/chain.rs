//! The entries of a chain, one after the other: of all of them, or of those with a tag.
//!
//! What a reader that goes on after a pause relies on: buckets stay for its section, and one that has
//! moved to the next table does not change any more. So an entry that is there all the time is found
//! once.

use crate::{
    bucket::Bucket,
    section::Live,
    slot::Head,
    word::{Slots, Word, tag},
};

/// A place in a chain, inside a section of the map's domain.
#[derive(Clone, Debug)]
pub struct Chain<'g> {
    /// The bucket that is being visited; `None` behind the last one.
    bucket: Option<&'g Bucket>,
    slots: Slots,
    linked: bool,
}

impl<'g> Chain<'g> {
    pub const ENDED: Self = Self {
        bucket: None,
        slots: Slots::NONE,
        linked: false,
    };

    /// The chain of a home whose word has been loaded; `select` says which slots are looked at.
    #[inline]
    pub fn new(home: &'g Bucket, word: Word, select: impl Fn(Word) -> Slots) -> Self {
        Self {
            bucket: Some(home),
            slots: select(word),
            linked: word.has_link(),
        }
    }

    /// Whether nothing is left.
    #[inline]
    pub fn has_ended(&self) -> bool {
        self.bucket.is_none()
    }

    /// The next entry that `is_it` accepts.
    #[inline]
    pub fn next(
        &mut self,
        select: impl Fn(Word) -> Slots,
        is_it: impl Fn(Live<'g, Head>) -> bool,
    ) -> Option<Live<'g, Head>> {
        loop {
            let bucket = self.bucket?;
            for slot in &mut self.slots {
                let slot = bucket.slot(slot);
                if let Some(entry) = slot.as_entry() {
                    if is_it(entry) {
                        return Some(entry);
                    }
                } else if slot.is_link() {
                    // The last slot became a link after the word was loaded.
                    self.linked = true;
                }
            }
            let next = if self.linked { bucket.next() } else { None };
            *self = next.map_or(Self::ENDED, |next| Self::new(next, next.word(), &select));
        }
    }
}

/// The entries with one hash.
#[derive(Clone, Debug)]
pub struct Duplicates<'g> {
    chain: Chain<'g>,
    hash: u64,
}

impl<'g> Duplicates<'g> {
    /// Those in the home of a hash, whose word has been loaded.
    pub fn of(home: &'g Bucket, word: Word, hash: u64) -> Self {
        Self {
            chain: Chain::new(home, word, |word| word.with_tag(tag(hash))),
            hash,
        }
    }
}

impl<'g> Iterator for Duplicates<'g> {
    type Item = Live<'g, Head>;

    #[inline]
    fn next(&mut self) -> Option<Live<'g, Head>> {
        let hash = self.hash;
        let has_hash = |entry: Live<'g, Head>| entry.hash() == hash;
        self.chain.next(|word| word.with_tag(tag(hash)), has_hash)
    }
}
