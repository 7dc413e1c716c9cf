//! A tree with the types of its entries, in a domain: what `BTreeMap` is made of. [`super::alter`] has
//! its changes.

use super::{
    core::Tree,
    cursor::Cursor,
    entry::{Entry, Found},
    hint,
    node::{Fence, Shared},
    owned::OwnedEntries,
    search::{Hints, Path, Place, Sought},
    walk::Walk,
};
use crate::store::{Policy, Sound};
use std::{
    borrow::Borrow,
    cmp::Ordering as Is,
    fmt,
    marker::PhantomData,
    ptr::{self, NonNull},
    sync::atomic::{AtomicPtr, Ordering},
};
use stillpoint::{
    Domain, Guard, Section, global,
    internal::{self, Kept},
    read_lock,
};

/// An ordered map of entries.
pub struct Ordered<K, V, P: Policy = Sound> {
    /// Null until there is an entry: it allocates nothing before.
    tree: AtomicPtr<Tree>,
    /// `None`: the global one.
    domain: Option<Kept>,
    /// Tells what a key and its value own beside their entry.
    pub(super) weigh: Option<fn(&K, &V) -> usize>,
    /// Owns entries, and is not variant: a reference is enough to insert.
    entries: PhantomData<(*mut Entry<K, V>, P)>,
}

// SAFETY: it owns keys and values.
unsafe impl<K: Send, V: Send, P: Policy> Send for Ordered<K, V, P> {}
// SAFETY: through a reference, threads get references to keys and values, and move them in and out.
unsafe impl<K: Send + Sync, V: Send + Sync, P: Policy> Sync for Ordered<K, V, P> {}

/// Where an entry of these types is, or would be.
#[derive(Debug)]
pub struct At<'g, K, V> {
    pub(super) place: Place<'g>,
    entry: PhantomData<&'g Entry<K, V>>,
}

impl<'g, K, V> At<'g, K, V> {
    /// # Safety
    ///
    /// It was found in a section that lasts for `'g`, among entries of these types.
    pub(super) unsafe fn of(place: Place<'g>) -> Self {
        Self {
            place,
            entry: PhantomData,
        }
    }

    /// The entry, if there is one.
    pub fn found(&self) -> Option<Found<'g, K, V>> {
        // SAFETY: that of `of`.
        self.place.entry.map(|entry| unsafe { Found::of(entry) })
    }
}

impl<K, V, P: Policy> Ordered<K, V, P> {
    /// An empty one of the domain; `None` for the global one.
    pub const fn new(domain: Option<Kept>) -> Self {
        Self {
            tree: AtomicPtr::new(ptr::null_mut()),
            domain,
            weigh: None,
            entries: PhantomData,
        }
    }

    /// An empty one of the same domain, with the same weigher.
    pub fn new_alike(&self) -> Self {
        let mut store = Self::new(self.domain.clone());
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
        match &self.domain {
            Some(domain) => domain.read_lock(),
            None => read_lock(),
        }
    }

    /// The domain that the map was made in.
    pub fn domain(&self) -> &Domain {
        match &self.domain {
            Some(domain) => domain,
            None => global(),
        }
    }

    /// Panics if `section` is of another domain: it would protect nothing.
    #[inline(always)]
    #[track_caller]
    pub fn check(&self, section: &impl Section) {
        if !internal::is_of(section, self.domain.as_ref()) {
            wrong_domain();
        }
    }

    #[inline(always)]
    fn shared(&self) -> Option<Shared<'_, Tree>> {
        // Acquire, pairs with `make_tree`: it is complete.
        let tree = NonNull::new(self.tree.load(Ordering::Acquire));
        // SAFETY: of a box that this owns.
        tree.map(|tree| unsafe { Shared::of(tree) })
    }

    #[inline(always)]
    pub(super) fn tree(&self) -> Option<&Tree> {
        self.shared().map(Shared::get)
    }

    #[cold]
    pub(super) fn make_tree(&self) {
        let made = Box::into_raw(Box::new(Tree::new(hint::hints::<K>() == Hints::Key)));
        // Release, pairs with `tree`: it is complete. Acquire: so is the faster thread's.
        let set =
            self.tree
                .compare_exchange(ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire);
        if set.is_err() {
            // SAFETY: from a box just now, and no other thread knows it.
            unsafe {
                let made = Box::from_raw(made);
                made.free_nodes(|_| ());
            }
        }
    }

    /// How many entries there are; exact while no thread changes it.
    #[allow(clippy::len_without_is_empty, reason = "maps have it")]
    pub fn len(&self) -> usize {
        self.tree().map_or(0, |tree| tree.count.get())
    }

    /// A walk over all entries.
    #[track_caller]
    pub fn cursor<'g>(&'g self, section: &'g impl Section) -> Cursor<'g, K, V> {
        self.check(section);
        // SAFETY: inside a section of the map's domain for as long as `'g`; its entries are of these
        // types.
        unsafe { Cursor::of(Walk::of(self.shared())) }
    }

    /// The place of the first entry, or of the last one.
    #[track_caller]
    pub fn outermost<'g>(
        &'g self,
        is_last: bool,
        section: &'g impl Section,
    ) -> Option<At<'g, K, V>> {
        self.check(section);
        // SAFETY: inside a section of the map's domain for as long as `'g`.
        let place = unsafe { self.tree()?.outermost(is_last) }?;
        // SAFETY: the same.
        Some(unsafe { At::of(place) })
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
            Some(entry) => unsafe { Entry::<K, V>::key_of(entry) }.borrow().cmp(key),
            None => hint::with_key::<K, _>(other.hint, |other| other.borrow().cmp(key)),
        },
    }
}

impl<K: Ord, V, P: Policy> Ordered<K, V, P> {
    /// The entry of a key.
    #[inline(always)]
    #[track_caller]
    pub fn find<'g, Q>(&'g self, key: &Q, section: &'g impl Section) -> Option<Found<'g, K, V>>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.check(section);
        // SAFETY: inside a section of the map's domain for as long as `'g`; its entries are of these
        // types.
        unsafe {
            let found = self.tree()?.find(&mut sought::<K, V, Q>(key))?;
            Some(Found::of(found))
        }
    }

    /// Where the entry of a key is, or would be; `None` if there has never been an entry.
    #[track_caller]
    pub fn locate<'g, Q>(&'g self, key: &Q, section: &'g impl Section) -> Option<At<'g, K, V>>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.check(section);
        // SAFETY: as in `find`.
        unsafe { Some(At::of(self.tree()?.locate(&mut sought::<K, V, Q>(key)))) }
    }

    /// The same, and the way there.
    #[track_caller]
    pub fn locate_by<'g, Q>(
        &'g self,
        key: &Q,
        section: &'g impl Section,
    ) -> Option<(Path<'g>, Place<'g>)>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.check(section);
        // SAFETY: as in `find`.
        unsafe { Some(self.tree()?.locate_by(&mut sought::<K, V, Q>(key))) }
    }
}

impl<K, V, P: Policy> Ordered<K, V, P> {
    /// Takes out all entries at once, and the tree.
    pub fn take(&mut self) -> OwnedEntries<K, V> {
        let tree = std::mem::replace(self.tree.get_mut(), ptr::null_mut());
        // SAFETY: from a box in `make_tree`, with entries of these types, and no other thread has it.
        unsafe { OwnedEntries::of(NonNull::new(tree)) }
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

#[cold]
#[track_caller]
fn wrong_domain() -> ! {
    panic!(
        "the guard is of another domain than the map, or offline, and would protect nothing: use \
         one of `BTreeMap::pin`, or of the domain that the map was made in"
    )
}
