//! What the tests share: patience, values that know whether they live, readers that stay, child
//! processes.
#![allow(dead_code, reason = "each test program uses a part of this")]

use std::{
    any::{self, Any},
    cell::Cell,
    env,
    io::Read,
    iter, mem,
    panic::{self, AssertUnwindSafe, Location},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    ptr::NonNull,
    sync::{
        Arc, Mutex, Once,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use stillpoint::Domain;
use stillpoint_platform::thread::blocked_in;

#[cfg(all(target_os = "linux", not(miri)))]
pub mod filter;
#[cfg(all(target_os = "linux", not(miri)))]
pub mod forking;
pub mod keeps;
#[cfg(all(target_os = "linux", not(miri)))]
pub mod page;
pub mod refusing;
pub mod stalls;
pub mod tasks;

/// How long a test waits for an event before it fails. No test asserts how soon an event comes.
pub const PATIENCE: Duration = Duration::from_secs(if cfg!(miri) { 600 } else { 120 });

/// Returns `value` in a box that no other thread has ever known.
pub fn leak<T>(value: T) -> NonNull<T> {
    NonNull::from(Box::leak(Box::new(value)))
}

/// Retires `value`, in a box.
pub fn retire<T: Send + 'static>(domain: &Domain, value: T) {
    // SAFETY: no other thread has ever known the object.
    unsafe { domain.retire(leak(value)) };
}

pub fn retire_inline<T: Send + 'static>(domain: &Domain, value: T) {
    // SAFETY: no other thread has ever known the object.
    unsafe { domain.retire_inline(leak(value)) };
}

#[cfg(target_env = "gnu")]
type Resource = libc::__rlimit_resource_t;
#[cfg(not(target_env = "gnu"))]
type Resource = libc::c_int;

/// Sets the soft limit of `of` (at most the hard limit). Returns the previous one.
pub fn limit(of: Resource, soft: libc::rlim_t) -> libc::rlim_t {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: pointers to our own structure.
    unsafe {
        assert_eq!(libc::getrlimit(of, &raw mut limit), 0);
        let before = mem::replace(&mut limit.rlim_cur, soft.min(limit.rlim_max));
        assert_eq!(libc::setrlimit(of, &raw const limit), 0);
        before
    }
}

/// Waits until `condition` holds; fails the test if it never does.
#[track_caller]
pub fn eventually(mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(
            start.elapsed() < PATIENCE,
            "what should have come in the end has not come"
        );
        thread::sleep(Duration::from_millis(1));
    }
}

/// Sends `value`; fails the test if the receiver is gone.
pub trait Tell<T> {
    fn tell(&self, value: T);
}

impl<T> Tell<T> for Sender<T> {
    #[track_caller]
    fn tell(&self, value: T) {
        self.send(value).expect("the receiver is there");
    }
}

/// Receives a value; fails with `expected` if none comes in time.
pub trait Hear<T> {
    fn hear(&self, expected: &str) -> T;
}

impl<T> Hear<T> for Receiver<T> {
    #[track_caller]
    fn hear(&self, expected: &str) -> T {
        self.recv_timeout(PATIENCE).expect(expected)
    }
}

/// Returns the result of `work`, run on another thread. Fails the test if it never returns.
#[track_caller]
pub fn returns<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> R {
    let (tell, told) = channel();
    let thread = thread::spawn(move || {
        let _ = tell.send(work());
    });
    match told.recv_timeout(PATIENCE) {
        Ok(result) => {
            thread.join().expect("it has returned");
            result
        }
        Err(RecvTimeoutError::Timeout) => panic!("a call that must return has not returned"),
        Err(RecvTimeoutError::Disconnected) => match thread.join() {
            Err(payload) => panic::resume_unwind(payload),
            Ok(()) => unreachable!("it ended without a result"),
        },
    }
}

/// Returns the result of `work`, run on another thread.
#[track_caller]
pub fn elsewhere<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    thread::scope(|scope| scope.spawn(work).join().expect("no panic"))
}

/// A count, and functions that raise it.
#[derive(Debug, Clone, Default)]
pub struct Count(Arc<AtomicUsize>);

impl Count {
    pub fn raise(&self) -> impl FnOnce() + Send + 'static {
        let count = self.clone();
        move || _ = count.0.fetch_add(1, Ordering::SeqCst)
    }

    pub fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// Checks several fields of a domain's statistics at one moment.
#[allow(unused_macros, reason = "each test program uses a part of this")]
macro_rules! assert_counts {
    ($domain:expr, $($field:ident: $count:expr),+) => {{
        let statistics = $domain.statistics();
        assert_eq!(
            [$((stringify!($field), statistics.$field)),+],
            [$((stringify!($field), $count)),+],
        );
    }};
}
#[allow(unused_imports, reason = "each test program uses a part of this")]
pub(crate) use assert_counts;

/// Held while a panic hook is put before another one: of two threads at once, one would lose the other's.
static HOOKS: Mutex<()> = Mutex::new(());

/// Returns the result of `work`. Panics on the calling thread are expected, and not printed
/// meanwhile.
pub fn quietly<R>(work: impl FnOnce() -> R) -> R {
    thread_local!(static QUIET: Cell<bool> = const { Cell::new(false) });
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let _alone = HOOKS.lock();
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                usual(info);
            }
        }));
    });
    QUIET.set(true);
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    QUIET.set(false);
    result.unwrap_or_else(|payload| panic::resume_unwind(payload))
}

/// Panics on purpose, and prints nothing: the panic hook is not called. For code that the library
/// calls on its own threads, whose output the test harness does not capture.
pub fn expected_panic() -> ! {
    panic::resume_unwind(Box::new("expected"))
}

/// Panics without a message when dropped; its content is still dropped.
#[derive(Debug)]
pub struct Bomb<T = ()>(pub T);

impl<T> Drop for Bomb<T> {
    fn drop(&mut self) {
        expected_panic();
    }
}

/// Returns the message with which `work` panics. Fails the test if it does not.
#[track_caller]
pub fn panic_message<R>(work: impl FnOnce() -> R) -> String {
    match panic::catch_unwind(AssertUnwindSafe(work)) {
        Ok(_) => panic!("this call must panic"),
        Err(payload) => text(&*payload),
    }
}

/// Like [`panic_message`]; also fails the test unless the panic names the line that calls this function.
#[track_caller]
pub fn told<R>(misuse: impl FnOnce() -> R) -> String {
    thread_local!(static SEEN: Cell<Option<u32>> = const { Cell::new(None) });
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let _alone = HOOKS.lock();
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            SEEN.set(info.location().map(Location::line));
            usual(info);
        }));
    });
    let message = panic_message(misuse);
    assert_eq!(SEEN.take(), Some(Location::caller().line()), "{message}");
    message
}

fn text(payload: &(dyn Any + Send)) -> String {
    let literal = payload.downcast_ref::<&str>().map(|&text| text.to_owned());
    literal
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .expect("a panic with a text")
}

/// Random numbers (xorshift), which are the same each time. Begins with any number but 0.
#[derive(Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) % end
    }
}

/// Counts values that are made and dropped.
#[derive(Debug, Clone, Default)]
pub struct Tally(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    made: AtomicUsize,
    dropped: AtomicUsize,
}

impl Tally {
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes a value that this tally counts.
    pub fn value(&self, number: u64) -> Tracked {
        self.0.made.fetch_add(1, Ordering::Relaxed);
        Tracked {
            number,
            life: AtomicU64::new(ALIVE),
            tally: self.clone(),
        }
    }

    pub fn made(&self) -> usize {
        self.0.made.load(Ordering::SeqCst)
    }

    pub fn dropped(&self) -> usize {
        self.0.dropped.load(Ordering::SeqCst)
    }

    pub fn all_dropped(&self) -> bool {
        self.dropped() == self.made()
    }
}

const ALIVE: u64 = 0x5711_1907_A11F_E000;
const DROPPED: u64 = 0xDEAD_DEAD_DEAD_DEAD;

/// A value that knows whether it lives. Its destructor fails if it runs a second time.
#[derive(Debug)]
pub struct Tracked {
    pub number: u64,
    life: AtomicU64,
    tally: Tally,
}

impl Tracked {
    /// Returns the number. Fails the test if the value has been dropped.
    #[track_caller]
    pub fn get(&self) -> u64 {
        assert_eq!(
            self.life.load(Ordering::Relaxed),
            ALIVE,
            "a reader sees a value that has been freed"
        );
        self.number
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        if self.life.swap(DROPPED, Ordering::Relaxed) != ALIVE {
            // Not a panic: the library contains those of destructors.
            eprintln!("a value is dropped twice");
            std::process::abort();
        }
        self.tally.0.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

/// Tells threads to stop when it is dropped, also by a test that fails. Otherwise they would go on
/// for ever.
#[derive(Debug)]
pub struct Over<'a>(pub &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A thread that is inside a section until it is told to leave.
#[derive(Debug)]
pub struct Reader {
    leave: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Reader {
    /// Starts the reader. Its section has begun when this returns.
    pub fn enter(domain: &Domain) -> Self {
        let domain = domain.clone();
        Self::inside("reader", move |stay| {
            let _guard = domain.read_lock();
            stay();
        })
    }

    /// Starts a thread of this name that runs `read`. Returns once `read` has called the function that it
    /// gets, which returns when the reader is told to leave.
    pub fn inside(name: &str, read: impl FnOnce(&dyn Fn()) + Send + 'static) -> Self {
        let (entered, has_entered) = channel();
        let (leave, may_leave): (_, Receiver<()>) = channel();
        let stay = move || {
            entered.tell(());
            // Told, or dropped by a test that has failed.
            let _ = may_leave.recv();
        };
        let thread = thread::Builder::new().name(name.to_owned());
        let thread = thread.spawn(move || read(&stay)).expect("a thread");
        has_entered.hear("a reader never waits");
        Self {
            leave: Some(leave),
            thread: Some(thread),
        }
    }

    /// Tells the reader to leave, without waiting for it.
    pub fn tell_to_leave(&mut self) {
        self.leave = None;
    }

    /// Tells the reader to leave, and waits until its thread has ended.
    pub fn leave(mut self) {
        self.tell_to_leave();
        self.thread
            .take()
            .expect("joined once")
            .join()
            .expect("the reader does not panic");
    }
}

/// Returns the number of a domain.
pub fn number(domain: &impl std::fmt::Debug) -> u64 {
    let text = format!("{domain:?}");
    let number = text
        .split_once("id: ")
        .and_then(|(_, rest)| rest.split_once(','))
        .expect("its number")
        .0;
    number.parse().expect("a number")
}

/// Returns how many service threads the domain with that number has: one or none.
#[cfg(target_os = "linux")]
pub fn service_threads(domain: u64) -> usize {
    threads_with(|name| *name == format!("stillpoint/{domain}\n"))
}

/// Counts this process's threads whose name satisfies `is_it`. The name ends with a newline.
#[cfg(target_os = "linux")]
pub fn threads_with(is_it: impl Fn(&String) -> bool) -> usize {
    let threads = std::fs::read_dir("/proc/self/task")
        .expect("Linux")
        .flatten();
    let names =
        threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("comm")).ok());
    names.filter(is_it).count()
}

/// The child process's name for itself; see [`child`].
pub const CHILD: &str = "STILLPOINT_TEST_CHILD";

/// Returns whether this process was started by [`child`].
pub fn is_child() -> bool {
    env::var_os(CHILD).is_some()
}

/// Runs the rest of the calling test in a separate process: in any other process, starts that one, and
/// returns from the test when it has succeeded.
#[allow(unused_macros, reason = "each test program uses a part of this")]
macro_rules! apart {
    () => {
        if !$crate::common::is_apart(&|| ()) {
            return;
        }
    };
}
#[allow(unused_imports, reason = "each test program uses a part of this")]
pub(crate) use apart;

/// Runs the test that `closure` is in, in a separate process. Returns whether this is that process.
#[track_caller]
pub fn is_apart<F: Fn()>(closure: &F) -> bool {
    if !is_child() {
        child(test_of(closure)).well();
    }
    is_child()
}

/// Returns the name of the test that a closure is in.
pub fn test_of<F>(_: &F) -> &'static str {
    let name = any::type_name::<F>().trim_end_matches("::{{closure}}");
    name.split_once("::").expect("in a crate").1
}

/// How a child process ended.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    /// Fails the test, with the child's output, unless the child succeeded.
    #[track_caller]
    pub fn well(&self) {
        assert!(
            self.status.success(),
            "{}\n{}\n{}",
            self.status,
            self.stdout,
            self.stderr
        );
    }

    /// Fails the test unless the child aborted and said `message` on its standard error.
    #[track_caller]
    pub fn by_abort_with(&self, message: &str) {
        use std::os::unix::process::ExitStatusExt;
        assert_eq!(
            self.status.signal(),
            Some(libc::SIGABRT),
            "{}\n{}\n{}",
            self.status,
            self.stdout,
            self.stderr
        );
        assert!(
            self.stderr.contains(message),
            "{:?} is not in {:?}",
            message,
            self.stderr
        );
    }
}

/// Runs the test called `name` of this test program in a separate process, where [`is_child`]
/// returns true.
#[track_caller]
pub fn child(name: &str) -> Ended {
    in_environments(name, &[(CHILD, "1")])
}

/// Runs the test `name` with `variables` set instead of the child marker.
#[track_caller]
pub fn in_environments(name: &str, variables: &[(&str, &str)]) -> Ended {
    let ended = run(Command::new(env::current_exe().expect("the test program"))
        .envs(variables.iter().copied())
        .args([name, "--exact", "--nocapture", "--test-threads=1"]));
    assert!(
        ended.stdout.contains("running 1 test\n"),
        "no test is called {name}"
    );
    ended
}

/// Returns the name that [`in_environments`] has given the child; `None` outside of a child.
pub fn child_of() -> Option<String> {
    env::var(CHILD).ok()
}

/// Runs all of this test program again without membarrier, where [`without_membarrier`] returns
/// true.
#[track_caller]
pub fn rerun_without_membarrier() -> Ended {
    run(Command::new(env::current_exe().expect("the test program")).env(MODE, "off"))
}

const MODE: &str = "STILLPOINT_MEMBARRIER";

/// Checks that all tests of this program hold without membarrier too. For one test of it.
pub fn assert_holds_without_membarrier() {
    if without_membarrier() {
        assert!(!stillpoint::membarrier_active());
    } else {
        rerun_without_membarrier().well();
    }
}

/// Returns whether this process was told to go without membarrier.
pub fn without_membarrier() -> bool {
    env::var_os(MODE).is_some_and(|mode| mode == "off")
}

#[track_caller]
fn run(command: &mut Command) -> Ended {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a process");
    let stdout = collect(child.stdout.take().expect("piped"));
    let stderr = collect(child.stderr.take().expect("piped"));
    let status = wait(&mut child);
    let (stdout, stderr) = (stdout.join().expect("read"), stderr.join().expect("read"));
    let status =
        status.unwrap_or_else(|| panic!("the child process has not ended\n{stdout}\n{stderr}"));
    Ended {
        status,
        stdout,
        stderr,
    }
}

fn collect(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// How the child ended; `None` if it had to be killed.
fn wait(child: &mut Child) -> Option<ExitStatus> {
    let start = Instant::now();
    while start.elapsed() < 2 * PATIENCE {
        if let Some(status) = child.try_wait().expect("our child") {
            return Some(status);
        }
        thread::sleep(Duration::from_millis(5));
    }
    let _ = child.kill();
    let _ = child.wait();
    None
}

/// Returns whether the thread with this folder in `/proc` sleeps, or has ended.
pub fn sleeps(task: &Path) -> bool {
    let stat = std::fs::read_to_string(task.join("stat")).unwrap_or_default();
    // Behind the name, which may have anything in it.
    stat.rsplit(')')
        .next()
        .is_none_or(|rest| !rest.starts_with(" R") && !rest.starts_with(" D"))
}

/// Waits until the thread `tid` of this process waits for another one, or `has_ended`. Under Miri, and
/// where the kernel does not show system calls, it only yields for a while.
pub fn until_it_waits(tid: u32, has_ended: impl Fn() -> bool) {
    if cfg!(miri) || std::fs::read(format!("/proc/self/task/{tid}/syscall")).is_err() {
        return (0..1000).for_each(|_| thread::yield_now());
    }
    eventually(|| has_ended() || blocked_in(tid).is_some_and(|call| call.name == "futex"));
}

/// Waits until all other threads sleep, at two looks one after the other; not for those that go on.
/// A thread that has just been started still needs memory for its signal stack, and ends the
/// process if there is none.
fn let_threads_start() {
    let me = std::fs::read_link("/proc/thread-self").expect("Linux");
    let all_sleep = || {
        std::fs::read_dir("/proc/self/task")
            .expect("Linux")
            .filter_map(Result::ok)
            .filter(|task| Some(&*task.file_name()) != me.file_name())
            .all(|task| sleeps(&task.path()))
    };
    let begun = Instant::now();
    let mut looks = 0;
    while looks < 2 && begun.elapsed() < Duration::from_secs(1) {
        looks = if all_sleep() { looks + 1 } else { 0 };
        thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the result of `work`, which runs under a limit on the address space that leaves no room
/// for a thread's stack.
pub fn without_new_threads<R>(work: impl FnOnce() -> R) -> R {
    let_threads_start();
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: u64 = statm
        .split(' ')
        .next()
        .and_then(|pages| pages.parse().ok())
        .expect("a number of pages");
    let before = limit(libc::RLIMIT_AS, pages * 4096 + (512 << 10));
    // The C library keeps the stacks of threads that have ended for others: these take them up.
    let until_done = Arc::new(Mutex::new(()));
    let wait = until_done.lock().unwrap();
    let threads: Vec<_> = iter::from_fn(|| {
        let until_done = Arc::clone(&until_done);
        thread::Builder::new()
            .spawn(move || drop(until_done.lock()))
            .ok()
    })
    .take(64)
    .collect();
    assert!(threads.len() < 64, "no thread can be started");
    let result = work();
    limit(libc::RLIMIT_AS, before);
    drop(wait);
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    result
}
