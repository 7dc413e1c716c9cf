//! A panic for misuse names the caller's line.

mod common;

use std::{
    panic::{self, AssertUnwindSafe, Location, catch_unwind},
    sync::Mutex,
};
use stillpoint::{Domain, Rcu, RcuOption, read_lock, tasks_trace};

/// File and line.
type Place = (String, u32);

static SEEN: Mutex<Option<Place>> = Mutex::new(None);

fn place(location: &Location<'_>) -> Place {
    (location.file().to_owned(), location.line())
}

/// Returns the place that the panic of `misuse` names, and the place where it must be: the line of
/// the call of this function.
#[track_caller]
fn told<R>(misuse: impl FnOnce() -> R) -> (Option<Place>, Place) {
    assert!(
        catch_unwind(AssertUnwindSafe(misuse)).is_err(),
        "this must panic"
    );
    (
        SEEN.lock().expect("no panic").take(),
        place(Location::caller()),
    )
}

/// Alone in its program, because there is one hook.
#[test]
fn misuse_is_told_of_with_the_line_of_the_caller() {
    panic::set_hook(Box::new(|info| {
        *SEEN.lock().expect("no panic") = info.location().map(place);
    }));
    let other = Domain::new();
    let (mut cell, mut option) = (Rcu::new(1), RcuOption::new(1));
    let wrong = other.read_lock();
    let mut all = vec![
        told(|| *cell.load(&wrong)),
        told(|| *cell.load_owned(&wrong)),
        told(|| cell.compare_exchange(&1, Box::new(2), &wrong).is_ok()),
        told(|| option.load(&wrong).is_some()),
        told(|| option.load_owned(&wrong).is_some()),
        told(|| option.compare_exchange(None, None, &wrong).is_ok()),
        told(|| *option.load_or_init(&wrong, || 1)),
        told(|| other.synchronize()),
        told(|| other.synchronize_expedited()),
        told(|| other.cond_synchronize(other.start_poll())),
        told(|| other.qsbr_reader().synchronize()),
    ];
    let _guard = read_lock();
    all.extend([
        told(|| stillpoint::synchronize()),
        told(|| stillpoint::synchronize_expedited()),
        told(|| *cell.get_mut()),
        told(|| option.get_mut().copied()),
        told(|| cell.swap(2).wait()),
        told(|| cell.into_inner()),
        told(|| option.into_inner()),
        told(|| stillpoint::kvfree_barrier()),
    ]);
    let _guard = tasks_trace::read_lock();
    all.push(told(|| tasks_trace::synchronize()));
    drop(panic::take_hook());
    for (said, at) in all {
        assert_eq!(said, Some(at));
    }
}
