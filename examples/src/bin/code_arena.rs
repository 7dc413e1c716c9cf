//! An arena for generated code, in which a signal handler finds the function around a program
//! counter, while functions are replaced.
//!
//! A small virtual machine keeps its functions, as bytecode, in areas of an `Arena`; each begins
//! with a header that names its function. Interpreters fetch every instruction by its address, so a
//! jump out of live code is an error, not a crash. A compiler replaces one function after the
//! other: the old code is freed when the last interpreter in it has left. A profiler interrupts the
//! interpreters by a signal, whose handler enters a read-side section, looks up the program
//! counter, and reads the header of the code around it, as a crash handler would: no lock, no
//! allocation.
//!
//! This is memory for data. An arena has no executable pages: this does not show what else a
//! compiler to machine code would have to do.
//!
//! `cargo example code_arena` checks that every sample was attributed to the function that ran,
//! that every call returned its function's value, and that all replaced code has been freed.

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
fn main() {}

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    demo::main()
}

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod demo {
    use std::{
        error::Error,
        hint,
        os::unix::thread::JoinHandleExt,
        ptr,
        sync::{
            OnceLock,
            atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, compiler_fence},
        },
        thread::{self, JoinHandle},
        time::{Duration, Instant},
    };
    use stillpoint_vmap::{Arena, Description};

    const FUNCTIONS: usize = 64;
    const INTERPRETERS: usize = 2;
    const COMPILATIONS: usize = 20_000;
    const SAMPLES: u64 = 1_000;
    /// Number of compilations after which the compiler waits for the grace periods of the code that it has
    /// replaced, some 750 KiB.
    const BETWEEN_BARRIERS: usize = 256;
    /// Longer than anything here should take on any machine.
    const LIMIT: Duration = Duration::from_secs(60);

    const SIGNAL: libc::c_int = libc::SIGUSR1;
    /// The first word of a header.
    const MAGIC: u32 = 0x00c0_de00;
    const HEADER: usize = 16;

    /// An instruction: an operation and its operand.
    const ADD: u8 = 1;
    const JUMP: u8 = 2;
    const RETURN: u8 = 3;

    static ARENA: OnceLock<Arena> = OnceLock::new();
    /// The start of each function. Callers have only this address; the arena's read-side sections
    /// keep the code at it.
    static TABLE: [AtomicUsize; FUNCTIONS] = [const { AtomicUsize::new(0) }; FUNCTIONS];
    static DONE: AtomicBool = AtomicBool::new(false);
    static CALLS: AtomicU64 = AtomicU64::new(0);

    /// The handler's counts.
    static INSIDE: [AtomicU64; FUNCTIONS] = [const { AtomicU64::new(0) }; FUNCTIONS];
    static OUTSIDE: AtomicU64 = AtomicU64::new(0);
    static WRONG: AtomicU64 = AtomicU64::new(0);

    thread_local! {
        /// The thread's program counter (0 while it runs no code), and the value to check the
        /// handler's answer against.
        static PC: AtomicUsize = const { AtomicUsize::new(0) };
        static RUNNING: AtomicUsize = const { AtomicUsize::new(0) };
    }

    fn arena() -> &'static Arena {
        ARENA.get().expect("made at the start")
    }

    /// Compiles function `number` and replaces the old one, which is freed after a grace period:
    /// until then, interpreters that run it find its instructions.
    fn compile(number: usize, version: usize) -> Result<Option<usize>, Box<dyn Error>> {
        // Up to three pages, with jumps from one end to the other; its additions sum up to the
        // function's number.
        let steps = 1 + (number * 7 + version * 13) % 40;
        let stride = 16 + (version % 5) * 64;
        let mut code = vec![0; HEADER + steps * stride + 8];
        code[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        code[4..8].copy_from_slice(&(number as u32).to_le_bytes());
        code[8..16].copy_from_slice(&(version as u64).to_le_bytes());
        for step in 0..steps {
            let at = HEADER + step * stride;
            let amount = if step == 0 {
                number as i16 - (steps as i16 - 1)
            } else {
                1
            };
            code[at..at + 4].copy_from_slice(&instruction(ADD, amount));
            code[at + 4..at + 8].copy_from_slice(&instruction(JUMP, (stride - 4) as i16));
        }
        let end = HEADER + steps * stride;
        code[end..end + 4].copy_from_slice(&instruction(RETURN, 0));

        let area = arena().alloc(code.len(), 16)?;
        area.copy_from(0, &code)?;
        let old = TABLE[number].swap(area.into_raw().as_ptr().addr(), Ordering::AcqRel);
        Ok((old != 0).then_some(old))
    }

    fn instruction(operation: u8, operand: i16) -> [u8; 4] {
        let [low, high] = operand.to_le_bytes();
        [operation, 0, low, high]
    }

    /// Frees code that is no longer in the table, after a grace period of the arena's domain.
    fn free_later(code: usize) {
        arena().domain().call(move || {
            // SAFETY: it came from `into_raw`, and only the thread that took it out of the table
            // passes it here.
            unsafe { arena().free_raw(ptr::without_provenance(code)) }
                .expect("it is live until here");
        });
    }

    /// Calls a function. Its code stays until the section ends, whatever the compiler does.
    fn call(number: usize) -> Result<i64, Box<dyn Error>> {
        let guard = arena().read_lock();
        let mut pc = TABLE[number].load(Ordering::Acquire) + HEADER;
        RUNNING.with(|running| running.store(number, Ordering::Relaxed));
        // The handler, on this thread, reads RUNNING if PC is not 0: the compiler must not set PC
        // earlier.
        compiler_fence(Ordering::SeqCst);
        let mut sum = 0;
        let result = loop {
            PC.with(|shown| shown.store(pc, Ordering::Relaxed));
            let mut fetched = [0; 4];
            // A find, a comparison and a copy; an address outside of live code only causes an
            // error.
            if let Err(error) = arena().copy_to(pc, &mut fetched) {
                break Err(error.into());
            }
            let [operation, _, low, high] = fetched;
            let operand = i16::from_le_bytes([low, high]);
            match operation {
                ADD => (sum, pc) = (sum + i64::from(operand), pc + 4),
                JUMP => pc = pc.wrapping_add_signed(operand.into()),
                RETURN => break Ok(sum),
                _ => break Err(format!("no instruction at {pc:#x}").into()),
            }
        };
        PC.with(|shown| shown.store(0, Ordering::Relaxed));
        // PC is cleared before the code may be freed, and before the next call sets RUNNING.
        compiler_fence(Ordering::SeqCst);
        drop(guard);
        result
    }

    /// Handles the profiler's signal: finds the function at the program counter. Everything here is
    /// async-signal-safe, because the thread has read before.
    extern "C" fn sample(_signal: libc::c_int) {
        let pc = PC.with(|shown| shown.load(Ordering::Relaxed));
        if pc == 0 {
            OUTSIDE.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let guard = arena().read_lock();
        let mut header = [0; HEADER];
        let found = arena().find(pc, &guard).filter(|found| {
            let begin = found.addr();
            arena()
                .check(begin, HEADER, &guard)
                .map(|range| range.copy_to(&mut header))
                .is_ok()
        });
        let [magic, number] = [0, 4].map(|at| {
            u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        });
        let running = RUNNING.with(|running| running.load(Ordering::Relaxed));
        if found.is_some() && magic == MAGIC && number as usize == running {
            INSIDE[running].fetch_add(1, Ordering::Relaxed);
        } else {
            WRONG.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn interpret(seed: usize) -> Result<(), String> {
        // A thread's first section allocates its record; from then on, its handlers may read.
        drop(arena().read_lock());
        let mut random = seed;
        while !DONE.load(Ordering::Relaxed) {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let number = (random >> 33) % FUNCTIONS;
            match call(number) {
                Ok(result) if result == number as i64 => CALLS.fetch_add(1, Ordering::Relaxed),
                Ok(result) => return Err(format!("function {number} returned {result}")),
                Err(error) => return Err(format!("function {number}: {error}")),
            };
        }
        Ok(())
    }

    fn handle_signal() -> Result<(), Box<dyn Error>> {
        // SAFETY: all zeroes is a sigaction; the handler is async-signal-safe, and returns.
        let failed = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = sample as extern "C" fn(libc::c_int) as usize;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(SIGNAL, &action, ptr::null_mut())
        };
        if failed == 0 {
            Ok(())
        } else {
            Err(std::io::Error::last_os_error().into())
        }
    }

    pub fn main() -> Result<(), Box<dyn Error>> {
        let built = Arena::builder()
            .capacity(1 << 30)
            .lazy_limit(4 << 20)
            .track_callers(true)
            .build()?;
        ARENA.set(built).map_err(|_| "made twice")?;
        for number in 0..FUNCTIONS {
            compile(number, 0)?;
        }
        handle_signal()?;

        let begun = Instant::now();
        let interpreters: Vec<_> = (0..INTERPRETERS)
            .map(|seed| thread::spawn(move || interpret(seed)))
            .collect();
        let sampled = || {
            INSIDE
                .iter()
                .map(|count| count.load(Ordering::Relaxed))
                .sum::<u64>()
        };
        let mut compiled = 0;
        // A thread that ends before it is told to has failed.
        let all_well = || !interpreters.iter().any(JoinHandle::is_finished);
        while (compiled < COMPILATIONS || sampled() < SAMPLES)
            && begun.elapsed() < LIMIT
            && all_well()
        {
            compiled += 1;
            let old = compile(compiled % FUNCTIONS, compiled)?;
            old.into_iter().for_each(free_later);
            if compiled % BETWEEN_BARRIERS == 0 {
                arena().domain().barrier();
            }
            if compiled % 16 == 0 {
                for interpreter in &interpreters {
                    // SAFETY: the thread has not been joined, so its handle is valid. (The cast is
                    // for musl, where it is a pointer.)
                    unsafe {
                        libc::pthread_kill(interpreter.as_pthread_t() as libc::pthread_t, SIGNAL)
                    };
                }
                // Not faster than the thread can handle signals.
                thread::sleep(Duration::from_micros(50));
            }
            hint::spin_loop();
        }
        DONE.store(true, Ordering::Relaxed);
        for interpreter in interpreters {
            interpreter
                .join()
                .map_err(|_| "an interpreter panicked")??;
        }
        // A crash handler's output for an address in live code, and for one in replaced code.
        let live = TABLE[1].load(Ordering::Acquire);
        println!("{:#x}: {}", live + 20, arena().describe(live + 20));
        arena().domain().barrier();
        let old = compile(1, compiled + 1)?.ok_or("there was code before")?;
        free_later(old);
        arena().domain().barrier();
        println!("{:#x}: {}", old + 20, arena().describe(old + 20));
        let is_freed = matches!(arena().describe(old), Description::Freed { .. });
        assert!(is_freed, "replaced code is known as freed");

        arena().drain()?;
        let after = arena().statistics();
        println!(
            "{} calls beside {compiled} compilations; {} samples in code, {} between calls; code: {} KiB live, {} KiB given back in {} drains",
            CALLS.load(Ordering::Relaxed),
            sampled(),
            OUTSIDE.load(Ordering::Relaxed),
            after.live_bytes >> 10,
            after.drained_bytes >> 10,
            after.drains,
        );
        let wrong = WRONG.load(Ordering::Relaxed);
        assert_eq!(
            wrong, 0,
            "every sample was attributed to the function that ran"
        );
        let is_enough = compiled >= COMPILATIONS && sampled() >= SAMPLES;
        assert!(is_enough, "enough was compiled and sampled in time");
        assert_eq!(
            after.areas, FUNCTIONS as u64,
            "only the newest code of each function lives"
        );
        assert!(
            after.lazy_bytes == 0 && after.drained_bytes > 0,
            "all other code has been given back"
        );
        Ok(())
    }
}
