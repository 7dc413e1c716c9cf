//! Threads, exit and forks of a process. Each test runs in its own process.
#![cfg(all(target_os = "linux", not(miri)))]

mod common;

use common::{Drops, Reader, registered, wait_until};
use crossbeam_epoch::{self as epoch, Collector};
use std::{
    env, fs,
    io::Write,
    panic::{self, AssertUnwindSafe},
    process::{Command, exit},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI32, Ordering},
        mpsc::channel,
    },
    thread,
    time::Duration,
};

/// Runs `test` in a new process, where it only does `work`. Returns its output; `None` in that
/// process.
fn alone(test: &str, work: impl FnOnce()) -> Option<String> {
    const CHILD: &str = "STILLPOINT_TEST_CHILD";
    if env::var_os(CHILD).is_some() {
        work();
        return None;
    }
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(CHILD, "yes")
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let failed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{said}{failed}", output.status);
    Some(said)
}

fn say(what: &str) {
    // Bypasses the buffers, and libtest's capture.
    std::io::stdout().write_all(what.as_bytes()).unwrap();
    std::io::stdout().flush().unwrap();
}

#[test]
fn no_thread_is_started_before_there_is_garbage() {
    let _ = alone("no_thread_is_started_before_there_is_garbage", || {
        let threads = || fs::read_dir("/proc/self/task").unwrap().count();
        let before = threads();
        let (_collector, handle) = registered();
        for _ in 0..10_000 {
            drop((epoch::pin(), handle.pin()));
        }
        epoch::pin().flush();
        assert_eq!(threads(), before);
        // Garbage starts one, because this thread never pins again.
        let ran = Drops::default();
        ran.defer(&epoch::pin());
        ran.wait_for(1);
    });
}

/// Whether the library's exit handler has run.
static EXITING: AtomicBool = AtomicBool::new(false);

/// Runs after the library's handler, because it is registered earlier; takes long enough for
/// deferred functions to become due.
extern "C" fn exit_slowly() {
    EXITING.store(true, Ordering::Relaxed);
    thread::sleep(Duration::from_millis(300));
    say("[exited]");
}

#[test]
fn nothing_runs_once_the_process_exits() {
    let said = alone("nothing_runs_once_the_process_exits", || {
        // SAFETY: the function stays mapped.
        unsafe { libc::atexit(exit_slowly) };
        let own = Collector::new();
        for collector in [epoch::default_collector(), &own] {
            let handle = collector.register();
            handle.pin().defer(|| {
                // On a busy machine, it may run before the exit.
                if EXITING.load(Ordering::Relaxed) {
                    say("[late]");
                }
            });
            std::mem::forget(handle);
        }
        exit(0);
    });
    if let Some(said) = said {
        assert!(
            said.contains("[exited]") && !said.contains("[late]"),
            "{said}"
        );
    }
}

#[test]
fn a_deferred_function_under_way_is_waited_for_at_the_exit() {
    let said = alone(
        "a_deferred_function_under_way_is_waited_for_at_the_exit",
        || {
            let (begin, begun) = channel();
            epoch::pin().defer(move || {
                begin.send(()).unwrap();
                thread::sleep(Duration::from_millis(100));
                say("[done]");
            });
            begun.recv().unwrap();
            exit(0);
        },
    );
    assert!(said.is_none_or(|said| said.contains("[done]")));
}

#[test]
fn a_deferred_function_may_exit() {
    let said = alone("a_deferred_function_may_exit", || {
        epoch::pin().defer(|| {
            say("[exits]");
            exit(0)
        });
        loop {
            thread::sleep(Duration::from_secs(1));
        }
    });
    assert!(said.is_none_or(|said| said.contains("[exits]")));
}

/// Runs `work` in the child of a fork; it must return without a panic.
fn in_a_fork(work: impl FnOnce()) {
    // SAFETY: the child uses what may be used there: see `Domain`, "Forking".
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        end_child(work);
    }
    wait_for(pid);
}

fn end_child(work: impl FnOnce()) -> ! {
    let failed = panic::catch_unwind(AssertUnwindSafe(work)).is_err();
    // SAFETY: it ends the process.
    unsafe { libc::_exit(i32::from(failed)) }
}

fn wait_for(pid: libc::pid_t) {
    let mut status = 0;
    // SAFETY: our child, and a place for its status.
    wait_until(|| unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) } == pid);
    assert_eq!(status, 0, "the child has failed");
}

/// Defers in the default collector and runs the functions, in a process with one thread.
fn works() {
    let drops = Drops::default();
    drops.defer(&epoch::pin());
    wait_until(|| {
        epoch::pin().flush();
        drops.count() == 1
    });
    // The service thread, which starts again, runs one, too.
    drops.defer(&epoch::pin());
    drops.wait_for(2);
}

#[test]
fn the_child_of_a_fork_goes_on() {
    let _ = alone("the_child_of_a_fork_goes_on", || {
        works();
        let forgotten = Drops::default();
        let guard = epoch::pin();
        forgotten.defer(&guard);
        in_a_fork(|| {
            assert!(epoch::is_pinned());
            // The child has the guard, too, but not the functions deferred before.
            drop(guard);
            assert!(!epoch::is_pinned());
            works();
            assert_eq!(forgotten.count(), 0);
        });
        works();
    });
}

#[test]
fn a_guard_of_another_thread_is_over_in_the_child() {
    let _ = alone("a_guard_of_another_thread_is_over_in_the_child", || {
        let reader = Reader::start("reader", epoch::pin);
        in_a_fork(works);
        reader.leave();
        works();
    });
}

#[test]
fn forks_at_any_moment_of_busy_threads() {
    let _ = alone("forks_at_any_moment_of_busy_threads", || {
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        let guard = epoch::pin();
                        for n in 0..40_u64 {
                            guard.defer(move || n + 1);
                        }
                        drop(guard);
                        epoch::pin().flush();
                    }
                });
            }
            for _ in 0..30 {
                in_a_fork(works);
            }
            stop.store(true, Ordering::Relaxed);
        });
    });
}

/// The thread is the child's only one, and so serves all collectors there.
#[test]
fn a_thread_whose_deferred_function_forked_serves_other_collectors_in_the_child() {
    let test = "a_thread_whose_deferred_function_forked_serves_other_collectors_in_the_child";
    let _ = alone(test, || {
        let (one, other) = (Collector::new(), Collector::new());
        let (tell, told) = channel();
        one.register().pin().defer(move || {
            // SAFETY: as in `in_a_fork`.
            let pid = unsafe { libc::fork() };
            if pid == 0 {
                // SAFETY: ends the child, which means success.
                other.register().pin().defer(|| unsafe { libc::_exit(0) });
            } else {
                tell.send(pid).unwrap();
            }
        });
        wait_for(told.recv().unwrap());
    });
}

/// The child returns from the function; only the parent runs those that follow.
#[test]
fn a_deferred_function_may_fork() {
    let _ = alone("a_deferred_function_may_fork", || {
        let (ran, forked) = (Drops::default(), Drops::default());
        let pid = Arc::new(AtomicI32::new(-1));
        {
            let guard = epoch::pin();
            let (noted, theirs) = (forked.clone(), Arc::clone(&pid));
            guard.defer(move || {
                // SAFETY: as in `in_a_fork`.
                theirs.store(unsafe { libc::fork() }, Ordering::Relaxed);
                noted.note();
            });
            for _ in 0..500 {
                ran.defer(&guard);
            }
        }
        while forked.count() == 0 {
            epoch::pin().flush();
        }
        match pid.load(Ordering::Relaxed) {
            0 => end_child(|| {
                assert_eq!(ran.count(), 0);
                works();
                assert_eq!(ran.count(), 0);
            }),
            pid => wait_for(pid),
        }
        ran.wait_for(500);
        works();
    });
}
