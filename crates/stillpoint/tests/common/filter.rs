//! Filters of system calls (seccomp).

/// Makes the kernel refuse this call to all threads of this process, with this error. With
/// `argument`, the index of an argument and the low half of a value, it refuses only calls with
/// that value.
pub fn deny(call: libc::c_long, argument: Option<(u32, u32)>, error: libc::c_int) {
    let load = |offset: u32| instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset);
    let equal = |value: u32, otherwise: u8| {
        instruction(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            0,
            otherwise,
            value,
        )
    };
    let answer = |value: u32| instruction(libc::BPF_RET | libc::BPF_K, 0, 0, value);
    let refuse = answer(libc::SECCOMP_RET_ERRNO | error as u32);
    let allow = answer(libc::SECCOMP_RET_ALLOW);
    // The number of the call is the first word of what a filter sees, its first argument the fifth.
    let mut program = match argument {
        None => vec![load(0), equal(call as u32, 1), refuse, allow],
        Some((number, value)) => vec![
            load(0),
            equal(call as u32, 3),
            load(16 + 8 * number),
            equal(value, 1),
            refuse,
            allow,
        ],
    };
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: plain integers; the kernel copies the program that the pointer leads to.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let flags = libc::SECCOMP_FILTER_FLAG_TSYNC;
        assert_eq!(
            libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                flags,
                &raw const filter
            ),
            0
        );
    }
}

fn instruction(code: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    }
}
