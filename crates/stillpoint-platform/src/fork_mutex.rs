//! A lock that knows when a fork has removed the thread that held it.
//!
//! In the child, nothing ever releases such a lock, and the value behind it is in the middle of a
//! change. So no thread waits for it there: an operation that needs it ends the process with a message,
//! an operation that can do without it asks first ([`ForkMutex::lock_unless_lost`]), and a drop leaks
//! the value.

use crate::{
    stderr::Line,
    sync::{Mutex, MutexGuard, lock},
};
use std::{
    mem::ManuallyDrop,
    sync::atomic::{AtomicBool, Ordering},
};

/// The lock. Not held while user code runs, so the thread that forks does not hold it.
#[derive(Debug)]
pub struct ForkMutex<T> {
    lock: ManuallyDrop<Mutex<T>>,
    /// Whether a fork has removed the holder. Written in the child alone, by its only thread; std's
    /// atomic also in the model, which does not fork.
    is_lost: AtomicBool,
}

impl<T> ForkMutex<T> {
    /// Makes a lock that is free.
    pub fn new(value: T) -> Self {
        Self {
            lock: ManuallyDrop::new(Mutex::new(value)),
            is_lost: AtomicBool::new(false),
        }
    }

    /// Blocks until the lock is free, and takes it. Ends the process, with a message, if the lock is
    /// lost.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.lock_unless_lost().unwrap_or_else(|| end())
    }

    /// Blocks until the lock is free, and takes it. `None` if the lock is lost.
    #[inline]
    pub fn lock_unless_lost(&self) -> Option<MutexGuard<'_, T>> {
        // A lost lock is held for good, so a thread that gets the lock at once need not ask.
        match self.lock.lock_at_once() {
            Some(guard) => Some(guard),
            None => self.wait(),
        }
    }

    /// Locks like [`lock`](Self::lock). Calls a function before the calling thread blocks, and another
    /// afterwards.
    #[inline]
    pub fn lock_telling(&self, waiting: fn(), waited: fn()) -> MutexGuard<'_, T> {
        // In the model this always fails, so both functions are called each time.
        if let Some(guard) = self.lock.lock_at_once() {
            return guard;
        }
        waiting();
        let guard = self.wait().unwrap_or_else(|| end());
        waited();
        guard
    }

    /// Takes the lock, unless another thread holds it or it is lost.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        crate::sync::try_lock(&self.lock)
    }

    #[cold]
    fn wait(&self) -> Option<MutexGuard<'_, T>> {
        (!self.is_lost()).then(|| lock(&self.lock))
    }

    /// Returns whether a fork has removed the thread that held the lock.
    #[inline]
    pub fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }

    /// Marks the lock as lost, in the child of a fork, if a thread held it. Returns whether it is lost.
    ///
    /// # Safety
    ///
    /// The calling thread is the only one of the process, and does not hold the lock.
    pub unsafe fn reset_in_child(&self) -> bool {
        if self.try_lock().is_none() {
            self.is_lost.store(true, Ordering::Relaxed);
        }
        self.is_lost()
    }
}

impl<T> Drop for ForkMutex<T> {
    fn drop(&mut self) {
        if !self.is_lost() {
            // SAFETY: it is not used any more. No thread is in the middle of a change of the value:
            // one that was removed there has left the lock lost.
            unsafe { ManuallyDrop::drop(&mut self.lock) };
        }
    }
}

#[cold]
fn end() -> ! {
    let mut line = Line::new();
    line.push(
        b"a thread that is not in this process held a lock at the fork: \
          fork before starting threads, or exec in the child",
    );
    line.send();
    std::process::abort();
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    #[cfg(all(target_os = "linux", not(miri)))]
    use std::{
        io::{self, Read},
        os::fd::AsRawFd,
    };
    use std::{mem, sync::Arc, thread::scope};

    #[test]
    fn in_the_child_a_lock_of_another_thread_is_lost_and_its_value_leaked() {
        let value = Arc::new(());
        let lock = ForkMutex::new(Arc::clone(&value));
        scope(|scope| scope.spawn(|| mem::forget(lock.lock())).join().unwrap());
        // SAFETY: the other thread has ended.
        assert!(unsafe { lock.reset_in_child() });
        assert!(lock.lock_unless_lost().is_none() && lock.try_lock().is_none());
        drop(lock);
        assert_eq!(Arc::strong_count(&value), 2);
        // SAFETY: the count of the value that was leaked.
        unsafe { Arc::decrement_strong_count(Arc::as_ptr(&value)) };
    }

    #[test]
    fn in_the_child_a_free_lock_stays_so() {
        let value = Arc::new(());
        let lock = ForkMutex::new(Arc::clone(&value));
        // SAFETY: no other thread knows the lock.
        assert!(!unsafe { lock.reset_in_child() });
        drop(lock.lock());
        drop(lock);
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn in_the_child_an_operation_that_needs_a_lost_lock_ends_the_process_with_a_message() {
        let lock = ForkMutex::new(());
        let (mut reader, writer) = io::pipe().unwrap();
        let held = lock.lock();
        // SAFETY: the child makes system calls alone, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: no object of this process has the descriptor of standard error. The thread that
            // has the lock is gone, as far as the lock is concerned. The last call ends the child if it
            // gets there.
            unsafe {
                libc::dup2(writer.as_raw_fd(), libc::STDERR_FILENO);
                assert!(lock.reset_in_child());
                mem::forget(lock.lock());
                libc::_exit(0);
            }
        }
        drop((held, writer));
        let (mut status, mut said) = (0, String::new());
        // SAFETY: a child of ours, and a place for its status.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        reader.read_to_string(&mut said).unwrap();
        assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGABRT);
        assert!(
            said.starts_with(
                "stillpoint: a thread that is not in this process held a lock at the fork"
            ),
            "{said}"
        );
    }
}
