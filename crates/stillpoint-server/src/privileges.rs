//! `-o drop_privileges`: a seccomp filter against what a cache server never does once it listens.
//!
//! It names what is refused, not what is allowed: a system call that a new libc makes is no reason
//! to end a server. What would let an intruder leave the process ends it; what the process itself
//! may try in vain, as to open sockets, is refused.

// Not by `seccompiler` (0.5): it has no check for `X32`, and one action a filter, so three filters would see each
// call. It would save about 40 lines.

use std::io;

/// The kernel's numbers of what a filter reads: `struct seccomp_data` in `linux/seccomp.h`.
mod data {
    pub const NUMBER: u32 = 0;
    pub const PROCESSOR: u32 = 4;

    /// Returns the offset of an argument's lower half: both processors below are little-endian.
    pub const fn argument(number: u32) -> u32 {
        16 + 8 * number
    }
}

#[cfg(target_arch = "x86_64")]
const PROCESSOR: Option<u32> = Some(0xc000_003e);
#[cfg(target_arch = "aarch64")]
const PROCESSOR: Option<u32> = Some(0xc000_00b7);
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const PROCESSOR: Option<u32> = None;

/// Numbers from here on are those of another way into the kernel of x86-64, with the same calls.
const X32: u32 = 0x4000_0000;

/// Other programs, other processes, other address spaces, and the kernel itself.
const ENDS: &[libc::c_long] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_fork,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_vfork,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_bpf,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    // musl on aarch64 has no name for it.
    #[cfg(any(
        target_arch = "x86_64",
        all(target_arch = "aarch64", target_env = "gnu")
    ))]
    libc::SYS_kexec_file_load,
];

/// Calls that connect a socket if one of their arguments says so: one that listened and was shut down
/// needs no `connect` for it.
const SENDS: &[(libc::c_long, u32)] = &[
    (libc::SYS_sendto, 3),
    (libc::SYS_sendmsg, 2),
    (libc::SYS_sendmmsg, 3),
];

/// A thread with namespaces of its own.
const NAMESPACES: libc::c_int = libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET;

/// What is refused with an error. Rings execute calls that no filter sees; without `clone3`, whose
/// flags a filter cannot read, libc starts threads by `clone`.
const REFUSED: &[(libc::c_long, libc::c_int)] = &[
    (libc::SYS_connect, libc::EPERM),
    (libc::SYS_io_uring_setup, libc::ENOSYS),
    (libc::SYS_clone3, libc::ENOSYS),
];

const fn refuse(error: libc::c_int) -> u32 {
    libc::SECCOMP_RET_ERRNO | error as u32
}

/// A program of the kernel's filter machine.
struct Program(Vec<libc::sock_filter>);

impl Program {
    fn push(&mut self, code: u32, k: u32, jt: u8, jf: u8) {
        let code = code as u16;
        self.0.push(libc::sock_filter { code, jt, jf, k });
    }

    fn load(&mut self, offset: u32) {
        self.push(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset, 0, 0);
    }

    fn end(&mut self, action: u32) {
        self.push(libc::BPF_RET | libc::BPF_K, action, 0, 0);
    }

    /// Skips `if_so` instructions if what was loaded passes the test with `k`, and `if_not` otherwise.
    fn skip(&mut self, test: u32, k: u32, if_so: u8, if_not: u8) {
        self.push(libc::BPF_JMP | test | libc::BPF_K, k, if_so, if_not);
    }

    fn new(processor: u32) -> Self {
        const KILL: u32 = libc::SECCOMP_RET_KILL_PROCESS;
        const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
        let mut program = Self(Vec::new());
        program.load(data::PROCESSOR);
        program.skip(libc::BPF_JEQ, processor, 1, 0);
        program.end(KILL);
        program.load(data::NUMBER);
        if cfg!(target_arch = "x86_64") {
            program.skip(libc::BPF_JGE, X32, 0, 1);
            program.end(KILL);
        }
        // First, as they are what a server does most.
        for &(number, flags) in SENDS {
            program.skip(libc::BPF_JEQ, number as u32, 0, 4);
            program.load(data::argument(flags));
            program.skip(libc::BPF_JSET, libc::MSG_FASTOPEN as u32, 1, 0);
            program.end(ALLOW);
            program.end(refuse(libc::EPERM));
        }
        let refused = REFUSED
            .iter()
            .map(|&(number, error)| (number, refuse(error)));
        let ends = ENDS.iter().map(|&number| (number, KILL));
        for (number, action) in ends.chain(refused) {
            program.skip(libc::BPF_JEQ, number as u32, 0, 1);
            program.end(action);
        }
        // A thread, and no process.
        program.skip(libc::BPF_JEQ, libc::SYS_clone as u32, 0, 5);
        program.load(data::argument(0));
        program.skip(libc::BPF_JSET, NAMESPACES as u32, 2, 0);
        program.skip(libc::BPF_JSET, libc::CLONE_THREAD as u32, 0, 1);
        program.end(ALLOW);
        program.end(KILL);
        // The service manager is told by a Unix socket.
        program.skip(libc::BPF_JEQ, libc::SYS_socket as u32, 0, 4);
        program.load(data::argument(0));
        program.skip(libc::BPF_JEQ, libc::AF_UNIX as u32, 0, 1);
        program.end(ALLOW);
        program.end(refuse(libc::EPERM));
        program.end(ALLOW);
        program
    }

    /// Puts the filter over all threads of this process. Allocates nothing: a child that was forked for a
    /// test may call it.
    fn put(&mut self) -> io::Result<()> {
        let filter = libc::sock_fprog {
            len: self.0.len() as u16,
            filter: self.0.as_mut_ptr(),
        };
        let (yes, none): (libc::c_ulong, libc::c_ulong) = (1, 0);
        // SAFETY: a flag of this thread; with the other zeros it is what the kernel asks for.
        if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, yes, none, none, none) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel copies the program, which is as long as said and outlives the call.
        let result = unsafe {
            libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                libc::SECCOMP_FILTER_FLAG_TSYNC,
                &raw const filter,
            )
        };
        match result {
            0 => Ok(()),
            -1 => Err(io::Error::last_os_error()),
            // The number of a thread that has a filter of its own.
            _ => Err(io::Error::other("a thread has another filter")),
        }
    }
}

/// Puts the filter over all threads of this process, and over those that they start.
///
/// # Errors
///
/// If the kernel has no such filters, or none for this processor.
pub fn drop_privileges() -> io::Result<()> {
    let Some(processor) = PROCESSOR else {
        let error = "there is no filter for this processor";
        return Err(io::Error::new(io::ErrorKind::Unsupported, error));
    };
    Program::new(processor).put()
}

// Detects new namespaces, and a socket that listened and connects by a call that sends.
#[cfg(all(test, any(target_arch = "x86_64", target_arch = "aarch64")))]
mod tests {
    use super::*;
    use std::{net::TcpListener, os::fd::AsRawFd};

    /// What becomes of a call.
    #[derive(Debug, PartialEq, Eq)]
    enum Fate {
        /// The process has ended by that signal.
        Ended(libc::c_int),
        Failed(libc::c_int),
        Done,
    }

    /// The fate of a call in a process that is filtered.
    fn filtered(number: libc::c_long, arguments: [libc::c_long; 4]) -> Fate {
        const FILTERED: libc::c_int = 255;
        const DONE: libc::c_int = 254;
        let mut program = Program::new(PROCESSOR.unwrap());
        let [first, second, third, fourth] = arguments;
        // SAFETY: the child makes system calls alone, and then ends. Those of the callers that do
        // something to memory are given none.
        let status = unsafe {
            let child = libc::fork();
            assert!(child >= 0, "{}", io::Error::last_os_error());
            if child == 0 {
                // No core is left of it.
                libc::prctl(libc::PR_SET_DUMPABLE, 0 as libc::c_ulong);
                if program.put().is_err() {
                    libc::_exit(FILTERED);
                }
                let result = libc::syscall(number, first, second, third, fourth, 0, 0);
                libc::_exit(if result < 0 {
                    *libc::__errno_location()
                } else {
                    DONE
                });
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            status
        };
        if libc::WIFSIGNALED(status) {
            return Fate::Ended(libc::WTERMSIG(status));
        }
        match libc::WEXITSTATUS(status) {
            FILTERED => panic!("no filter was put"),
            DONE => Fate::Done,
            error => Fate::Failed(error),
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "system calls of a child")]
    fn each_call_has_its_fate() {
        const ENDED: Fate = Fate::Ended(libc::SIGSYS);
        // What the manual says in words.
        for number in [
            libc::SYS_execve,
            libc::SYS_execveat,
            libc::SYS_ptrace,
            libc::SYS_mount,
            libc::SYS_move_mount,
        ] {
            assert!(ENDS.contains(&number), "{number}");
        }
        for &number in ENDS {
            assert_eq!(filtered(number, [0; 4]), ENDED, "{number}");
        }
        for &(number, error) in REFUSED {
            assert_eq!(filtered(number, [-1; 4]), Fate::Failed(error), "{number}");
        }
        #[cfg(target_arch = "x86_64")]
        assert_eq!(
            filtered(libc::SYS_getpid | X32 as libc::c_long, [0; 4]),
            ENDED
        );
        assert_eq!(filtered(libc::SYS_getpid, [0; 4]), Fate::Done);
        // A thread that the kernel refuses, as it shares no signals: the filter lets it pass.
        let clone = |flags: libc::c_int| filtered(libc::SYS_clone, [flags.into(), 0, 0, 0]);
        assert_eq!(clone(libc::CLONE_THREAD), Fate::Failed(libc::EINVAL));
        for flags in [
            libc::SIGCHLD,
            libc::CLONE_VM,
            libc::CLONE_THREAD | libc::CLONE_NEWNET,
        ] {
            assert_eq!(clone(flags), ENDED, "{flags:x}");
        }
        let socket = |family: libc::c_int| {
            let kind = libc::SOCK_DGRAM.into();
            filtered(libc::SYS_socket, [family.into(), kind, 0, 0])
        };
        assert_eq!(socket(libc::AF_UNIX), Fate::Done);
        for family in [
            libc::AF_INET,
            libc::AF_INET6,
            libc::AF_NETLINK,
            libc::AF_VSOCK,
        ] {
            assert_eq!(socket(family), Fate::Failed(libc::EPERM), "{family}");
        }
    }

    /// One that listened connects by the flag of a call that sends, where nothing forbids it.
    #[test]
    #[cfg_attr(miri, ignore = "system calls of a child")]
    fn a_socket_that_listened_connects_nowhere() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let fd = listener.as_raw_fd().into();
        for (number, at) in [
            (libc::SYS_sendto, 3),
            (libc::SYS_sendmsg, 2),
            (libc::SYS_sendmmsg, 3),
        ] {
            let with = |flags: libc::c_int| {
                let mut arguments = [fd, 0, 0, 0];
                arguments[at] = flags.into();
                filtered(number, arguments)
            };
            let flags = libc::MSG_FASTOPEN | libc::MSG_NOSIGNAL;
            assert_eq!(with(flags), Fate::Failed(libc::EPERM), "{number}");
            assert_ne!(
                with(libc::MSG_NOSIGNAL),
                Fate::Failed(libc::EPERM),
                "{number}"
            );
        }
    }
}
