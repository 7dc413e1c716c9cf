//! Models of the service thread's end, and of threads that wait for its work.

use super::model;
use crate::{
    gp::{
        engine::{Engine, service::Gone},
        policy::{Policy, Sound},
        server::{End, Served, Server, State},
        work::{Outlook, Work},
    },
    platform::{
        clock::Nanos,
        refused,
        sync::{Arc, AtomicBool, Ordering, lock},
        thread,
    },
};
use std::{
    io,
    sync::{self, Weak},
};

/// Ends at its first idle pass: time stands still.
enum Hasty {}
// SAFETY: nothing is left out.
unsafe impl Policy for Hasty {
    const IDLE: Nanos = 0;
}

/// Ends without work, whether it was kicked or not.
enum Deaf {}
// SAFETY: this one leaves memory alone; it leaves work lying.
unsafe impl Policy for Deaf {
    const IDLE: Nanos = 0;
    const ENDS_UNKICKED: bool = false;
}

struct Job<P> {
    engine: Engine<P>,
    wanted: AtomicBool,
    done: AtomicBool,
    /// Another thread has been requested after the one that runs.
    another: sync::Arc<sync::atomic::AtomicBool>,
}

impl<P: Policy> Job<P> {
    /// Makes a job whose service thread runs. Returns both.
    fn served() -> (Arc<Self>, loom::thread::JoinHandle<Served>) {
        let another = sync::Arc::new(sync::atomic::AtomicBool::new(false));
        let job = Arc::new(Self {
            engine: Engine::for_test(),
            wanted: AtomicBool::new(false),
            done: AtomicBool::new(false),
            another: sync::Arc::clone(&another),
        });
        job.engine.set_service(move |_| {
            another.store(true, Ordering::Relaxed);
            Err(io::ErrorKind::WouldBlock.into())
        });
        *lock(&job.engine.service.state) = State::Running {
            server: Server::Thread(thread::spawn("model", || ()).unwrap()),
            ended: Vec::new(),
        };
        job.engine.service.signs.set_runs();
        let theirs = Arc::clone(&job);
        let service = loom::thread::spawn(move || theirs.engine.serve(&*theirs));
        (job, service)
    }

    fn is_left_to_no_thread(&self) -> bool {
        !self.done.load(Ordering::Relaxed) && !self.another.load(Ordering::Relaxed)
    }
}

impl<P: Policy> Work for Job<P> {
    fn pass(&self) -> Outlook {
        if self.wanted.load(Ordering::Relaxed) {
            self.done.store(true, Ordering::Relaxed);
        }
        Outlook::default()
    }
}

/// Work that comes while the thread ends is done by it, or another thread is asked for.
fn work_while_it_ends<P: Policy>() {
    model(|| {
        let (job, service) = Job::<P>::served();
        job.wanted.store(true, Ordering::Relaxed);
        job.engine.kick();
        assert_eq!(service.join().unwrap(), Served::Idle);
        assert!(!job.is_left_to_no_thread(), "work is left lying");
    });
}

#[test]
fn loom_an_idle_end_leaves_no_work() {
    work_while_it_ends::<Hasty>();
}

#[test]
#[should_panic(expected = "work is left lying")]
fn loom_an_idle_end_that_does_not_look_is_caught() {
    work_while_it_ends::<Deaf>();
}

/// The domain ends while a thread has brought work and has not kicked yet. `look` sees to it
/// that a service thread does the work, and not the thread that ends the domain.
fn work_at_the_domains_end(look: fn(&Engine<Hasty>)) {
    model(move || {
        let (job, service) = Job::<Hasty>::served();
        job.wanted.store(true, Ordering::Relaxed);
        look(&job.engine);
        let finishes = job.engine.stop_service(End::LeftToService);
        let _ = service.join().unwrap();
        assert!(
            finishes || !job.is_left_to_no_thread(),
            "work is left to the caller"
        );
    });
}

#[test]
fn loom_work_at_the_domains_end_is_left_to_a_service_thread() {
    work_at_the_domains_end(Engine::kick);
}

#[test]
#[should_panic(expected = "work is left to the caller")]
fn loom_a_thread_that_runs_is_no_thread_that_looks() {
    work_at_the_domains_end(Engine::ensure_service);
}

/// A stop while it ends: it ends in one way or the other, and the stopping thread knows which.
#[test]
fn loom_stop_while_it_ends() {
    model(|| {
        let (job, service) = Job::<Hasty>::served();
        let finishes = job.engine.stop_service(End::LeftToService);
        let served = service.join().unwrap();
        assert_eq!(finishes, served == Served::Stopped);
    });
}

/// Work comes while another thread tries again to start a thread that was refused: whichever is
/// first, one of them sees the work, and the engine is listed for the next attempt.
#[test]
fn loom_refused_work_stays_listed() {
    model(|| {
        let engine = Arc::new(Engine::<Sound>::for_test());
        engine.set_service(|_| Err(io::ErrorKind::WouldBlock.into()));
        engine.set_refused(Gone::place());
        engine.service.refusal.store(1, Ordering::Relaxed);
        let theirs = Arc::clone(&engine);
        let retries = loom::thread::spawn(move || theirs.start_service_again());
        engine.kick();
        retries.join().unwrap();
        assert!(
            engine.service.refusal.load(Ordering::Relaxed) != 0,
            "work is left lying"
        );
    });
}

struct Passes(AtomicBool);

impl Work for Passes {
    fn pass(&self) -> Outlook {
        self.0.store(true, Ordering::Relaxed);
        Outlook::default()
    }
}

/// A thread that waits for passes while the service thread goes down makes them itself. Time
/// stands still here, so a waiter that sleeps then is a deadlock.
#[test]
fn loom_service_that_goes_down_is_not_waited_for() {
    model(|| {
        let engine = Arc::new(Engine::<Sound>::for_test());
        *lock(&engine.service.state) = State::Running {
            server: Server::Forked,
            ended: Vec::new(),
        };
        engine.service.signs.set_runs();
        let theirs = Arc::clone(&engine);
        let goes = loom::thread::spawn(move || assert_eq!(theirs.stay_down(), Served::Down));
        let passes = Passes(AtomicBool::new(false));
        assert_eq!(
            engine.wait_for_passes(&passes, || passes.0.load(Ordering::Relaxed)),
            Ok(())
        );
        goes.join().unwrap();
    });
}
