//! Forking in tests. A forked child that finds a fault ends with a status that the parent sees.

use super::{Tally, eventually, retire, retire_inline};
use std::{
    fs::File,
    io::{Read, Seek},
    mem,
    os::fd::{AsRawFd, FromRawFd},
    panic::{self, AssertUnwindSafe},
    ptr,
};
use stillpoint::{Domain, Rcu, Statistics};

/// Time limit of a forked child in seconds, after which the kernel ends it.
pub const ALARM: u32 = 60;

/// The child of a fork, as its parent sees it.
#[must_use]
pub struct Forked(libc::pid_t);

impl Forked {
    /// Fails the test unless the child has done all of its work.
    #[track_caller]
    pub fn well(self) {
        let mut status = 0;
        // SAFETY: our own child, and a place for its status. The child's alarm bounds the wait.
        assert_eq!(unsafe { libc::waitpid(self.0, &raw mut status, 0) }, self.0);
        assert_ne!(
            libc::WTERMSIG(status),
            libc::SIGALRM,
            "the forked child hangs"
        );
        assert_eq!(status, 0, "the forked child has failed");
    }
}

/// The child of a fork that may end with a message, because it needs the lock of a thread that is
/// gone.
#[must_use]
pub struct Muted {
    child: Forked,
    stderr: File,
}

impl Muted {
    /// Like [`Forked::well`], for a child that may also have ended with the message of a lost lock.
    /// Returns whether it has ended well.
    #[track_caller]
    pub fn well_or_aborted(mut self) -> bool {
        let (Forked(child), mut status, mut said) = (self.child, 0, Vec::new());
        // SAFETY: as in `well`.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        self.stderr.rewind().expect("a file in memory");
        self.stderr
            .read_to_end(&mut said)
            .expect("a file in memory");
        let said = String::from_utf8_lossy(&said);
        let is_aborted = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGABRT;
        assert!(
            status == 0 || is_aborted && said.contains("held a lock at the fork"),
            "the child fails or hangs: {status}, {said}"
        );
        status == 0
    }
}

/// Like [`fork`], for a child whose message is kept instead of shown.
pub fn fork_muted(work: impl FnOnce()) -> Muted {
    // SAFETY: a text that ends in 0; the descriptor is new.
    let stderr = unsafe {
        let file = libc::memfd_create(c"stderr".as_ptr(), libc::MFD_CLOEXEC);
        assert!(file >= 0, "no file in memory");
        File::from_raw_fd(file)
    };
    let child = fork(|| {
        // SAFETY: no object of this process has the descriptor of standard error.
        unsafe { libc::dup2(stderr.as_raw_fd(), libc::STDERR_FILENO) };
        work();
    });
    Muted { child, stderr }
}

/// Ends the process, successfully unless `work` panics, and without any exit handler.
pub fn end_after(work: impl FnOnce()) -> ! {
    end(panic::catch_unwind(AssertUnwindSafe(work)).is_err())
}

/// Ends the process without any exit handler, except the one that coverage needs.
pub fn end(failed: bool) -> ! {
    #[cfg(coverage)]
    {
        unsafe extern "C" {
            fn __llvm_profile_write_file() -> libc::c_int;
        }
        // SAFETY: programs that are built for coverage have it; it adds this process's counts to
        // those in the file, which it locks.
        unsafe { __llvm_profile_write_file() };
    }
    // SAFETY: ends the process.
    unsafe { libc::_exit(i32::from(failed)) }
}

/// Forks. The child does `work` and ends.
pub fn fork(work: impl FnOnce()) -> Forked {
    match fork_here() {
        Some(child) => child,
        None => end_after(work),
    }
}

/// Forks, and does `work` in the child and then in the parent.
pub fn in_both(work: impl FnOnce()) {
    match fork_here() {
        Some(child) => {
            child.well();
            work();
        }
        None => end_after(work),
    }
}

/// Forks, and returns in both processes; `None` in the child.
pub fn fork_here() -> Option<Forked> {
    // SAFETY: what the child goes on to use is this library, whose promise is the subject here, and
    // Rust's, whose locks glibc's fork handles.
    match unsafe { libc::fork() } {
        -1 => panic!("no process"),
        0 => {
            // SAFETY: no handler; the alarm ends the process.
            unsafe { libc::alarm(ALARM) };
            None
        }
        child => Some(Forked(child)),
    }
}

/// A thread not made by std, for forked children: std's threads take a lock at their start and end,
/// which a thread that the fork removed may have held.
#[must_use]
pub struct Bare(libc::pthread_t);

impl Bare {
    pub fn spawn(work: impl FnOnce() + Send + 'static) -> Self {
        type Work = Box<dyn FnOnce() + Send>;
        extern "C" fn start(work: *mut libc::c_void) -> *mut libc::c_void {
            // SAFETY: left to this thread below.
            let work = unsafe { Box::from_raw(work.cast::<Work>()) };
            // Not the name of the thread that started it. SAFETY: a text that ends in 0.
            unsafe { libc::prctl(libc::PR_SET_NAME, c"bare".as_ptr()) };
            let failed = panic::catch_unwind(AssertUnwindSafe(work)).is_err();
            ptr::without_provenance_mut(usize::from(failed))
        }
        let work: *mut Work = Box::into_raw(Box::new(Box::new(work)));
        let mut thread = mem::MaybeUninit::uninit();
        assert_eq!(
            // SAFETY: a place for the id, the usual attributes, and what `start` expects.
            unsafe { libc::pthread_create(thread.as_mut_ptr(), ptr::null(), start, work.cast()) },
            0
        );
        // SAFETY: it has been written.
        Self(unsafe { thread.assume_init() })
    }

    #[track_caller]
    pub fn join(self) {
        let mut failed = ptr::null_mut();
        // SAFETY: joined once, and a place for the result.
        assert_eq!(unsafe { libc::pthread_join(self.0, &raw mut failed) }, 0);
        assert!(failed.is_null(), "a thread has panicked");
    }
}

/// Runs `work` on a separate thread, and returns its result.
#[track_caller]
pub fn elsewhere<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    let mut result = None;
    {
        let work: Box<dyn FnOnce() + Send + '_> = Box::new(|| result = Some(work()));
        // SAFETY: the thread is joined before anything that is borrowed ends.
        let work: Box<dyn FnOnce() + Send + 'static> = unsafe { mem::transmute(work) };
        Bare::spawn(work).join();
    }
    result.expect("it has returned")
}

/// The pending objects, bytes, pages and callbacks.
pub fn waiting(
    Statistics {
        objects_pending,
        bytes_pending,
        pages,
        callbacks_pending,
        ..
    }: Statistics,
) -> [u64; 4] {
    [objects_pending, bytes_pending, pages, callbacks_pending]
}

/// Checks that everything in `domain` works, on this thread and on a new one, which is outside any
/// section.
pub fn assert_works(domain: &Domain) {
    assert_works_here(domain);
    elsewhere(|| assert_works_here(domain));
    // A thread that ends hands its open pages over, empty as they are. Until those are back, the
    // bytes are a racy snapshot.
    eventually(|| {
        let [objects, bytes, _open, callbacks] = waiting(domain.statistics());
        assert_eq!((objects, callbacks), (0, 0));
        bytes == 0
    });
}

/// More than a page holds.
pub const SOME: u64 = 700;

pub fn assert_works_here(domain: &Domain) {
    let tally = Tally::new();
    let cell = Rcu::new_in(domain, tally.value(1));
    let cookie = domain.start_poll();
    {
        let guard = domain.read_lock();
        let value = cell.load(&guard);
        cell.store(tally.value(2));
        assert_eq!(value.get(), 1);
        assert!(!domain.poll(domain.get_state()), "the section holds it up");
    }
    domain.synchronize();
    domain.synchronize_expedited();
    assert!(domain.poll(cookie));
    for number in 0..SOME {
        retire(domain, tally.value(number));
        retire_inline(domain, tally.value(number));
        retire(domain, number);
        let value = tally.value(number);
        domain.call(move || drop(value));
    }
    domain.barrier();
    drop(cell);
    domain.kvfree_barrier();
    assert!(
        tally.all_dropped(),
        "{} of {}",
        tally.dropped(),
        tally.made()
    );
}
