//! A subscriber of `tracing` is user code: it may panic in each event, and use the library within
//! one.
#![cfg(all(feature = "tracing", not(miri)))]

mod common;

use common::{
    Bomb, Count, Reader, Tally, eventually, number, quietly, retire, returns, tasks::block_on,
};
use std::{
    collections::HashMap,
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc, LazyLock, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};
use stillpoint::Domain;
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

type Act = Arc<dyn Fn() + Send + Sync>;

/// What the subscriber does at the warnings and errors of a domain before it panics, and how many
/// there have been.
static ACTS: LazyLock<Mutex<HashMap<u64, (Act, usize)>>> = LazyLock::new(Mutex::default);

/// Panics in each event, quietly: without the hook that prints.
struct Hostile;

impl Subscriber for Hostile {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut domain = DomainOf(0);
        if *event.metadata().level() <= Level::WARN {
            event.record(&mut domain);
        }
        let act = ACTS
            .lock()
            .expect("no panic under it")
            .get_mut(&domain.0)
            .map(|(act, count)| {
                *count += 1;
                Arc::clone(act)
            });
        if let Some(act) = act {
            act();
        }
        panic::resume_unwind(Box::new("a subscriber"));
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

struct DomainOf(u64);

impl Visit for DomainOf {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "domain" {
            self.0 = value;
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}

/// A domain in whose events `act` is done, with stalls after a millisecond.
fn told(act: impl Fn(&Domain) + Send + Sync + 'static) -> Domain {
    static SET: std::sync::Once = std::sync::Once::new();
    SET.call_once(|| tracing::subscriber::set_global_default(Hostile).expect("no other"));
    let domain = Domain::new();
    domain.set_stall_timeout(Duration::from_millis(1));
    let theirs = domain.clone();
    ACTS.lock()
        .expect("no panic under it")
        .insert(number(&domain), (Arc::new(move || act(&theirs)), 0));
    domain
}

fn events(domain: &Domain) -> usize {
    ACTS.lock().expect("no panic under it")[&number(domain)].1
}

/// Callbacks, destructors, barriers and futures.
#[track_caller]
fn goes_on(domain: &Domain) {
    let (tally, called) = (Tally::new(), Count::default());
    let reader = Reader::enter(domain);
    let theirs = domain.clone();
    let waits = thread::spawn(move || block_on(theirs.synchronize_async()));
    domain.call(called.raise());
    retire(domain, tally.value(1));
    reader.leave();
    eventually(|| called.get() == 1 && tally.all_dropped());
    returns(move || waits.join().expect("no panic"));
    let theirs = domain.clone();
    returns(move || {
        theirs.barrier();
        theirs.kvfree_barrier();
        block_on(theirs.barrier_async());
    });
    assert_eq!(domain.statistics().service_failures, 0);
}

#[test]
fn a_stall_is_told_to_one_who_panics_and_the_service_thread_goes_on() {
    let domain = told(|_| ());
    let reader = Reader::enter(&domain);
    let _ = domain.start_poll();
    eventually(|| domain.statistics().stalls == 1 && events(&domain) >= 1);
    reader.leave();
    goes_on(&domain);
    eventually(|| domain.statistics().panics >= 1);
}

#[test]
fn a_waiting_thread_that_finds_the_stall_goes_on() {
    let domain = told(|_| ());
    // No other thread looks: there is no service thread yet.
    let reader = Reader::enter(&domain);
    let theirs = domain.clone();
    let waiter = thread::spawn(move || theirs.synchronize());
    eventually(|| events(&domain) >= 1);
    reader.leave();
    waiter
        .join()
        .expect("what a subscriber does is none of its business");
    goes_on(&domain);
}

#[test]
fn a_panic_of_a_callback_is_told_to_one_who_panics() {
    let domain = told(|_| ());
    domain.set_stall_timeout(common::PATIENCE);
    domain.call(|| panic::resume_unwind(Box::new("a callback")));
    // It is told first, and then counted.
    eventually(|| events(&domain) == 1 && domain.statistics().panics == 1);
    goes_on(&domain);
}

/// Past the budget, the thread that retires waits, finds the stall, and reports it.
#[test]
fn a_retiring_thread_that_finds_the_stall_goes_on_freeing() {
    let domain = told(|_| ());
    domain.set_budget(64 << 10);
    let reader = Reader::enter(&domain);
    while domain.statistics().stalls == 0 || domain.statistics().waits == 0 {
        (0..1000).for_each(|_| retire(&domain, 1_u64));
    }
    eventually(|| events(&domain) >= 1);
    reader.leave();
    domain.synchronize();
    let before = domain.statistics().objects_freed;
    // So many pages that it comes to free some of them by itself.
    (0..100_000).for_each(|_| retire(&domain, 1_u64));
    eventually(|| domain.statistics().objects_freed > before);
    goes_on(&domain);
}

/// Within an event it reads, retires, queues callbacks; it may not wait for the thread that it runs
/// on, and is told so.
#[test]
fn a_subscriber_may_use_the_library() {
    static REFUSED: AtomicUsize = AtomicUsize::new(0);
    static CALLED: AtomicUsize = AtomicUsize::new(0);
    static TALLY: LazyLock<Tally> = LazyLock::new(Tally::new);
    let domain = told(|domain| {
        drop(domain.read_lock());
        retire(domain, TALLY.value(1));
        domain.call(|| _ = CALLED.fetch_add(1, Ordering::SeqCst));
        drop(Domain::new());
        // A panic within an event is not told in turn, which would never come to an end.
        let bomb = Bomb(());
        domain.on_stall(move |_| _ = &bomb);
        domain.on_stall(|_| ());
        let refused =
            quietly(|| panic::catch_unwind(AssertUnwindSafe(|| domain.barrier())).is_err());
        REFUSED.fetch_add(usize::from(refused), Ordering::SeqCst);
    });
    let reader = Reader::enter(&domain);
    let _ = domain.start_poll();
    eventually(|| REFUSED.load(Ordering::SeqCst) >= 1);
    reader.leave();
    eventually(|| CALLED.load(Ordering::SeqCst) >= 1);
    goes_on(&domain);
    eventually(|| TALLY.all_dropped());
}
