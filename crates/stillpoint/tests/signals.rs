//! Signal handlers that read, in threads that read: between any two instructions of a section's
//! begin and end.
#![cfg(not(miri))]

mod common;

use common::{Tell, retire};
use std::{
    array, mem,
    os::unix::thread::JoinHandleExt,
    ptr,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering},
        mpsc::channel,
    },
    thread,
    time::{Duration, Instant},
};

use stillpoint::{Domain, Rcu, RcuOption};

/// A value that knows whether it is alive. It is not `Tracked`, because a handler must not fail an
/// assertion.
struct Payload {
    life: AtomicU64,
    number: u64,
    copy: u64,
}

const ALIVE: u64 = 0x5711_1907_516A_0001;

impl Payload {
    fn new(number: u64) -> Self {
        Self {
            life: AtomicU64::new(ALIVE),
            number,
            copy: !number,
        }
    }

    fn is_whole(&self) -> bool {
        self.life.load(Ordering::Relaxed) == ALIVE && self.number == !self.copy
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        self.life.store(0, Ordering::Relaxed);
    }
}

/// What the handler counts: how often it ran, and how often it found something wrong.
static HANDLED: AtomicU64 = AtomicU64::new(0);
static BROKEN: AtomicU64 = AtomicU64::new(0);

/// What the handler reads: a cell of the global domain, and one of another.
static GLOBAL: RcuOption<Payload> = RcuOption::empty();
static OTHER: AtomicPtr<(Domain, Rcu<Payload>)> = AtomicPtr::new(ptr::null_mut());

extern "C" fn handler(_: libc::c_int) {
    // An allocation, a lock or a panic here would be an error of this test; what it calls promises
    // to do none of that.
    let check = |whole: bool| {
        if !whole {
            BROKEN.fetch_add(1, Ordering::Relaxed);
        }
    };
    // SAFETY: null, or a box that is leaked.
    if let Some((domain, cell)) = unsafe { OTHER.load(Ordering::Acquire).as_ref() } {
        let guard = domain.read_lock();
        check(cell.load(&guard).is_whole());
    } else {
        let outer = stillpoint::read_lock();
        let value = GLOBAL.load(&outer);
        let inner = stillpoint::read_lock();
        check(GLOBAL.load(&inner).is_some_and(Payload::is_whole));
        drop(inner);
        check(value.is_some_and(Payload::is_whole));
    }
    HANDLED.fetch_add(1, Ordering::Relaxed);
}

/// One test at a time: they share the handler.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    let alone = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: all zeros is a valid value of this plain structure.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    action.sa_sigaction = handler as extern "C" fn(libc::c_int) as usize;
    action.sa_flags = libc::SA_RESTART;
    assert_eq!(
        // SAFETY: a handler that does async-signal-safe things only.
        unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, ptr::null_mut()) },
        0
    );
    HANDLED.store(0, Ordering::Relaxed);
    BROKEN.store(0, Ordering::Relaxed);
    OTHER.store(ptr::null_mut(), Ordering::Release);
    alone
}

const READERS: usize = 3;

/// How long a bombardment lasts at most. On a crowded machine pending signals merge, and a thread
/// handles one a time slice.
const BOMBARDMENT: Duration = Duration::from_secs(3);

/// Number of signals that are handled in that time even then.
const FEWEST: u64 = 100;

/// Makes threads call `read` again and again, interrupted by `signals` signals in all (fewer, if
/// that takes long), while this one calls `update`.
fn bombard(signals: u64, read: impl Fn() + Copy + Send + 'static, mut update: impl FnMut(u64)) {
    static OVER: AtomicBool = AtomicBool::new(false);
    OVER.store(false, Ordering::Relaxed);
    let readers: [_; READERS] = array::from_fn(|_| {
        let (ready, is_ready) = channel();
        let reader = thread::spawn(move || {
            // Registers the thread: only then may a handler read in it.
            read();
            ready.tell(());
            while !OVER.load(Ordering::Relaxed) {
                read();
            }
        });
        is_ready.recv().expect("no panic");
        reader
    });
    let targets = readers.each_ref().map(JoinHandleExt::as_pthread_t);
    let signals = signals / if common::without_membarrier() { 4 } else { 1 };
    let bombardier = thread::spawn(move || {
        let (begun, mut at) = (Instant::now(), 0);
        let late = || begun.elapsed() > BOMBARDMENT && HANDLED.load(Ordering::Relaxed) >= FEWEST;
        while !late() && HANDLED.load(Ordering::Relaxed) < signals && !OVER.load(Ordering::Relaxed)
        {
            assert_eq!(
                // SAFETY: the thread is joined after this one. (A cast, as musl's handles are
                // pointers, which would not be Send.)
                unsafe {
                    libc::pthread_kill(targets[at % READERS] as libc::pthread_t, libc::SIGUSR1)
                },
                0
            );
            at += 1;
        }
    });
    let mut updates = 0;
    while !bombardier.is_finished() && !readers.iter().any(thread::JoinHandle::is_finished) {
        updates += 1;
        update(updates);
    }
    OVER.store(true, Ordering::Relaxed);
    bombardier.join().expect("no panic");
    readers
        .into_iter()
        .for_each(|reader| reader.join().expect("no panic"));
    assert!(HANDLED.load(Ordering::Relaxed) >= signals.min(FEWEST) && updates > 0);
    assert_eq!(
        BROKEN.load(Ordering::Relaxed),
        0,
        "a handler found something that it must not find"
    );
}

#[test]
fn handlers_read_between_any_two_instructions_of_a_section() {
    let _alone = alone();
    GLOBAL.store(Payload::new(0));
    let read = || {
        for _ in 0..50 {
            let outer = stillpoint::read_lock();
            let value = GLOBAL.load(&outer).expect("never empty");
            drop(stillpoint::read_lock());
            let inner = stillpoint::read_lock();
            assert!(GLOBAL.load(&inner).expect("never empty").is_whole());
            assert!(value.is_whole());
            drop(outer);
            drop(inner);
            stillpoint::read(|guard| assert!(GLOBAL.load(guard).is_some_and(Payload::is_whole)));
        }
    };
    bombard(200_000, read, |number| {
        if number % 4 == 0 {
            GLOBAL.store(Payload::new(number));
            stillpoint::synchronize();
        } else {
            let old = GLOBAL.swap(Payload::new(number)).expect("never empty");
            // Dropped here and now: a reader that was missed would see it.
            drop(old.wait());
        }
    });
    // All is quiescent: handlers left the records as they found them.
    let cookie = stillpoint::global().start_poll();
    assert!(stillpoint::global().poll(cookie));
    stillpoint::synchronize();
    drop(GLOBAL.take());
    stillpoint::kvfree_barrier();
}

#[test]
fn handlers_read_another_domain_than_the_one_that_they_interrupt() {
    // A panic inside a handler takes the process with it.
    common::apart!();
    let _alone = alone();
    let other = Domain::new();
    let cell = Rcu::new_in(&other, Payload::new(0));
    let other: &'static _ = Box::leak(Box::new((other, cell)));
    let mine: &'static _ = Box::leak(Box::new(Domain::new()));
    let cell: &'static _ = Box::leak(Box::new(Rcu::new_in(mine, Payload::new(0))));
    OTHER.store(ptr::from_ref(other).cast_mut(), Ordering::Release);
    let read = || {
        // Registered in both before the first signal comes.
        drop(other.0.read_lock());
        for _ in 0..50 {
            let guard = mine.read_lock();
            // A guard of the wrong domain is refused here, with a panic.
            assert!(cell.load(&guard).is_whole());
        }
    };
    bombard(50_000, read, |number| {
        drop(cell.swap(Payload::new(number)).wait());
        drop(other.1.swap(Payload::new(number)).wait());
    });
    for domain in [mine, &other.0] {
        let cookie = domain.start_poll();
        assert!(domain.poll(cookie), "all is quiescent");
    }
}

#[test]
fn handlers_read_in_threads_that_retire() {
    let _alone = alone();
    GLOBAL.store(Payload::new(0));
    let read = || {
        for number in 0..50 {
            let guard = stillpoint::read_lock();
            GLOBAL.store(Payload::new(number));
            retire(stillpoint::global(), number);
            drop(guard);
        }
        stillpoint::synchronize();
    };
    bombard(20_000, read, |_| stillpoint::synchronize());
    drop(GLOBAL.take());
    stillpoint::kvfree_barrier();
    assert_eq!(stillpoint::global().statistics().panics, 0);
}

#[test]
fn all_of_this_holds_without_membarrier_too() {
    common::assert_holds_without_membarrier();
}

extern "C" fn crashes(_: libc::c_int) {
    // SAFETY: ends the process without any further code of it.
    unsafe { libc::_exit(3) }
}

/// The service thread blocks no signal of a crash: the kernel would end the process without the
/// handler.
#[test]
#[cfg(target_os = "linux")]
fn a_crash_handler_runs_for_a_callback_that_crashes() {
    if !common::is_child() {
        let ended = common::child("a_crash_handler_runs_for_a_callback_that_crashes");
        assert_eq!(ended.status.code(), Some(3), "{}", ended.stderr);
        return;
    }
    // SAFETY: a handler that does async-signal-safe things only.
    unsafe { libc::signal(libc::SIGBUS, crashes as extern "C" fn(libc::c_int) as usize) };
    // SAFETY: raises the signal for the thread that calls it, as a crash does.
    stillpoint::call(|| _ = unsafe { libc::raise(libc::SIGBUS) });
    stillpoint::barrier();
    unreachable!("the process has ended");
}

/// std's handler tells of it. (Threads for C programs are not std's: there the process ends by the signal.)
#[test]
#[cfg(all(target_os = "linux", not(feature = "c-symbols")))]
fn a_stack_that_overflows_in_a_callback_is_told() {
    fn deep(level: u64) -> u64 {
        let frame = std::hint::black_box([level; 64]);
        if level == u64::MAX {
            0
        } else {
            deep(level + 1) + frame[3]
        }
    }
    if !common::is_child() {
        let told = common::child("a_stack_that_overflows_in_a_callback_is_told");
        return told.by_abort_with("has overflowed its stack");
    }
    stillpoint::call(|| assert!(deep(0) > 0));
    stillpoint::barrier();
}
