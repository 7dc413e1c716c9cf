//! `-o drop_privileges`: a seccomp filter against what a cache server never does once it listens.
//!
//! It names what is refused, not what is allowed: a system call that a new libc makes is no reason
//! to end a server. What would let an intruder leave the process ends it; what the process itself
//! may try in vain, as to open sockets, is refused.

use std::io;

/// The kernel's numbers of what a filter reads: `struct seccomp_data` in `linux/seccomp.h`.
mod data {
    pub const NUMBER: u32 = 0;
    pub const PROCESSOR: u32 = 4;
    /// The lower half of the first argument: both processors below are little-endian.
    pub const ARGUMENT: u32 = 16;
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
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_bpf,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
];

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

    /// Jumps over so many instructions if what was loaded is that, or if not.
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
        let refused = REFUSED
            .iter()
            .map(|&(number, error)| (number, refuse(error)));
        let ends = ENDS.iter().map(|&number| (number, KILL));
        for (number, action) in ends.chain(refused) {
            program.skip(libc::BPF_JEQ, number as u32, 0, 1);
            program.end(action);
        }
        // A thread, and no process.
        program.skip(libc::BPF_JEQ, libc::SYS_clone as u32, 0, 4);
        program.load(data::ARGUMENT);
        program.skip(libc::BPF_JSET, libc::CLONE_THREAD as u32, 0, 1);
        program.end(ALLOW);
        program.end(KILL);
        // The service manager is told by a Unix socket.
        program.skip(libc::BPF_JEQ, libc::SYS_socket as u32, 0, 4);
        program.load(data::ARGUMENT);
        program.skip(libc::BPF_JEQ, libc::AF_UNIX as u32, 0, 1);
        program.end(ALLOW);
        program.end(refuse(libc::EPERM));
        program.end(ALLOW);
        program
    }
}

/// Has all threads of this process, and those that they start, be filtered from now on.
///
/// # Errors
///
/// If the kernel has no such filters, or none for this processor.
pub fn drop_privileges() -> io::Result<()> {
    let Some(processor) = PROCESSOR else {
        let error = "there is no filter for this processor";
        return Err(io::Error::new(io::ErrorKind::Unsupported, error));
    };
    let mut program = Program::new(processor).0;
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: a flag of this thread; with the other zeros it is what the kernel asks for.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
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

/// What an intruder would try: a socket, and unless that is all, a program. Returns whether any of it
/// was possible.
pub fn misbehave(only_socket: bool) -> bool {
    let is_bound = std::net::UdpSocket::bind(("127.0.0.1", 0)).is_ok();
    let starts = || std::process::Command::new("/bin/true").status().is_ok();
    (!only_socket && starts()) || is_bound
}
