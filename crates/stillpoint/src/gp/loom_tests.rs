//! One model-checked test for each pair of orderings in `engine.rs` and its folder, `callback.rs` and
//! `server.rs`.
//!
//! An element is a loom cell: loom reports an error if one thread's use of it and another's free
//! are not ordered. Time stands still in the model, so a waiter that is never woken is a deadlock,
//! which loom reports too. The variants that leave a barrier out must fail, which shows that the
//! tests can.
//!
//! Detects a scan that does not wait, each of R1 to R4, W1, W3 to W6, S2 and O1 to O5 weakened, and
//! the kernel's three races of Tasks Trace.

use super::{
    callback::boxed,
    engine::wait::{Haste, Waited},
    engine::{Engine, Progress},
    flavour::Flavour,
    policy::{Policy, Sound},
    record::Record,
    seq::{Cookie, STEP, Seq},
    server::Served,
    work::{Outlook, Work},
};
use crate::platform::{
    sync::{Arc, AtomicBool, AtomicPtr, AtomicUsize, Ordering, UnsafeCell},
    thread::Token,
};
use loom::thread;
use std::ptr;

mod litmus_tests;
mod outermost_tests;
mod owned_tests;
mod service_tests;
mod wakers_tests;

/// Just below the wrap, so that the first grace period of every model crosses it.
pub(super) const FIRST: Seq = Seq::from_bits(0u64.wrapping_sub(STEP));

pub(super) enum NoWait {}
// SAFETY: broken on purpose; the model's elements are cells that report the misuse.
unsafe impl Policy for NoWait {
    const WAITS_FOR_READERS: bool = false;
}

pub(super) enum NoHeavyBarrier {}
// SAFETY: as above.
unsafe impl Policy for NoHeavyBarrier {
    const HEAVY_BARRIER: bool = false;
}

enum NoFlagBarrier {}
// SAFETY: this one leaves memory alone; it loses wake-ups.
unsafe impl Policy for NoFlagBarrier {
    const FLAG_BARRIER: bool = false;
}

/// An engine, a pointer that readers follow, and the element that it points to.
pub(super) struct World<P> {
    pub(super) engine: Engine<P>,
    pointer: AtomicPtr<UnsafeCell<u32>>,
    element: UnsafeCell<u32>,
}

// SAFETY: loom checks each access to `element`.
unsafe impl<P: Policy> Sync for World<P> {}
// SAFETY: as above.
unsafe impl<P: Policy> Send for World<P> {}

impl<P: Policy> World<P> {
    pub(super) fn new() -> Arc<Self> {
        Self::of(Engine::for_test())
    }

    fn of(engine: Engine<P>) -> Arc<Self> {
        let world = Arc::new(Self {
            engine,
            pointer: AtomicPtr::new(ptr::null_mut()),
            element: UnsafeCell::new(1),
        });
        world
            .pointer
            .store(ptr::from_ref(&world.element).cast_mut(), Ordering::Release);
        world
    }

    /// Creates a world and spawns a thread that runs `work` in it.
    fn beside<R: 'static>(
        work: impl FnOnce(&Self) -> R + 'static,
    ) -> (Arc<Self>, thread::JoinHandle<R>)
    where
        P: 'static,
    {
        let world = Self::new();
        let theirs = Arc::clone(&world);
        (world, thread::spawn(move || work(&theirs)))
    }

    fn register(&self, number: u64) -> &Record {
        self.engine
            .register(Token::for_model(number), Flavour::Thread)
    }

    /// Returns the record at an address that came from [`World::register`], on another thread.
    fn at(&self, address: usize) -> &Record {
        // SAFETY: records live as long as the engine.
        unsafe { &*ptr::with_exposed_provenance(address) }
    }

    /// Runs a section that uses the element if it can still be found.
    fn read(&self, record: &Record) {
        record.lock();
        self.use_element();
        record.unlock();
    }

    pub(super) fn use_element(&self) {
        let found = self.pointer.load(Ordering::Acquire);
        if !found.is_null() {
            // SAFETY: that it is alive is what the test is about.
            unsafe { (*found).with(|element| assert_eq!(*element, 1)) };
        }
    }

    pub(super) fn unlink(&self) {
        self.pointer.swap(ptr::null_mut(), Ordering::AcqRel);
    }

    pub(super) fn free(&self) {
        // SAFETY: that no thread uses it any more is what the test is about.
        self.element.with_mut(|element| unsafe { *element = 0 });
    }

    /// Unlinks the element. Frees it if its grace period can be ended without waiting.
    fn unlink_and_try_to_free(&self) {
        self.unlink();
        if self.try_complete(self.engine.start()) == Progress::Ended {
            self.free();
        }
    }

    pub(super) fn try_complete(&self, cookie: Cookie) -> Progress {
        self.engine.try_complete(cookie, Token::for_model(1000))
    }
}

pub(super) fn model(test: impl Fn() + Sync + Send + 'static) {
    model_with(3, test);
}

/// Explores every schedule of `test` with at most `preemptions` preemptions.
pub(super) fn model_with(preemptions: usize, test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(test);
}

/// One reader against one updater that takes every step: R1 to R4 with W1 to W6.
fn reader_and_updater<P: Policy>(sections: usize) {
    model(move || {
        let (world, reader) = World::<P>::beside(move |world| {
            let record = world.register(1);
            for _ in 0..sections {
                world.read(record);
            }
        });
        world.unlink_and_try_to_free();
        reader.join().unwrap();
    });
}

#[test]
fn loom_reader_and_updater() {
    reader_and_updater::<Sound>(1);
}

/// R2 is a release store: a scan that reads the second section's word must see the first one as
/// past.
#[test]
fn loom_next_section_hides_nothing() {
    reader_and_updater::<Sound>(2);
}

/// R1 with W1 and W2 alone, without the fence that stands behind R1 in fence mode: a section that
/// carries a grace period's number cannot find what was unlinked before it started.
#[test]
fn loom_number_hides_what_was_unlinked() {
    model(|| {
        let (world, reader) = World::<Sound>::beside(move |world| {
            let record = world.register(1);
            let section = record.begin_without_fence();
            // Older ones are the business of the barriers.
            if section.at_least(FIRST.next()) {
                world.use_element();
            }
            record.end_without_fence();
        });
        world.unlink();
        let _ = world.engine.start();
        world.free();
        reader.join().unwrap();
    });
}

/// R2 with W4 alone, without the fence that stands before R2 in fence mode: a scan that finds the
/// second section sees the first one as past. The first has begun before the updater does anything.
#[test]
fn loom_next_section_hides_nothing_without_a_fence() {
    model(|| {
        let world = World::<Sound>::new();
        let theirs = Arc::clone(&world);
        let record = ptr::from_ref(world.register(1)).expose_provenance();
        world.at(record).begin_without_fence();
        let reader = thread::spawn(move || {
            let record = theirs.at(record);
            theirs.use_element();
            record.end_without_fence();
            record.begin_without_fence();
        });
        world.unlink_and_try_to_free();
        reader.join().unwrap();
        world.at(record).end_without_fence();
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_no_wait_is_caught() {
    reader_and_updater::<NoWait>(1);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_no_heavy_barrier_is_caught() {
    reader_and_updater::<NoHeavyBarrier>(1);
}

/// R1 to R4 of a reader that never leaves: each quiescent state ends one section and begins the
/// next.
#[test]
fn loom_quiescent_states() {
    model(|| {
        let (world, reader) = World::<Sound>::beside(move |world| {
            let record = world.register(1);
            record.lock();
            for _ in 0..2 {
                world.use_element();
                record.quiescent_state();
            }
            record.unlock();
        });
        world.unlink_and_try_to_free();
        reader.join().unwrap();
    });
}

/// R4+R5+R6 with S1+S2 for such a reader: its next quiescent state wakes the waiter.
#[test]
fn loom_quiescent_state_wakes() {
    model(|| {
        let world = World::<Sound>::new();
        let theirs = Arc::clone(&world);
        let record = world.register(1);
        record.lock();
        world.unlink();
        let cookie = world.engine.start();
        let waiter = thread::spawn(move || {
            assert_eq!(
                theirs
                    .engine
                    .wait_for(cookie, Token::for_model(1000), None, Haste::Normal),
                Waited::Ended
            );
            theirs.free();
        });
        record.quiescent_state();
        waiter.join().unwrap();
        record.unlock();
    });
}

/// W1 with W2, W5 with W6: one thread unlinks and takes a cookie that starts nothing, another ends
/// grace periods, the first frees by what it sees of them.
#[test]
fn loom_cookie_ended_by_another() {
    model(|| {
        let world = World::<Sound>::new();
        let (reading, helping) = (Arc::clone(&world), Arc::clone(&world));
        let reader = thread::spawn(move || reading.read(reading.register(1)));
        let helper = thread::spawn(move || helping.try_complete(helping.engine.get_state()));
        world.unlink();
        let cookie = world.engine.get_state();
        if world.engine.has_ended(cookie) {
            world.free();
        }
        helper.join().unwrap();
        if world.engine.has_ended(cookie) {
            world.free();
        }
        reader.join().unwrap();
    });
}

/// W3 handed on through `fenced`: two threads advance at once, and a scan may rely on the other's
/// barrier.
#[test]
fn loom_two_advancers() {
    model(|| {
        let world = World::<Sound>::new();
        let (reading, helping) = (Arc::clone(&world), Arc::clone(&world));
        let reader = thread::spawn(move || reading.read(reading.register(1)));
        let helper = thread::spawn(move || helping.try_complete(helping.engine.start()));
        world.unlink_and_try_to_free();
        helper.join().unwrap();
        reader.join().unwrap();
    });
}

/// R4, R5, R6 with S1, S2: a waiter that sleeps is woken by the section that it waits for.
fn waiter_and_holdout<P: Policy>() {
    model(|| {
        let (world, reader) = World::<P>::beside(|world| world.read(world.register(1)));
        world.unlink();
        wait(&world.engine, 1000);
        world.free();
        reader.join().unwrap();
    });
}

#[test]
fn loom_waiter_is_woken() {
    waiter_and_holdout::<Sound>();
}

#[test]
#[should_panic(expected = "deadlock")]
fn loom_no_flag_barrier_is_caught() {
    waiter_and_holdout::<NoFlagBarrier>();
}

/// A record that one thread gives back and another takes over is quiescent and its sections are
/// seen.
#[test]
fn loom_record_changes_hands() {
    model(|| {
        let world = World::<Sound>::new();
        let readers: Vec<_> = (1..=2)
            .map(|number| {
                let world = Arc::clone(&world);
                thread::spawn(move || {
                    let record = world.register(number);
                    world.read(record);
                    record.depart();
                })
            })
            .collect();
        world.unlink_and_try_to_free();
        readers
            .into_iter()
            .for_each(|reader| reader.join().unwrap());
    });
}

/// S1 with a record that changes hands meanwhile: a waiter flags it for the section of the last
/// owner, and then finds the next owner's section, which was counted (O1, O2) before the last owner
/// had left. The next owner's unlock signals. The first section ends without a fence, as in
/// membarrier mode.
#[test]
fn loom_flag_outlives_a_change_of_hands() {
    model_with(4, || {
        let world = World::<Sound>::new();
        let theirs = Arc::clone(&world);
        let first = ptr::from_ref(world.register(1)).expose_provenance();
        // Leaves no other record free.
        let _ = world.register(2);
        world.at(first).begin_without_fence();
        let readers = thread::spawn(move || {
            let first = theirs.at(first);
            first.end_without_fence();
            first.depart();
            let give = |next: &Record| theirs.read(next);
            let registry = &theirs.engine.registry;
            registry.hand_out(Token::for_model(3), 0, Flavour::Thread, 1, give);
        });
        world.unlink();
        wait(&world.engine, 1000);
        world.free();
        readers.join().unwrap();
    });
}

/// `Stack::push` with `take_all`: callbacks pushed by two threads are run complete, once each, by
/// either thread's pass.
#[test]
fn loom_callbacks() {
    model(|| {
        let engine = Arc::new(Engine::<Sound>::for_test());
        let runs = Arc::new(AtomicUsize::new(0));
        let push = |engine: &Engine<Sound>, runs: &Arc<AtomicUsize>| {
            let runs = Arc::clone(runs);
            let value = UnsafeCell::new(1);
            // SAFETY: `boxed` gives a new head. The cell is the callback's alone.
            let callback = boxed(move || {
                runs.fetch_add(value.with(|value| unsafe { *value }), Ordering::Relaxed);
            });
            // SAFETY: as above.
            unsafe { engine.callbacks.push(callback, engine.get_state()) };
        };
        let (theirs, their_runs) = (Arc::clone(&engine), Arc::clone(&runs));
        let pusher = thread::spawn(move || push(&theirs, &their_runs));
        push(&engine, &runs);
        engine.run_all_callbacks();
        pusher.join().unwrap();
        engine.run_all_callbacks();
        assert_eq!(runs.load(Ordering::Relaxed), 2);
    });
}

struct Job {
    engine: Engine<Sound>,
    wanted: AtomicBool,
}

impl Job {
    /// Makes a job and its service thread.
    fn served() -> (Arc<Self>, thread::JoinHandle<Served>) {
        let job = Arc::new(Self {
            engine: Engine::for_test(),
            wanted: AtomicBool::new(false),
        });
        let theirs = Arc::clone(&job);
        (job, thread::spawn(move || theirs.engine.serve(&*theirs)))
    }
}

impl Work for Job {
    fn pass(&self) -> Outlook {
        if self.wanted.load(Ordering::Relaxed) {
            self.engine.request_stop();
        }
        Outlook::default()
    }
}

/// `kick` with `serve`: work that is made visible before a kick is seen, however it meets the
/// thread's going to sleep.
#[test]
fn loom_kick() {
    model(|| {
        let (job, service) = Job::served();
        job.wanted.store(true, Ordering::Relaxed);
        job.engine.kick();
        assert_eq!(service.join().unwrap(), Served::Stopped);
    });
}

/// The service thread waits for a grace period that a reader holds up, and is woken by its end.
struct Ripening {
    world: Arc<World<Sound>>,
    cookie: Cookie,
}

impl Work for Ripening {
    fn pass(&self) -> Outlook {
        if self.world.engine.has_ended(self.cookie) {
            self.world.free();
            self.world.engine.request_stop();
            return Outlook::default();
        }
        Outlook {
            cookie: Some(self.cookie),
            at: None,
        }
    }
}

#[test]
fn loom_service_waits_for_a_reader() {
    model(|| {
        let (world, reader) = World::<Sound>::beside(|world| world.read(world.register(1)));
        world.unlink();
        let work = Ripening {
            cookie: world.engine.start(),
            world: Arc::clone(&world),
        };
        assert_eq!(world.engine.serve(&work), Served::Stopped);
        reader.join().unwrap();
    });
}

/// A request to stop, at whatever moment it comes, ends the service thread.
#[test]
fn loom_stop() {
    model(|| {
        let (job, service) = Job::served();
        job.engine.request_stop();
        job.engine.shared.service().signal();
        assert_eq!(service.join().unwrap(), Served::Stopped);
    });
}

/// A service thread without work; it ends with the first grace period.
struct Idle(Engine<Sound>);

impl Work for Idle {
    fn pass(&self) -> Outlook {
        if self.0.has_ended(Cookie::new(FIRST.next())) {
            self.0.request_stop();
        }
        Outlook::default()
    }
}

/// `start_polled` with `serve`: its grace period ends without a further call.
#[test]
fn loom_promise_is_kept() {
    model(|| {
        let idle = Arc::new(Idle(Engine::for_test()));
        let theirs = Arc::clone(&idle);
        let service = thread::spawn(move || theirs.0.serve(&*theirs));
        assert_eq!(idle.0.start_polled(), Cookie::new(FIRST.next()));
        assert_eq!(service.join().unwrap(), Served::Stopped);
    });
}

/// `lead` with `follow`: of three threads that wait at once, each returns, whichever leads.
#[test]
fn loom_followers_are_not_left_asleep() {
    beside_two_waiters(|engine| wait(engine, 3));
}

/// The same where the third does not wait: a thread that retires, which may lead all the same.
#[test]
fn loom_followers_of_an_assist_are_not_left_asleep() {
    beside_two_waiters(|engine| {
        let (oldest, youngest) = (engine.start(), engine.get_state());
        let progress = engine.assist(oldest, youngest, Token::for_model(3), false);
        assert!(progress != Progress::Ended || engine.has_ended(oldest));
    });
}

fn wait<P: Policy>(engine: &Engine<P>, number: u64) {
    let me = Token::for_model(number);
    let waited = engine.wait_for(engine.start(), me, None, Haste::Normal);
    assert_eq!(waited, Waited::Ended);
}

fn beside_two_waiters(third: impl Fn(&Engine<Sound>) + Send + Sync + 'static) {
    model_with(1, move || {
        let engine = Arc::new(Engine::<Sound>::for_test());
        let others = [1, 2].map(|number| {
            let theirs = Arc::clone(&engine);
            thread::spawn(move || wait(&theirs, number))
        });
        third(&engine);
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}
