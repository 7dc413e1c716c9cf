//! Guards that belong to no thread, model-checked: their sections, their records, and what reports
//! look at. Three tests are of races that the kernel's RCU Tasks Trace had; each stands beside a
//! variant with the race, which must fail.

use super::{World, model, wait};
use crate::gp::{
    engine::Engine, entry::Shelf, flavour::Flavour, policy::Sound, record::Record,
    record_cache::RecordCache,
};
use crate::platform::{
    sync::{Arc, AtomicPtr, AtomicUsize, Ordering, UnsafeCell, lock},
    thread::Token,
};
use loom::thread;
use std::{panic::Location, ptr};

/// Copies without counting a reference, as a report must not: it may find the value gone.
fn copy_uncounted<T, R>(shelf: &Shelf<T>, copy: impl FnOnce(&T) -> R) -> Option<R> {
    lock(&shelf.0).as_deref().map(copy)
}

/// Clears the shelf unless a report holds its lock, as an owner must not: the value would stay for
/// ever.
fn clear_unless_looked_at<T>(shelf: &Shelf<T>) {
    if let Ok(mut thing) = shelf.0.try_lock() {
        *thing = None;
    }
}

fn lock_owned(world: &World<Sound>, number: u64) -> &Record {
    let record = world
        .engine
        .register(Token::for_model(number), Flavour::Owned);
    record.lock_owned(Location::caller(), 1);
    record
}

/// R1 to R5 of a section that begins on one thread and ends on another.
#[test]
fn loom_section_changes_threads() {
    model(|| {
        let world = World::<Sound>::new();
        let theirs = Arc::clone(&world);
        let maker = thread::spawn(move || {
            let record = lock_owned(&theirs, 1);
            theirs.use_element();
            // The guard is sent, and this adds no order.
            let sent = AtomicPtr::new(ptr::from_ref(record).cast_mut());
            let theirs_again = Arc::clone(&theirs);
            let taker = thread::spawn(move || {
                theirs_again.use_element();
                // SAFETY: the world is alive.
                unsafe { &*sent.load(Ordering::Relaxed) }.unlock_owned();
            });
            taker.join().unwrap();
        });
        world.unlink_and_try_to_free();
        maker.join().unwrap();
    });
}

/// Two threads read through one guard at the same time; the section ends after both.
#[test]
fn loom_section_is_shared() {
    model(|| {
        let world = World::<Sound>::new();
        let (theirs, others) = (Arc::clone(&world), Arc::clone(&world));
        let record = ptr::from_ref(lock_owned(&world, 1)).expose_provenance();
        let reader = thread::spawn(move || theirs.use_element());
        let updater = thread::spawn(move || others.unlink_and_try_to_free());
        world.use_element();
        reader.join().unwrap();
        // SAFETY: the world is alive.
        unsafe { &*ptr::with_exposed_provenance::<Record>(record) }.unlock_owned();
        updater.join().unwrap();
    });
}

fn waiter_and_owned_holdout(unlock: impl Fn(&Record) + Copy + Send + Sync + 'static) {
    model(move || {
        let (world, reader) = World::beside(move |world| {
            let record = lock_owned(world, 1);
            world.use_element();
            unlock(record);
        });
        world.unlink();
        wait(&world.engine, 1000);
        world.free();
        reader.join().unwrap();
    });
}

/// The first race: the notifier flags the reader between its look at the flag and its end. Here the
/// end comes first.
#[test]
fn loom_owned_holdout_wakes_its_waiter() {
    waiter_and_owned_holdout(Record::unlock_owned);
}

#[test]
#[should_panic(expected = "deadlock")]
fn loom_look_before_the_end_is_caught() {
    waiter_and_owned_holdout(Record::unlock_looking_first);
}

/// A value that is overwritten when its last owner drops it, so that loom reports a later look at
/// it. Its memory stays.
struct Payload(&'static UnsafeCell<u32>);

// SAFETY: loom checks each access.
unsafe impl Send for Payload {}
// SAFETY: as above.
unsafe impl Sync for Payload {}

impl Payload {
    fn new() -> Self {
        Self(Box::leak(Box::new(UnsafeCell::new(1))))
    }

    fn look(cell: &UnsafeCell<u32>) {
        // SAFETY: that it is there is what the test is about.
        cell.with(|value| assert_eq!(unsafe { *value }, 1, "gone"));
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        // SAFETY: as above.
        self.0.with_mut(|value| unsafe { *value = 0 });
    }
}

/// What a report or an end does with the shelf. Both access the number, reports under the lock and
/// ends without it, so that loom can switch threads there: it does not switch at a `try_lock`.
type Act = fn(&Shelf<Payload>, &AtomicUsize);

fn report_and_end(report: Act, end: Act) {
    model(move || {
        let (shelf, looks) = (Arc::new(Shelf::new()), Arc::new(AtomicUsize::new(0)));
        shelf.put(Some(Arc::new(Payload::new())));
        let (theirs, their_looks) = (Arc::clone(&shelf), Arc::clone(&looks));
        let reporter = thread::spawn(move || report(&theirs, &their_looks));
        end(&shelf, &looks);
        assert!(shelf.copy().is_none(), "left behind");
        reporter.join().unwrap();
    });
}

fn look_and_count(payload: &Payload, looks: &AtomicUsize) {
    Payload::look(payload.0);
    looks.fetch_add(1, Ordering::Relaxed);
}

fn report_under_the_lock(shelf: &Shelf<Payload>, looks: &AtomicUsize) {
    copy_uncounted(shelf, |payload| look_and_count(payload, looks));
}

fn report_a_copy(shelf: &Shelf<Payload>, looks: &AtomicUsize) {
    if let Some(payload) = shelf.copy() {
        look_and_count(&payload, looks);
    }
}

fn report_uncounted(shelf: &Shelf<Payload>, looks: &AtomicUsize) {
    if let Some(cell) = copy_uncounted(shelf, |payload| payload.0) {
        looks.fetch_add(1, Ordering::Relaxed);
        Payload::look(cell);
    }
}

fn end(shelf: &Shelf<Payload>, looks: &AtomicUsize) {
    looks.load(Ordering::Relaxed);
    shelf.put(None);
}

fn end_that_gives_way(shelf: &Shelf<Payload>, looks: &AtomicUsize) {
    looks.load(Ordering::Relaxed);
    clear_unless_looked_at(shelf);
}

/// The second race: with a report in the way, the reader's end leaves something behind.
#[test]
fn loom_end_during_a_report_leaves_nothing() {
    report_and_end(report_under_the_lock, end);
}

#[test]
#[should_panic(expected = "left behind")]
fn loom_end_that_gives_way_to_a_report_is_caught() {
    report_and_end(report_under_the_lock, end_that_gives_way);
}

/// The third race: the report looks at something that the reader's end has freed.
#[test]
fn loom_report_keeps_what_it_looks_at() {
    report_and_end(report_a_copy, end);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_uncounted_report_is_caught() {
    report_and_end(report_uncounted, end);
}

/// `Stack::push` with `take_all`: two threads that take records and give them back never have the
/// same one at a time, and each finds a record as its last owner has left it.
#[test]
fn loom_records_have_one_owner() {
    model(|| {
        let engine = Arc::new(Engine::<Sound>::for_test());
        let take_and_give = |engine: &Engine<Sound>, number: u64| {
            let (token, own) = (
                Token::for_model(number),
                engine.register(Token::for_model(number), Flavour::Thread),
            );
            let spares = RecordCache::new();
            for _ in 0..2 {
                let record = spares.take(engine, token, own);
                record.lock_owned(Location::caller(), 1);
                // A name is what only the owner writes.
                record.set_name(number.to_string().into());
                assert_eq!(
                    record.entry().name().as_deref().map(|name| &**name),
                    Some(&*number.to_string())
                );
                record.unlock_owned();
                spares.keep(record, token, own);
                spares.give_back(0);
            }
            own.depart();
        };
        let theirs = Arc::clone(&engine);
        let other = thread::spawn(move || take_and_give(&theirs, 1));
        take_and_give(&engine, 2);
        other.join().unwrap();
        assert!(
            engine.records() <= 4,
            "a chunk too many: some record was lost"
        );
    });
}
