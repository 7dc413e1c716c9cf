//! A panic for misuse names the line of the one who misuses.

mod common;

use std::{
    panic::{self, AssertUnwindSafe, catch_unwind},
    sync::Mutex,
};
use stillpoint::{Domain, Rcu, RcuOption, read_lock, tasks_trace};

static SEEN: Mutex<Option<String>> = Mutex::new(None);

/// Where `misuse` panics, to which file that is.
fn file<R>(misuse: impl FnOnce() -> R) -> String {
    assert!(
        catch_unwind(AssertUnwindSafe(misuse)).is_err(),
        "this must panic"
    );
    SEEN.lock()
        .expect("no panic")
        .take()
        .expect("the hook has run")
}

/// Alone in its program, because there is one hook.
#[test]
fn misuse_is_told_of_with_the_line_of_the_caller() {
    panic::set_hook(Box::new(|info| {
        *SEEN.lock().expect("no panic") =
            info.location().map(|location| location.file().to_owned());
    }));
    let other = Domain::new();
    let (mut cell, mut option) = (Rcu::new(1), RcuOption::new(1));
    let wrong = other.read_lock();
    let mut files = vec![
        file(|| *cell.load(&wrong)),
        file(|| *cell.load_owned(&wrong)),
        file(|| cell.compare_exchange(&1, Box::new(2), &wrong).is_ok()),
        file(|| option.load(&wrong).is_some()),
        file(|| option.load_owned(&wrong).is_some()),
        file(|| option.compare_exchange(None, None, &wrong).is_ok()),
        file(|| *option.load_or_init(&wrong, || 1)),
        file(|| other.synchronize()),
        file(|| other.synchronize_expedited()),
        file(|| other.cond_synchronize(other.start_poll())),
    ];
    let _guard = read_lock();
    files.extend([
        file(|| stillpoint::synchronize()),
        file(|| stillpoint::synchronize_expedited()),
        file(|| *cell.get_mut()),
        file(|| option.get_mut().copied()),
        file(|| cell.swap(2).wait()),
        file(|| cell.into_inner()),
        file(|| option.into_inner()),
        file(|| stillpoint::kvfree_barrier()),
    ]);
    let _guard = tasks_trace::read_lock();
    files.push(file(|| tasks_trace::synchronize()));
    drop(panic::take_hook());
    for (number, file) in files.iter().enumerate() {
        assert!(
            file.ends_with("caller.rs"),
            "misuse {number} is told of at {file}"
        );
    }
}
