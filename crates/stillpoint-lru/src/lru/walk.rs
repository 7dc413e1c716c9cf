//! Walks a list while other threads, and the walk's own callback, change it.
//!
//! A walker takes references to a few items under the list's lock, leaves a bookmark behind the
//! last of them, and releases the lock; then it calls `isolate` for each and does what it returns.
//! So the lock is held for some tens of items at a time and never while user code runs.
//!
//! That code may fork. In the child the list may be one whose tenant has gone and which is in no
//! slot any more, so that the fork has not reset its lock (`lists.rs`). Such a list is dead, and
//! empty; the walk does not take its lock ([`Cursor::lock`]).

use super::entry::Entry;
use crate::{
    link::{Bookmark, Locked},
    memcg::lists::One,
};
use std::{mem, sync::Arc};
use stillpoint_platform::fork::{Process, process};

/// Number of items that are looked at between two holds of the lock.
const AT_A_TIME: usize = 32;

/// What a walk does with an item. The kernel's `enum lru_status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolate {
    /// Takes it off, wherever it is by now. Counts also if the callback has done that already. The
    /// kernel's `LRU_REMOVED`.
    Removed,
    /// Like `Removed`, and begins again with the oldest item, because the callback has changed the
    /// list. The kernel's `LRU_REMOVED_RETRY`.
    RemovedRetry,
    /// Makes it the newest item: it has been used. The kernel's `LRU_ROTATE`.
    Rotate,
    /// Leaves it where it is. The kernel's `LRU_SKIP`.
    Skip,
    /// Leaves it where it is and begins again with the oldest item: if its lock is taken, say. The
    /// kernel's `LRU_RETRY`.
    Retry,
    /// Leaves it where it is and ends the walk. The kernel's `LRU_STOP`.
    Stop,
}

/// Removes the bookmark however the walk ends.
struct Cursor<'a> {
    one: &'a One,
    bookmark: Option<Bookmark>,
    /// The process in which the walk began.
    process: Process,
}

impl<'a> Cursor<'a> {
    fn new(one: &'a One) -> Self {
        Self {
            one,
            bookmark: Some(Bookmark::at_start(&one.list.lock())),
            process: process(),
        }
    }

    fn bookmark(&self) -> &Bookmark {
        self.bookmark
            .as_ref()
            .expect("taken when the cursor is dropped")
    }

    /// Takes the list's lock. `None` in the child of a fork if the list is dead: a thread that is
    /// gone may hold the lock. A list is marked as dead before it leaves its slot, so the fork has
    /// looked at the lock of one that is not.
    fn lock(&self) -> Option<Locked<'a>> {
        let is_left_behind = process() != self.process && self.one.list.looks_dead();
        (!is_left_behind).then(|| self.one.list.lock())
    }
}

impl Drop for Cursor<'_> {
    fn drop(&mut self) {
        let bookmark = self.bookmark.take();
        // Without the lock the bookmark is leaked, with the list's other links.
        if let (Some(bookmark), Some(locked)) = (bookmark, self.lock()) {
            bookmark.remove(&locked);
        }
    }
}

/// Walks one list. `remove` takes an item off the list that it is on by then. Returns the number of
/// items removed.
pub(crate) fn walk_list<T: Send + Sync + 'static>(
    one: Arc<One>,
    budget: &mut usize,
    isolate: &mut impl FnMut(&Arc<Entry<T>>) -> Isolate,
    remove: impl Fn(&Entry<T>),
) -> usize {
    // Each item once: rotated items come again at the end, and a callback may add items for ever.
    let mut left = one.list.count().min(*budget);
    if left == 0 {
        return 0;
    }
    let cursor = Cursor::new(&one);
    let (mut removed, mut batch) = (0, Vec::with_capacity(AT_A_TIME.min(left)));
    'walk: while left > 0 {
        gather::<T>(&cursor, &mut batch, AT_A_TIME.min(left));
        if batch.is_empty() {
            break;
        }
        let mut again = false;
        for item in batch.drain(..) {
            if !item.link().is_on(&one.list) {
                // It has left since it was gathered.
                continue;
            }
            left -= 1;
            *budget -= 1;
            match isolate(&item) {
                verdict @ (Isolate::Removed | Isolate::RemovedRetry) => {
                    remove(&item);
                    removed += 1;
                    again = verdict == Isolate::RemovedRetry;
                }
                Isolate::Rotate => {
                    if let Some(locked) = cursor.lock() {
                        locked.rotate(item.link());
                    }
                }
                Isolate::Skip => {}
                Isolate::Retry => again = true,
                Isolate::Stop => break 'walk,
            }
            if again {
                if let Some(locked) = cursor.lock() {
                    cursor.bookmark().restart(&locked);
                }
                break;
            }
        }
    }
    removed
}

/// Puts references to the next items into `batch`, and the bookmark behind them.
fn gather<T: Send + Sync + 'static>(
    cursor: &Cursor<'_>,
    batch: &mut Vec<Arc<Entry<T>>>,
    limit: usize,
) {
    let Some(locked) = cursor.lock() else {
        return;
    };
    let bookmark = cursor.bookmark();
    let mut at = bookmark.next(&locked);
    while let Some(link) = at {
        // SAFETY: on this list, which has a reference to it that stays while the lock is held. It
        // is borrowed, not taken.
        let item = mem::ManuallyDrop::new(unsafe { Entry::<T>::from_link(link) });
        batch.push(Arc::clone(&item));
        at = if batch.len() < limit {
            locked.after(item.link())
        } else {
            None
        };
    }
    if let Some(last) = batch.last() {
        bookmark.move_behind(&locked, last.link());
    }
}
