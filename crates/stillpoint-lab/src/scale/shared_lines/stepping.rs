//! Runs code one instruction at a time, and keeps what the registers held before each: the
//! processor's trap flag is set, and the kernel sends SIGTRAP after every instruction of the
//! calling thread. So what is counted is what the machine does, of the library and of peers alike,
//! and nothing in the code that runs knows of it.
//!
//! The handler only copies. What an instruction accesses is decoded afterwards (`accesses.rs`).

use anyhow::{Result, ensure};

/// The general registers of x86-64.
pub const REGISTERS: usize = 16;

/// Before an instruction: where it is, and what the registers hold.
#[derive(Clone, Copy, Default)]
pub struct Step {
    pub at: u64,
    /// In the order in which instructions number them: rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8
    /// to r15.
    pub registers: [u64; REGISTERS],
}

/// Returns whether that works here.
pub fn available() -> Result<()> {
    machine::prepare().map(|_| ())
}

/// Steps of one thread, up to a limit.
pub struct Steps {
    taken: Vec<Step>,
    overflowed: bool,
    /// The thread's segment for thread-local state.
    pub thread_segment: u64,
}

/// More than the longest operation takes: a page whose neighbours are freed.
const MOST_STEPS: usize = 1 << 18;

impl Steps {
    /// For the calling thread.
    pub fn new() -> Result<Self> {
        let thread_segment = machine::prepare()?;
        Ok(Self {
            taken: Vec::with_capacity(MOST_STEPS),
            overflowed: false,
            thread_segment,
        })
    }

    /// Runs `work`, and returns what it did.
    pub fn of(&mut self, work: impl FnOnce()) -> Result<&[Step]> {
        self.taken.clear();
        self.overflowed = false;
        machine::step_through(self, work);
        ensure!(
            !self.overflowed,
            "an operation takes more than {MOST_STEPS} instructions"
        );
        Ok(&self.taken)
    }

    /// Keeps a step; without memory to allocate, as this is called by a signal handler. Returns
    /// whether there was space.
    fn note(&mut self, step: Step) -> bool {
        self.overflowed |= self.taken.len() == self.taken.capacity();
        if !self.overflowed {
            self.taken.push(step);
        }
        !self.overflowed
    }
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod machine {
    use std::arch::asm;
    use std::cell::Cell;
    use std::ffi::{c_int, c_void};
    use std::{mem, ptr};

    use anyhow::{Result, ensure};

    use super::{REGISTERS, Step, Steps};

    /// The trap flag of the flags register.
    const TRAP: i64 = 1 << 8;

    const ARCH_GET_FS: c_int = 0x1003;

    /// In the order of [`Step::registers`].
    const ORDER: [c_int; REGISTERS] = [
        libc::REG_RAX,
        libc::REG_RCX,
        libc::REG_RDX,
        libc::REG_RBX,
        libc::REG_RSP,
        libc::REG_RBP,
        libc::REG_RSI,
        libc::REG_RDI,
        libc::REG_R8,
        libc::REG_R9,
        libc::REG_R10,
        libc::REG_R11,
        libc::REG_R12,
        libc::REG_R13,
        libc::REG_R14,
        libc::REG_R15,
    ];

    thread_local! {
        /// Where the thread's steps go; null while it is not stepped through.
        static STEPS: Cell<*mut Steps> = const { Cell::new(ptr::null_mut()) };
    }

    /// Has SIGTRAP handled, and returns the calling thread's segment base.
    pub fn prepare() -> Result<u64> {
        // SAFETY: all of it zero is an action.
        let mut action: libc::sigaction = unsafe { mem::zeroed() };
        action.sa_sigaction = note_step as *const () as libc::sighandler_t;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        // SAFETY: the handler copies into memory that is there already, and calls nothing.
        let done = unsafe { libc::sigaction(libc::SIGTRAP, &raw const action, ptr::null_mut()) };
        ensure!(done == 0, "cannot handle SIGTRAP");
        let mut segment = 0_u64;
        // SAFETY: writes one word there.
        let done = unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_GET_FS, &raw mut segment) };
        ensure!(done == 0, "cannot find the thread's segment");
        Ok(segment)
    }

    extern "C" fn note_step(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
        // SAFETY: the kernel hands a handler with SA_SIGINFO the interrupted context.
        let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
        let registers = &mut context.uc_mcontext.gregs;
        let step = Step {
            at: registers[libc::REG_RIP as usize] as u64,
            registers: ORDER.map(|register| registers[register as usize] as u64),
        };
        // SAFETY: set by `step_through`, which has the steps to itself until it takes the pointer
        // back; the interrupted code does not touch them.
        let goes_on = unsafe { STEPS.get().as_mut() }.is_some_and(|steps| steps.note(step));
        if !goes_on {
            registers[libc::REG_EFL as usize] &= !TRAP;
        }
    }

    /// Runs `work` with the trap flag set.
    pub fn step_through(steps: &mut Steps, work: impl FnOnce()) {
        STEPS.set(steps);
        // SAFETY: from the instruction after this on the handler runs after each, which changes
        // nothing of ours.
        unsafe { asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq") };
        work();
        // SAFETY: takes the flag back; its own steps touch the stack alone.
        unsafe { asm!("pushfq", "and qword ptr [rsp], -0x101", "popfq") };
        STEPS.set(ptr::null_mut());
    }
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
mod machine {
    use anyhow::{Result, bail};

    use super::Steps;

    pub fn prepare() -> Result<u64> {
        bail!("instructions are counted on x86-64 under Linux only")
    }

    pub fn step_through(_: &mut Steps, work: impl FnOnce()) {
        work();
    }
}
