//! The list of what a fork's child has to reset, and the handler that resets it: see
//! [`fork`](crate::fork).

use crate::fork::{ForkReset, Process};
use crate::sync::{AtomicBool, AtomicPtr, AtomicU64, Mutex, Ordering, lock};
use std::{cell::UnsafeCell, ptr, sync::atomic::fence};

/// How many forks lie between the first process and this one. Changed in the child alone, by its
/// only thread.
static GENERATION: AtomicU64 = AtomicU64::new(0);

#[inline]
pub fn process() -> Process {
    Process(GENERATION.load(Ordering::Relaxed))
}

/// Number of entries that are allocated side by side, so that a walk is short and the child copies few
/// pages for unused entries.
const TOGETHER: usize = 32;

/// An entry in the list of what has to be reset. Never freed; reused.
struct Entry {
    /// Null while the entry is unused.
    subject: AtomicPtr<()>,
    /// Resets `subject`. Written before that is set.
    reset_in_child: UnsafeCell<unsafe fn(*const ())>,
    /// The next older entry. Never changes.
    next: *const Entry,
    /// The next free one. Under the lock of [`FREE`].
    next_free: UnsafeCell<*const Entry>,
}

/// All entries, newest first. Only grows.
static ENTRIES: AtomicPtr<Entry> = AtomicPtr::new(ptr::null_mut());

/// Unused entries.
static FREE: Mutex<FreeList> = Mutex::new(FreeList(ptr::null()));

struct FreeList(*const Entry);

// SAFETY: what it points to is shared under the rules of `Entry`.
unsafe impl Send for FreeList {}

impl FreeList {
    fn push(&mut self, entry: &'static Entry) {
        // SAFETY: under the lock.
        unsafe { *entry.next_free.get() = self.0 };
        self.0 = entry;
    }

    fn pop(&mut self) -> Option<&'static Entry> {
        // SAFETY: entries are never freed.
        let entry = unsafe { self.0.as_ref() }?;
        // SAFETY: under the lock.
        self.0 = unsafe { *entry.next_free.get() };
        Some(entry)
    }

    /// Adds new entries to the list of all. Returns the oldest, and puts the others into the list of free
    /// ones, the older ones first. Under the lock.
    fn grow(&mut self) -> &'static Entry {
        let entries: &'static mut [Entry; TOGETHER] =
            Box::leak(Box::new(std::array::from_fn(|_| Entry {
                subject: AtomicPtr::new(ptr::null_mut()),
                reset_in_child: UnsafeCell::new(nothing),
                next: ptr::null(),
                next_free: UnsafeCell::new(ptr::null()),
            })));
        entries[0].next = ENTRIES.load(Ordering::Relaxed);
        for at in 1..TOGETHER {
            entries[at].next = &raw const entries[at - 1];
        }
        let entries: &'static [Entry; TOGETHER] = entries;
        let [oldest, .., newest] = entries;
        // Release, pairs with the acquire in `reset_in_child`: the entries are complete before they
        // can be found.
        ENTRIES.store(ptr::from_ref(newest).cast_mut(), Ordering::Release);
        entries[1..].iter().rev().for_each(|entry| self.push(entry));
        oldest
    }
}

unsafe fn nothing(_: *const ()) {}

/// An owned entry: its subject is reset in the child of every fork until this is dropped.
pub struct AtForkHandle(&'static Entry);

// SAFETY: the entry's fields are atomics, or written by the handle's owner while `subject` is null
// and then left alone until the handle is dropped.
unsafe impl Send for AtForkHandle {}
// SAFETY: as for Send.
unsafe impl Sync for AtForkHandle {}

impl std::fmt::Debug for AtForkHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AtForkHandle").finish_non_exhaustive()
    }
}

impl AtForkHandle {
    /// Reserves an entry for a subject that is about to be made.
    pub fn reserve() -> Self {
        ensure_handler();
        let mut free = lock(&FREE);
        let entry = free.pop();
        Self(entry.unwrap_or_else(|| free.grow()))
    }

    /// Resets `subject` in the child of every fork, from now on until this is dropped.
    ///
    /// # Safety
    ///
    /// Called once. `subject` is complete, stays where it is, and none of it is dropped before the
    /// handle is.
    pub unsafe fn occupy<T: ForkReset>(&self, subject: &T) {
        /// # Safety
        ///
        /// `subject` points to a T; the rest as for [`ForkReset::reset_in_child`].
        unsafe fn reset_in_child<T: ForkReset>(subject: *const ()) {
            // SAFETY: the caller's promise.
            unsafe { (*subject.cast::<T>()).reset_in_child() }
        }
        // SAFETY: the entry is ours, and no thread reads this before `subject` is set.
        unsafe { *self.0.reset_in_child.get() = reset_in_child::<T> };
        // Release, pairs with `reset_in_child`: a handler that finds the subject finds its
        // function, and the subject complete.
        self.0
            .subject
            .store(ptr::from_ref(subject).cast_mut().cast(), Ordering::Release);
    }
}

impl Drop for AtForkHandle {
    fn drop(&mut self) {
        self.0.subject.store(ptr::null_mut(), Ordering::Relaxed);
        // No child resets a subject that its owner has begun to take down. Needs no partner: fork
        // copies memory at one moment, and what follows the fence is not in a copy that lacks the
        // null.
        fence(Ordering::SeqCst);
        lock(&FREE).push(self.0);
    }
}

/// Registers `reset_in_child` as a fork handler. Two threads may both find it missing and register it:
/// then it runs twice. Waiting for the other thread would hang if a fork removed that thread. If out
/// of memory, the next call tries again.
pub(crate) fn ensure_handler() {
    static REGISTERED: AtomicBool = AtomicBool::new(false);
    // Acquire, pairs with the store below, in `ensure_handler`: a thread that finds it registered
    // forks after that.
    if !REGISTERED.load(Ordering::Acquire) && register() {
        // Release, pairs with the load above, in `ensure_handler`: the handler is there before it
        // is said to be.
        REGISTERED.store(true, Ordering::Release);
    }
}

#[cfg(all(target_os = "linux", not(miri)))]
fn register() -> bool {
    unsafe extern "C" fn handler() {
        // SAFETY: the C library calls this in the child of a fork, from the thread that called
        // fork.
        unsafe { reset_in_child() };
    }
    // SAFETY: the handler may run after any fork.
    unsafe { libc::pthread_atfork(None, None, Some(handler)) == 0 }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn register() -> bool {
    true
}

/// Resets all subjects.
///
/// # Safety
///
/// As for [`ForkReset::reset_in_child`].
#[cfg_attr(
    not(all(target_os = "linux", not(miri))),
    allow(dead_code, reason = "there are no handlers here")
)]
unsafe fn reset_in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    crate::fork::note_survivor();
    // First of all, because the subjects count in the page.
    // SAFETY: the caller's promise, for both.
    unsafe {
        crate::stats::reset_in_child();
        crate::refused::reset_in_child();
    }
    let mut free = FreeList(ptr::null());
    // Acquire, pairs with `grow`: an entry that is found is complete.
    let mut at = ENTRIES.load(Ordering::Acquire);
    // SAFETY: entries are never freed.
    while let Some(entry) = unsafe { at.as_ref() } {
        // Acquire, pairs with `occupy`: a subject that is found is complete, and its function is
        // there.
        let subject = entry.subject.load(Ordering::Acquire);
        if subject.is_null() {
            // Unused, or its owner was making or taking down the subject when the fork removed that
            // thread.
            free.push(entry);
        } else {
            // SAFETY: `subject` is set, so this was written before, by `occupy`, and the subject is
            // alive; the rest is the caller's promise.
            unsafe { (*entry.reset_in_child.get())(subject) };
        }
        at = entry.next.cast_mut();
    }
    // SAFETY: the only thread, which is not in `reserve` or `drop`: those run no user code.
    unsafe { FREE.reinit(free) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    struct Subject(AtomicU64);

    impl ForkReset for Subject {
        unsafe fn reset_in_child(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn places_are_used_again() {
        let count = || {
            // SAFETY: entries are never freed.
            let at = |entry: *const Entry| unsafe { entry.as_ref() };
            std::iter::successors(at(ENTRIES.load(Ordering::Acquire)), |entry| at(entry.next))
                .count()
        };
        let before = count();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let subject = Subject(AtomicU64::new(0));
                        let place = AtForkHandle::reserve();
                        // SAFETY: the place is dropped first.
                        unsafe { place.occupy(&subject) };
                    }
                });
            }
        });
        assert!(
            count() <= before + 200,
            "other tests make domains, but not that many at a time"
        );
    }
}
