//! Readers that sleep, and readers that are tasks: nothing is freed under them, wherever they go
//! and however they end.

mod common;

use common::{
    Count, Tally, Tell, apart, elsewhere, eventually, panic_message, returns,
    stalls::{Stalls, assert_waits},
    until_it_waits,
};
use std::{
    cell::RefCell,
    future::pending,
    mem,
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc::channel,
    },
    task::{Context, Waker},
    thread,
    time::Duration,
};
use stillpoint::{
    Cookie, Flavour, Rcu,
    tasks_trace::{self, OwnedGuard, TraceDomain},
};
use stillpoint_platform::thread::tid;
use tokio::{runtime, sync::oneshot, task, time};

fn domains() -> [TraceDomain; 2] {
    [TraceDomain::new(), TraceDomain::with_fences()]
}

/// An executor with two threads, between which tasks move.
fn executor() -> runtime::Runtime {
    runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .expect("a runtime")
}

#[test]
fn guards_go_where_tasks_go() {
    fn assert_goes<T: Send + Sync + 'static>() {}
    assert_goes::<OwnedGuard<'static>>();
    assert_goes::<TraceDomain>();
}

#[test]
fn an_owned_guard_keeps_what_it_has_found_until_it_is_dropped_on_another_thread() {
    for domain in domains() {
        let tally = Tally::new();
        let cell = Rcu::new_in(&domain, tally.value(1));
        let guard = domain.read_lock_owned();
        let value = cell.load(&guard);
        cell.store(tally.value(2));
        let cookie = domain.start_poll();
        assert!(!domain.poll(cookie));
        elsewhere(|| {
            assert_eq!(value.get(), 1);
            assert_eq!(cell.load(&guard).get(), 2, "shared, it reads for both");
        });
        assert_eq!((value.get(), tally.dropped()), (1, 0));
        elsewhere(move || drop(guard));
        domain.synchronize();
        assert!(domain.poll(cookie));
        domain.kvfree_barrier();
        assert_eq!(tally.dropped(), 1);
    }
}

#[test]
fn owned_guards_hold_across_the_wrap() {
    // Three grace periods before the numbers start again.
    let domain = TraceDomain::starting_at(Cookie::from_raw(0_u64.wrapping_sub(3 << 16)));
    let tally = Tally::new();
    let cell = Rcu::new_in(&domain, tally.value(0));
    for round in 1..8 {
        let guard = domain.read_lock_owned();
        let value = cell.load(&guard);
        cell.store(tally.value(round));
        let cookie = domain.get_state();
        assert!(
            !domain.poll(cookie),
            "round {round}: {cookie:?} waits for the guard"
        );
        assert_eq!(value.get(), round - 1);
        elsewhere(move || drop(guard));
        domain.cond_synchronize(cookie);
        assert!(domain.poll(cookie), "{cookie:?}");
    }
    domain.kvfree_barrier();
    assert_eq!(tally.dropped(), 7);
}

#[test]
fn a_guard_of_a_thread_lasts_while_the_thread_sleeps() {
    for domain in domains() {
        let tally = Tally::new();
        let cell = Rcu::new_in(&domain, tally.value(1));
        let (entered, has_entered) = channel();
        let (woken, has_waited, updater) = (AtomicBool::new(false), AtomicBool::new(false), tid());
        thread::scope(|scope| {
            scope.spawn(|| {
                let guard = domain.read_lock();
                let value = cell.load(&guard);
                entered.tell(());
                until_it_waits(updater, || has_waited.load(Ordering::SeqCst));
                assert_eq!(value.get(), 1);
                woken.store(true, Ordering::SeqCst);
            });
            has_entered.recv().expect("it enters");
            drop(cell.swap(tally.value(2)).wait());
            let is_woken = woken.load(Ordering::SeqCst);
            has_waited.store(true, Ordering::SeqCst);
            assert!(is_woken, "the wait has waited");
        });
    }
}

#[test]
fn the_global_domain_is_its_own() {
    let long = tasks_trace::read_lock_owned();
    let nested = tasks_trace::read_lock();
    stillpoint::synchronize();
    TraceDomain::new().synchronize();
    drop(nested);
    let short = stillpoint::read_lock();
    drop(long);
    tasks_trace::synchronize();
    drop(short);
    let called = Count::default();
    tasks_trace::call(called.raise());
    tasks_trace::barrier();
    assert_eq!(called.get(), 1);
    executor().block_on(tasks_trace::synchronize_async());
}

#[test]
fn a_guard_of_one_domain_does_not_protect_a_cell_of_another() {
    let (mine, other) = (TraceDomain::new(), TraceDomain::new());
    let cell = Rcu::new_in(&mine, 1);
    assert!(panic_message(|| *cell.load(&other.read_lock_owned())).contains("cannot protect"));
    assert!(
        panic_message(|| *cell.load(&tasks_trace::read_lock_owned())).contains("cannot protect")
    );
    assert!(
        panic_message(|| *Rcu::new(1).load(&tasks_trace::read_lock())).contains("cannot protect")
    );
    assert_eq!(cell.load(&mine.read_lock_static()), &1);
}

#[test]
fn records_go_back_however_guards_travel() {
    let domain = TraceDomain::new();
    // Made on one thread and dropped on the other, in both directions; some of the threads end.
    for _ in 0..4 {
        thread::scope(|scope| {
            let (domain, (there, arrivals)) = (&domain, channel::<OwnedGuard<'_>>());
            scope.spawn(move || (0..5000).for_each(|_| there.tell(domain.read_lock_owned())));
            scope.spawn(move || arrivals.into_iter().for_each(drop));
        });
    }
    domain.synchronize();
    let held = domain.statistics().records;
    let all: Vec<_> = (0..held).map(|_| domain.read_lock_owned()).collect();
    // At most one chunk, and what a thread takes at a time, more: none is lost.
    let grown = domain.statistics().records - held;
    assert!(grown <= 31 + 16, "{grown} of {held} were not found again");
    drop(all);
    domain.synchronize();
}

#[test]
fn a_guard_with_a_handle_of_its_own_keeps_its_domain() {
    let (tally, domain) = (Tally::new(), TraceDomain::new());
    let cell = Rcu::new_in(&domain, tally.value(1));
    let guard = domain.read_lock_static();
    cell.store(tally.value(2));
    drop((cell, domain));
    assert_eq!(tally.dropped(), 0, "the guard is the domain's last handle");
    returns(move || drop(guard));
    eventually(|| tally.all_dropped());
}

#[test]
fn tasks_hold_guards_across_awaits() {
    let (domain, tally) = (TraceDomain::new(), Tally::new());
    let cell = Arc::new(Rcu::new_in(&domain, tally.value(0)));
    executor().block_on(async {
        let tasks: Vec<_> = (0..64)
            .map(|_| {
                let (domain, cell) = (domain.clone(), Arc::clone(&cell));
                task::spawn(async move {
                    for _ in 0..20 {
                        let guard = domain.read_lock_owned();
                        let value = cell.load(&guard);
                        let number = value.get();
                        time::sleep(Duration::from_micros(200)).await;
                        task::yield_now().await;
                        assert_eq!(value.get(), number);
                    }
                })
            })
            .collect();
        for number in 1..200 {
            cell.store(tally.value(number));
            domain.synchronize_async().await;
        }
        for task in tasks {
            task.await.expect("no panic");
        }
    });
    drop(cell);
    domain.kvfree_barrier();
    assert!(tally.all_dropped());
    assert!(
        domain.statistics().records < 200,
        "{:?}",
        domain.statistics()
    );
}

#[test]
fn a_cancelled_task_ends_its_section() {
    let domain = TraceDomain::new();
    let cookie = executor().block_on(async {
        let (entered, has_entered) = oneshot::channel();
        let theirs = domain.clone();
        let task = task::spawn(async move {
            let _guard = theirs.read_lock_owned();
            entered.send(()).expect("the receiver is there");
            pending::<()>().await;
        });
        has_entered.await.expect("it enters");
        let cookie = domain.start_poll();
        assert!(!domain.poll(cookie));
        task.abort();
        assert!(task.await.expect_err("aborted").is_cancelled());
        domain.cond_synchronize_async(cookie).await;
        cookie
    });
    assert!(domain.poll(cookie));
}

#[test]
fn a_task_that_panics_ends_its_section() {
    let domain = TraceDomain::new();
    executor().block_on(async {
        let theirs = domain.clone();
        let task = task::spawn(async move {
            let _guard = theirs.read_lock_owned();
            task::yield_now().await;
            panic!("expected");
        });
        assert!(task.await.expect_err("panicked").is_panic());
    });
    let thrown = panic::catch_unwind(AssertUnwindSafe(|| {
        let _guard = domain.read_lock_owned().named("panics");
        panic!("expected");
    }));
    assert!(thrown.is_err());
    domain.synchronize();
}

#[test]
fn a_wait_inside_a_guard_of_the_thread_is_refused() {
    for domain in domains() {
        let guard = domain.read_lock();
        assert!(panic_message(|| domain.synchronize()).contains("waiting for a grace period"));
        domain.call(|| ());
        drop(guard);
        domain.barrier();
        let cell = Rcu::new_in(&domain, 1);
        let guard = domain.read_lock();
        let old = cell.swap(2);
        assert!(panic_message(|| old.wait()).contains("waiting for a grace period"));
        drop(guard);
        domain.synchronize();
    }
    let guard = tasks_trace::read_lock();
    assert!(panic_message(tasks_trace::synchronize).contains("waiting for a grace period"));
    drop(guard);
}

#[test]
fn a_wait_for_an_owned_guard_of_ones_own_is_reported_with_both_sides() {
    let domain = TraceDomain::new();
    let told = Stalls::of(&domain);
    let (give, given) = channel();
    let theirs = domain.clone();
    let waiter = thread::Builder::new().name("waits-for-itself".into());
    let waiter = waiter.spawn(move || {
        give.tell(theirs.read_lock_static().named("of the waiter"));
        theirs.synchronize();
    });
    let report = told.next();
    let [holdout] = &report.holdouts[..] else {
        panic!("{report}")
    };
    assert_eq!(holdout.flavour, Flavour::Owned);
    assert_eq!(holdout.task.as_deref(), Some("of the waiter"));
    if cfg!(target_os = "linux") && !cfg!(miri) {
        assert_eq!(
            holdout.thread.name.as_deref(),
            Some("waits-for-itsel"),
            "the kernel keeps 15 letters"
        );
        assert_waits(&report, "waits-for-itsel");
    }
    let made_at = holdout.made_at.expect("owned guards know");
    assert!(made_at.file().ends_with("tasks_trace.rs"));
    assert!(holdout.held.expect("owned guards know") > Duration::ZERO);
    let text = report.to_string();
    assert!(
        text.contains("task 'of the waiter' holds an owned guard")
            && text.contains("tasks_trace.rs:"),
        "{text}"
    );
    #[cfg(feature = "stall-backtrace")]
    assert!(
        text.contains("a_wait_for_an_owned_guard_of_ones_own"),
        "{text}"
    );
    drop(given.recv().expect("it was sent"));
    waiter.expect("a thread").join().expect("no panic");
}

#[test]
fn tasks_that_wait_crosswise_are_reported_with_both_sides() {
    let domain = TraceDomain::new();
    let task = |name: &'static str| {
        let (domain, guard) = (domain.clone(), domain.read_lock_static().named(name));
        async move {
            domain.synchronize_async().await;
            drop(guard);
        }
    };
    let (mut left, mut right) = (Box::pin(task("left")), Box::pin(task("right")));
    let mut context = Context::from_waker(Waker::noop());
    assert!(left.as_mut().poll(&mut context).is_pending());
    assert!(right.as_mut().poll(&mut context).is_pending());
    let report = Stalls::of(&domain).next();
    let mut names: Vec<_> = report
        .holdouts
        .iter()
        .map(|holdout| holdout.task.as_deref().expect("named"))
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["left", "right"]);
    assert!(matches!(report.futures[..], [(_, 2)]), "{report}");
    assert!(
        report.to_string().contains("waiting futures: 2 made at"),
        "{report}"
    );
    // Each waits for the other one's guard and for its own; cancelled, they let go of both.
    drop((left, right));
    returns(move || domain.synchronize());
}

#[test]
fn forgotten_guards_are_reported_with_their_places_and_16_at_most() {
    apart!();
    let domain = TraceDomain::new();
    let told = Stalls::of(&domain);
    let line = line!() + 1;
    (0..40).for_each(|_| mem::forget(domain.read_lock_static()));
    let _ = domain.start_poll();
    let report = told.next();
    assert_eq!((report.holdouts.len(), report.more_holdouts), (16, 24));
    assert!(
        report
            .holdouts
            .iter()
            .all(|holdout| holdout.made_at.is_some_and(|place| place.line() == line))
    );
    let text = report.to_string();
    assert!(
        text.contains("a task holds an owned guard") && text.contains("and 24 more"),
        "{text}"
    );
    // SAFETY: they are forgotten, and have found nothing.
    unsafe { domain.abandon_owned_guards() };
    domain.synchronize();
}

#[test]
fn a_name_is_that_of_one_section() {
    let domain = TraceDomain::new();
    let told = Stalls::of(&domain);
    drop(domain.read_lock_owned().named("first").named("renamed"));
    let guard = domain.read_lock_owned();
    let _ = domain.start_poll();
    assert_eq!(
        told.next().holdouts[0].task,
        None,
        "the record is the same one"
    );
    drop(guard);
    domain.synchronize();
    let guard = domain.read_lock_owned().named("first").named("renamed");
    let _ = domain.start_poll();
    assert_eq!(told.next().holdouts[0].task.as_deref(), Some("renamed"));
    drop(guard);
}

#[test]
fn a_poll_starts_the_grace_period_that_it_asks_about() {
    let domain = TraceDomain::new();
    let first = domain.read_lock_owned();
    let earlier = domain.start_poll();
    assert!(!domain.poll(earlier), "the scan has found the first guard");
    let cookie = domain.get_state();
    assert!(!domain.poll(cookie));
    let second = domain.read_lock_owned();
    drop(first);
    assert!(
        domain.poll(cookie),
        "the second guard is newer than the poll"
    );
    drop(second);
}

/// Reports and ends of sections at the same time: the report finds each as it is or as it was, and
/// no record is lost.
#[test]
fn reports_race_with_ends_of_sections() {
    let domain = TraceDomain::new();
    domain.set_stall_timeout(Duration::from_nanos(1));
    let (reports, enough) = (Arc::new(AtomicUsize::new(0)), AtomicBool::new(false));
    let count = Arc::clone(&reports);
    domain.on_stall(move |report| {
        for holdout in &report.holdouts {
            // Whole, or there are none.
            assert!(
                holdout
                    .task
                    .as_deref()
                    .is_none_or(|task| task.starts_with("task ") && task.len() > 100)
            );
        }
        count.fetch_add(report.holdouts.len(), Ordering::Relaxed);
    });
    thread::scope(|scope| {
        let _over = common::Over(&enough);
        for reader in 0..3 {
            let (domain, enough) = (&domain, &enough);
            scope.spawn(move || {
                while !enough.load(Ordering::Relaxed) {
                    // The thread ends too, now and then.
                    thread::scope(|scope| {
                        scope.spawn(|| {
                            for _ in 0..50 {
                                let guard = domain
                                    .read_lock_owned()
                                    .named(format!("task {reader}{:100}", ""));
                                thread::yield_now();
                                drop(guard);
                            }
                        });
                    });
                }
            });
        }
        eventually(|| {
            domain.synchronize();
            reports.load(Ordering::Relaxed) > 200
        });
    });
    assert_eq!(domain.statistics().panics, 0);
    let records = domain.statistics().records;
    assert!(
        records <= 3 * 40 + 31,
        "{records}: some were not given back"
    );
    domain.set_stall_timeout(common::PATIENCE);
    domain.synchronize();
}

thread_local! {
    static LATE: RefCell<Option<Late>> = const { RefCell::new(None) };
}

/// Uses owned guards at the very end of its thread.
struct Late {
    kept: Option<OwnedGuard<'static>>,
    cell: Arc<Rcu<u32>>,
    done: Arc<AtomicBool>,
}

impl Drop for Late {
    fn drop(&mut self) {
        drop(self.kept.take());
        let guard = tasks_trace::read_lock_owned().named("late");
        assert_eq!(self.cell.load(&guard), &1);
        assert_eq!(self.cell.load(&tasks_trace::read_lock()), &1);
        drop(guard);
        self.done.store(true, Ordering::SeqCst);
    }
}

#[test]
fn thread_local_destructors_may_make_and_drop_guards() {
    // Before the library's own thread-local state and after it: destructors run in no order that
    // could be relied on.
    for first in [true, false] {
        let (cell, done) = (
            Arc::new(Rcu::new_in(tasks_trace::global(), 1)),
            Arc::new(AtomicBool::new(false)),
        );
        let (theirs, tell) = (Arc::clone(&cell), Arc::clone(&done));
        thread::spawn(move || {
            if first {
                LATE.with(|_| ());
            }
            let kept = Some(tasks_trace::read_lock_owned());
            LATE.set(Some(Late {
                kept,
                cell: theirs,
                done: tell,
            }));
        })
        .join()
        .expect("no panic");
        assert!(done.load(Ordering::SeqCst));
        tasks_trace::synchronize();
    }
}

#[test]
fn what_is_retired_under_owned_guards_waits_for_them_and_no_longer() {
    let (domain, tally) = (TraceDomain::new(), Tally::new());
    let cell = Rcu::new_in(&domain, tally.value(0));
    let guard = domain.read_lock_owned();
    let value = cell.load(&guard);
    for number in 1..5_000 {
        cell.store(tally.value(number));
    }
    let called = Count::default();
    domain.call(called.raise());
    assert_eq!((value.get(), tally.dropped(), called.get()), (0, 0, 0));
    drop(guard);
    domain.barrier();
    domain.kvfree_barrier();
    assert_eq!((tally.dropped(), called.get()), (4_999, 1));
}

#[test]
fn a_thousand_threads_and_their_guards() {
    let (domain, tally) = (TraceDomain::new(), Tally::new());
    let cell = Rcu::new_in(&domain, tally.value(0));
    let threads = if cfg!(miri) { 20 } else { 1000 };
    thread::scope(|scope| {
        let (keep, kept) = channel();
        for number in 0..threads {
            let (keep, cell, domain, tally) = (keep.clone(), &cell, &domain, &tally);
            scope.spawn(move || {
                let guard = domain.read_lock_owned();
                let value = cell.load(&guard).get();
                if number % 10 == 0 {
                    cell.store(tally.value(number));
                }
                assert!(value < threads);
                // It outlives its thread.
                keep.tell(guard);
            });
        }
        drop(keep);
        let guards: Vec<_> = kept.into_iter().collect();
        assert_eq!(guards.len(), threads as usize);
        assert_eq!(tally.dropped(), 0, "the first may have seen the oldest");
        drop(guards);
    });
    drop(cell);
    domain.kvfree_barrier();
    assert!(tally.all_dropped());
}

#[test]
#[cfg(all(target_os = "linux", not(miri)))]
fn all_of_this_without_membarrier() {
    common::assert_holds_without_membarrier();
}
