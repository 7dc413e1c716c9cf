//! Service threads come when there is work, and end when there has been none for a while; a domain
//! is never held up by the user code of another.
#![cfg(all(target_os = "linux", not(miri)))]

mod common;

use common::forking::{assert_works, assert_works_here, fork};
use common::{
    Hear, Over, Tally, Tell, apart, eventually, keeps::Blocked, number, returns, service_threads,
    threads_with,
};
use std::{
    cell::RefCell,
    collections::HashSet,
    fs, hint,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::channel,
    },
    thread,
    time::{Duration, Instant},
};
use stillpoint::{Domain, Rcu, lab};

/// How many of the domains have a service thread.
fn with_a_thread(domains: &[Domain]) -> usize {
    let names: HashSet<_> = domains
        .iter()
        .map(|domain| format!("stillpoint/{}\n", number(domain)))
        .collect();
    threads_with(|name| names.contains(name))
}

fn use_all(domains: &[Domain], tally: &Tally) {
    for domain in domains {
        let cell = Rcu::new_in(domain, tally.value(1));
        let value = tally.value(2);
        domain.call(move || drop(value));
        cell.store(tally.value(3));
        let _ = domain.start_poll();
    }
}

#[test]
fn two_thousand_idle_domains_have_no_thread() {
    let domains: Vec<_> = (0..2_000).map(|_| Domain::new()).collect();
    let tally = Tally::new();
    for _ in 0..2 {
        use_all(&domains, &tally);
        // Nothing else is called: what waits is done, and then the threads end.
        eventually(|| tally.all_dropped());
        eventually(|| with_a_thread(&domains) == 0);
        // With nothing to wait for, none is started.
        for domain in &domains {
            domain.barrier();
            domain.kvfree_barrier();
            domain.synchronize();
        }
        assert_eq!(with_a_thread(&domains), 0);
    }
    use_all(&domains[..10], &tally);
    drop(domains);
    assert!(tally.all_dropped());
}

#[test]
fn a_domain_whose_thread_has_ended_works() {
    apart!();
    let domain = Domain::new();
    for _ in 0..2 {
        assert_works(&domain);
        eventually(|| service_threads(number(&domain)) == 0);
    }
    fork(|| assert_works_here(&domain)).well();
    assert_works(&domain);
}

#[test]
fn a_callback_that_blocks_holds_up_no_other_domain() {
    let (one, other) = (Domain::new(), Domain::new());
    let blocked = Blocked::on(&one);
    for domain in [other, Domain::with_fences()] {
        returns(move || {
            assert_works(&domain);
            let tally = Tally::new();
            let (cell, value) = (Rcu::new_in(&domain, tally.value(1)), tally.value(2));
            domain.call(move || drop(value));
            cell.store(tally.value(3));
            let cookie = domain.start_poll();
            eventually(|| tally.dropped() == 2 && domain.poll(cookie));
            drop(cell);
            drop(domain);
            assert!(tally.all_dropped());
        });
    }
    // Its own grace periods end as well.
    let theirs = one.clone();
    returns(move || theirs.synchronize());
    drop(blocked);
}

/// Does something when its thread ends.
struct AtEnd(Option<Box<dyn FnOnce() + Send>>);

impl Drop for AtEnd {
    fn drop(&mut self) {
        if let Some(end) = self.0.take() {
            end();
        }
    }
}

thread_local!(static AT_END: RefCell<AtEnd> = const { RefCell::new(AtEnd(None)) });

/// Makes the service thread of `domain` run `work` at its very end.
fn at_the_threads_end(domain: &Domain, work: impl FnOnce() + Send + 'static) {
    domain.call(|| AT_END.with_borrow_mut(|end| end.0 = Some(Box::new(work))));
}

#[test]
fn the_end_of_a_domain_waits_for_the_end_of_a_thread_that_has_ended_idle() {
    let domain = Domain::new();
    let (end, may_end) = channel::<()>();
    let ended = Arc::new(AtomicBool::new(false));
    let (ends, theirs) = (Arc::new(AtomicBool::new(false)), Arc::clone(&ended));
    let begun = Arc::clone(&ends);
    at_the_threads_end(&domain, move || {
        begun.store(true, Ordering::SeqCst);
        let _ = may_end.recv();
        thread::sleep(Duration::from_millis(100));
        theirs.store(true, Ordering::SeqCst);
    });
    eventually(|| ends.load(Ordering::SeqCst));
    // Another thread has come and gone meanwhile.
    assert_works(&domain);
    drop(end);
    returns(move || drop(domain));
    assert!(ended.load(Ordering::SeqCst));
}

#[test]
fn a_destructor_at_the_threads_end_may_use_the_domain_and_end_it() {
    let domain = Domain::new();
    let (tell, told) = channel();
    let theirs = domain.clone();
    at_the_threads_end(&domain, move || {
        let tally = Tally::new();
        for _ in 0..3 {
            let value = tally.value(1);
            theirs.call(move || drop(value));
            theirs.barrier();
            assert!(tally.all_dropped());
        }
        drop(Rcu::new_in(&theirs, tally.value(2)));
        theirs.kvfree_barrier();
        assert!(tally.all_dropped());
        // The last handle.
        drop(theirs);
        tell.tell(());
    });
    drop(domain);
    told.hear("it returns");
}

#[test]
fn a_thread_that_never_quite_ends_holds_up_no_later_thread() {
    let domain = Domain::new();
    let (end, may_end) = channel::<()>();
    let ends = Arc::new(AtomicBool::new(false));
    let begun = Arc::clone(&ends);
    at_the_threads_end(&domain, move || {
        begun.store(true, Ordering::SeqCst);
        let _ = may_end.recv();
    });
    eventually(|| ends.load(Ordering::SeqCst));
    for _ in 0..2 {
        assert_works(&domain);
        eventually(|| service_threads(number(&domain)) == 1);
    }
    drop(end);
    returns(move || drop(domain));
}

#[test]
fn the_end_of_an_idle_thread_starts_no_service_thread() {
    let domains: Vec<_> = (0..20).map(|_| Domain::new()).collect();
    let tally = Tally::new();
    thread::scope(|scope| {
        let ((tell, told), (end, may_end)) = (channel(), channel::<()>());
        let (domains, tally) = (&domains, &tally);
        let retires = scope.spawn(move || {
            for domain in domains {
                Rcu::new_in(domain, tally.value(1)).store(tally.value(2));
            }
            tell.tell(());
            may_end.recv().expect_err("nothing is sent");
        });
        told.recv().expect("it has retired");
        eventually(|| tally.all_dropped() && with_a_thread(domains) == 0);
        drop(end);
        retires.join().expect("no panic");
        // One would stay for a second.
        for _ in 0..30 {
            assert_eq!(with_a_thread(domains), 0);
            thread::sleep(Duration::from_millis(10));
        }
    });
}

/// What the kernel keeps of the name, in whole characters.
#[test]
fn a_named_domains_thread_has_its_name() {
    for (name, shown) in [
        ("routes", "rcu/routes"),
        ("a-long-nam\u{e9}s", "rcu/a-long-nam"),
    ] {
        let (domain, (tell, told)) = (Domain::builder().name(name).build(), channel());
        domain.call(move || {
            let comm = fs::read_to_string("/proc/thread-self/comm").expect("Linux");
            tell.tell(comm);
        });
        let comm = told.hear("it is called");
        assert_eq!(comm.trim_end(), shown);
    }
}

/// A service thread that ends as soon as it has nothing to do.
#[derive(Debug)]
enum Hasty {}

// SAFETY: nothing is left out.
unsafe impl lab::GracePeriodPolicy for Hasty {
    const IDLE: u64 = 0;
}
// SAFETY: of deferred frees everything is present.
unsafe impl lab::Policy for Hasty {}

/// Each callback is queued while the thread ends because it has nothing to do. That an end without a last look
/// at the work is caught, `loom_an_idle_end_that_does_not_look_is_caught` shows.
#[test]
fn no_work_is_lost_while_the_thread_ends() {
    let (domain, invoked) = (lab::Domain::<Hasty>::new(), Arc::new(AtomicU64::new(0)));
    for number in 1..=5_000_u64 {
        let theirs = Arc::clone(&invoked);
        domain.call(move || theirs.store(number, Ordering::SeqCst));
        let begun = Instant::now();
        while invoked.load(Ordering::SeqCst) < number {
            assert!(
                begun.elapsed() < common::PATIENCE,
                "callback {number} is lost"
            );
            hint::spin_loop();
        }
        // All moments of the thread's end.
        (0..number.wrapping_mul(0x9E37) % 3_000).for_each(|_| hint::spin_loop());
    }
}

/// Several threads bring work of all kinds, while the service thread comes and goes.
#[test]
fn threads_that_retire_wait_and_promise_are_served_by_threads_that_come_and_go() {
    let (domain, over) = (lab::Domain::<Hasty>::new(), AtomicBool::new(false));
    let tally = Tally::new();
    thread::scope(|scope| {
        let ends = Over(&over);
        let workers: Vec<_> = (0..3)
            .map(|kind| {
                let (domain, tally) = (&domain, &tally);
                scope.spawn(move || {
                    for _ in 0..500 {
                        let value = Box::leak(Box::new(tally.value(kind)));
                        match kind {
                            // SAFETY: no other thread has ever known the object.
                            0 => unsafe { domain.retire(value.into()) },
                            1 => {
                                // SAFETY: it came out of a box just now.
                                let value = unsafe { Box::from_raw(value) };
                                domain.call(move || drop(value));
                                domain.barrier();
                            }
                            _ => {
                                // SAFETY: as above.
                                drop(unsafe { Box::from_raw(value) });
                                let cookie = domain.start_poll();
                                // Nothing that this thread does ends it.
                                eventually(|| domain.has_ended(cookie));
                            }
                        }
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                domain.read(|_| hint::spin_loop());
            }
        });
        workers
            .into_iter()
            .for_each(|worker| worker.join().expect("no panic"));
        eventually(|| tally.all_dropped());
        drop(ends);
    });
}
