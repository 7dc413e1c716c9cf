//! A tree with the types of its entries, in a domain: what `BTreeMap` is made of. [`super::alter`] has
//! its changes.

use super::{
    core::Tree,
    entry::{Entry, Found},
    hint,
    node::Fence,
    search::{Hints, Path, Place, Sought},
    walk::Walk,
};
use crate::{
    domain::Home,
    pinned::view,
    section::Pinned,
    store::{Policy, Sound},
};
use std::{borrow::Borrow, cmp::Ordering as Is, fmt, marker::PhantomData, ptr::NonNull};
use stillpoint::{Domain, Guard, Section, internal::Kept};
use stillpoint_platform::race::RaceCell;

/// An ordered map of entries. In a section of its domain it is a `PinnedOrdered`, which has the rest.
pub struct Ordered<K, V, P: Policy = Sound> {
    /// Empty until there is an entry: an empty map allocates nothing.
    pub(super) tree: RaceCell<Box<Tree>>,
    pub(super) home: Home,
    /// Tells what a key and its value own beside their entry.
    pub(super) weigh: Option<fn(&K, &V) -> usize>,
    /// Owns entries, and is not variant: a reference is enough to insert.
    entries: PhantomData<(*mut Entry<K, V>, P)>,
}

view! {
    /// An [`Ordered`] in a section of its domain: what [`Ordered::with_guard`] returns.
    #[derive(Debug)]
    PinnedOrdered<K, V, P: Policy> of Ordered
}

// SAFETY: it owns keys and values.
unsafe impl<K: Send, V: Send, P: Policy> Send for Ordered<K, V, P> {}
// SAFETY: through a reference, threads get references to keys and values, and move them in and out.
unsafe impl<K: Send + Sync, V: Send + Sync, P: Policy> Sync for Ordered<K, V, P> {}

/// Where an entry of a map is, or would be.
#[derive(Debug)]
pub struct At<'g, K, V, P: Policy> {
    map: &'g PinnedOrdered<K, V, P>,
    place: Place<'g>,
}

impl<'g, K, V, P: Policy> At<'g, K, V, P> {
    pub(super) fn map(&self) -> &'g PinnedOrdered<K, V, P> {
        self.map
    }

    pub(super) fn place(&self) -> &Place<'g> {
        &self.place
    }

    /// The entry, if there is one.
    pub fn found(&self) -> Option<Found<'g, K, V>> {
        // SAFETY: the place was found in this map, whose entries are of these types.
        self.place.entry.map(|entry| unsafe { Found::of(entry) })
    }
}

impl<K, V, P: Policy> Ordered<K, V, P> {
    /// An empty one of the domain; `None` for the global one.
    pub const fn new(domain: Option<Kept>) -> Self {
        Self {
            tree: RaceCell::new(),
            home: Home(domain),
            weigh: None,
            entries: PhantomData,
        }
    }

    /// An empty one of the same domain, with the same weigher.
    pub fn new_alike(&self) -> Self {
        let mut store = Self::new(self.home.0.clone());
        store.weigh = self.weigh;
        store
    }

    /// Has entries weighed when they are retired.
    pub const fn set_weigher(&mut self, weigh: fn(&K, &V) -> usize) {
        self.weigh = Some(weigh);
    }

    /// Begins a section of the map's domain.
    #[inline(always)]
    pub fn read_lock(&self) -> Guard<'_> {
        self.home.read_lock()
    }

    /// The domain that the map was made in.
    pub fn domain(&self) -> &Domain {
        self.home.domain()
    }

    /// Returns the map in the section of a guard. Panics if that is of another domain: it would protect
    /// nothing.
    #[inline(always)]
    #[track_caller]
    pub fn with_guard<'g>(&'g self, section: &'g impl Section) -> &'g PinnedOrdered<K, V, P> {
        self.home.check(section);
        // SAFETY: in the guard's section, which lasts as long as the guard. A `QsbrReader`'s may end
        // earlier, but only by methods that take `&mut`, which this borrow excludes.
        unsafe { PinnedOrdered::of(self) }
    }

    #[cold]
    pub(super) fn make_tree(&self) {
        let hints_tell_keys = hint::hints::<K>() == Hints::Key;
        self.tree.put(Box::new(Tree::new(hints_tell_keys)));
    }

    /// How many entries there are; exact while no thread changes it.
    #[allow(clippy::len_without_is_empty, reason = "maps have it")]
    pub fn len(&self) -> usize {
        self.tree.get().map_or(0, |tree| tree.count.get())
    }
}

impl<K, V, P: Policy> PinnedOrdered<K, V, P> {
    #[inline(always)]
    pub(super) fn tree(&self) -> Option<&Pinned<Tree>> {
        // SAFETY: inside a section of the map's domain while this is borrowed.
        self.0.tree.get().map(|tree| unsafe { Pinned::of(tree) })
    }

    /// A walk over all entries, without their types.
    pub(super) fn walk(&self) -> Walk<'_> {
        Walk::of(self.tree().map(Pinned::live))
    }

    /// The place of the first entry, or of the last one.
    pub fn outermost(&self, is_last: bool) -> Option<At<'_, K, V, P>> {
        let place = self.tree()?.outermost(is_last, &mut Path::new())?;
        Some(At { map: self, place })
    }
}

/// `key`, as it is sought among keys of type `K`.
///
/// # Safety
///
/// The tree's entries are of these types; it is used in a section of its domain.
#[inline(always)]
pub(super) unsafe fn sought<K, V, Q>(key: &Q) -> Sought<impl FnMut(Fence) -> Is + '_>
where
    K: Borrow<Q>,
    Q: Ord + ?Sized,
{
    let hints = hint::hints_for::<K, Q>();
    Sought {
        hint: if hints == Hints::Nothing {
            0
        } else {
            hint::of_sought(key)
        },
        hints,
        compare: move |other: Fence| match NonNull::new(other.entry) {
            // SAFETY: the caller's promise: keys of fences, too, stay for the section.
            Some(entry) => unsafe { &(*entry.cast::<Entry<K, V>>().as_ptr()).key }
                .borrow()
                .cmp(key),
            None => hint::with_key::<K, _>(other.hint, |other| other.borrow().cmp(key)),
        },
    }
}

impl<K: Ord, V, P: Policy> PinnedOrdered<K, V, P> {
    /// The entry of a key.
    #[inline(always)]
    pub fn find<Q>(&self, key: &Q) -> Option<Found<'_, K, V>>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        // SAFETY: this map's entries are of these types.
        unsafe {
            let found = self.tree()?.find(&mut sought::<K, V, Q>(key))?;
            Some(Found::of(found))
        }
    }

    /// Where the entry of a key is, or would be; `None` if there has never been an entry.
    pub fn locate<Q>(&self, key: &Q) -> Option<At<'_, K, V, P>>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        // SAFETY: as in `find`.
        let mut sought = unsafe { sought::<K, V, Q>(key) };
        let place = self.tree()?.locate(&mut sought);
        Some(At { map: self, place })
    }

    /// The same, and the way there.
    pub(super) fn locate_by<Q>(&self, key: &Q) -> Option<(Path<'_>, Place<'_>)>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        // SAFETY: as in `find`.
        let mut sought = unsafe { sought::<K, V, Q>(key) };
        Some(self.tree()?.locate_by(&mut sought))
    }
}

impl<K, V, P: Policy> Drop for Ordered<K, V, P> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

impl<K, V, P: Policy> fmt::Debug for Ordered<K, V, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ordered")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}
