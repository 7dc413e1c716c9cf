//! By inotify and an eventfd.

use crate::clock::{self, Nanos};
use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
    fs::inotify,
    io::{Errno, read, write},
};
use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd},
    path::Path,
    sync::atomic::{AtomicI32, Ordering},
};

/// No descriptor.
const NONE: RawFd = -1;

/// Descriptors, once it is open. Relaxed throughout: who uses them is told by what guards the watch.
#[derive(Debug)]
pub struct Watch {
    changes: AtomicI32,
    bell: AtomicI32,
}

impl Watch {
    /// One that is closed.
    #[expect(clippy::new_without_default, reason = "it has no use by itself")]
    pub const fn new() -> Self {
        Self {
            changes: AtomicI32::new(NONE),
            bell: AtomicI32::new(NONE),
        }
    }

    /// Whether files can be watched, and the bell be rung.
    pub fn is_open(&self) -> bool {
        self.bell.load(Ordering::Relaxed) != NONE
    }

    fn get(of: &AtomicI32) -> Option<BorrowedFd<'_>> {
        let descriptor = of.load(Ordering::Relaxed);
        // SAFETY: open until `close`, whose caller promises that no other call is under way.
        (descriptor != NONE).then(|| unsafe { BorrowedFd::borrow_raw(descriptor) })
    }

    /// Watches one more file, or that one still. Opens the watch, if it is not open and there is
    /// such a file.
    ///
    /// Of threads that open it at once, one may be told that it could not.
    ///
    /// # Errors
    ///
    /// If the system has no such file, or nothing to watch it by.
    pub fn add(&self, file: &Path) -> io::Result<()> {
        if self.is_open() {
            let changes = Self::get(&self.changes).ok_or(Errno::BADF)?;
            return watch(changes, file);
        }
        let changes =
            inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
        // First: for nothing to watch, no descriptors are kept.
        watch(changes.as_fd(), file)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        put(&self.changes, changes)?;
        put(&self.bell, bell)
    }

    /// Ends the wait that is under way, or else the next one. Does nothing while it is closed.
    pub fn ring(&self) {
        if let Some(bell) = Self::get(&self.bell) {
            // Refused only if it has been rung 2^64 times: then it is heard as well.
            let _ = write(bell, &1_u64.to_ne_bytes());
        }
    }

    /// Waits until that time, for the bell, and for files if `hears`. Returns whether one has
    /// changed. May return early.
    ///
    /// # Errors
    ///
    /// If it is closed, or the system refuses to wait.
    pub fn wait(&self, until: Nanos, hears: bool) -> io::Result<bool> {
        let bell = Self::get(&self.bell).ok_or(Errno::BADF)?;
        let changes = Self::get(&self.changes).ok_or(Errno::BADF)?;
        let left = until.saturating_sub(clock::now());
        let left = Timespec {
            tv_sec: (left / 1_000_000_000).cast_signed(),
            #[allow(
                clippy::cast_possible_wrap,
                reason = "it has another type on other processors"
            )]
            tv_nsec: (left % 1_000_000_000) as _,
        };
        let mut files = [&bell, &changes].map(|of| PollFd::new(of, PollFlags::IN));
        let count = if hears { 2 } else { 1 };
        match poll(&mut files[..count], Some(&left)) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        take_in(bell)?;
        if hears { take_in(changes) } else { Ok(false) }
    }

    /// Closes it: what was watched is not any more.
    ///
    /// # Safety
    ///
    /// No other call is under way, or begins before this has ended; in this process.
    pub unsafe fn close(&self) {
        for of in [&self.bell, &self.changes] {
            let descriptor = of.swap(NONE, Ordering::Relaxed);
            if descriptor != NONE {
                // SAFETY: `put` has given it up, and no call uses it.
                drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
            }
        }
    }
}

fn watch(changes: BorrowedFd<'_>, file: &Path) -> io::Result<()> {
    inotify::add_watch(changes, file, inotify::WatchFlags::MODIFY)?;
    Ok(())
}

/// Stores an open descriptor. Another thread may have done so before.
fn put(to: &AtomicI32, descriptor: OwnedFd) -> io::Result<()> {
    let set = to.compare_exchange(
        NONE,
        descriptor.as_raw_fd(),
        Ordering::Relaxed,
        Ordering::Relaxed,
    );
    if set.is_err() {
        return Err(Errno::AGAIN.into());
    }
    // From now on the watch's.
    let _ = descriptor.into_raw_fd();
    Ok(())
}

/// Reads and drops what there is. Returns whether there was anything.
fn take_in(from: BorrowedFd<'_>) -> io::Result<bool> {
    let mut dropped = [0; 1024];
    // Once: what is left ends the next wait.
    match read(from, &mut dropped) {
        Ok(_) => Ok(true),
        Err(Errno::AGAIN | Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use std::fs;

    /// Ends a wait that would last for ever.
    const FOR_EVER: Nanos = Nanos::MAX;

    struct File(std::path::PathBuf);

    impl File {
        fn new(name: &str) -> Self {
            let name = format!("stillpoint-watch-{}-{name}", std::process::id());
            let file = Self(std::env::temp_dir().join(name));
            fs::write(&file.0, "before").unwrap();
            file
        }
    }

    impl Drop for File {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    #[test]
    fn what_there_is_ends_a_wait_once() {
        let (watch, file) = (Watch::new(), File::new("once"));
        watch.ring();
        assert!(watch.wait(0, true).is_err(), "it is closed");
        watch.add(&file.0).unwrap();
        watch.add(&file.0).unwrap();
        watch.ring();
        watch.ring();
        assert!(!watch.wait(FOR_EVER, true).unwrap());
        assert!(!watch.wait(0, true).unwrap());
        fs::write(&file.0, "after").unwrap();
        assert!(!watch.wait(0, false).unwrap(), "it does not hear");
        assert!(watch.wait(FOR_EVER, true).unwrap(), "but does not forget");
        assert!(!watch.wait(0, true).unwrap());
        // SAFETY: no other thread has it.
        unsafe { watch.close() };
        assert!(!watch.is_open());
        watch.add(&file.0).unwrap();
        fs::write(&file.0, "again").unwrap();
        assert!(watch.wait(FOR_EVER, true).unwrap());
        // SAFETY: as above.
        unsafe { watch.close() };
    }

    #[test]
    fn a_file_that_is_not_there_opens_nothing() {
        let (watch, file) = (Watch::new(), File::new("not-there"));
        assert!(watch.add(&file.0.join("not")).is_err());
        assert!(!watch.is_open());
        assert!(Watch::get(&watch.changes).is_none());
        watch.add(&file.0).unwrap();
        assert!(watch.add(&file.0.join("not")).is_err());
        assert!(watch.is_open(), "for the other one");
        // SAFETY: no other thread has it.
        unsafe { watch.close() };
    }
}
