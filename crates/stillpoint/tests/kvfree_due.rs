//! Deferred frees: what is due is freed, whatever waits beside it.

mod common;

use common::{Reader, Tally, Tell, eventually, leak, retire};
use std::{
    sync::mpsc::{Sender, channel},
    thread,
    time::Duration,
};
use stillpoint::Domain;

/// Number of objects in several pages of the library.
const SOME: usize = 3_000;
/// No page has more objects.
const A_PAGE: usize = 256;

/// A thread fills pages under a reader, then, under a younger one, pages of objects with
/// destructors, which go to the service thread at once. It falls idle, so the older pages come to
/// the service thread behind the younger.
#[test]
fn idle_threads_pages_go_before_younger_ones() {
    let (domain, tally) = (Domain::new(), Tally::new());
    let older = Reader::enter(&domain);
    let (theirs, counted) = (domain.clone(), tally.clone());
    let (tell, told) = channel();
    let idle = Reader::inside("idle", move |stay| {
        (0..SOME).for_each(|number| retire(&theirs, number));
        let younger = Reader::enter(&theirs);
        (0..SOME).for_each(|number| retire(&theirs, counted.value(number as u64)));
        tell.tell(younger);
        stay();
    });
    let younger = told.recv().expect("no panic");
    assert_eq!(
        domain.statistics().objects_freed,
        0,
        "both readers are there"
    );
    older.leave();
    // All pages but the one that was still open when the younger reader came.
    eventually(|| domain.statistics().objects_freed >= (SOME - A_PAGE) as u64);
    assert_eq!(tally.dropped(), 0, "these wait for the younger reader");
    younger.leave();
    eventually(|| tally.all_dropped() && domain.statistics().objects_pending == 0);
    idle.leave();
}

/// A thread that retires now and then frees about two pages for each that it fills, which may take it
/// a while: what it has from busier times is due before.
#[test]
fn slow_threads_sealed_pages_are_adopted() {
    let domain = Domain::new();
    let reader = Reader::enter(&domain);
    (0..30 * A_PAGE).for_each(|number| retire(&domain, number));
    assert_eq!(domain.statistics().objects_freed, 0, "the reader is there");
    reader.leave();
    let is_left = |number: &usize| {
        retire(&domain, *number);
        thread::sleep(Duration::from_millis(2));
        domain.statistics().objects_freed < 29 * A_PAGE as u64
    };
    // In that time it may fill ten pages, and so free 24.
    assert!((0..10 * A_PAGE).take_while(is_left).count() < 10 * A_PAGE);
    domain.kvfree_barrier();
}

/// Tells that it is dropped, and then runs what it has.
struct Heavy<F: FnMut()>(Sender<&'static str>, F);

impl<F: FnMut()> Drop for Heavy<F> {
    fn drop(&mut self) {
        self.0.tell("block");
        (self.1)();
    }
}

/// Freeing a large block takes long: objects that have become due meanwhile are freed before the
/// next one.
#[test]
fn a_callback_comes_between_two_large_blocks() {
    fn retire_heavy(domain: &Domain, block: impl Send + 'static) {
        let block = leak(block);
        // SAFETY: from a box just now; no other thread has ever known the object.
        unsafe { domain.retire_weighed(block, 1 << 30) };
    }
    let domain = Domain::new();
    let (tell, told) = channel();
    let (begin, begun) = channel();
    let (end, may_end) = channel::<()>();
    let reader = Reader::enter(&domain);
    let first = move || {
        begin.tell(());
        may_end.recv().expect_err("nothing is sent");
    };
    // In a section, which puts waits off: the reader holds up what is over the budget.
    let section = domain.read_lock();
    retire_heavy(&domain, Heavy(tell.clone(), first));
    (0..2).for_each(|_| retire_heavy(&domain, Heavy(tell.clone(), || ())));
    reader.leave();
    drop(section);
    begun.recv().expect("the service thread frees the first");
    domain.call(move || tell.tell("callback"));
    let cookie = domain.start_poll();
    eventually(|| domain.poll(cookie));
    drop(end);
    let order: Vec<_> = told.iter().collect();
    assert_eq!(order, ["block", "callback", "block", "block"]);
}

/// Pages of objects with destructors start their grace periods when they are full: no younger
/// reader holds them up, whatever an older one does.
#[test]
fn full_pages_of_destructors_do_not_wait_for_younger_readers() {
    let (domain, tally) = (Domain::new(), Tally::new());
    let older = Reader::enter(&domain);
    (0..SOME).for_each(|number| retire(&domain, tally.value(number as u64)));
    let younger = Reader::enter(&domain);
    older.leave();
    eventually(|| tally.dropped() >= SOME - A_PAGE);
    younger.leave();
    domain.kvfree_barrier();
    assert!(tally.all_dropped());
}
