//! The engine with more threads, sections and grace periods than loom can try, in thousands of
//! schedules picked by chance: logic and liveness, on strong memory. Orderings are
//! `loom_tests.rs`'s.
//!
//! Elements know whether they have been freed, and are never really freed, so that a grace period
//! that was too short is seen and does no harm. Time stands still, so a wake-up that is lost is a
//! deadlock, which shuttle reports. `SHUTTLE_SCHEDULES` says how many schedules are tried, for
//! longer runs than the gate's; the seed of a failure is printed with it.
//!
//! Detects no waiting, barriers that do not wait, polled cookies that never complete, and a
//! domain's end that looks too early.

use super::{
    barrier_mode::BarrierMode,
    engine::wait::{Haste, Waited},
    engine::{Engine, Progress},
    flavour::Flavour,
    policy::{Policy, Sound},
    record::Record,
    record_cache::RecordCache,
    seq::{STEP, Seq, Sequence},
    server::{End, Served},
    work::{Outlook, Work},
};
use crate::platform::{
    sync::{Arc, AtomicBool, AtomicPtr, AtomicUsize, Mutex, Ordering, lock},
    thread::Token,
};
use shuttle::{
    rand::{Rng, thread_rng},
    scheduler::{PctScheduler, RandomScheduler},
    thread,
};
use std::{panic::Location, ptr};

/// Just below the wrap.
const FIRST: Seq = Seq::from_bits(0u64.wrapping_sub(2 * STEP));

fn schedules() -> usize {
    std::env::var("SHUTTLE_SCHEDULES")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(4_000)
}

/// Runs half of the schedules by pure chance, and half with few preemptions at chosen depths, which
/// finds bugs that need a certain order.
fn explore(test: impl Fn() + Send + Sync + Clone + 'static) {
    let config = shuttle::Config::default();
    shuttle::Runner::new(RandomScheduler::new(schedules() / 2), config.clone()).run(test.clone());
    shuttle::Runner::new(PctScheduler::new(3, schedules() / 2), config).run(test);
}

struct Element {
    freed: AtomicBool,
}

/// An engine and a cell whose element is replaced again and again.
struct World<P> {
    engine: Engine<P>,
    cell: AtomicPtr<Element>,
}

impl<P: Policy> World<P> {
    fn new() -> Arc<Self> {
        let engine = Engine::new(1, BarrierMode::Membarrier, Sequence::new(FIRST));
        Arc::new(Self {
            engine,
            cell: AtomicPtr::new(Self::element()),
        })
    }

    fn element() -> *mut Element {
        Box::into_raw(Box::new(Element {
            freed: AtomicBool::new(false),
        }))
    }

    fn load(&self) -> &Element {
        // SAFETY: elements are never freed.
        unsafe { &*self.cell.load(Ordering::Acquire) }
    }

    /// Uses the element several times.
    fn read(&self) {
        let element = self.load();
        for _ in 0..3 {
            assert!(
                !element.freed.load(Ordering::Relaxed),
                "a grace period was too short"
            );
        }
    }

    /// Replaces the element, and returns the old one, for [`World::free`].
    fn replace(&self) -> *mut Element {
        self.cell.swap(Self::element(), Ordering::AcqRel)
    }

    fn free(old: *mut Element) {
        // SAFETY: elements are never freed.
        unsafe { &*old }.freed.store(true, Ordering::Relaxed);
    }

    fn wait(&self, token: Token) {
        let waited = self
            .engine
            .wait_for(self.engine.start(), token, None, Haste::Normal);
        assert_eq!(waited, Waited::Ended);
    }
}

/// An owned section on its way to the thread that ends it.
struct Sent(*const Record);

// SAFETY: records are Sync.
unsafe impl Send for Sent {}

/// Three readers of two kinds, whose owned sections end on other threads, and two updaters that
/// wait.
fn readers_and_updaters<P: Policy>() {
    explore(|| {
        let world = World::<P>::new();
        let post = Arc::new(Mutex::new(Vec::<Sent>::new()));
        let readers = (1..=3).map(|number| {
            let (world, post) = (Arc::clone(&world), Arc::clone(&post));
            thread::spawn(move || {
                let token = Token::for_model(number);
                let own = world.engine.register(token, Flavour::Thread);
                let spares = RecordCache::new();
                for _ in 0..3 {
                    if thread_rng().gen_bool(0.5) {
                        own.lock();
                        world.read();
                        own.unlock();
                    } else {
                        let record = spares.take(&world.engine, token, own);
                        record.lock_owned(Location::caller(), 1);
                        world.read();
                        lock(&post).push(Sent(record));
                    }
                    let taken = lock(&post).pop();
                    if let Some(Sent(record)) = taken {
                        // SAFETY: the world is alive.
                        let record = unsafe { &*record };
                        world.read();
                        record.unlock_owned();
                        spares.keep(record, token, own);
                    }
                }
                spares.give_back(0);
                own.depart();
            })
        });
        let updaters = (4..=5).map(|number| {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                for _ in 0..3 {
                    let old = world.replace();
                    world.wait(Token::for_model(number));
                    World::<P>::free(old);
                }
            })
        });
        let threads: Vec<_> = readers.chain(updaters).collect();
        // The guards that were not taken: the threads that are left end their sections, or the
        // updaters would wait for ever.
        let mut threads = threads.into_iter();
        threads
            .by_ref()
            .take(3)
            .for_each(|reader| reader.join().unwrap());
        while let Some(Sent(record)) = { lock(&post).pop() } {
            // SAFETY: the world is alive.
            let record = unsafe { &*record };
            record.unlock_owned();
            record.vacate();
        }
        threads.for_each(|updater| updater.join().unwrap());
        assert!(
            world.engine.records() <= 12,
            "3 of threads and 9 of guards at most"
        );
    });
}

#[test]
fn shuttle_readers_and_updaters() {
    readers_and_updaters::<Sound>();
}

enum NoWait {}
// SAFETY: broken on purpose; elements are never freed.
unsafe impl Policy for NoWait {
    const WAITS_FOR_READERS: bool = false;
}

#[test]
#[should_panic(expected = "too short")]
fn shuttle_no_wait_is_caught() {
    readers_and_updaters::<NoWait>();
}

/// Waiters of all kinds at once: followers, and one that only looks, again and again.
#[test]
fn shuttle_many_waiters() {
    explore(|| {
        let world = World::<Sound>::new();
        let reader = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                let own = world.engine.register(Token::for_model(1), Flavour::Thread);
                for _ in 0..4 {
                    own.lock();
                    world.read();
                    own.unlock();
                }
            })
        };
        let waiters = (2..=5).map(|number| {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                let old = world.replace();
                world.wait(Token::for_model(number));
                World::<Sound>::free(old);
            })
        });
        let threads: Vec<_> = waiters.chain([reader]).collect();
        let old = ptr::NonNull::new(world.replace()).expect("never null");
        let cookie = world.engine.start();
        let me = Token::for_model(6);
        for _ in 0..4 {
            if world.engine.recheck(cookie, me) == Progress::Ended {
                World::<Sound>::free(old.as_ptr());
                break;
            }
        }
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        assert_eq!(
            world.engine.recheck(cookie, me),
            Progress::Ended,
            "no reader blocks it any more"
        );
    });
}

/// The typical lost wake-up: an end that looks at the flag before it leaves.
#[test]
#[should_panic(expected = "deadlock")]
fn shuttle_look_before_the_end_is_caught() {
    explore(|| {
        let world = World::<Sound>::new();
        let theirs = Arc::clone(&world);
        let reader = thread::spawn(move || {
            let record = theirs.engine.register(Token::for_model(1), Flavour::Owned);
            record.lock_owned(Location::caller(), 1);
            theirs.read();
            record.unlock_looking_first();
        });
        let old = world.replace();
        world.wait(Token::for_model(2));
        World::<Sound>::free(old);
        reader.join().unwrap();
    });
}

/// The passes of the service thread, and of threads that wait for it.
struct Passes<P>(Arc<World<P>>);

impl<P: Policy> Work for Passes<P> {
    fn pass(&self) -> Outlook {
        self.0.engine.run_callbacks()
    }
}

/// Callbacks that free what a reader has replaced.
#[derive(Default)]
struct Deferred {
    queued: AtomicUsize,
    invoked: AtomicUsize,
}

impl Deferred {
    fn replace<P: Policy>(self: &Arc<Self>, world: &World<P>) {
        let (old, theirs) = (world.replace().expose_provenance(), Arc::clone(self));
        world.engine.call(move || {
            World::<P>::free(ptr::with_exposed_provenance_mut(old));
            theirs.invoked.fetch_add(1, Ordering::Release);
        });
        // Those that a barrier has to wait for have been queued before.
        self.queued.fetch_add(1, Ordering::Release);
    }
}

/// A domain's whole life: threads come, read, replace what they read (inside of sections, too),
/// hand guards to each other, and go, some of them inside a section; callbacks free what was
/// replaced, on the service thread or on a thread that waits at a barrier; a promise comes true
/// when only the service thread is left; and that ends on request.
fn a_whole_life<P: Policy>() {
    explore(|| {
        let world = World::<P>::new();
        let (post, deferred) = (
            Arc::new(Mutex::new(Vec::<Sent>::new())),
            Arc::new(Deferred::default()),
        );
        let theirs = Arc::clone(&world);
        let service = thread::spawn(move || theirs.engine.serve(&Passes(Arc::clone(&theirs))));
        let threads = (1..=3).map(|number| {
            let (world, post, deferred) =
                (Arc::clone(&world), Arc::clone(&post), Arc::clone(&deferred));
            thread::spawn(move || {
                let token = Token::for_model(number);
                let own = world.engine.register(token, Flavour::Thread);
                let spares = RecordCache::new();
                let end = |Sent(record)| {
                    // SAFETY: the world is alive.
                    let record: &Record = unsafe { &*record };
                    world.read();
                    record.unlock_owned();
                    spares.keep(record, token, own);
                };
                for _ in 0..2 {
                    match thread_rng().gen_range(0..3) {
                        0 => {
                            own.lock();
                            world.read();
                            deferred.replace(&world);
                            own.unlock();
                        }
                        1 => {
                            let record = spares.take(&world.engine, token, own);
                            record.lock_owned(Location::caller(), 1);
                            world.read();
                            lock(&post).push(Sent(record));
                        }
                        _ => deferred.replace(&world),
                    }
                    let taken = lock(&post).pop();
                    taken.into_iter().for_each(end);
                }
                // The last thread leaves none behind.
                while let Some(sent) = { lock(&post).pop() } {
                    end(sent);
                }
                spares.give_back(0);
                if thread_rng().gen_bool(0.5) {
                    own.lock();
                    own.depart();
                    world.read();
                    own.unlock();
                } else {
                    own.depart();
                }
            })
        });
        let threads: Vec<_> = threads.collect();
        let barrier = || {
            let queued = deferred.queued.load(Ordering::Acquire);
            assert_eq!(
                world.engine.barrier(&Passes(Arc::clone(&world)), None),
                Ok(())
            );
            let invoked = deferred.invoked.load(Ordering::Acquire);
            assert!(invoked >= queued, "a barrier did not wait");
        };
        deferred.replace(&world);
        barrier();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        barrier();
        assert_eq!(
            deferred.queued.load(Ordering::Relaxed),
            deferred.invoked.load(Ordering::Relaxed),
            "none comes twice"
        );
        let promised = world.engine.start_polled();
        while !world.engine.has_ended(promised) {
            thread::yield_now();
        }
        assert!(
            !world.engine.stop_service(End::Awaited),
            "the engine has not started this thread"
        );
        world.engine.shared.service().signal();
        assert_eq!(service.join().unwrap(), Served::Stopped);
        assert_eq!(world.engine.callbacks_pending(), 0);
    });
}

#[test]
fn shuttle_a_whole_life() {
    a_whole_life::<Sound>();
}

#[test]
#[should_panic(expected = "too short")]
fn shuttle_a_life_without_waiting_is_caught() {
    a_whole_life::<NoWait>();
}

enum NoBarrier {}
// SAFETY: broken on purpose; elements are never freed.
unsafe impl Policy for NoBarrier {
    const BARRIER_WAITS: bool = false;
}

#[test]
#[should_panic(expected = "a barrier did not wait")]
fn shuttle_a_barrier_that_does_not_wait_is_caught() {
    a_whole_life::<NoBarrier>();
}

enum NoPromises {}
// SAFETY: this one leaves memory alone; what it has promised does not come.
unsafe impl Policy for NoPromises {
    const COMPLETES_POLLED: bool = false;
}

/// It waits for ever: shuttle gives up after a number of steps.
#[test]
#[should_panic(expected = "max_steps")]
fn shuttle_a_promise_that_is_not_kept_is_caught() {
    a_whole_life::<NoPromises>();
}
