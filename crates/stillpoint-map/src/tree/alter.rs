//! Changes of a tree with types: entries are put in, replaced, taken out and retired, with memory for
//! them.

use super::{
    change::{OldNode, Refused},
    core::{Reclaim, Tree},
    entry::{Entry, Found, NewEntry, owned},
    hint,
    merge::{FEW, OldFence},
    node::{Inner, Kind, Leaf, Offer},
    search::Place,
    spare::Spares,
    store::{At, PinnedOrdered, sought},
};
use crate::{
    section::Writer,
    slab::{UsedSlot, has_slots},
    store::Policy,
};
use std::{
    alloc::{Layout, handle_alloc_error},
    mem::{ManuallyDrop, needs_drop},
    ptr::NonNull,
};
use stillpoint::{
    Destructor,
    internal::{self, retire_in_place, retire_owning},
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
const LEAF: &Destructor = &in_slab(size_of::<Leaf>());
const INNER: &Destructor = &in_slab(size_of::<Inner>());

const fn in_slab(bytes: usize) -> Destructor {
    // SAFETY: the promise of a retire: the node is from an arena, and not used any more.
    Destructor::new(
        |node| unsafe { UsedSlot::of(NonNull::new_unchecked(node)) }.free(),
        bytes,
    )
}

// SAFETY: the domain is the map's.
unsafe impl<K: Send + 'static, V: Send + 'static, P: Policy> Reclaim for PinnedOrdered<K, V, P> {
    fn node(&self, node: OldNode<'_>) {
        let node = node.node();
        let (block, layout, slot) = match node.kind() {
            Kind::Leaf(leaf) => (leaf.pointer().cast::<u8>(), Layout::new::<Leaf>(), LEAF),
            Kind::Inner(inner) => (inner.pointer().cast(), Layout::new::<Inner>(), INNER),
        };
        // SAFETY: taken out of the tree. From an arena, or allocated with that layout.
        unsafe {
            if node.gate().is_in_slab() {
                retire_in_place(self.domain(), block.as_ptr(), slot);
            } else {
                self.domain().retire_sized(block, layout);
            }
        }
    }

    fn old_fence(&self, fence: OldFence) {
        let key = fence.entry().as_ptr().cast();
        // It has been counted with the value if entries are weighed.
        let heap_bytes = owned::<K>(self.weigh.map(|_| 0));
        // SAFETY: of an entry whose value its taker retires, in a section that is still open. No reader from now
        // on finds the fence.
        unsafe { retire_owning(self.domain(), key, Entry::<K, V>::KEY, heap_bytes) };
    }
}

impl<K: Ord + Send + 'static, V: Send + 'static, P: Policy> PinnedOrdered<K, V, P> {
    fn writer(&self) -> Option<Writer<'_, Tree, &Self>> {
        // SAFETY: the domain is the map's.
        Some(unsafe { Writer::of(self.tree()?, self) })
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
    fn put_in_copy(&self, mut new: NewEntry<K, V>) -> Result<Found<'_, K, V>, NewEntry<K, V>> {
        let mut spares = Spares::new();
        loop {
            let (Some(writer), Some((path, place))) = (self.writer(), self.locate_by(new.key()))
            else {
                return Err(new);
            };
            if place.entry.is_some() {
                return Err(new);
            }
            // Once it is published readers have it. An unwind that user code begins then, where old nodes are
            // retired, leaves it to them.
            let kept = ManuallyDrop::new(new);
            // SAFETY: the entry is complete, and of this map's types.
            let offer = unsafe { Offer::of(kept.item()) };
            // SAFETY: found in this map just now.
            let inserted = unsafe { writer.insert_in_copy(&path, &place, offer, &mut spares) };
            new = ManuallyDrop::into_inner(kept);
            match inserted {
                // SAFETY: it is in the map, since this section.
                Ok(()) => return Ok(unsafe { Found::of(new.into_head()) }),
                Err(Refused::Changed | Refused::Full) => return Err(new),
                Err(Refused::TooDeep) => no_memory(),
                Err(Refused::Spares { leaves, inners }) => {
                    if !spares.provide(leaves, inners, writer.node_arenas()) {
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
        if let Some(writer) = self.writer() {
            // SAFETY: this map's entries are of these types.
            writer.shrink(&mut unsafe { sought::<K, V, K>(key) });
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
        NewEntry::new(hint::of(&key), key, value, arena)
    }

    /// Drops and frees an entry after a grace period: all of it, or only its value, if its key stays as a fence.
    ///
    /// # Safety
    ///
    /// The calling thread has taken the entry out of this map.
    #[inline]
    unsafe fn retire(&self, entry: Found<'_, K, V>, stays: bool) {
        let (object, domain) = (entry.pointer().as_ptr(), self.domain());
        if !P::WAITS_FOR_READERS {
            // SAFETY: broken on purpose. The block stays: a reader that still has the entry sees what
            // the drop has left.
            return unsafe { object.drop_in_place() };
        }
        let heap_bytes = match self.weigh {
            Some(weigh) if needs_drop::<Entry<K, V>>() => {
                let (key, value) = entry.pair();
                Some(internal::weigh(domain, || weigh(key, value)))
            }
            _ => None,
        };
        // SAFETY: no reader from now on finds it, and no thread changes its contents any more.
        unsafe {
            if stays {
                // In any case: the second half frees the memory.
                let heap_bytes = owned::<V>(heap_bytes);
                retire_owning(domain, object.cast(), Entry::<K, V>::VALUE, heap_bytes);
            } else if needs_drop::<Entry<K, V>>() {
                retire_owning(domain, object.cast(), Entry::<K, V>::ALL, heap_bytes);
            } else {
                retire_in_place(domain, object.cast(), Entry::<K, V>::ALL);
            }
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
        let Some(tree) = self.map().tree() else {
            return Err(new);
        };
        // SAFETY: the entry is complete, and of this map's types.
        match tree.insert(self.place(), unsafe { Offer::of(new.item()) }) {
            // SAFETY: it is in the map, since this section.
            Ok(()) => Ok(unsafe { Found::of(new.into_head()) }),
            Err(Refused::Full) => self.map().put_in_copy(new),
            Err(_) => Err(new),
        }
    }

    /// Replaces the entry of a place by one with an equal key, and returns that.
    ///
    /// # Errors
    ///
    /// The new entry, if another thread has replaced or removed the one of the place.
    pub fn replace(self, new: NewEntry<K, V>) -> Result<Found<'g, K, V>, NewEntry<K, V>> {
        let map = self.map();
        let (Some(tree), Some(old)) = (map.tree(), self.found()) else {
            return Err(new);
        };
        let mut now = Some(self);
        while let Some(at) = now {
            // SAFETY: the new one is complete, and of this map's types.
            if let Ok(stays) = tree.replace(at.place(), unsafe { Offer::of(new.item()) }) {
                // SAFETY: it is in the map, since this section.
                let new = unsafe { Found::of(new.into_head()) };
                // SAFETY: taken out just now, by this thread.
                unsafe { map.retire(old, stays) };
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
        let map = self.map();
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
        let map = self.map();
        let (Some(tree), Some(found)) = (map.tree(), self.found()) else {
            return false;
        };
        let Ok(stays) = tree.remove(self.place()) else {
            return false;
        };
        // Before user code, which may panic.
        // SAFETY: taken out just now, by this thread.
        unsafe { map.retire(found, stays) };
        if map.is_merge_due(self.place()) {
            map.merge_near(found.key());
        }
        true
    }
}

#[cold]
fn no_memory() -> ! {
    handle_alloc_error(Layout::new::<Leaf>())
}
