//! Keeps the library's threads from inheriting the signal mask, policy, nice value and affinity of the
//! thread that happens to start them.
//!
//! The thread that brings the first work may be the least important of the program, or confined to
//! one processor, and all later work would have to wait for it.

/// Signals that a crash raises on the thread itself. Whether they are blocked does not change: if a
/// thread crashes by one that it blocks, the kernel ends the process without the program's crash
/// handler; and a program blocks one in all threads if one of them waits for it.
#[cfg(all(unix, not(miri)))]
const OF_CRASHES: [libc::c_int; 6] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGSYS,
];

/// Runs `spawn` with every other signal blocked in the calling thread, so that a thread which it starts
/// has them blocked for good: a handler of the program must never find itself on a thread that the
/// program does not know, in the middle of an allocation.
pub fn without_signals<R>(spawn: impl FnOnce() -> R) -> R {
    #[cfg(all(unix, not(miri)))]
    let _restore = {
        struct Restore(libc::sigset_t);
        impl Drop for Restore {
            fn drop(&mut self) {
                // SAFETY: the set that the call below has filled in.
                unsafe {
                    libc::pthread_sigmask(
                        libc::SIG_SETMASK,
                        &raw const self.0,
                        std::ptr::null_mut(),
                    )
                };
            }
        }
        // SAFETY: plain integers, for which zeroes are a value.
        let (mut all, mut old): (libc::sigset_t, libc::sigset_t) = unsafe { std::mem::zeroed() };
        // SAFETY: pointers to our own sets. No call can fail with these arguments.
        unsafe {
            libc::sigfillset(&raw mut all);
            for signal in OF_CRASHES {
                libc::sigdelset(&raw mut all, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut old);
        }
        Restore(old)
    };
    spawn()
}

#[cfg(not(all(target_os = "linux", not(miri))))]
pub(super) fn follow_main_thread() {}

#[cfg(all(target_os = "linux", not(miri)))]
pub(super) use linux::{SignalStack, follow_main_thread};

#[cfg(all(target_os = "linux", not(miri)))]
mod linux {
    use crate::mmap::{Backing, Mapping, page_size};
    use std::{mem, ptr};

    /// Room for 8,192 processors, the most that a kernel is built for.
    type Processors = [u64; 128];

    /// The kernel's `struct sched_attr`, in its first version.
    #[repr(C)]
    #[derive(Debug, Default, Clone, Copy)]
    pub(super) struct Scheduling {
        pub(super) size: u32,
        pub(super) policy: u32,
        pub(super) flags: u64,
        pub(super) nice: i32,
        pub(super) priority: u32,
        pub(super) runtime: u64,
        pub(super) deadline: u64,
        pub(super) period: u64,
    }

    /// Gives the calling thread the affinity, policy and nice value of the main thread.
    ///
    /// An attribute that the kernel does not let the thread change stays: without `RLIMIT_NICE` a
    /// thread neither leaves `SCHED_IDLE` nor lowers its nice value. An attribute that is equal is not
    /// set: seccomp filters often forbid that, for programs that do not do it themselves.
    pub(in crate::thread) fn follow_main_thread() {
        // SAFETY: it always succeeds.
        let main = unsafe { libc::getpid() };
        if let (Some(theirs), Some(own)) = (affinity(main), affinity(0))
            && theirs != own
        {
            // SAFETY: reads the set.
            unsafe {
                libc::syscall(
                    libc::SYS_sched_setaffinity,
                    0,
                    size_of::<Processors>(),
                    &raw const theirs,
                )
            };
        }
        if let (Some(theirs), Some(own)) = (scheduling(main).map(of_a_child), scheduling(0))
            && (theirs.policy, theirs.nice, theirs.priority) != (own.policy, own.nice, own.priority)
        {
            // The policy alone, if the nice value may not be lowered.
            let _ = set_scheduling(theirs)
                || set_scheduling(Scheduling {
                    nice: own.nice,
                    ..theirs
                });
        }
    }

    /// Returns the scheduling that a thread inherits if the thread that starts it has the scheduling
    /// `starter`. Real-time programs often set a flag by which the new thread is not real-time.
    pub(super) fn of_a_child(starter: Scheduling) -> Scheduling {
        const RESET_ON_FORK: u64 = libc::SCHED_FLAG_RESET_ON_FORK as u64;
        if starter.flags & RESET_ON_FORK == 0 {
            return starter;
        }
        let is_usual = [libc::SCHED_OTHER, libc::SCHED_BATCH, libc::SCHED_IDLE]
            .contains(&starter.policy.cast_signed());
        Scheduling {
            policy: if is_usual {
                starter.policy
            } else {
                libc::SCHED_OTHER.cast_unsigned()
            },
            nice: starter.nice.max(0),
            priority: 0,
            ..starter
        }
    }

    fn affinity(thread: libc::pid_t) -> Option<Processors> {
        let mut processors = [0; 128];
        // SAFETY: writes to the set, as much as it has room for. The system call, and not the C
        // library's function, whose set has room for 1,024.
        let written = unsafe {
            libc::syscall(
                libc::SYS_sched_getaffinity,
                thread,
                size_of::<Processors>(),
                &raw mut processors,
            )
        };
        (written > 0).then_some(processors)
    }

    pub(super) fn scheduling(thread: libc::pid_t) -> Option<Scheduling> {
        let mut found = Scheduling::default();
        let size = size_of::<Scheduling>();
        // SAFETY: writes to the structure, as much as it has room for.
        let failed =
            unsafe { libc::syscall(libc::SYS_sched_getattr, thread, &raw mut found, size, 0) };
        (failed == 0).then_some(found)
    }

    /// Sets the calling thread's policy, nice value and priority. Returns whether the kernel permits
    /// that. A deadline's times are not copied, so the kernel refuses that policy.
    pub(super) fn set_scheduling(wanted: Scheduling) -> bool {
        let wanted = Scheduling {
            size: size_of::<Scheduling>() as u32,
            policy: wanted.policy,
            nice: wanted.nice,
            priority: wanted.priority,
            ..Scheduling::default()
        };
        // SAFETY: reads the structure.
        unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const wanted, 0) == 0 }
    }

    /// A stack for signal handlers, as std's threads have one. A handler of a stack overflow runs on it,
    /// if it asks for that (`SA_ONSTACK`). Dropped by the thread that has installed it.
    #[derive(Debug)]
    pub(in crate::thread) struct SignalStack(Mapping);

    /// Its size in bytes: enough for a handler that unwinds.
    const SIGNAL_STACK: usize = 64 << 10;

    impl SignalStack {
        /// Installs a stack above a page that faults. Returns `None` if the thread has one, or if out
        /// of memory.
        pub(in crate::thread) fn install() -> Option<Self> {
            if present().ss_flags & libc::SS_DISABLE == 0 {
                return None;
            }
            // SAFETY: asks the system; 0 if it does not know, or the number does not fit.
            let least = unsafe { libc::getauxval(libc::AT_MINSIGSTKSZ) } as usize;
            let page = page_size();
            let size = SIGNAL_STACK.max(2 * least).next_multiple_of(page);
            let mapping = Mapping::reserve(page + size, page, Backing::Anonymous).ok()?;
            mapping.allow(page, size).ok()?;
            let stack = libc::stack_t {
                // SAFETY: within the mapping.
                ss_sp: unsafe { mapping.start().add(page) }.as_ptr().cast(),
                ss_flags: 0,
                ss_size: size,
            };
            // SAFETY: the mapping stays until `drop`.
            let refused = unsafe { libc::sigaltstack(&raw const stack, ptr::null_mut()) };
            (refused == 0).then_some(Self(mapping))
        }
    }

    impl Drop for SignalStack {
        fn drop(&mut self) {
            let mut present = present();
            if present
                .ss_sp
                .addr()
                .wrapping_sub(self.0.start().addr().get())
                < self.0.len()
            {
                present.ss_flags = libc::SS_DISABLE;
                // SAFETY: takes ours away; no handler runs on it, as this function runs.
                unsafe { libc::sigaltstack(&raw const present, ptr::null_mut()) };
            }
        }
    }

    /// Returns the calling thread's stack for signal handlers.
    fn present() -> libc::stack_t {
        // SAFETY: plain integers and a pointer, for which zeroes are a value.
        let mut present: libc::stack_t = unsafe { mem::zeroed() };
        // SAFETY: writes to the structure.
        unsafe { libc::sigaltstack(ptr::null(), &raw mut present) };
        present
    }
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::*;
    use crate::thread;
    use std::{mem, ptr, sync::mpsc::channel};

    /// Returns the result of `look` on a thread that the library starts.
    fn seen<R: Send + 'static>(look: impl FnOnce() -> R + Send + 'static) -> R {
        let (tell, told) = channel();
        let thread = thread::spawn("seen", move || tell.send(look()).unwrap()).unwrap();
        let seen = told.recv().unwrap();
        thread.join();
        seen
    }

    fn blocked() -> Vec<libc::c_int> {
        // SAFETY: plain integers, for which zeroes are a value.
        let mut set: libc::sigset_t = unsafe { mem::zeroed() };
        // SAFETY: writes to the set.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), &raw mut set) };
        // SAFETY: reads the set.
        (1..32)
            .filter(|&signal| unsafe { libc::sigismember(&raw const set, signal) } == 1)
            .collect()
    }

    /// A thread that waits for such a signal blocks it. Its default action would end the process.
    #[test]
    fn a_starter_keeps_the_signals_of_a_crash_blocked() {
        // SAFETY: plain integers, for which zeroes are a value.
        let mut set: libc::sigset_t = unsafe { mem::zeroed() };
        // SAFETY: changes this thread alone; the set is a local variable.
        unsafe {
            libc::sigemptyset(&raw mut set);
            libc::sigaddset(&raw mut set, libc::SIGTRAP);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut());
            libc::pthread_kill(libc::pthread_self(), libc::SIGTRAP);
        }
        assert!(seen(blocked).contains(&libc::SIGTRAP));
        let mut taken = 0;
        // SAFETY: writes to the number.
        unsafe { libc::sigwait(&raw const set, &raw mut taken) };
        assert_eq!(taken, libc::SIGTRAP);
        // SAFETY: as above.
        unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, ptr::null_mut()) };
    }

    #[test]
    fn a_thread_blocks_all_signals_but_those_of_a_crash() {
        let before = blocked();
        let theirs = seen(blocked);
        let expected: Vec<_> = (1..32)
            .filter(|signal| !OF_CRASHES.contains(signal))
            .filter(|signal| ![libc::SIGKILL, libc::SIGSTOP].contains(signal))
            .collect();
        assert_eq!(theirs, expected);
        assert_eq!(blocked(), before, "the caller's own mask is restored");
    }

    /// An unprivileged user may not leave `SCHED_IDLE`, nor lower a nice value: the thread stays so.
    #[test]
    fn a_thread_has_the_main_threads_scheduling_and_not_its_starters() {
        // SAFETY: it always succeeds.
        let main = unsafe { libc::getpid() };
        let seen_by_kernel = |thread| {
            let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap();
            let fields: Vec<_> = stat
                .rsplit(')')
                .next()
                .unwrap()
                .split_whitespace()
                .collect();
            let status =
                std::fs::read_to_string(format!("/proc/self/task/{thread}/status")).unwrap();
            let line = |name| status.lines().find(|line| line.starts_with(name)).unwrap();
            // The nice value, the real-time priority and the policy: see proc(5).
            let scheduling = [fields[16], fields[37], fields[38]].map(str::to_owned);
            (line("Cpus_allowed:").to_owned(), scheduling)
        };
        let own = move || seen_by_kernel(thread::tid() as libc::pid_t);
        let expected = seen_by_kernel(main);
        let from = |confined: fn()| {
            std::thread::spawn(move || {
                confined();
                (own(), seen(own))
            })
            .join()
            .unwrap()
        };
        let (starter, theirs) = from(|| {
            // SAFETY: a set of our own with one processor, the first that the thread may use.
            unsafe {
                let mut all: libc::cpu_set_t = mem::zeroed();
                libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut all);
                let first = (0..1024).find(|&cpu| libc::CPU_ISSET(cpu, &all)).unwrap();
                let mut one: libc::cpu_set_t = mem::zeroed();
                libc::CPU_SET(first, &mut one);
                libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const one);
            }
        });
        assert_eq!(theirs, expected);
        // Counted from the affinity and not from a quota, which limits the process and not its
        // threads.
        let is_several = expected.0.contains(|digit| "35679abcdef".contains(digit))
            || expected.0.matches(|digit| "1248".contains(digit)).count() > 1;
        assert_eq!(starter != expected, is_several, "{starter:?}");
        // Changes that need no privilege. The program may have been started with one of them.
        let chosen: [fn(); 4] = [
            || schedule(libc::SCHED_OTHER),
            || schedule(libc::SCHED_BATCH),
            || schedule(libc::SCHED_IDLE),
            || {
                // SAFETY: plain integers; of the calling thread alone.
                unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) };
            },
        ];
        let mut differ = 0;
        for confined in chosen {
            let (starter, theirs) = from(confined);
            differ += usize::from(starter != expected);
            let follows = starter == expected || may_leave(confined);
            assert_eq!(theirs, if follows { expected.clone() } else { starter });
        }
        assert!(differ >= 2);
    }

    fn schedule(policy: libc::c_int) {
        // SAFETY: plain integers.
        unsafe {
            let priority: libc::sched_param = mem::zeroed();
            libc::sched_setscheduler(0, policy, &raw const priority);
        }
    }

    /// Returns whether the kernel permits a thread to go back after `confined`.
    fn may_leave(confined: fn()) -> bool {
        std::thread::spawn(move || {
            let before = linux::scheduling(0).unwrap();
            confined();
            linux::set_scheduling(before)
        })
        .join()
        .unwrap()
    }

    #[test]
    fn the_policy_of_a_main_thread_that_keeps_it_to_itself_is_not_followed() {
        let kept = linux::Scheduling {
            policy: libc::SCHED_FIFO.cast_unsigned(),
            flags: libc::SCHED_FLAG_RESET_ON_FORK as u64,
            priority: 10,
            nice: -5,
            ..linux::Scheduling::default()
        };
        let theirs = linux::of_a_child(kept);
        assert_eq!(theirs.policy, libc::SCHED_OTHER.cast_unsigned());
        assert_eq!((theirs.priority, theirs.nice), (0, 0));
        let idle = linux::Scheduling {
            policy: libc::SCHED_IDLE.cast_unsigned(),
            nice: 5,
            ..kept
        };
        let theirs = linux::of_a_child(idle);
        assert_eq!((theirs.policy, theirs.nice), (idle.policy, 5));
        let passed_on = linux::Scheduling { flags: 0, ..kept };
        assert_eq!(linux::of_a_child(passed_on).priority, 10);
    }

    #[test]
    fn a_bare_thread_has_a_stack_for_signal_handlers() {
        let (tell, told) = channel();
        let look = move || {
            // SAFETY: plain integers and a pointer, for which zeroes are a value.
            let mut stack: libc::stack_t = unsafe { mem::zeroed() };
            // SAFETY: writes to the structure.
            unsafe { libc::sigaltstack(ptr::null(), &raw mut stack) };
            tell.send((stack.ss_flags & libc::SS_DISABLE == 0, stack.ss_size))
                .unwrap();
        };
        let thread = thread::bare::spawn("bare".into(), Box::new(look)).unwrap();
        thread.join();
        let (is_enabled, bytes) = told.recv().unwrap();
        assert!(is_enabled && bytes >= 64 << 10);
    }
}
