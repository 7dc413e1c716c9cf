//! What is left of a map that was given up.

use super::{
    core::Tree,
    entry::{Entry, Found},
    node::{Head, Item},
    walk::Walk,
};
use crate::section::Live;
use std::{
    any::Any,
    iter,
    marker::PhantomData,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    ptr::NonNull,
    thread::panicking,
};

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

impl<K, V> OwnedEntries<K, V> {
    /// # Safety
    ///
    /// The tree is from a box, which is the result's; its entries are of these types.
    pub unsafe fn of(tree: Option<NonNull<Tree>>) -> Self {
        Self {
            tree,
            // SAFETY: the tree is there until this ends, and no other thread has it.
            walk: unsafe { Walk::of(tree.map(|tree| Live::of(tree))) },
            entries: PhantomData,
        }
    }

    fn tree(&self) -> Option<&Tree> {
        // SAFETY: of the box that this owns.
        self.tree.map(|tree| unsafe { tree.as_ref() })
    }

    /// Those that are left.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let mut walk = self.walk.clone();
        iter::from_fn(move || {
            let item = walk.next_alone()?;
            // SAFETY: this owns the entries that its walk has not come to, which are of these types, and
            // takes none while it is borrowed.
            let found = unsafe { Found::<K, V>::of(item.entry) };
            Some((found.key(), found.value()))
        })
    }

    /// How many are left.
    pub fn len(&self) -> usize {
        self.tree().map_or(0, |tree| tree.count.get())
    }
}

impl<K, V> OwnedEntries<K, V> {
    fn take_item(&self, item: Option<Item>) -> Option<(K, V)> {
        let entry = item?.entry.cast();
        self.tree()?.count.add(1_u64.wrapping_neg());
        // SAFETY: of this map alone, which no longer exists; neither end of the walk comes back to it, and
        // fences are not read any more.
        Some(unsafe { Entry::take(entry) })
    }
}

impl<K, V> Iterator for OwnedEntries<K, V> {
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        let item = self.walk.next_alone();
        self.take_item(item)
    }
}

impl<K, V> DoubleEndedIterator for OwnedEntries<K, V> {
    fn next_back(&mut self) -> Option<(K, V)> {
        let item = self.walk.next_back_alone();
        self.take_item(item)
    }
}

impl<K, V> Drop for OwnedEntries<K, V> {
    fn drop(&mut self) {
        /// If a drop panics, the others are dropped all the same.
        struct GoOn<'a, K, V>(&'a mut OwnedEntries<K, V>);
        impl<K, V> Drop for GoOn<'_, K, V> {
            fn drop(&mut self) {
                self.0.by_ref().for_each(drop);
                if let Some(tree) = self.0.tree.take() {
                    // SAFETY: of the box that this owns, and no thread reads it any more.
                    let panicked = unsafe { end::<K, V>(tree) };
                    if let Some(payload) = panicked.filter(|_| !panicking()) {
                        resume_unwind(payload);
                    }
                }
            }
        }
        let rest = GoOn(self);
        rest.0.by_ref().for_each(drop);
    }
}

/// Frees a tree whose entries have been taken, and the keys that were kept as fences, whose drops may
/// panic: then the others are dropped all the same. Returns the first panic.
///
/// # Safety
///
/// It is from a box, which no thread uses any more, and had entries of these types.
unsafe fn end<K, V>(tree: NonNull<Tree>) -> Option<Box<dyn Any + Send>> {
    let mut panicked = None;
    let end_fence = |fence: NonNull<Head>| {
        // SAFETY: the caller's promise. The key of an entry that was taken out before is not dropped
        // yet.
        let ended = catch_unwind(AssertUnwindSafe(|| unsafe {
            Entry::<K, V>::end_fence(fence.cast());
        }));
        panicked = panicked.take().or(ended.err());
    };
    // SAFETY: the caller's promise.
    unsafe {
        let tree = Box::from_raw(tree.as_ptr());
        tree.free_nodes(end_fence);
        tree.close_arenas();
    }
    panicked
}
