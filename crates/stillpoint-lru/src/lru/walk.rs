//! Walking a list while other threads, and the walk's own callback, change it.
//!
//! A walker takes references to a few items under the list's lock, leaves a bookmark behind the
//! last of them, and releases the lock; then it calls `isolate` for each and does what that says.
//! So the lock is held for some tens of items at a time and never while user code runs.

use super::entry::Entry;
use crate::{link::Bookmark, memcg::lists::One};
use std::{mem, sync::Arc};

/// Items that are looked at between two holds of the lock.
const AT_A_TIME: usize = 32;

/// What a walk does with an item. The kernel's `enum lru_status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolate {
    /// Takes it off, wherever it is by now. If the callback has done that already, that counts too.
    /// The kernel's `LRU_REMOVED`.
    Removed,
    /// The same, and begins again with the oldest item, because the callback has changed the list.
    /// The kernel's `LRU_REMOVED_RETRY`.
    RemovedRetry,
    /// Makes it the newest one: it has been used. The kernel's `LRU_ROTATE`.
    Rotate,
    /// Leaves it where it is. The kernel's `LRU_SKIP`.
    Skip,
    /// Leaves it where it is and begins again with the oldest item: its lock could not be had, say.
    /// The kernel's `LRU_RETRY`.
    Retry,
    /// Leaves it where it is and ends the walk. The kernel's `LRU_STOP`.
    Stop,
}

/// Removes the bookmark however the walk ends.
struct Cursor<'a> {
    one: &'a One,
    bookmark: Option<Bookmark>,
}

impl Drop for Cursor<'_> {
    fn drop(&mut self) {
        if let Some(bookmark) = self.bookmark.take() {
            bookmark.remove(&self.one.list.lock());
        }
    }
}

/// The walk over one list. `remove` takes an item off the list that it is on by then.
pub(crate) fn walk_list<T: Send + Sync + 'static>(
    one: Arc<One>,
    budget: &mut usize,
    isolate: &mut impl FnMut(&Arc<Entry<T>>) -> Isolate,
    remove: impl Fn(&Entry<T>),
) -> usize {
    // Each item once: what is rotated comes again at the end, and a callback may add for ever.
    let mut left = one.list.count().min(*budget);
    if left == 0 {
        return 0;
    }
    let bookmark = Some(Bookmark::at_start(&one.list.lock()));
    let cursor = Cursor {
        one: &one,
        bookmark,
    };
    let bookmark = cursor
        .bookmark
        .as_ref()
        .expect("taken when the cursor is dropped");
    let (mut removed, mut batch) = (0, Vec::with_capacity(AT_A_TIME.min(left)));
    'walk: while left > 0 {
        gather::<T>(&one, bookmark, &mut batch, AT_A_TIME.min(left));
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
                Isolate::Rotate => one.list.lock().rotate(item.link()),
                Isolate::Skip => {}
                Isolate::Retry => again = true,
                Isolate::Stop => break 'walk,
            }
            if again {
                bookmark.restart(&one.list.lock());
                break;
            }
        }
    }
    removed
}

/// References to the next items, and the bookmark behind them.
fn gather<T: Send + Sync + 'static>(
    one: &One,
    bookmark: &Bookmark,
    batch: &mut Vec<Arc<Entry<T>>>,
    limit: usize,
) {
    let locked = one.list.lock();
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
