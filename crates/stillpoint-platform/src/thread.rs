//! The calling thread's identity, and starting another thread.
//!
//! C programs register thread exit by a POSIX key: a thread that finds the key must also find what
//! the C library wrote for it, above all its destructor. That ordering is internal to the C
//! library, so there is no model of it.

use crate::memory;
use std::{io, num::NonZeroU64};

pub use crate::seam::thread::token;
#[cfg(all(target_os = "linux", not(miri)))]
pub use bare::Handle;
pub use inherited::without_signals;
#[cfg(not(all(target_os = "linux", not(miri))))]
pub use other::Handle;

mod inherited;

/// A number that no other thread of this process has or will have. Unlike a thread id it is never
/// used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token(pub(crate) NonZeroU64);

impl Token {
    /// Returns the number.
    #[inline]
    pub fn get(self) -> u64 {
        self.0.get()
    }
}

/// Returns the kernel's id of the calling thread; 0 where there is none.
pub fn tid() -> u32 {
    #[cfg(all(target_os = "linux", not(miri)))]
    return rustix::thread::gettid().as_raw_pid().cast_unsigned();
    #[cfg(not(all(target_os = "linux", not(miri))))]
    0
}

/// Returns the name of the thread with kernel id `tid`, as the program set it; `None` once the thread has
/// exited, or if it cannot be read.
pub fn name_of(tid: u32) -> Option<String> {
    let name = std::fs::read_to_string(format!("/proc/self/task/{tid}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}

/// Returns the system call in which the thread with kernel id `tid` sleeps, if it is one in which
/// threads commonly sleep; `None` if the thread runs, sleeps elsewhere or has exited, and if it
/// cannot be read.
pub fn blocked_in(tid: u32) -> Option<SystemCall> {
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        // For the thread that reads the file, it shows the `read()`.
        if tid == self::tid() {
            return None;
        }
        let state = std::fs::read_to_string(format!("/proc/self/task/{tid}/syscall")).ok()?;
        // "running" if it runs; -1 outside of any call.
        let number: libc::c_long = state.split(' ').next()?.trim_end().parse().ok()?;
        let known = SYSTEM_CALLS.iter().find(|(known, _)| *known == number);
        known.map(|&(_, call)| call)
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    {
        let _ = tid;
        None
    }
}

/// A system call that a thread sleeps in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SystemCall {
    /// Its name.
    pub name: &'static str,
    /// The kind of event that it waits for.
    pub waits_for: WaitsFor,
}

/// The kind of event that a system call waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitsFor {
    /// Events of many files, as for executors and event loops.
    Events,
    /// Another thread: a lock, a channel, an executor's task.
    Thread,
    /// A time, or one file.
    Other,
}

/// System calls in which a thread that holds up others may sleep, by their numbers.
#[cfg(all(target_os = "linux", not(miri)))]
const SYSTEM_CALLS: &[(libc::c_long, SystemCall)] = {
    use WaitsFor::{Events, Other, Thread};
    const fn call(name: &'static str, waits_for: WaitsFor) -> SystemCall {
        SystemCall { name, waits_for }
    }
    &[
        (libc::SYS_futex, call("futex", Thread)),
        (libc::SYS_epoll_pwait, call("epoll_pwait", Events)),
        (libc::SYS_epoll_pwait2, call("epoll_pwait2", Events)),
        (libc::SYS_ppoll, call("ppoll", Events)),
        (libc::SYS_pselect6, call("pselect6", Events)),
        (libc::SYS_io_uring_enter, call("io_uring_enter", Events)),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_epoll_wait, call("epoll_wait", Events)),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_poll, call("poll", Events)),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_select, call("select", Events)),
        (libc::SYS_clock_nanosleep, call("clock_nanosleep", Other)),
        (libc::SYS_nanosleep, call("nanosleep", Other)),
        (libc::SYS_read, call("read", Other)),
        (libc::SYS_write, call("write", Other)),
        (libc::SYS_recvfrom, call("recvfrom", Other)),
        (libc::SYS_recvmsg, call("recvmsg", Other)),
        (libc::SYS_sendto, call("sendto", Other)),
        (libc::SYS_sendmsg, call("sendmsg", Other)),
        (libc::SYS_connect, call("connect", Other)),
        (libc::SYS_accept4, call("accept4", Other)),
        (libc::SYS_wait4, call("wait4", Other)),
        (libc::SYS_flock, call("flock", Other)),
        (libc::SYS_fsync, call("fsync", Other)),
    ]
};

/// Upper bound on what starting a thread allocates, in bytes, apart from large `work`.
pub const START_BYTES: usize = 4096;

/// Starts a thread of the library that runs `work`. It inherits neither the signal mask nor the
/// scheduling of the calling thread: it blocks all signals except those of a crash, and has the main
/// thread's affinity, and its policy and nice value where the kernel permits that.
///
/// In the child of a fork it is not one of std's threads: those take a process-wide lock when they
/// start and end (for their stack overflow message), which a thread that the fork removed may have
/// held. In the C library it is not one of std's either: std ends the process if there is no memory
/// for a thread's own data.
///
/// # Errors
///
/// If the system refuses the thread, or there is no memory for it.
pub fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<Handle> {
    if !memory::is_there_for(START_BYTES) {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    let name = name.to_owned();
    let work = move || {
        inherited::follow_main_thread();
        work();
    };
    without_signals(|| {
        #[cfg(all(target_os = "linux", not(miri)))]
        if cfg!(feature = "c-symbols") || super::fork::process().is_child() {
            return bare::spawn(name, Box::new(work));
        }
        std::thread::Builder::new()
            .name(name)
            .spawn(work)
            .map(Handle::from)
    })
}

/// Threads as the C library knows them.
#[cfg(all(target_os = "linux", not(miri)))]
mod bare {
    use super::inherited::SignalStack;
    use crate::user_code;
    use std::{ffi::CString, io, mem, os::unix::thread::JoinHandleExt, ptr, thread::JoinHandle};

    /// A thread that may be joined; detached when this is dropped. It has been neither joined nor detached.
    #[derive(Debug)]
    pub struct Handle(libc::pthread_t);

    // SAFETY: a thread's id is good on every thread of the process; some C libraries (musl)
    // represent it as a pointer.
    unsafe impl Send for Handle {}

    impl From<JoinHandle<()>> for Handle {
        fn from(thread: JoinHandle<()>) -> Self {
            Self(thread.into_pthread_t())
        }
    }

    struct Start {
        name: Option<CString>,
        work: Box<dyn FnOnce() + Send>,
    }

    extern "C" fn start(argument: *mut libc::c_void) -> *mut libc::c_void {
        // SAFETY: `spawn` has left the box to this thread.
        let Start { name, work } = *unsafe { Box::from_raw(argument.cast::<Start>()) };
        if let Some(name) = name {
            // For debug output only.
            let _ = rustix::thread::set_name(&name);
        }
        let _stack = SignalStack::install();
        // A panic here has been printed.
        let _ = user_code::contained(work);
        ptr::null_mut()
    }

    /// Starts a thread without std.
    pub(super) fn spawn(name: String, work: Box<dyn FnOnce() + Send>) -> io::Result<Handle> {
        let argument = Box::into_raw(Box::new(Start {
            name: CString::new(name).ok(),
            work,
        }));
        let mut thread = mem::MaybeUninit::uninit();
        // SAFETY: a place for the thread's id, the usual attributes, and what `start` expects.
        match unsafe {
            libc::pthread_create(thread.as_mut_ptr(), ptr::null(), start, argument.cast())
        } {
            // SAFETY: it has been written.
            0 => Ok(Handle(unsafe { thread.assume_init() })),
            error => {
                // SAFETY: no thread has been started, so the box is still ours.
                drop(unsafe { Box::from_raw(argument) });
                Err(io::Error::from_raw_os_error(error))
            }
        }
    }

    impl Handle {
        /// Returns the C library's id of the thread, for the caller to join or detach.
        pub fn into_pthread_t(self) -> libc::pthread_t {
            mem::ManuallyDrop::new(self).0
        }

        /// Waits for the thread's end. A panic of the thread has been printed.
        pub fn join(self) {
            // SAFETY: neither joined nor detached, and not used again.
            unsafe { libc::pthread_join(self.into_pthread_t(), ptr::null_mut()) };
        }

        /// Joins the thread if it has ended and has run the destructors of its thread-local variables.
        /// Does not wait.
        ///
        /// # Errors
        ///
        /// If the thread has not ended. The error is `self`.
        pub fn try_join(self) -> Result<(), Self> {
            // SAFETY: neither joined nor detached, and not used again if it has been joined.
            if unsafe { libc::pthread_tryjoin_np(self.0, ptr::null_mut()) } == 0 {
                mem::forget(self);
                Ok(())
            } else {
                Err(self)
            }
        }
    }

    impl Drop for Handle {
        fn drop(&mut self) {
            // SAFETY: neither joined nor detached, and not used again.
            unsafe { libc::pthread_detach(self.0) };
        }
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
mod other {
    use std::thread::JoinHandle;

    /// A thread that may be joined; detached when this is dropped.
    #[derive(Debug)]
    pub struct Handle(JoinHandle<()>);

    impl From<JoinHandle<()>> for Handle {
        fn from(thread: JoinHandle<()>) -> Self {
            Self(thread)
        }
    }

    impl Handle {
        /// Waits for the thread's end. A panic of the thread has been printed.
        pub fn join(self) {
            drop(self.0.join());
        }

        /// Joins the thread if it has ended. There is no way to tell when its destructors have run.
        ///
        /// # Errors
        ///
        /// If the thread has not ended. The error is `self`.
        pub fn try_join(self) -> Result<(), Self> {
            if self.0.is_finished() {
                self.join();
                Ok(())
            } else {
                Err(self)
            }
        }
    }
}

/// Registers `end` to run once when the calling thread exits. Returns false at the very end of the
/// thread and, in the C library, if out of memory. A process registers only one function.
///
/// In the C library this is a POSIX key. Its destructors run after those of all thread-local
/// objects, and not in a thread that ends the process. Each thread has storage for it, whereas
/// std's registration allocates, and aborts the process if that fails.
pub fn call_at_end(end: fn()) -> bool {
    #[cfg(all(feature = "c-symbols", target_os = "linux"))]
    return key::call_at_end(end);
    #[cfg(not(all(feature = "c-symbols", target_os = "linux")))]
    {
        use std::cell::Cell;
        struct AtEnd(Cell<Option<fn()>>);
        impl Drop for AtEnd {
            fn drop(&mut self) {
                if let Some(end) = self.0.take() {
                    end();
                }
            }
        }
        thread_local!(static AT_END: AtEnd = const { AtEnd(Cell::new(None)) });
        AT_END.try_with(|at_end| at_end.0.set(Some(end))).is_ok()
    }
}

/// A POSIX thread-specific data key.
#[cfg(all(feature = "c-symbols", target_os = "linux"))]
mod key {
    use std::{
        ffi::c_void,
        mem,
        sync::atomic::{AtomicU64, Ordering},
    };

    /// The key's number plus one; 0 if there is none yet.
    static KEY: AtomicU64 = AtomicU64::new(0);

    unsafe extern "C" fn destructor(end: *mut c_void) {
        // SAFETY: a `fn()`, which `call_at_end` has put there.
        let end = unsafe { mem::transmute::<*mut c_void, fn()>(end) };
        end();
    }

    /// Two threads may both make a key; the slower deletes its own. Neither waits for the other,
    /// which a fork may remove.
    fn key() -> Option<libc::pthread_key_t> {
        // Acquire, pairs with the exchange in `key`: the key that is found has its destructor.
        let known = KEY.load(Ordering::Acquire);
        if known > 0 {
            return libc::pthread_key_t::try_from(known - 1).ok();
        }
        let mut made = 0;
        // SAFETY: a place for the key, and a destructor for what is put there.
        if unsafe { libc::pthread_key_create(&raw mut made, Some(destructor)) } != 0 {
            return None;
        }
        // Release, pairs with both acquires in `key`: the destructor is there before the key is
        // found. Acquire, pairs with that release of the faster thread's.
        match KEY.compare_exchange(0, u64::from(made) + 1, Ordering::Release, Ordering::Acquire) {
            Ok(_) => Some(made),
            Err(faster) => {
                // SAFETY: made just now and never used.
                unsafe { libc::pthread_key_delete(made) };
                libc::pthread_key_t::try_from(faster - 1).ok()
            }
        }
    }

    pub(super) fn call_at_end(end: fn()) -> bool {
        // SAFETY: a key of ours.
        key()
            .is_some_and(|key| unsafe { libc::pthread_setspecific(key, end as *const c_void) } == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn a_bare_thread_works_and_is_joined_and_found_by_its_id() {
        let spawn = |work| bare::spawn("bare".into(), work).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        spawn(Box::new(move || {
            tell.send((token(), name_of(tid()))).unwrap()
        }))
        .join();
        let (theirs, name) = told.recv().unwrap();
        assert_ne!(theirs, token());
        assert_eq!(name.as_deref(), Some("bare"));
        assert_eq!(name_of(u32::MAX), None);
        spawn(Box::new(|| std::panic::resume_unwind(Box::new("expected")))).join();
    }

    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn a_thread_is_joined_without_a_wait_once_it_is_gone() {
        use std::{
            cell::RefCell,
            sync::mpsc::{Receiver, channel},
        };
        struct Blocks(Option<Receiver<()>>);
        impl Drop for Blocks {
            fn drop(&mut self) {
                let _ = self.0.take().map(|may_end| may_end.recv());
            }
        }
        thread_local!(static AT_END: RefCell<Blocks> = const { RefCell::new(Blocks(None)) });
        for is_bare in [false, true] {
            let (end, may_end) = channel();
            let work = move || AT_END.with_borrow_mut(|at_end| at_end.0 = Some(may_end));
            let mut thread = if is_bare {
                bare::spawn("bare".into(), Box::new(work)).unwrap()
            } else {
                std::thread::spawn(work).into()
            };
            for _ in 0..20 {
                thread = thread.try_join().expect_err("its destructor blocks");
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            drop(end);
            while let Err(running) = thread.try_join() {
                thread = running;
            }
        }
    }

    #[test]
    fn tokens_differ_between_threads_and_stay() {
        let mine = token();
        assert_eq!(mine, token());
        assert_ne!(mine, std::thread::spawn(token).join().unwrap());
    }

    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn a_thread_that_sleeps_says_in_which_call() {
        use std::{sync::mpsc::channel, time::Duration};
        let ((tell, told), (end, may_end)) = (channel(), channel::<()>());
        let sleeper = std::thread::spawn(move || {
            tell.send(tid()).unwrap();
            let _ = may_end.recv();
        });
        let theirs = told.recv().unwrap();
        // Kernels may be built without the file.
        if std::fs::exists("/proc/self/syscall").unwrap() {
            while blocked_in(theirs).map(|call| call.name) != Some("futex") {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        assert_eq!(blocked_in(tid()), None, "it runs");
        assert_eq!(blocked_in(u32::MAX), None);
        drop(end);
        sleeper.join().unwrap();
    }
}
