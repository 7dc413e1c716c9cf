//! Putting an entry in, unless one with its key is there.

use crate::{
    core::{Core, Inserted, Reclaim},
    slot::Head,
};
use std::ptr::NonNull;

/// What became of an entry.
#[derive(Debug)]
pub enum Added {
    Done,
    /// There is one with its key.
    Found(NonNull<Head>),
}

impl Core {
    /// Puts an entry in, unless there is one that `is_same` accepts. That is asked without a lock, of
    /// each entry with the tag of `hash`; again if another thread changes the bucket meanwhile.
    ///
    /// # Safety
    ///
    /// Inside a section of the map's domain. The entry is complete, with that hash, and in no map.
    #[inline]
    pub unsafe fn add_unless(
        &self,
        entry: NonNull<Head>,
        hash: u64,
        reclaim: &impl Reclaim,
        is_same: impl FnMut(NonNull<Head>) -> bool,
    ) -> Added {
        // SAFETY: the caller's promises.
        unsafe {
            if self.table().add_at_once(entry, hash) {
                self.note_added();
                self.help(reclaim);
                return Added::Done;
            }
            self.add_after_looking(entry, hash, reclaim, is_same)
        }
    }

    /// # Safety
    ///
    /// As for `add_unless`.
    #[inline(never)]
    unsafe fn add_after_looking(
        &self,
        entry: NonNull<Head>,
        hash: u64,
        reclaim: &impl Reclaim,
        mut is_same: impl FnMut(NonNull<Head>) -> bool,
    ) -> Added {
        loop {
            let mut unequal = Vec::new();
            // SAFETY: the caller's promise.
            let found = unsafe { self.table() }.find(hash, |other| {
                let same = is_same(other);
                if !same {
                    unequal.push(other);
                }
                same
            });
            if let Some(found) = found {
                return Added::Found(found);
            }
            // SAFETY: the caller's promises; inside the section since before they were found.
            match unsafe { self.insert(entry, Some(&unequal), reclaim) } {
                Inserted::Done => return Added::Done,
                Inserted::Changed => {}
            }
        }
    }
}
