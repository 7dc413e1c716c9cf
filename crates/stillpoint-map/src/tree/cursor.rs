//! A walk with the types of its entries, between two limits.

use super::{
    entry::{Entry, Found},
    hint,
    node::Item,
    search::{Hints, Path, Place},
    store::PinnedOrdered,
    walk::Walk,
};
use crate::store::Policy;
use std::{borrow::Borrow, cmp::Ordering as Is, marker::PhantomData};

/// Where a walk ends: at an entry, which belongs to it or not.
#[derive(Clone, Copy, Debug)]
struct Limit {
    item: Item,
    is_included: bool,
}

/// The way to a place of a map whose entries are of these types.
#[derive(Debug)]
pub struct Way<'g, K, V> {
    path: Path<'g>,
    place: Place<'g>,
    entries: PhantomData<&'g Entry<K, V>>,
}

/// A walk over the entries of a map, or of a part of it.
#[derive(Debug)]
pub struct Cursor<'g, K, V> {
    walk: Walk<'g>,
    low: Option<Limit>,
    high: Option<Limit>,
    is_over: bool,
    entries: PhantomData<&'g Entry<K, V>>,
}

// SAFETY: of entries it gives references alone.
unsafe impl<K: Sync, V: Sync> Send for Cursor<'_, K, V> {}
// SAFETY: the same.
unsafe impl<K: Sync, V: Sync> Sync for Cursor<'_, K, V> {}

impl<K, V> Clone for Cursor<'_, K, V> {
    fn clone(&self) -> Self {
        Self {
            walk: self.walk.clone(),
            entries: PhantomData,
            ..*self
        }
    }
}

impl<K, V, P: Policy> PinnedOrdered<K, V, P> {
    /// A walk over all entries.
    pub fn cursor(&self) -> Cursor<'_, K, V> {
        Cursor {
            walk: self.walk(),
            low: None,
            high: None,
            is_over: false,
            entries: PhantomData,
        }
    }
}

impl<K: Ord, V, P: Policy> PinnedOrdered<K, V, P> {
    /// Returns the way to where the entry of a key is, or would be; `None` if there has never been an entry.
    pub fn way_to<Q>(&self, key: &Q) -> Option<Way<'_, K, V>>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        // SAFETY: found in this map.
        self.locate_by(key).map(|way| unsafe { Way::of(way) })
    }
}

impl<'g, K, V> Way<'g, K, V> {
    /// # Safety
    ///
    /// It was found in a map whose entries are of these types.
    unsafe fn of((path, place): (Path<'g>, Place<'g>)) -> Self {
        Self {
            path,
            place,
            entries: PhantomData,
        }
    }

    /// Returns the path and the place, or the place behind the entry there, if there is one.
    fn apart(self, is_behind: bool) -> (Path<'g>, Place<'g>) {
        let place = if is_behind {
            self.place.behind()
        } else {
            self.place
        };
        (self.path, place)
    }
}

impl<'g, K, V> Cursor<'g, K, V> {
    /// Has it begin at that place of its map: before the entry there, or behind it.
    pub fn begin_at(&mut self, way: Way<'g, K, V>, is_behind: bool) {
        let (path, place) = way.apart(is_behind);
        self.walk.begin_at(path, &place);
        // The other end stops at this entry.
        match self.walk.clone().next() {
            Some(item) => self.low = Some(Limit::including(item)),
            None => self.is_over = true,
        }
    }

    /// Has memory read that is needed if more than an entry or two are visited.
    pub fn read_ahead(&mut self) {
        self.walk.read_ahead();
    }

    /// Has it end at that place of its map: behind the entry there, or before it.
    pub fn end_at(&mut self, way: Way<'g, K, V>, is_behind: bool) {
        let (path, place) = way.apart(is_behind);
        self.walk.end_at(path, &place);
        match self.walk.clone().next_back() {
            Some(item) => self.high = Some(Limit::including(item)),
            None => self.is_over = true,
        }
    }

    /// Two halves, or all of it if there are few entries. The other half begins where this one ends.
    #[cfg(feature = "rayon")]
    pub fn split(mut self) -> (Self, Option<Self>) {
        let Some(middle) = self.walk.middle().filter(|_| !self.is_over) else {
            return (self, None);
        };
        // SAFETY: found by a walk of such a map.
        let [begin, end] = [middle.clone(), middle].map(|way| unsafe { Way::of(way) });
        let mut behind = self.clone();
        behind.begin_at(begin, false);
        self.end_at(end, false);
        self.walk.settle_back();
        (self, Some(behind))
    }

    fn found(item: Item) -> Found<'g, K, V> {
        // SAFETY: the walk is one of a map whose entries are of these types, and so are its ways.
        unsafe { Found::of(item.entry) }
    }

    /// The next entry from the front, without a look at the limits.
    pub fn next_of_all(&mut self) -> Option<Found<'g, K, V>> {
        self.walk.next().map(Self::found)
    }
}

impl Limit {
    fn including(item: Item) -> Self {
        Self {
            item,
            is_included: true,
        }
    }
}

impl<'g, K: Ord, V> Cursor<'g, K, V> {
    fn compare(one: Item, other: Item) -> Is {
        if one.entry == other.entry {
            return Is::Equal;
        }
        let keys = || Self::found(one).key().cmp(Self::found(other).key());
        match hint::hints::<K>() {
            Hints::Key => one.hint.cmp(&other.hint),
            Hints::Order => one.hint.cmp(&other.hint).then_with(keys),
            Hints::Nothing => keys(),
        }
    }

    /// Whether an entry that compares so with the limit of the other end is visited.
    fn is_inside(&mut self, is: Is, limit: Limit, inside: Is) -> bool {
        let is_last = is == Is::Equal && limit.is_included;
        self.is_over |= is != inside;
        is == inside || is_last
    }

    /// The next entry from the front.
    #[inline]
    pub fn next(&mut self) -> Option<Found<'g, K, V>> {
        if self.is_over {
            return None;
        }
        let Some(item) = self.walk.next() else {
            self.is_over = true;
            return None;
        };
        if let Some(limit) = self.high
            && !self.is_inside(Self::compare(item, limit.item), limit, Is::Less)
        {
            return None;
        }
        self.low = Some(Limit {
            item,
            is_included: false,
        });
        Some(Self::found(item))
    }

    /// The next entry from the back.
    #[inline]
    pub fn next_back(&mut self) -> Option<Found<'g, K, V>> {
        if self.is_over {
            return None;
        }
        let Some(item) = self.walk.next_back() else {
            self.is_over = true;
            return None;
        };
        if let Some(limit) = self.low
            && !self.is_inside(Self::compare(item, limit.item), limit, Is::Greater)
        {
            return None;
        }
        self.high = Some(Limit {
            item,
            is_included: false,
        });
        Some(Self::found(item))
    }
}
