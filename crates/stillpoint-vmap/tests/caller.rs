//! A panic for misuse names the caller's line.

use std::{
    panic::{self, AssertUnwindSafe, Location, catch_unwind},
    sync::Mutex,
};
use stillpoint::Domain;
use stillpoint_vmap::Arena;

/// File and line of the last panic.
static SEEN: Mutex<Option<(String, u32)>> = Mutex::new(None);

/// Fails the test unless `misuse` panics with the line that calls this function.
#[track_caller]
fn assert_told<R>(misuse: impl FnOnce() -> R) {
    assert!(
        catch_unwind(AssertUnwindSafe(misuse)).is_err(),
        "this must panic"
    );
    let here = Location::caller();
    let seen = SEEN.lock().expect("no panic").take();
    assert_eq!(seen, Some((here.file().to_owned(), here.line())));
}

/// The only test of its program, because a program has one hook.
#[test]
fn misuse_is_told_of_with_the_line_of_the_caller() {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(|info| {
        let place = info.location().expect("there is one");
        *SEEN.lock().expect("no panic") = Some((place.file().to_owned(), place.line()));
    }));
    let arena = Arena::new().expect("memory");
    let (area, other) = (arena.alloc(10, 1).expect("memory"), Domain::new());
    let (guard, wrong) = (arena.read_lock(), other.read_lock());
    let addr = area.addr();
    assert_told(|| arena.find(addr, &wrong).is_some());
    assert_told(|| arena.find_or_next(addr, &wrong).is_some());
    assert_told(|| arena.check(addr, 1, &wrong).is_ok());
    assert_told(|| arena.areas(&wrong).count());
    assert_told(|| arena.areas_from(addr, &wrong).count());
    let found = arena.check(addr, 10, &guard).expect("it is there");
    let less = arena.check(addr, 9, &guard).expect("it is there");
    assert_told(|| found.copy_to(&mut [0; 9]));
    assert_told(|| found.copy_from(&[0; 11]));
    assert_told(|| found.copy_between(&less));
    panic::set_hook(usual);
}
