//! A panic for misuse names the caller's line.

use std::{
    panic::{self, AssertUnwindSafe, Location, catch_unwind},
    sync::{Arc, Mutex},
};
use stillpoint_lru::{Entry, Hierarchy, Isolate, ListLru, Node};

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
    let (mine, other) = (Hierarchy::new(), Hierarchy::new());
    let lru = ListLru::<u32>::for_tenants(&mine);
    let root = other.root();
    let node = Node::current();
    assert_told(|| lru.add(root, Arc::new(Entry::new(1))));
    assert_told(|| lru.count_one(root, node));
    assert_told(|| lru.walk_one(root, node, 1, |_| Isolate::Skip));
    panic::set_hook(usual);
}
