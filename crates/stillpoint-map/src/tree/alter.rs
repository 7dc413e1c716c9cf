//! Changes of a tree with types: entries are put in, replaced, taken out and retired, with memory for
//! them.

use super::{
    change::Refused,
    core::Reclaim,
    entry::{Entry, Found, NewEntry},
    hint,
    merge::FEW,
    node::{Head, Inner, Leaf, Node},
    search::Place,
    spare::Spares,
    store::{At, PinnedOrdered, sought},
};
use crate::{
    slab::{Arena, has_slots},
    store::Policy,
};
use std::{
    alloc::{Layout, handle_alloc_error},
    marker::PhantomData,
    mem::needs_drop,
    ptr::NonNull,
};
use stillpoint::{
    Destructor, Domain,
    internal::{self, retire_in_place},
};

/// What an insert has done.
#[derive(Debug)]
pub struct Inserted<'g, K, V> {
    /// The entry that is in the map now.
    pub new: Found<'g, K, V>,
    /// What it has replaced.
    pub old: Option<Found<'g, K, V>>,
}

/// An entry that was not put in, and the one with its key that is there.
#[derive(Debug)]
pub struct Occupied<'g, K, V> {
    pub old: Found<'g, K, V>,
    pub new: NewEntry<K, V>,
}

/// How nodes in slabs are freed.
const LEAF: &Destructor = &Destructor::new(free_slot, size_of::<Leaf>());
const INNER: &Destructor = &Destructor::new(free_slot, size_of::<Inner>());

/// # Safety
///
/// The node is from an arena, and not used any more.
unsafe fn free_slot(node: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe { Arena::free(NonNull::new_unchecked(node)) };
}

/// Where nodes and keys of a tree in `domain` go.
struct To<'d, K, V> {
    domain: &'d Domain,
    is_weighed: bool,
    entries: PhantomData<fn(K, V)>,
}

// SAFETY: `PinnedOrdered::to` takes the domain of the tree.
unsafe impl<K: Send + 'static, V: Send + 'static> Reclaim for To<'_, K, V> {
    fn node(&self, node: Node) {
        let (block, layout, slot) = match node.pointer() {
            Ok(leaf) => (leaf.cast::<u8>(), Layout::new::<Leaf>(), LEAF),
            Err(inner) => (inner.cast(), Layout::new::<Inner>(), INNER),
        };
        // SAFETY: found in a section that lasts. From an arena, or allocated with that layout; no reader
        // from now on finds it.
        unsafe {
            if node.gate().is_in_slab() {
                retire_in_place(self.domain, block.as_ptr(), slot);
            } else {
                self.domain.retire_sized(block, layout);
            }
        }
    }

    fn old_fence(&self, entry: NonNull<Head>) {
        // SAFETY: its value has been retired, and no reader from now on finds the fence.
        unsafe { Entry::<K, V>::retire_key(entry.cast(), self.is_weighed, self.domain) };
    }
}

impl<K: Ord + Send + 'static, V: Send + 'static, P: Policy> PinnedOrdered<K, V, P> {
    fn to(&self) -> To<'_, K, V> {
        To {
            domain: self.domain(),
            is_weighed: self.weigh.is_some(),
            entries: PhantomData,
        }
    }

    /// Puts an entry in, and returns it, and the one with its key that it has replaced. Ends the process
    /// without memory, or if the tree is as deep as it can be.
    ///
    /// # Errors
    ///
    /// If it was not put in.
    pub fn insert(
        &self,
        mut new: NewEntry<K, V>,
        replace: bool,
    ) -> Result<Inserted<'_, K, V>, Occupied<'_, K, V>> {
        loop {
            let Some(at) = self.locate(new.key()) else {
                self.make_tree();
                continue;
            };
            if let Some(old) = at.found() {
                if !replace {
                    return Err(Occupied { old, new });
                }
                match at.replace(new) {
                    Ok(new) => {
                        return Ok(Inserted {
                            new,
                            old: Some(old),
                        });
                    }
                    Err(refused) => new = refused,
                }
                continue;
            }
            match at.put(new) {
                Ok(new) => return Ok(Inserted { new, old: None }),
                Err(refused) => new = refused,
            }
        }
    }

    /// Inserts as [`At::put`] does, in a leaf whose slots are used up.
    #[cold]
    fn put_in_copy(&self, new: NewEntry<K, V>) -> Result<Found<'_, K, V>, NewEntry<K, V>> {
        let mut spares = Spares::new();
        loop {
            let (Some(tree), Some((path, place))) = (self.tree(), self.locate_by(new.key())) else {
                return Err(new);
            };
            if place.entry.is_some() {
                return Err(new);
            }
            // SAFETY: found in this section; the entry is complete, and was sought.
            let put =
                unsafe { tree.insert_in_copy(&path, &place, new.item(), &mut spares, &self.to()) };
            match put {
                // SAFETY: it is, since this section.
                Ok(()) => return Ok(unsafe { new.publish() }),
                Err(Refused::Changed | Refused::Full) => return Err(new),
                Err(Refused::TooDeep) => no_memory(),
                Err(Refused::Spares { leaves, inners }) => {
                    if !spares.provide(leaves, inners, tree.node_arenas()) {
                        no_memory();
                    }
                }
            }
        }
    }

    /// Where an entry is now; `None` if it was replaced or removed.
    pub fn locate_again<'g>(&'g self, found: Found<'g, K, V>) -> Option<At<'g, K, V, P>> {
        let is_it = |now: Found<'_, K, V>| now.pointer() == found.pointer();
        self.locate(found.key())
            .filter(|at| at.found().is_some_and(is_it))
    }

    /// Returns whether nodes may be merged ([`merge_near`](Self::merge_near)) once the entry of `place` is
    /// removed.
    pub(super) fn is_merge_due(&self, place: &Place<'_>) -> bool {
        place.order.len() <= FEW + 1 && self.tree().is_some_and(|tree| !tree.is_root(place.leaf))
    }

    /// Merges nodes that have become small when the entry of a key was removed.
    pub(super) fn merge_near(&self, key: &K) {
        if let Some(tree) = self.tree() {
            // SAFETY: inside a section of the map's domain; entries are of these types.
            unsafe { tree.shrink(&mut sought::<K, V, K>(key), &self.to()) };
        }
    }

    /// Makes an entry for this map. Ends the process without memory.
    #[inline]
    pub fn new_entry(&self, key: K, value: V) -> NewEntry<K, V> {
        let arena = if const { has_slots(Layout::new::<Entry<K, V>>()) } {
            self.tree()
                .and_then(|tree| tree.arena(Layout::new::<Entry<K, V>>()))
        } else {
            None
        };
        // SAFETY: of this map, whose entries are all of these types.
        unsafe { NewEntry::new(hint::of(&key), key, value, arena) }
    }

    /// # Safety
    ///
    /// The calling thread has taken the entry out of the map; its key stays as a fence or not.
    #[inline]
    unsafe fn retire(&self, entry: NonNull<Entry<K, V>>, stays: bool) {
        if P::WAITS_FOR_READERS {
            let heap_bytes = match self.weigh {
                // SAFETY: it is not retired yet.
                Some(weigh) if needs_drop::<Entry<K, V>>() => unsafe {
                    let (key, value) = Found::of(entry.cast()).pair();
                    Some(internal::weigh(self.domain(), || weigh(key, value)))
                },
                _ => None,
            };
            // SAFETY: no reader from now on finds it.
            unsafe { Entry::retire(entry, stays, heap_bytes, self.domain()) };
        } else {
            // SAFETY: broken on purpose. The block stays: a reader that still has the entry sees what
            // the drop has left.
            unsafe { Entry::drop_at_once(entry) };
        }
    }
}

impl<'g, K: Ord + Send + 'static, V: Send + 'static, P: Policy> At<'g, K, V, P> {
    /// Puts an entry in at a place without one.
    ///
    /// # Errors
    ///
    /// The entry, if the place has changed.
    fn put(&self, new: NewEntry<K, V>) -> Result<Found<'g, K, V>, NewEntry<K, V>> {
        let Some(tree) = self.map.tree() else {
            return Err(new);
        };
        // SAFETY: found in this section; the entry is complete, and was sought.
        match unsafe { tree.insert(&self.place, new.item()) } {
            // SAFETY: it is, since this section.
            Ok(()) => Ok(unsafe { new.publish() }),
            Err(Refused::Full) => self.map.put_in_copy(new),
            Err(_) => Err(new),
        }
    }

    /// Replaces the entry of a place by one with an equal key, and returns that.
    ///
    /// # Errors
    ///
    /// The new entry, if another thread has replaced or removed the one of the place.
    pub fn replace(self, new: NewEntry<K, V>) -> Result<Found<'g, K, V>, NewEntry<K, V>> {
        let map = self.map;
        let (Some(tree), Some(old)) = (map.tree(), self.found()) else {
            return Err(new);
        };
        let mut now = Some(self);
        while let Some(at) = now {
            // SAFETY: found in a section that lasts for `'g`; the new one is complete.
            if let Ok(stays) = unsafe { tree.replace(&at.place, new.item().entry) } {
                // SAFETY: it is, since this section.
                let new = unsafe { new.publish() };
                // SAFETY: taken out just now, by this thread.
                unsafe { map.retire(old.pointer(), stays) };
                return Ok(new);
            }
            // What is beside it has changed, or itself.
            now = map.locate_again(old);
        }
        Err(new)
    }

    /// Takes the entry of a place out. Returns whether it has: another thread may have replaced or
    /// removed it.
    pub fn remove(self) -> bool {
        let map = self.map;
        let Some(found) = self.found() else {
            return false;
        };
        let mut now = Some(self);
        while let Some(at) = now {
            if at.try_remove() {
                return true;
            }
            // What is beside it has changed, or itself.
            now = map.locate_again(found);
        }
        false
    }

    /// Takes the entry of a place out, if nothing of its leaf has changed. Returns whether it has.
    pub fn try_remove(&self) -> bool {
        let map = self.map;
        let (Some(tree), Some(found)) = (map.tree(), self.found()) else {
            return false;
        };
        // SAFETY: found in this section.
        let Ok(stays) = (unsafe { tree.remove(&self.place) }) else {
            return false;
        };
        // Before user code, which may panic.
        // SAFETY: taken out just now, by this thread.
        unsafe { map.retire(found.pointer(), stays) };
        if map.is_merge_due(&self.place) {
            map.merge_near(found.key());
        }
        true
    }
}

#[cold]
fn no_memory() -> ! {
    handle_alloc_error(Layout::new::<Leaf>())
}
