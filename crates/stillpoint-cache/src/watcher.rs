//! The files whose changes the [service thread](crate::service) hears, and for which of the visited.
//!
//! They are the thread's own: it alone watches, waits and ends that, so none of it takes a lock, and
//! no file that one of the visited begins to follow meets the end of the watch. Each visit says which
//! file it follows until the next one; what no visit follows is watched no longer.

use std::{
    io,
    path::Path,
    sync::{Arc, Weak},
};
use stillpoint_platform::{
    clock::Nanos,
    fork::{Process, process},
    watch::{Bell, Watch, Watched},
};

/// A cache as the service thread sees it.
pub trait Visited: Send + Sync {
    /// Does what is due. Returns when to be visited again; `None` for not before it asks.
    fn visit(self: Arc<Self>, watcher: &mut Watcher<'_>) -> Option<Nanos>;
}

/// The files that the service thread follows, and for which cache.
pub struct Watcher<'w> {
    watch: &'w Watch,
    /// Whose descriptors these are. In a child of a fork, in which the thread goes on, they are another
    /// thread's.
    process: Process,
    followed: Vec<Followed>,
    /// What the visit that is under way follows.
    heard: Option<Watched>,
}

/// A file that is watched for what is visited.
struct Followed {
    by: Weak<dyn Visited>,
    what: Watched,
}

impl<'w> Watcher<'w> {
    /// # Safety
    ///
    /// No other thread of this process has the watch, or gets it while this is used.
    pub unsafe fn new(watch: &'w Watch) -> Self {
        Self {
            watch,
            process: process(),
            followed: Vec::new(),
            heard: None,
        }
    }

    /// Has all visits made at once when that file changes, from now on, until a visit of the same ends
    /// without this. One file for each visit. Where the system has nothing to watch files by, the
    /// caller has to look.
    pub fn hear(&mut self, file: &Path) {
        if self.is_own() {
            self.heard = self.watch.add(file).ok();
        }
    }

    fn is_own(&self) -> bool {
        process() == self.process
    }

    /// A visit has ended: what it does not follow any more is watched no longer. Nor is anything for
    /// it, if none `comes_again` that could end that.
    pub fn end_visit(&mut self, of: &Weak<dyn Visited>, comes_again: bool) {
        if !self.is_own() {
            // The handler has closed the parent's.
            (self.process, self.heard) = (process(), None);
            self.followed.clear();
            return;
        }
        let heard = self.heard.take();
        let is_it = |other: &Followed| other.by.as_ptr().cast::<()>() == of.as_ptr().cast();
        let before = self.followed.iter().position(is_it);
        let before = before.map(|index| self.followed.swap_remove(index).what);
        if let Some(what) = heard
            && comes_again
        {
            let by = Weak::clone(of);
            self.followed.push(Followed { by, what });
        }
        // After that: what is followed by another one now stays.
        [before, heard]
            .into_iter()
            .flatten()
            .for_each(|what| self.end(what));
    }

    /// Ends what is followed by those that were dropped, whose visits may never come.
    pub fn end_dropped(&mut self) {
        if !self.is_own() {
            return;
        }
        let is_dropped = |other: &Followed| other.by.strong_count() == 0;
        while let Some(index) = self.followed.iter().position(is_dropped) {
            let what = self.followed.swap_remove(index).what;
            self.end(what);
        }
    }

    /// Ends a file, and the watch with the last one, unless it is followed still.
    fn end(&mut self, what: Watched) {
        if self.followed.is_empty() {
            self.close();
        } else if self.followed.iter().all(|other| other.what != what) {
            self.watch.remove(what);
        }
    }

    /// Returns the bell that ends waits for files; `None` if no file is watched.
    pub fn bell(&self) -> Option<Bell> {
        self.watch.bell().filter(|_| self.is_own())
    }

    /// As [`Watch::wait`].
    pub fn wait(&self, until: Nanos, hears: bool) -> io::Result<bool> {
        self.watch.wait(until, hears)
    }

    /// Hears nothing any more.
    pub fn close(&mut self) {
        self.followed.clear();
        // SAFETY: the promise of `new`: no other thread has it.
        unsafe { self.watch.close() };
    }
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::*;
    use std::{fs, path::PathBuf, sync::Arc};

    struct Follows;

    impl Visited for Follows {
        fn visit(self: Arc<Self>, _: &mut Watcher<'_>) -> Option<Nanos> {
            None
        }
    }

    struct File(PathBuf);

    impl File {
        fn new(name: &str) -> Self {
            let name = format!("stillpoint-watcher-{}-{name}", std::process::id());
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

    fn weak(of: &Arc<Follows>) -> Weak<dyn Visited> {
        Arc::downgrade(&(Arc::clone(of) as Arc<dyn Visited>))
    }

    /// Whether changes of each file are heard.
    fn heard(watcher: &Watcher<'_>, files: &[File; 2]) -> [bool; 2] {
        files.each_ref().map(|file| {
            // What there was before, as of files that are watched no longer.
            while watcher.wait(0, true).is_ok_and(|heard| heard) {}
            fs::write(&file.0, "after").unwrap();
            watcher.wait(0, true).is_ok_and(|heard| heard)
        })
    }

    #[test]
    fn what_no_visit_follows_is_watched_no_longer() {
        let watch = Watch::new();
        // SAFETY: no other thread has it.
        let mut watcher = unsafe { Watcher::new(&watch) };
        let files = ["one", "other"].map(File::new);
        let [a, b, c] = [(); 3].map(|()| Arc::new(Follows));
        let visit = |watcher: &mut Watcher<'_>, of: &Weak<dyn Visited>, hears: Option<&File>| {
            if let Some(file) = hears {
                watcher.hear(&file.0);
            }
            watcher.end_visit(of, true);
        };
        visit(&mut watcher, &weak(&a), None);
        assert!(watcher.bell().is_none(), "for nothing");
        visit(&mut watcher, &weak(&a), Some(&files[0]));
        visit(&mut watcher, &weak(&b), Some(&files[0]));
        visit(&mut watcher, &weak(&c), None);
        assert_eq!(heard(&watcher, &files), [true, false]);
        // Another file, while the first is another one's.
        visit(&mut watcher, &weak(&a), Some(&files[1]));
        assert_eq!(heard(&watcher, &files), [true, true]);
        visit(&mut watcher, &weak(&b), None);
        assert_eq!(heard(&watcher, &files), [false, true]);
        // The last one gives way to a new one, which follows the same file.
        visit(&mut watcher, &weak(&b), Some(&files[1]));
        visit(&mut watcher, &weak(&a), None);
        assert_eq!(heard(&watcher, &files), [false, true]);
        // It was dropped, and the next visit is of another one.
        drop(b);
        visit(&mut watcher, &weak(&c), None);
        watcher.end_dropped();
        assert!(watcher.bell().is_none());
        // As one that finds in its midst that there is nothing to follow any more.
        watcher.hear(&files[0].0);
        watcher.end_visit(&weak(&c), false);
        assert!(watcher.bell().is_none());
        visit(&mut watcher, &weak(&c), Some(&files[0]));
        assert_eq!(heard(&watcher, &files), [true, false]);
        // Gone, and so followed no longer.
        visit(&mut watcher, &weak(&c), Some(&File(files[0].0.join("not"))));
        assert!(watcher.bell().is_none());
    }

    /// User code has forked in a visit: another thread of the child may have the watch by then.
    #[test]
    fn in_a_child_the_visit_that_was_under_way_hears_nothing() {
        // So that this process sees forks.
        let _cache = crate::Cache::<u64, u64>::with_bytes(1);
        let (watch, file) = (Watch::new(), File::new("child"));
        // SAFETY: no other thread has it.
        let mut watcher = unsafe { Watcher::new(&watch) };
        let follows = Arc::new(Follows);
        let what = weak(&follows);
        watcher.hear(&file.0);
        watcher.end_visit(&what, true);
        watcher.hear(&file.0);
        // SAFETY: the child makes system calls, and ends.
        match unsafe { libc::fork() } {
            -1 => panic!("no fork"),
            0 => {
                // SAFETY: as the handler does, to that of the process.
                unsafe { watch.reset_in_child() };
                watcher.hear(&file.0);
                let is_deaf = watch.bell().is_none() && watcher.bell().is_none();
                // Another thread has the watch by now, and what the parent's follows has been dropped.
                // SAFETY: the one above is deaf.
                let mut others = unsafe { Watcher::new(&watch) };
                let other = Arc::new(Follows);
                others.hear(&file.0);
                others.end_visit(&weak(&other), true);
                drop(follows);
                watcher.end_dropped();
                let leaves_it = others.bell().is_some();
                others.close();
                watcher.end_visit(&what, true);
                let has_forgotten = watcher.followed.is_empty();
                watcher.hear(&file.0);
                watcher.end_visit(&what, true);
                let hears = watcher.bell().is_some() && watcher.followed.len() == 1;
                // SAFETY: it ends the child without destructors.
                unsafe {
                    libc::_exit(i32::from(!(is_deaf && leaves_it && has_forgotten && hears)))
                };
            }
            child => {
                let mut status = 0;
                // SAFETY: a child of ours, and a place for its status.
                unsafe { libc::waitpid(child, &raw mut status, 0) };
                assert_eq!(status, 0);
            }
        }
        watcher.close();
    }
}
