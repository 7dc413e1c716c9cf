//! A walk with the types of its entries, between two limits.

use super::{
    entry::{Entry, Found},
    hint,
    node::{Head, Item},
    search::{Hints, Path, Place},
    store::PinnedOrdered,
    walk::{End, Walk},
};
use crate::store::Policy;
use std::{borrow::Borrow, cmp::Ordering as Is, marker::PhantomData, ops::Bound, ptr::NonNull};

/// Where the other end of a walk stops: at an entry, which belongs to it or not.
#[derive(Clone, Copy, Debug)]
struct Limit {
    item: Item,
    is_included: bool,
}

/// A walk over the entries of a map, or of a part of it. Its two ends meet by the keys: other threads change the
/// tree.
#[derive(Debug)]
pub struct Cursor<'g, K, V> {
    walk: Walk<'g>,
    limits: Limits,
    entries: PhantomData<&'g Entry<K, V>>,
}

/// Where the ends of a walk stop.
#[derive(Clone, Copy, Debug, Default)]
struct Limits {
    /// Where the back stops: at the last entry that is the front's, or at the one that it was to begin with.
    low: Option<Limit>,
    /// Where the front stops: likewise.
    high: Option<Limit>,
    is_over: bool,
}

// SAFETY: of entries it gives references alone.
unsafe impl<K: Sync, V: Sync> Send for Cursor<'_, K, V> {}
// SAFETY: the same.
unsafe impl<K: Sync, V: Sync> Sync for Cursor<'_, K, V> {}

impl<K, V> Clone for Cursor<'_, K, V> {
    fn clone(&self) -> Self {
        Self {
            walk: self.walk.clone(),
            ..*self
        }
    }
}

impl<K, V, P: Policy> PinnedOrdered<K, V, P> {
    /// Returns a walk over all entries.
    pub fn cursor(&self) -> Cursor<'_, K, V> {
        Cursor {
            walk: self.walk(),
            limits: Limits::default(),
            entries: PhantomData,
        }
    }
}

impl<K: Ord, V, P: Policy> PinnedOrdered<K, V, P> {
    /// Returns a walk between two bounds.
    #[inline]
    pub fn between<Q>(&self, low: Bound<&Q>, high: Bound<&Q>) -> Cursor<'_, K, V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let mut cursor = self.cursor();
        for (is_back, bound) in [(false, low), (true, high)] {
            if let Some((path, place)) = self.locate_bound(is_back, bound) {
                cursor.begin_at(is_back, path, &place);
            }
        }
        cursor
    }

    /// Returns where a walk with that bound begins, and the way there. Returns `None` if it is unbounded, or if
    /// there has never been an entry.
    pub(super) fn locate_bound<Q>(
        &self,
        is_back: bool,
        bound: Bound<&Q>,
    ) -> Option<(Path<'_>, Place<'_>)>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let (Bound::Included(key) | Bound::Excluded(key)) = bound else {
            return None;
        };
        let (path, place) = self.locate_by(key)?;
        // The front passes an entry that is excluded, and the back does not pass one that is included.
        let is_behind = is_back == matches!(bound, Bound::Included(_));
        Some((path, if is_behind { place.behind() } else { place }))
    }
}

impl<'g, K, V> Cursor<'g, K, V> {
    /// Makes an end begin at that place of its map: before the entry there. The other end stops at the entry that
    /// comes next.
    fn begin_at(&mut self, is_back: bool, path: Path<'g>, place: &Place<'g>) {
        self.walk.begin_at(is_back, path, place);
        match self.walk.settle(is_back) {
            Some(item) => *self.limits.of(is_back) = Some(Limit::at(item, true)),
            None => self.limits.is_over = true,
        }
    }

    /// Prefetches what is needed if more than an entry or two are visited.
    pub fn read_ahead(&mut self) {
        self.walk.read_ahead();
    }

    /// Returns two halves, or all of it if there are few entries. The other half begins where this one ends.
    #[cfg(feature = "rayon")]
    pub fn split(mut self) -> (Self, Option<Self>) {
        let Some((path, place)) = self.walk.middle().filter(|_| !self.limits.is_over) else {
            return (self, None);
        };
        let mut behind = self.clone();
        behind.begin_at(false, path.clone(), &place);
        self.begin_at(true, path, &place);
        (self, Some(behind))
    }

    fn found(entry: NonNull<Head>) -> Found<'g, K, V> {
        // SAFETY: the walk is one of a map whose entries are of these types, and so is each place where it began.
        unsafe { Found::of(entry) }
    }

    /// Returns the next entry from the front, without a look at the limits.
    pub fn next_of_all(&mut self) -> Option<Found<'g, K, V>> {
        self.walk.next(false).map(Self::found)
    }
}

impl Limit {
    fn at(item: Item, is_included: bool) -> Self {
        Self { item, is_included }
    }
}

impl Limits {
    /// Returns the limit that an end makes for the other one.
    fn of(&mut self, is_back: bool) -> &mut Option<Limit> {
        if is_back {
            &mut self.high
        } else {
            &mut self.low
        }
    }
}

impl<'g, K: Ord, V> Cursor<'g, K, V> {
    fn compare(one: Item, other: Item) -> Is {
        if one.entry == other.entry {
            return Is::Equal;
        }
        let keys = || {
            let [one, other] = [one, other].map(|item| Self::found(item.entry).key());
            one.cmp(other)
        };
        match hint::hints::<K>() {
            Hints::Key => one.hint.cmp(&other.hint),
            Hints::Order => one.hint.cmp(&other.hint).then_with(keys),
            Hints::Nothing => keys(),
        }
    }

    /// Returns how many entries are ahead of an end in its leaf, up to the limit.
    fn count(end: &End<'_>, is_back: bool, limit: Limit) -> usize {
        let inside = if is_back { Is::Greater } else { Is::Less };
        let is_inside = |nth| {
            let is = Self::compare(end.ahead(is_back, nth), limit.item);
            is == inside || is == Is::Equal && limit.is_included
        };
        // Of most leaves all are.
        let last = end.rest(is_back) - 1;
        if is_inside(last) {
            return last + 1;
        }
        let (mut low, mut high) = (0, last);
        while low < high {
            let middle = low.midpoint(high);
            if is_inside(middle) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Moves an end to the leaf of the next entry, and finds out how many of that leaf's come before the limit.
    fn try_look(walk: &mut Walk<'g>, limits: &mut Limits, is_back: bool) -> Option<()> {
        let (end, mut other) = walk.ends(is_back)?;
        while end.rest(is_back) == 0 {
            end.move_on(is_back)?;
        }
        loop {
            let count = match *limits.of(!is_back) {
                Some(limit) => other
                    .as_ref()
                    .and_then(|other| end.distance_here(is_back, other))
                    .unwrap_or_else(|| Self::count(end, is_back, limit)),
                None => end.rest(is_back),
            };
            if count > 0 {
                let last = end.ahead(is_back, count - 1);
                *limits.of(is_back) = Some(Limit::at(last, false));
                return end.allow(is_back, count);
            }
            // What the other end has left is for the one that needs it.
            let passed = other.as_mut()?.stop(!is_back)?;
            *limits.of(!is_back) = Some(Limit::at(passed, false));
        }
    }

    /// As [`try_look`](Self::try_look). The walk is over once an end has come to the limit.
    #[inline(never)]
    fn look(walk: &mut Walk<'g>, limits: &mut Limits, is_back: bool) -> Option<()> {
        if limits.is_over {
            return None;
        }
        let allowed = Self::try_look(walk, limits, is_back);
        limits.is_over = allowed.is_none();
        allowed
    }

    #[inline(always)]
    fn next_from(&mut self, is_back: bool) -> Option<Found<'g, K, V>> {
        let Self { walk, limits, .. } = self;
        let entry = walk.next_by(is_back, |walk| Self::look(walk, limits, is_back));
        entry.map(Self::found)
    }

    /// Returns the next entry from the front.
    #[inline]
    pub fn next(&mut self) -> Option<Found<'g, K, V>> {
        self.next_from(false)
    }

    /// Returns the next entry from the back.
    #[inline]
    pub fn next_back(&mut self) -> Option<Found<'g, K, V>> {
        self.next_from(true)
    }
}
