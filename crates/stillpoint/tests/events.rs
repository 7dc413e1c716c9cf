//! The events of the level `TRACE`: which there are, and what a subscriber may do in them. It is user
//! code, so no event comes to it while the library holds a lock, or inside a section.
#![cfg(all(feature = "tracing", not(miri)))]

mod common;

#[cfg(target_os = "linux")]
use common::forking::{Forked, end_after, fork_here, is_apart};
use common::{Reader, eventually, number, quietly, returns};
use std::{
    collections::HashMap,
    future::Future,
    panic::{self, AssertUnwindSafe},
    pin::pin,
    ptr::NonNull,
    sync::{
        Arc, Condvar, LazyLock, Mutex, Once,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Waker},
    thread,
};
use stillpoint::Domain;
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

/// An event: its message, and its numbers by name.
#[derive(Debug, Clone, Default)]
struct Seen {
    name: String,
    values: HashMap<&'static str, u64>,
}

impl Visit for Seen {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.values.insert(field.name(), value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.name = format!("{value:?}");
        }
    }
}

type Act = Arc<dyn Fn(&Seen) + Send + Sync>;

/// What the subscriber does in the events of a domain.
static ACTS: LazyLock<Mutex<HashMap<u64, Act>>> = LazyLock::new(Mutex::default);

/// The spans that there are.
static SPANS: LazyLock<Mutex<HashMap<u64, Seen>>> = LazyLock::new(Mutex::default);

/// Does what is to be done in it.
fn act(seen: &Seen) {
    let domain = seen.values.get("domain").copied().unwrap_or(0);
    let act = ACTS
        .lock()
        .expect("no panic under it")
        .get(&domain)
        .cloned();
    if let Some(act) = act {
        act(seen);
    }
}

/// The same in a span, of which `what` happens.
fn act_in_span(what: &str, span: u64) {
    let known = SPANS.lock().expect("no panic under it").get(&span).cloned();
    let mut seen = known.expect("it has been made");
    seen.name = format!("{what} {}", seen.name);
    act(&seen);
}

struct Listens;

impl Subscriber for Listens {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &span::Attributes<'_>) -> span::Id {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::SeqCst);
        let mut seen = Seen::default();
        span.record(&mut seen);
        seen.name = span.metadata().name().to_owned();
        assert_eq!(span.metadata().target(), "stillpoint");
        SPANS
            .lock()
            .expect("no panic under it")
            .insert(number, seen);
        act_in_span("new", number);
        span::Id::from_u64(number)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut seen = Seen::default();
        event.record(&mut seen);
        if *event.metadata().level() == Level::TRACE {
            assert_eq!(event.metadata().target(), "stillpoint");
        }
        act(&seen);
    }

    fn enter(&self, span: &span::Id) {
        act_in_span("enter", span.into_u64());
    }

    fn exit(&self, span: &span::Id) {
        act_in_span("exit", span.into_u64());
    }

    fn try_close(&self, span: span::Id) -> bool {
        act_in_span("close", span.into_u64());
        true
    }
}

/// A domain in whose events `act` is done.
fn told(act: impl Fn(&Domain, &Seen) + Send + Sync + 'static) -> Domain {
    static SET: Once = Once::new();
    SET.call_once(|| tracing::subscriber::set_global_default(Listens).expect("no other"));
    let domain = Domain::new();
    let theirs = domain.clone();
    ACTS.lock()
        .expect("no panic under it")
        .insert(number(&domain), Arc::new(move |seen| act(&theirs, seen)));
    domain
}

/// A plain object.
fn retire(domain: &Domain) {
    // SAFETY: no other thread has ever known the object.
    unsafe { domain.retire(NonNull::from(Box::leak(Box::new(1_u64)))) };
}

/// Has the calling thread wait past the budget, which a reader holds up until then.
fn wait_past_the_budget(domain: &Domain) {
    let budget = domain.budget();
    domain.set_budget(0);
    let (reader, waits) = (Reader::enter(domain), domain.statistics().waits);
    thread::scope(|scope| {
        scope.spawn(|| {
            eventually(|| domain.statistics().waits > waits);
            reader.leave();
        });
        while domain.statistics().waits == waits {
            retire(domain);
        }
    });
    domain.set_budget(budget);
}

/// Does everything else that has an event, on the calling thread where that is possible.
fn do_everything(domain: &Domain) {
    // A grace period that a reader holds up: it starts, a waiter flags the reader, it ends.
    let reader = Reader::enter(domain);
    let waiter = {
        let domain = domain.clone();
        thread::spawn(move || domain.synchronize())
    };
    eventually(|| domain.statistics().heavy_barriers >= 2);
    reader.leave();
    waiter.join().expect("no panic");
    domain.call(|| ());
    domain.barrier();
    // Pages are sealed, and freed at later seals.
    (0..2_000).for_each(|_| retire(domain));
    domain.kvfree_barrier();
    domain.synchronize();
}

#[test]
fn each_event_has_its_numbers() {
    static SEEN: Mutex<Vec<Seen>> = Mutex::new(Vec::new());
    let domain = told(|_, seen| SEEN.lock().expect("no panic under it").push(seen.clone()));
    do_everything(&domain);
    wait_past_the_budget(&domain);
    let all = |name: &str| -> Vec<HashMap<&str, u64>> {
        let seen = SEEN.lock().expect("no panic under it");
        seen.iter()
            .filter(|event| event.name == name)
            .map(|event| event.values.clone())
            .collect()
    };
    // The service thread's come when its pass has ended.
    eventually(|| {
        !all("rcu_invoke_callback").is_empty() && !all("rcu_kvfree_page_free").is_empty()
    });
    let (starts, ends) = (all("rcu_grace_period_start"), all("rcu_grace_period_end"));
    let first = starts[0]["number"];
    assert!(ends.iter().any(|end| end["number"] >= first));
    assert!(
        ends.iter().any(|end| end["held_up_since"] > 0),
        "one was held up"
    );
    assert!(
        all("rcu_grace_period_flag")
            .iter()
            .any(|flag| flag["number"] >= first && flag["tid"] != 0)
    );
    let (queued, invoked) = (all("rcu_callback"), all("rcu_invoke_callback"));
    assert!(
        queued
            .iter()
            .all(|one| invoked.iter().any(|run| run["head"] == one["head"]))
    );
    let (seals, frees) = (all("rcu_kvfree_page_seal"), all("rcu_kvfree_page_free"));
    assert!(
        seals
            .iter()
            .all(|seal| seal["objects"] > 0 && seal["bytes"] > seal["objects"])
    );
    assert!(frees.iter().any(|freed| {
        let is_it = |seal: &HashMap<_, _>| seal["page"] == freed["page"];
        seals.iter().any(is_it)
    }));
    let throttled = all("rcu_kvfree_throttle_start");
    assert!(
        throttled
            .iter()
            .all(|start| start["budget_bytes"] == 0 && start["longest_ns"] > 0)
    );
    assert!(!all("rcu_kvfree_throttle_end").is_empty());
    // The spans of the threads that have slept.
    for name in ["rcu_grace_period", "rcu_kvfree_throttle"] {
        let spans = all(&format!("new {name}"));
        assert!(!spans.is_empty(), "{name}");
        for what in ["enter", "exit", "close"] {
            assert_eq!(all(&format!("{what} {name}")), spans, "{what} {name}");
        }
    }
    assert!(
        all("new rcu_grace_period")
            .iter()
            .any(|span| span["number"] >= first)
    );
}

/// In each step of a span, of which the next ones then come all the same; but what has not been
/// entered is not left.
#[test]
fn a_subscriber_may_panic_in_a_span() {
    for (what, then) in [
        ("new", &["new"][..]),
        ("enter", &["new", "enter", "close"]),
        ("exit", &["new", "enter", "exit", "close"]),
        ("close", &["new", "enter", "exit", "close"]),
    ] {
        let steps = Arc::new(Mutex::new(Vec::new()));
        let theirs = Arc::clone(&steps);
        let domain = told(move |_, seen| {
            if let Some((step, "rcu_grace_period")) = seen.name.split_once(' ') {
                theirs
                    .lock()
                    .expect("no panic under it")
                    .push(step.to_owned());
                if step == what {
                    panic::resume_unwind(Box::new("a subscriber"));
                }
            }
        });
        let reader = Reader::enter(&domain);
        let waiter = {
            let domain = domain.clone();
            thread::spawn(move || domain.synchronize())
        };
        eventually(|| !steps.lock().expect("no panic under it").is_empty());
        reader.leave();
        waiter.join().expect("no panic");
        assert_eq!(*steps.lock().expect("no panic under it"), then);
    }
}

/// A subscriber that waits for a grace period inside a section would be refused that.
#[test]
fn no_event_comes_inside_a_section() {
    static COUNTS: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];
    let domain = told(|domain, _| {
        let waits = || panic::catch_unwind(AssertUnwindSafe(|| domain.synchronize())).is_err();
        COUNTS[usize::from(quietly(waits))].fetch_add(1, Ordering::SeqCst);
    });
    let counts = || COUNTS.each_ref().map(|count| count.load(Ordering::SeqCst));
    do_everything(&domain);
    let guard = domain.read_lock();
    let before = counts()[0];
    // Pages are sealed inside.
    (0..2_000).for_each(|_| retire(&domain));
    domain.call(|| ());
    drop(guard);
    assert!(counts()[0] > before, "they come at its end");
    // A section that does not hold up the grace period that is waited for in it.
    let cookie = domain.start_poll();
    let guard = domain.read_lock();
    domain.cond_synchronize(cookie);
    drop(guard);
    domain.barrier();
    assert_eq!(counts()[1], 0);
}

/// Also in events of the service thread.
#[test]
fn a_subscriber_may_panic_and_use_the_library() {
    static PANICS: AtomicUsize = AtomicUsize::new(0);
    let domain = told(|domain, _| {
        drop(domain.read_lock());
        // More than a page holds, now and then.
        (0..20).for_each(|_| retire(domain));
        domain.synchronize();
        drop(Domain::new());
        PANICS.fetch_add(1, Ordering::SeqCst);
        panic::resume_unwind(Box::new("a subscriber"));
    });
    (0..3).for_each(|_| do_everything(&domain));
    assert!(PANICS.load(Ordering::SeqCst) > 10);
    let theirs = domain.clone();
    returns(move || {
        theirs.barrier();
        theirs.kvfree_barrier();
    });
    assert_eq!(domain.statistics().service_failures, 0);
}

/// The events that a thread has may be of another domain than the one whose pass it is in, which a
/// barrier would wait for.
#[test]
fn a_barrier_for_the_pass_in_which_an_event_comes_is_refused() {
    static COUNTS: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];
    let passes = Domain::new();
    let awaited = passes.clone();
    let told = told(move |_, seen| {
        if seen.name == "rcu_grace_period_start" {
            let waits = || panic::catch_unwind(AssertUnwindSafe(|| awaited.barrier())).is_err();
            COUNTS[usize::from(quietly(waits))].fetch_add(1, Ordering::SeqCst);
        }
    });
    let counts = || COUNTS.each_ref().map(|count| count.load(Ordering::SeqCst));
    let theirs = told.clone();
    passes.call(move || _ = theirs.start_poll());
    eventually(|| counts() == [0, 1]);

    struct Starts(Domain);
    impl Drop for Starts {
        fn drop(&mut self) {
            let _ = self.0.start_poll();
        }
    }
    let object = Box::new(Starts(told));
    // SAFETY: no other thread has ever known the object.
    unsafe { passes.retire(NonNull::from(Box::leak(object))) };
    eventually(|| counts() == [0, 2]);
}

/// A task that waits for grace periods, and a thread that does nothing else.
#[test]
fn the_events_of_a_task_come_when_it_is_polled() {
    static STARTS: AtomicUsize = AtomicUsize::new(0);
    let domain = told(|_, seen| {
        let is_start = seen.name == "rcu_grace_period_start";
        STARTS.fetch_add(usize::from(is_start), Ordering::SeqCst);
    });
    let mut future = pin!(domain.synchronize_async());
    let _ = future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()));
    assert_eq!(STARTS.load(Ordering::SeqCst), 1);
}

/// What the parent's thread has queued, and what is left of it when a subscriber forks, is the
/// parent's.
#[cfg(target_os = "linux")]
#[test]
fn a_forked_child_has_no_event_of_its_parent() {
    static CALLBACKS: AtomicUsize = AtomicUsize::new(0);
    static FORKS: AtomicBool = AtomicBool::new(false);
    static CHILD: Mutex<Option<Forked>> = Mutex::new(None);
    static IS_CHILD: AtomicBool = AtomicBool::new(false);
    if !is_apart("a_forked_child_has_no_event_of_its_parent") {
        return;
    }
    let domain = told(|_, seen| {
        if seen.name != "rcu_callback" {
            return;
        }
        CALLBACKS.fetch_add(1, Ordering::SeqCst);
        if FORKS.swap(false, Ordering::SeqCst) {
            let child = fork_here();
            IS_CHILD.store(child.is_none(), Ordering::SeqCst);
            *CHILD.lock().expect("no panic under it") = child;
        }
    });
    let callbacks = || CALLBACKS.load(Ordering::SeqCst);
    let guard = domain.read_lock();
    (0..3).for_each(|_| domain.call(|| ()));
    let child = fork_here();
    drop(guard);
    let Some(child) = child else {
        end_after(|| {
            domain.call(|| ());
            assert_eq!(callbacks(), 1);
        })
    };
    child.well();
    assert_eq!(callbacks(), 0, "none has been given yet");
    FORKS.store(true, Ordering::SeqCst);
    domain.call(|| ());
    if IS_CHILD.load(Ordering::SeqCst) {
        end_after(|| assert_eq!(callbacks(), 1));
    }
    assert_eq!(callbacks(), 4);
    let child = CHILD.lock().expect("no panic under it").take();
    child.expect("it has forked").well();
}

/// Blocks the first thread that comes to an event, until it is let go.
#[derive(Default)]
struct Gate {
    is_taken: AtomicBool,
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn pass(&self) {
        if !self.is_taken.swap(true, Ordering::SeqCst) {
            let is_open = self.is_open.lock().expect("no panic under it");
            drop(
                self.opened
                    .wait_while(is_open, |is_open| !*is_open)
                    .expect("no panic under it"),
            );
        }
    }

    fn open(&self) {
        *self.is_open.lock().expect("no panic under it") = true;
        self.opened.notify_all();
    }
}

/// While one thread is blocked inside an event, others go on with all that needs that thread's
/// locks; what needs the service thread waits only if that is the one.
#[test]
fn a_subscriber_that_blocks_holds_no_lock_of_ours() {
    for (name, by_service) in [
        ("rcu_grace_period_start", false),
        ("rcu_grace_period_end", false),
        ("rcu_callback", false),
        ("rcu_kvfree_page_seal", false),
        ("rcu_kvfree_throttle_start", false),
        ("rcu_kvfree_throttle_end", false),
        ("rcu_invoke_callback", true),
    ] {
        let gate = Arc::new(Gate::default());
        let theirs = Arc::clone(&gate);
        let domain = told(move |_, seen| {
            if seen.name == name {
                theirs.pass();
            }
        });
        let blocked = {
            let domain = domain.clone();
            thread::spawn(move || {
                do_everything(&domain);
                wait_past_the_budget(&domain);
            })
        };
        eventually(|| gate.is_taken.load(Ordering::SeqCst));
        // The blocked thread, or one that it waits for, may still have a reader inside.
        let theirs = domain.clone();
        returns(move || {
            drop(theirs.read_lock());
            let _ = theirs.start_poll();
            (0..2_000).for_each(|_| retire(&theirs));
            theirs.call(|| ());
            let _ = theirs.statistics();
            theirs.set_budget(theirs.budget());
        });
        if name == "rcu_grace_period_end" || name == "rcu_callback" {
            // No reader is inside.
            assert!(!by_service);
            let theirs = domain.clone();
            returns(move || {
                theirs.synchronize();
                theirs.barrier();
                theirs.kvfree_barrier();
            });
        }
        gate.open();
        blocked.join().expect("no panic");
    }
}

/// What a thread cannot queue is counted.
#[test]
fn events_that_are_too_many_are_counted() {
    static LOST: AtomicUsize = AtomicUsize::new(0);
    let domain = told(|_, seen| {
        if seen.name == "events_lost" {
            LOST.store(seen.values["lost"] as usize, Ordering::SeqCst);
        }
    });
    // It promises not to wait, so no subscriber runs.
    (0..100).for_each(|_| _ = domain.start_poll());
    assert_eq!(LOST.load(Ordering::SeqCst), 0);
    domain.call(|| ());
    // The callback and its grace period are among them.
    assert_eq!(LOST.load(Ordering::SeqCst), 102 - 32);
}
