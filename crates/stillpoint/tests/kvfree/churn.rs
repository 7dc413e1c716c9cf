//! Threads that start while a reader stays, retire less than a page each, and exit: past the budget
//! each waits, so they add no more to it than threads that stay.

use std::{
    thread::{self},
    time::Duration,
};

use stillpoint::Domain;

use crate::common::{Reader, apart, leak, retire};

const BUDGET: usize = 256 << 10;
const THREADS: u64 = 40;
const OBJECTS: usize = 200;
/// Number of threads that stay within the budget: each leaves 40 KiB and more.
const WITHIN: u64 = 7;

/// Retires objects of 200 bytes by `retire`, each thread inside a section from its first object on
/// if requested.
fn come_and_go(domain: &Domain, retire: fn(&Domain, [u8; 200]), in_section: bool) {
    domain.set_budget(BUDGET);
    domain.set_stall_timeout(Duration::MAX);
    let reader = Reader::enter(domain);
    let before = domain.statistics();
    for _ in 0..THREADS {
        let theirs = domain.clone();
        let thread = thread::spawn(move || {
            let section = in_section.then(|| theirs.read_lock());
            (0..OBJECTS).for_each(|_| retire(&theirs, [7; 200]));
            drop(section);
        });
        thread.join().expect("no panic");
    }
    let after = domain.statistics();
    assert_eq!(after.objects_freed, before.objects_freed);
    assert!(after.waits - before.waits >= THREADS - WITHIN, "{after:?}");
    reader.leave();
    domain.kvfree_barrier();
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn threads_that_exit_early_wait_for_their_first_page() {
    come_and_go(&Domain::new(), retire, false);
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn threads_that_retire_in_a_section_and_exit_early_wait_at_its_end() {
    come_and_go(&Domain::new(), retire, true);
}

#[test]
#[cfg_attr(miri, ignore = "starts a process")]
fn threads_that_exit_early_wait_in_the_global_domain() {
    apart!();
    for in_section in [false, true] {
        // SAFETY: no other thread has ever known the object.
        let retire = |_: &Domain, value| unsafe { stillpoint::retire(leak(value)) };
        come_and_go(stillpoint::global(), retire, in_section);
    }
}
