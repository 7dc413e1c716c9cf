//! The child of a fork. A program of its own: numbers of threads are the process's.

#![cfg(all(target_os = "linux", not(miri)))]

mod common;

use common::{Drops, reclaim_all};
use seize::Collector;
use std::{
    sync::{Barrier, Mutex, MutexGuard},
    thread,
};

/// One test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap()
}

/// Whether the child does. Not an assertion: other threads wait for this one.
fn passes(child: libc::pid_t) -> bool {
    let mut status = 0;
    // SAFETY: our child.
    unsafe { libc::waitpid(child, &raw mut status, 0) == child && status == 0 }
}

#[test]
fn in_a_forks_child_vanished_guards_hold_nothing_up() {
    let _alone = alone();
    let (collector, drops) = (Collector::new().batch_size(2), Drops::default());
    let (entered, end) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            let _guard = collector.enter();
            entered.wait();
            end.wait();
        });
        entered.wait();
        drops.retire(&collector);
        drops.retire(&collector);
        assert_eq!(drops.count(), 0, "it is in the way");
        // SAFETY: the child uses this library and exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            drops.retire(&collector);
            drops.retire(&collector);
            let mine = drops.count() == 4;
            let guard = collector.enter();
            drops.retire(&collector);
            drops.retire(&collector);
            let held = drops.count() == 4;
            drop(guard);
            let status = i32::from(!(mine && held && drops.count() == 6));
            // SAFETY: ends the child.
            unsafe { libc::_exit(status) };
        }
        let passes = passes(child);
        end.wait();
        assert!(passes);
    });
    assert_eq!(drops.count(), 2, "the guard that ended has freed them");
}

/// What a vanished thread may have been in the middle of adding to is not looked at in the child. What
/// ended threads have left, and the child's own, is freed.
#[test]
fn in_a_forks_child_what_vanished_threads_had_is_forgotten() {
    let _alone = alone();
    let (collector, drops) = (Collector::new(), Drops::default());
    let (retired, end) = (Barrier::new(2), Barrier::new(2));
    let retire = |count: usize| (0..count).for_each(|_| drops.retire(&collector));
    retire(1);
    thread::scope(|scope| {
        let ended = || {
            retired.wait();
            retire(2);
        };
        // Beside the other, so that the two have a number each.
        let ended = scope.spawn(ended);
        scope.spawn(|| {
            retire(4);
            retired.wait();
            end.wait();
            retire(4);
        });
        ended.join().unwrap();
        // SAFETY: the child uses this library and exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            reclaim_all(&collector);
            retire(8);
            reclaim_all(&collector);
            let status = i32::from(drops.count() != 1 + 2 + 8);
            // SAFETY: ends the child.
            unsafe { libc::_exit(status) };
        }
        let passes = passes(child);
        end.wait();
        assert!(passes);
    });
    assert_eq!(drops.count(), 0);
    reclaim_all(&collector);
    assert_eq!(drops.count(), 1 + 2 + 4 + 4);
}
