//! The watch by inotify and an eventfd.

use crate::clock::{self, Nanos};
use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
    fs::inotify,
    io::{Errno, read, write},
};
use std::{
    io,
    os::fd::{AsFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd},
    path::Path,
    sync::atomic::{AtomicI32, Ordering},
};

/// No descriptor.
const NONE: RawFd = -1;

/// A watch, which has descriptors once it is open. One thread at a time uses it, so all accesses
/// are Relaxed; other threads have its [`Bell`].
#[derive(Debug)]
pub struct Watch {
    changes: AtomicI32,
    /// Stays open when the watch is closed: so a thread that rings needs no lock for that.
    bell: AtomicI32,
}

/// Wakes every thread that waits on the watch.
#[derive(Debug, Clone, Copy)]
pub struct Bell(RawFd);

/// A file that is watched. Two paths of one file give equal values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watched(i32);

impl Bell {
    /// Ends the wait that is under way, or the next one.
    ///
    /// # Safety
    ///
    /// Called in the process that has opened the watch.
    pub unsafe fn ring(self) {
        // SAFETY: in that process it is never closed.
        let bell = unsafe { BorrowedFd::borrow_raw(self.0) };
        // Refused only after 2^64 rings, which the waiter hears as well.
        let _ = write(bell, &1_u64.to_ne_bytes());
    }
}

impl Watch {
    /// Makes a watch that is closed.
    #[expect(clippy::new_without_default, reason = "it has no use by itself")]
    pub const fn new() -> Self {
        Self {
            changes: AtomicI32::new(NONE),
            bell: AtomicI32::new(NONE),
        }
    }

    /// Returns the bell, while files can be watched.
    pub fn bell(&self) -> Option<Bell> {
        let is_open = self.changes.load(Ordering::Relaxed) != NONE;
        is_open.then(|| Bell(self.bell.load(Ordering::Relaxed)))
    }

    fn get(of: &AtomicI32) -> io::Result<BorrowedFd<'_>> {
        match of.load(Ordering::Relaxed) {
            NONE => Err(Errno::BADF.into()),
            // SAFETY: open until `close`, whose caller promises that no other call is under way.
            descriptor => Ok(unsafe { BorrowedFd::borrow_raw(descriptor) }),
        }
    }

    /// Watches a file, which may be watched already. Opens the watch, if it is not open and the file
    /// exists.
    ///
    /// # Errors
    ///
    /// If the system has no such file, or nothing to watch it by.
    pub fn add(&self, file: &Path) -> io::Result<Watched> {
        if let Ok(changes) = Self::get(&self.changes) {
            return watch(changes, file);
        }
        let changes =
            inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
        // First, so that no descriptors are kept if there is nothing to watch.
        let watched = watch(changes.as_fd(), file)?;
        if Self::get(&self.bell).is_err() {
            let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            put(&self.bell, bell);
        }
        put(&self.changes, changes);
        Ok(watched)
    }

    /// Stops watching a file.
    pub fn remove(&self, watched: Watched) {
        if let Ok(changes) = Self::get(&self.changes) {
            // Refused if the file is gone: then the system has stopped by itself.
            let _ = inotify::remove_watch(changes, watched.0);
        }
    }

    /// Waits until `until`, for the bell, and for files if `hears`. Returns whether a file has changed.
    /// May return early.
    ///
    /// # Errors
    ///
    /// If it is closed, or the system refuses to wait.
    pub fn wait(&self, until: Nanos, hears: bool) -> io::Result<bool> {
        let bell = Self::get(&self.bell)?;
        let changes = Self::get(&self.changes)?;
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

    /// Closes the watch. The bell stays.
    ///
    /// # Safety
    ///
    /// Called in the process that opened the watch. Until this has ended, other threads call only
    /// [`Bell::ring`].
    pub unsafe fn close(&self) {
        close(&self.changes);
    }

    /// Closes the watch and its bell, which are the parent's, in the child of a fork.
    ///
    /// # Safety
    ///
    /// Called in the child, before it has another thread.
    pub unsafe fn reset_in_child(&self) {
        close(&self.changes);
        close(&self.bell);
    }
}

/// Closes a descriptor, if there is one, that no call uses.
fn close(of: &AtomicI32) {
    let descriptor = of.swap(NONE, Ordering::Relaxed);
    if descriptor != NONE {
        // SAFETY: `put` has given it up, and no call uses it.
        drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
    }
}

fn watch(changes: BorrowedFd<'_>, file: &Path) -> io::Result<Watched> {
    let number = inotify::add_watch(changes, file, inotify::WatchFlags::MODIFY)?;
    Ok(Watched(number))
}

/// Stores an open descriptor, which is the watch's from then on.
fn put(to: &AtomicI32, descriptor: OwnedFd) {
    to.store(descriptor.into_raw_fd(), Ordering::Relaxed);
}

/// Reads and discards what has come. Returns whether there was anything.
fn take_in(from: BorrowedFd<'_>) -> io::Result<bool> {
    let mut dropped = [0; 1024];
    // Once: what remains ends the next wait.
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

    /// The deadline of a wait that an event has to end.
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

    fn ring(watch: &Watch) {
        let bell = watch.bell().expect("it is open");
        // SAFETY: in this process.
        unsafe { bell.ring() };
    }

    #[test]
    fn what_there_is_ends_a_wait_once() {
        let (watch, file) = (Watch::new(), File::new("once"));
        assert!(watch.wait(0, true).is_err(), "it is closed");
        watch.add(&file.0).unwrap();
        watch.add(&file.0).unwrap();
        ring(&watch);
        ring(&watch);
        assert!(!watch.wait(FOR_EVER, true).unwrap());
        assert!(!watch.wait(0, true).unwrap());
        fs::write(&file.0, "after").unwrap();
        assert!(!watch.wait(0, false).unwrap(), "it does not hear");
        assert!(watch.wait(FOR_EVER, true).unwrap(), "but does not forget");
        assert!(!watch.wait(0, true).unwrap());
        let bell = watch.bell().unwrap();
        // SAFETY: no other thread has it.
        unsafe { watch.close() };
        assert!(watch.bell().is_none() && watch.wait(0, true).is_err());
        // SAFETY: in this process. As by a thread that has not noticed the close.
        unsafe { bell.ring() };
        watch.add(&file.0).unwrap();
        assert!(!watch.wait(FOR_EVER, true).unwrap());
        fs::write(&file.0, "again").unwrap();
        assert!(watch.wait(FOR_EVER, true).unwrap());
        // SAFETY: as above.
        unsafe { watch.reset_in_child() };
    }

    /// The file is looked up first, so no descriptor is kept for a file that does not exist.
    #[test]
    fn a_file_that_is_not_there_opens_nothing() {
        let (watch, file) = (Watch::new(), File::new("not-there"));
        assert!(watch.add(&file.0.join("not")).is_err());
        assert!(watch.bell().is_none());
        for kept in [&watch.changes, &watch.bell] {
            assert!(Watch::get(kept).is_err());
        }
        watch.add(&file.0).unwrap();
        assert!(watch.add(&file.0.join("not")).is_err());
        assert!(watch.bell().is_some(), "for the other one");
        // SAFETY: no other thread has it.
        unsafe { watch.reset_in_child() };
        assert!(Watch::get(&watch.bell).is_err());
    }

    #[test]
    fn a_file_that_is_watched_no_longer_ends_no_wait() {
        let watch = Watch::new();
        let files = ["one", "other"].map(File::new);
        let [one, other] = files.each_ref().map(|file| watch.add(&file.0).unwrap());
        assert_eq!(
            (watch.add(&files[0].0).unwrap(), one == other),
            (one, false)
        );
        watch.remove(one);
        // The kernel reports the removal, once.
        assert!(watch.wait(FOR_EVER, true).unwrap());
        fs::write(&files[0].0, "after").unwrap();
        assert!(!watch.wait(0, true).unwrap());
        fs::write(&files[1].0, "after").unwrap();
        assert!(watch.wait(FOR_EVER, true).unwrap());
        // SAFETY: no other thread has it.
        unsafe { watch.reset_in_child() };
    }
}
