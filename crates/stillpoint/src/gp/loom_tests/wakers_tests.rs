//! Models of `wakers.rs`: a waiting task is woken, while other tasks register and drop; and the
//! count of callbacks that have been invoked.
//!
//! Time stands still, so a task that is never woken is a deadlock, which loom reports.

use super::model_with as model;
use crate::gp::{
    callback::boxed,
    engine::Engine,
    flavour::Flavour,
    policy::Sound,
    server::Served,
    wakers::{Awaited, Place},
    work::{Outlook, Work},
};
use crate::platform::{
    event::EventCount,
    sync::{Arc, AtomicBool, Ordering, UnsafeCell},
    thread::Token,
};
use loom::thread;
use std::{
    task::{Wake, Waker},
    time::Duration,
};

struct Serving(Engine<Sound>);

impl Serving {
    /// Makes an engine and starts its service thread, which ends at [`Serving::stop`].
    fn start() -> (Arc<Self>, thread::JoinHandle<()>) {
        let serving = Arc::new(Self(Engine::for_test()));
        let theirs = Arc::clone(&serving);
        (
            serving,
            thread::spawn(move || assert_eq!(theirs.0.serve(&*theirs), Served::Stopped)),
        )
    }

    fn stop(&self, service: thread::JoinHandle<()>) {
        self.0.request_stop();
        self.0.shared.service().signal();
        service.join().unwrap();
    }
}

impl Work for Serving {
    fn pass(&self) -> Outlook {
        self.0.run_callbacks()
    }
}

/// A task, which sleeps until it is woken. It then sees what happened before the wake-up, as with
/// an executor.
struct Task {
    woken: AtomicBool,
    event: EventCount,
}

impl Task {
    fn new() -> std::sync::Arc<Self> {
        std::sync::Arc::new(Self {
            woken: AtomicBool::new(false),
            event: EventCount::new(),
        })
    }

    fn sleep(&self) {
        while !self.woken.load(Ordering::Acquire) {
            let waiter = self.event.prepare();
            if self.woken.load(Ordering::Acquire) {
                waiter.leave()
            } else {
                waiter.sleep(None)
            }
        }
    }
}

impl Wake for Task {
    fn wake(self: std::sync::Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.event.signal();
    }
}

/// Registers as a future does, sleeps until it is woken, and finds that what it waited for has
/// come.
fn wait(engine: &Engine<Sound>, awaited: Awaited) {
    let (task, place) = (Task::new(), Place::default());
    let waker = Waker::from(std::sync::Arc::clone(&task));
    engine.wake_after(awaited, &waker, &place);
    task.sleep();
    assert!(engine.has_come(awaited), "woken for nothing");
}

/// No reader blocks it: the service thread only has to learn of it. (Without the kick it
/// deadlocks.)
#[test]
fn loom_futures_are_woken() {
    model(3, || {
        let (serving, service) = Serving::start();
        let cookie = serving.0.start();
        wait(&serving.0, Awaited::GracePeriod(cookie));
        serving.stop(service);
    });
}

#[test]
fn loom_futures_are_woken_when_a_reader_leaves() {
    model(2, || {
        let (serving, service) = Serving::start();
        let record = serving.0.register(Token::for_model(1), Flavour::Thread);
        record.lock();
        let cookie = serving.0.start();
        let theirs = Arc::clone(&serving);
        let task = thread::spawn(move || wait(&theirs.0, Awaited::GracePeriod(cookie)));
        record.unlock();
        task.join().unwrap();
        serving.stop(service);
    });
}

/// A younger future registers while an older one is dropped: behind it, without a kick, or alone.
#[test]
fn loom_futures_are_woken_when_an_older_one_is_dropped() {
    model(2, || {
        let (serving, service) = Serving::start();
        let (older, younger) = (serving.0.start(), serving.0.start());
        let theirs = Arc::clone(&serving);
        let other = thread::spawn(move || {
            let (awaited, place) = (Awaited::GracePeriod(older), Place::default());
            theirs.0.wake_after(awaited, Waker::noop(), &place);
            drop(theirs.0.futures.forget(awaited, &place));
        });
        wait(&serving.0, Awaited::GracePeriod(younger));
        other.join().unwrap();
        serving.stop(service);
    });
}

/// A task that waits for callbacks registers while they run.
#[test]
fn loom_futures_are_woken_after_callbacks() {
    model(2, || {
        let (serving, service) = Serving::start();
        serving.0.call(|| ());
        wait(&serving.0, Awaited::Callbacks(serving.0.callbacks_queued()));
        serving.stop(service);
    });
}

/// A callback is queued while the delay is taken away, which no other call would make due.
#[test]
fn loom_a_callback_is_due_without_the_delay() {
    model(2, || {
        let (serving, service) = Serving::start();
        serving.0.set_callback_delay(Duration::MAX);
        let task = Task::new();
        let (theirs, called) = (Arc::clone(&serving), std::sync::Arc::clone(&task));
        let caller = thread::spawn(move || theirs.0.call(move || called.wake()));
        serving.0.set_callback_delay(Duration::ZERO);
        task.sleep();
        caller.join().unwrap();
        serving.stop(service);
    });
}

/// `run` with `callbacks_invoked`: a thread that sees that a callback has been invoked sees what it
/// did.
#[test]
fn loom_invoked_callbacks_are_seen_whole() {
    struct Done(UnsafeCell<u32>);
    // SAFETY: loom checks each access.
    unsafe impl Sync for Done {}
    // SAFETY: as above.
    unsafe impl Send for Done {}
    model(3, || {
        let engine = Arc::new(Engine::<Sound>::for_test());
        let done = Arc::new(Done(UnsafeCell::new(0)));
        let theirs = Arc::clone(&done);
        // SAFETY: that no other thread looks at it yet is what the test is about.
        let callback = boxed(move || theirs.0.with_mut(|done| unsafe { *done = 1 }));
        // SAFETY: `boxed` gives a new head.
        unsafe { engine.callbacks.push(callback, engine.get_state()) };
        let all = Awaited::Callbacks(engine.callbacks_queued());
        let passing = Arc::clone(&engine);
        let passer = thread::spawn(move || passing.run_all_callbacks());
        if engine.has_come(all) {
            // SAFETY: as above.
            assert_eq!(done.0.with(|done| unsafe { *done }), 1);
        }
        passer.join().unwrap();
        assert!(engine.has_come(all));
    });
}
