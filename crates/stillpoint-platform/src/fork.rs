//! fork(2): what there is of the library in the child.
//!
//! The child is a copy of the process in which one thread goes on, the one that forked. All others have vanished, each at
//! whatever instruction it was, with the locks that it held, the lists that it was changing and the work that it had promised. So
//! one handler runs in the child before fork returns there: it walks the domains ([`AtForkHandle`]), and each puts back into order what
//! is its own ([`ForkReset`]).
//!
//! # Nothing runs before the fork
//!
//! The usual recipe takes every lock before the fork and gives it back on both sides after it. Here the parent does nothing at
//! all. It could not take the locks that are held while user code runs, since a callback may itself be what forks; it would
//! stand in an order with the locks and fork handlers of others, and deadlock with one who holds a lock of its own around a
//! retire; and every fork that only means to exec would wait for it. Instead, the child looks at nothing that a lock guards. It
//! overwrites the lock ([`Mutex::renew`](super::sync::Mutex::renew)), and what is behind it with nothing: all that waits there is
//! of before the fork, and not the child's business. What it does read can be read at any moment:
//!
//! * Atomics, and what an atomic has published (the readers' records, the list of places). The child sees a state that the parent
//!   has been through, although Linux copies one page after the other while the parent's threads run: a store that is too late
//!   for its page's copy stands still, and its thread with it, until all pages are copied; so whatever the child sees, it also
//!   sees what happened before that.
//! * What belongs to the forking thread alone, and which it is not in the middle of changing: to fork is user code, which the
//!   library calls with nothing held but a [turn](super::turn), and with no waiter [announced](super::event).
//!
//! The handler allocates, frees and waits for nothing, and makes one system call, for the new thread id.
//!
//! # What the child has
//!
//! | of before the fork | in the child |
//! |---|---|
//! | sections of the forking thread, QSBR readers included | open |
//! | sections of other threads, guards that ended threads leaked included | over |
//! | owned guards, whoever made them | open, without their names |
//! | cookies, settings, counters of what has happened | as they were |
//! | callbacks, retired objects | forgotten: neither run nor freed, and not counted as waiting |
//! | tasks that wait | not woken; a future that is polled again waits again |
//! | barriers and flushes (under way in the forking thread), barriers as futures | done: nothing is left that they are for |
//! | pages, bindings and domain handles of other threads | leaked, and so is a domain that they hold |
//! | service threads | gone; they start again on demand, without std ([`thread::spawn`](super::thread::spawn)) |
//!
//! If it is a callback or a deferred destructor that forks, the child is still inside it, and all that holds of callbacks goes on
//! holding: no barrier inside, and nobody else's pass before it has returned. When it returns, those that were to follow it are
//! forgotten like all the rest: the loops over them compare [`process`] after each call of it. A service thread that forks goes
//! on being one in the child.
//!
//! # What this is not
//!
//! A fork in a signal handler is not foreseen (nor safe, since POSIX.1-2024): it may find its thread in the middle of anything.
//! Nothing is put in order in the child of `vfork`, `posix_spawn`, `_Fork` or a bare `clone`, which must not use the library, nor
//! on other systems than Linux. A fork that is already running handlers of others when the process makes its very first domain
//! may find it half made. Fork handlers of others may use the library in the child if they were registered after the first domain
//! was made.

#[cfg(not(stillpoint_loom))]
pub use real::{AtForkHandle, ForkReset};

/// A number that changes in the child of a fork, so that a thread can tell that it has come back from user code in another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process(u64);

impl Process {
    /// Whether it has come of a fork since the library came to use.
    #[cfg(all(target_os = "linux", not(miri)))]
    #[inline]
    pub fn is_child(self) -> bool {
        self.0 > 0
    }
}

/// The present process, as seen by a thread that has called, or will call, user code.
#[inline]
pub fn process() -> Process {
    #[cfg(not(stillpoint_loom))]
    return real::process();
    #[cfg(stillpoint_loom)]
    Process(0)
}

#[cfg(not(stillpoint_loom))]
mod real {
    use super::Process;
    use crate::sync::{AtomicBool, AtomicPtr, AtomicU64, Mutex, Ordering, lock};
    use std::{cell::UnsafeCell, ptr, sync::atomic::fence};

    /// How many forks lie between the first process and this one. Changed in the child alone, by its only thread.
    static GENERATION: AtomicU64 = AtomicU64::new(0);

    #[inline]
    pub(super) fn process() -> Process {
        Process(GENERATION.load(Ordering::Relaxed))
    }

    /// Something that has to be put back into order in the child of a fork.
    pub trait ForkReset: Sync {
        /// Forgets what vanished threads held, and all that waits.
        ///
        /// # Safety
        ///
        /// The calling thread is the only one of the process, and forks: it runs user code as far as the library is concerned.
        unsafe fn reset_in_child(&self);
    }

    /// A place in the list of what has to be put back into order. Never freed; used again.
    struct Entry {
        /// Null while there is nothing here.
        subject: AtomicPtr<()>,
        /// Written before `subject` is set; read when that is found.
        reset_in_child: UnsafeCell<unsafe fn(*const ())>,
        /// The next older entry. Never changes.
        next: *const Entry,
        /// The next free one. Under the lock of [`FREE`].
        next_free: UnsafeCell<*const Entry>,
    }

    /// All entries, newest first. Only grows.
    static ENTRIES: AtomicPtr<Entry> = AtomicPtr::new(ptr::null_mut());

    /// The entries that nobody has.
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

        /// A new entry, which is in the list of all but not in this one. Under the lock.
        fn grow(&mut self) -> &'static Entry {
            let entry: &'static Entry = Box::leak(Box::new(Entry {
                subject: AtomicPtr::new(ptr::null_mut()),
                reset_in_child: UnsafeCell::new(nothing),
                next: ENTRIES.load(Ordering::Relaxed),
                next_free: UnsafeCell::new(ptr::null()),
            }));
            // Release, pairs with the acquire in `reset_in_child`: the entry is complete before it can be found.
            ENTRIES.store(ptr::from_ref(entry).cast_mut(), Ordering::Release);
            entry
        }
    }

    unsafe fn nothing(_: *const ()) {}

    /// Somebody's entry.
    pub struct AtForkHandle(&'static Entry);

    // SAFETY: the entry's fields are atomics, or written by the place's owner while `subject` is null and then left alone until the
    // place is dropped.
    unsafe impl Send for AtForkHandle {}
    // SAFETY: as for Send.
    unsafe impl Sync for AtForkHandle {}

    impl std::fmt::Debug for AtForkHandle {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.debug_struct("AtForkHandle").finish_non_exhaustive()
        }
    }

    impl AtForkHandle {
        /// A place for something that is about to be made.
        pub fn reserve() -> Self {
            ensure_handler();
            let mut free = lock(&FREE);
            let entry = free.pop();
            Self(entry.unwrap_or_else(|| free.grow()))
        }

        /// From now on until the place is dropped, `subject` is told of forks.
        ///
        /// # Safety
        ///
        /// Called once. `subject` is complete, stays where it is, and none of it is dropped before the place is.
        pub unsafe fn occupy<T: ForkReset>(&self, subject: &T) {
            /// # Safety
            ///
            /// `subject` points to a T; the rest as for [`ForkReset::reset_in_child`].
            unsafe fn reset_in_child<T: ForkReset>(subject: *const ()) {
                // SAFETY: the caller's promise.
                unsafe { (*subject.cast::<T>()).reset_in_child() }
            }
            // SAFETY: the entry is ours, and nobody reads this before `subject` is set.
            unsafe { *self.0.reset_in_child.get() = reset_in_child::<T> };
            // Release, pairs with `reset_in_child`: who finds the subject finds the function for it, and the subject complete.
            self.0.subject.store(ptr::from_ref(subject).cast_mut().cast(), Ordering::Release);
        }
    }

    impl Drop for AtForkHandle {
        fn drop(&mut self) {
            self.0.subject.store(ptr::null_mut(), Ordering::Relaxed);
            // The subject is told of no fork that copies anything of what its owner does to it after this.
            // Needs no partner: fork copies memory at one moment, and what follows the fence is not in a copy that lacks the null.
            fence(Ordering::SeqCst);
            lock(&FREE).push(self.0);
        }
    }

    /// Has `reset_in_child` run in the children of forks from now on. Two threads may both find that missing: to run twice does no harm, and
    /// to wait for the other one would, had it vanished in a fork. If there is no memory for it the next call tries again.
    fn ensure_handler() {
        static REGISTERED: AtomicBool = AtomicBool::new(false);
        // Acquire, pairs with the store below, in `ensure_handler`: who finds it registered forks after that.
        if !REGISTERED.load(Ordering::Acquire) && register() {
            // Release, pairs with the load above, in `ensure_handler`: the handler is there before it is said to be.
            REGISTERED.store(true, Ordering::Release);
        }
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    fn register() -> bool {
        unsafe extern "C" fn handler() {
            // SAFETY: the C library calls this in the child of a fork, from the thread that called fork.
            unsafe { reset_in_child() };
        }
        // SAFETY: the handler may run after any fork.
        unsafe { libc::pthread_atfork(None, None, Some(handler)) == 0 }
    }

    #[cfg(not(all(target_os = "linux", not(miri))))]
    fn register() -> bool {
        true
    }

    /// Puts everything back into order.
    ///
    /// # Safety
    ///
    /// As for [`ForkReset::reset_in_child`].
    #[cfg_attr(not(all(target_os = "linux", not(miri))), allow(dead_code, reason = "there are no handlers here"))]
    unsafe fn reset_in_child() {
        GENERATION.fetch_add(1, Ordering::Relaxed);
        let mut free = FreeList(ptr::null());
        // Acquire, pairs with `grow`: an entry that is found is complete.
        let mut at = ENTRIES.load(Ordering::Acquire);
        // SAFETY: entries are never freed.
        while let Some(entry) = unsafe { at.as_ref() } {
            // Acquire, pairs with `occupy`: a subject that is found is complete, and its function is there.
            let subject = entry.subject.load(Ordering::Acquire);
            if subject.is_null() {
                // Free, or of a thread that has vanished while it made something or took it down.
                free.push(entry);
            } else {
                // SAFETY: `subject` is set, so this was written before, by `occupy`, and the subject is alive; the rest is the
                // caller's promise.
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
                std::iter::successors(at(ENTRIES.load(Ordering::Acquire)), |entry| at(entry.next)).count()
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
            assert!(count() <= before + 200, "other tests make domains, but not that many at a time");
        }
    }
}
