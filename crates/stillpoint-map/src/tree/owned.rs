//! What is left of a map that was given up.

use super::{
    core::Tree,
    entry::{Entry, Found},
    node::Head,
    store::Ordered,
    walk::Walk,
};
use crate::{
    section::{Live, Pinned},
    store::Policy,
};
use std::{
    any::Any,
    iter,
    marker::PhantomData,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    ptr::NonNull,
    thread::panicking,
};
use stillpoint_platform::race::Owner;

/// The entries of a map that no longer exists, in order. Those that are not taken are dropped.
#[derive(Debug)]
pub struct OwnedEntries<K, V> {
    /// Of a box, which this owns. `None` for a map that never had an entry.
    tree: Option<NonNull<Tree>>,
    walk: Walk<'static>,
    entries: PhantomData<Entry<K, V>>,
}

// SAFETY: it owns keys and values, and no other thread has the map.
unsafe impl<K: Send, V: Send> Send for OwnedEntries<K, V> {}
// SAFETY: through a reference, threads look at keys and values.
unsafe impl<K: Sync, V: Sync> Sync for OwnedEntries<K, V> {}

impl<K, V, P: Policy> Ordered<K, V, P> {
    /// Takes out all entries at once, and the tree.
    pub fn take(&mut self) -> OwnedEntries<K, V> {
        let tree = self.tree.take().map(Owner::into_raw);
        // SAFETY: the tree is there until the result ends, and no other thread has it.
        let live = |tree: NonNull<Tree>| unsafe { Live::of(tree.cast::<Pinned<Tree>>()) };
        OwnedEntries {
            tree,
            walk: Walk::of(tree.map(live)),
            entries: PhantomData,
        }
    }
}

impl<K, V> OwnedEntries<K, V> {
    fn tree(&self) -> Option<&Tree> {
        // SAFETY: of the box that this owns.
        self.tree.map(|tree| unsafe { tree.as_ref() })
    }

    /// Those that are left.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let mut walk = self.walk.clone();
        iter::from_fn(move || {
            let entry = walk.next_alone(false)?;
            // SAFETY: this owns the entries that its walk has not come to, which are of these types, and
            // takes none while it is borrowed.
            let found = unsafe { Found::<K, V>::of(entry) };
            Some((found.key(), found.value()))
        })
    }

    /// How many are left.
    pub fn len(&self) -> usize {
        self.tree().map_or(0, |tree| tree.count.get())
    }
}

impl<K, V> OwnedEntries<K, V> {
    fn take_next(&mut self, is_back: bool) -> Option<(K, V)> {
        let entry = self.walk.next_alone(is_back)?.cast();
        self.tree()?.count.add(1_u64.wrapping_neg());
        // SAFETY: of this map alone, which no longer exists; neither end of the walk comes back to it, and
        // fences are not read any more.
        Some(unsafe { Entry::take(entry) })
    }

    /// Frees the tree, and the keys that were kept as fences, whose drops may panic: then the others are dropped
    /// all the same. Returns the first panic. Leaks the entries that have not been taken.
    fn end(&mut self) -> Option<Box<dyn Any + Send>> {
        self.walk = Walk::of(None);
        let mut panicked = None;
        let end_fence = |fence: NonNull<Head>| {
            // SAFETY: the key of an entry that was taken out of the map before, which no thread has any more.
            let ended = catch_unwind(AssertUnwindSafe(|| unsafe {
                Entry::<K, V>::drop_key(fence.as_ptr().cast());
            }));
            panicked = panicked.take().or(ended.err());
        };
        // SAFETY: of the box that this owns, and the walk is at no node any more.
        let mut tree = unsafe { Box::from_raw(self.tree.take()?.as_ptr()) };
        tree.end(end_fence);
        panicked
    }
}

impl<K, V> Iterator for OwnedEntries<K, V> {
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        self.take_next(false)
    }
}

impl<K, V> DoubleEndedIterator for OwnedEntries<K, V> {
    fn next_back(&mut self) -> Option<(K, V)> {
        self.take_next(true)
    }
}

impl<K, V> Drop for OwnedEntries<K, V> {
    fn drop(&mut self) {
        /// If a drop panics, the others are dropped all the same.
        struct GoOn<'a, K, V>(&'a mut OwnedEntries<K, V>);
        impl<K, V> Drop for GoOn<'_, K, V> {
            fn drop(&mut self) {
                self.0.by_ref().for_each(drop);
                if let Some(payload) = self.0.end().filter(|_| !panicking()) {
                    resume_unwind(payload);
                }
            }
        }
        let rest = GoOn(self);
        rest.0.by_ref().for_each(drop);
    }
}
