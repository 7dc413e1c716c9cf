//! Model-checked tests of what the owner of a buffer and the drain do to it at the same time.
//!
//! Detects a missing D2, pages named one grace period too old, and each release of the sums of
//! accounts weakened.

use super::{
    buffer::{Pushed, ThreadBuffer},
    heap::Heap,
    page::{Page, SLOTS, Tally},
    policy::{Policy, name_for_page},
    request::{Channel, RetireRequest},
    retire::Reclaimer,
};
use crate::{
    gp::{self, BarrierMode, Engine, Flavour, Seq, Sequence, policy::Sound},
    platform::{
        sync::{Arc, AtomicUsize, Ordering, UnsafeCell, lock},
        thread::Token,
    },
};
use loom::thread;
use std::ptr::NonNull;

enum NoParkBarrier {}
// SAFETY: of grace periods everything is present.
unsafe impl gp::Policy for NoParkBarrier {}
// SAFETY: broken on purpose; it leaves memory alone and forgets objects.
unsafe impl Policy for NoParkBarrier {
    const PARK_BARRIER: bool = false;
}

enum NoWholePageCookies {}
// SAFETY: of grace periods everything is present.
unsafe impl gp::Policy for NoWholePageCookies {}
// SAFETY: broken on purpose; the model's cells report the misuse.
unsafe impl Policy for NoWholePageCookies {
    const WHOLE_PAGE_COOKIES: bool = false;
}

fn model(test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(test);
}

struct Domain<P> {
    engine: Engine<P>,
    heap: Heap,
    buffer: Arc<ThreadBuffer>,
}

impl<P: Policy> Domain<P> {
    /// Makes a domain, and a buffer with an open page that is not parked.
    fn new() -> Arc<Self> {
        let heap = Heap::new(1);
        let buffer = heap.join().expect("memory");
        buffer.replace(&mut lock(&buffer.queue), Channel::Drop, Page::try_new());
        buffer.unpark();
        Arc::new(Self {
            engine: Engine::new(1, BarrierMode::Membarrier, Sequence::new(Seq::from_bits(0))),
            heap,
            buffer,
        })
    }

    /// Retires, as the owner does.
    fn retire(&self, object: RetireRequest) {
        match self.buffer.append(object) {
            Pushed::Ok => {}
            Pushed::PageFull => {
                self.heap
                    .finish_append(&self.engine, &self.buffer, None, &object, false)
            }
            Pushed::NoPage => panic!("a page that is sealed is replaced"),
        }
    }

    /// Makes a pass that adopts everything, as for a flush, for which no thread waits.
    fn drain_as_flush(&self) {
        self.heap.flushes.ask();
        self.heap.drain(&self.engine, &|| None);
    }
}

/// An object that counts its drop. Through its cell, loom checks that the object was made before.
struct Tracked {
    value: UnsafeCell<usize>,
    drops: Arc<AtomicUsize>,
}

// SAFETY: loom checks each access to the cell.
unsafe impl Send for Tracked {}

impl Drop for Tracked {
    fn drop(&mut self) {
        // SAFETY: the object is being dropped, so it is ours.
        let value = self
            .value
            .with_mut(|value| unsafe { std::mem::take(&mut *value) });
        self.drops.fetch_add(value, Ordering::Relaxed);
    }
}

fn tracked(drops: &Arc<AtomicUsize>) -> RetireRequest {
    let object = Box::new(Tracked {
        value: UnsafeCell::new(1),
        drops: Arc::clone(drops),
    });
    RetireRequest::boxed(NonNull::from(Box::leak(object)))
}

/// P1, P2, P3 with D1, D2, D3: after both are through, an object that waits is in a buffer that is
/// not parked, or its owner has been told to take the slow path.
fn append_while_parking<P: Policy>() {
    model(|| {
        let domain = Domain::<P>::new();
        let drops = Arc::new(AtomicUsize::new(0));
        let (theirs, slot) = (Arc::clone(&domain), tracked(&drops));
        let appended = move || theirs.buffer.append(slot);
        let owner = thread::spawn(appended);
        domain.heap.park(&domain.engine, &[&domain.buffer]);
        let appended = owner.join().unwrap();
        assert!(
            appended == Pushed::PageFull || !domain.buffer.is_parked(),
            "an object is forgotten"
        );
        domain.heap.free_all(&domain.engine);
        assert_eq!(drops.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn loom_append_while_parking() {
    append_while_parking::<Sound>();
}

#[test]
#[should_panic(expected = "an object is forgotten")]
fn loom_no_park_barrier_is_caught() {
    append_while_parking::<NoParkBarrier>();
}

/// P1 with D3: the drain copies what the owner has published, while the owner fills and replaces
/// the page. Every object is freed once, complete.
#[test]
fn loom_append_while_draining() {
    model(|| {
        let domain = Domain::<Sound>::new();
        let drops = Arc::new(AtomicUsize::new(0));
        let (theirs, slots) = (Arc::clone(&domain), [tracked(&drops), tracked(&drops)]);
        let owner = thread::spawn(move || {
            for slot in slots {
                theirs.retire(slot);
            }
        });
        // Twice: at the first look every thread seems active.
        for _ in 0..2 {
            domain.drain_as_flush();
        }
        owner.join().unwrap();
        domain.heap.free_all(&domain.engine);
        assert_eq!(drops.load(Ordering::Relaxed), 2);
        assert_eq!(domain.heap.waiting().objects, 0);
    });
}

/// The owner frees a page in slices while a flush adopts what is left of it. Each object is freed
/// once, and before the flush ends.
#[test]
fn loom_slices_while_flushing() {
    model(|| {
        let domain = Domain::<Sound>::new();
        let drops = Arc::new(AtomicUsize::new(0));
        let page = Page::try_new();
        (domain.buffer).replace(&mut lock(&domain.buffer.queue), Channel::Plain, page);
        for _ in 0..SLOTS {
            let _ = domain.buffer.append(tracked(&drops).plain());
        }
        let (heap, engine) = (&domain.heap, &domain.engine);
        heap.seal(engine, &domain.buffer, Channel::Plain, Reclaimer::Owner);
        let _ = engine.recheck(engine.start(), Token::for_model(1));
        let theirs = Arc::clone(&domain);
        let owner = thread::spawn(move || {
            for _ in 0..SLOTS {
                theirs.heap.free_own(&theirs.engine, &theirs.buffer, 1);
            }
        });
        let ticket = heap.flushes.ask();
        heap.drain(engine, &|| None);
        if heap.flushes.is_done(ticket) {
            assert_eq!(drops.load(Ordering::Relaxed), SLOTS, "the flush has ended");
        }
        owner.join().unwrap();
        heap.free_all(engine);
        assert_eq!(drops.load(Ordering::Relaxed), SLOTS);
        assert_eq!(heap.waiting().objects, 0);
    });
}

/// A thread's end hands over what it has left, while the drain looks at it.
#[test]
fn loom_leave_while_draining() {
    model(|| {
        let domain = Domain::<Sound>::new();
        let drops = Arc::new(AtomicUsize::new(0));
        let (theirs, slot) = (Arc::clone(&domain), tracked(&drops));
        let owner = thread::spawn(move || {
            assert_ne!(theirs.buffer.append(slot), Pushed::NoPage);
            theirs.heap.leave(&theirs.engine, &theirs.buffer);
        });
        domain.drain_as_flush();
        owner.join().unwrap();
        domain.heap.free_all(&domain.engine);
        assert_eq!(drops.load(Ordering::Relaxed), 1);
    });
}

/// W1 and W2 of a page: its owner unlinks, and only names a grace period; another thread starts it,
/// or the one before, and ends it. A section that finds the object holds up its page.
fn page_named_by_its_owner<P: Policy>() {
    model(|| {
        let domain = Domain::<P>::new();
        let object = Arc::new((AtomicUsize::new(1), UnsafeCell::new(1_usize)));
        let (reading, theirs) = (Arc::clone(&domain), Arc::clone(&object));
        let reader = thread::spawn(move || {
            let record = reading
                .engine
                .register(Token::for_model(1), Flavour::Thread);
            record.lock();
            if theirs.0.load(Ordering::Acquire) == 1 {
                // SAFETY: loom checks that nothing frees it meanwhile.
                theirs.1.with(|value| assert_eq!(unsafe { *value }, 1));
            }
            record.unlock();
        });
        let helping = Arc::clone(&domain);
        let helper = thread::spawn(move || {
            let cookie = helping.engine.start();
            helping.engine.try_complete(cookie, Token::for_model(2))
        });
        object.0.swap(0, Ordering::AcqRel);
        let cookie = name_for_page(&domain.engine);
        helper.join().unwrap();
        if domain.engine.has_ended(cookie) {
            // SAFETY: loom checks that no section uses it.
            object.1.with_mut(|value| unsafe { *value = 0 });
        }
        reader.join().unwrap();
    });
}

#[test]
fn loom_page_named_by_its_owner() {
    page_named_by_its_owner::<Sound>();
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_page_of_an_older_grace_period_is_caught() {
    page_named_by_its_owner::<NoWholePageCookies>();
}

/// `add` and `add_beside_others` with `load`: a thread that sees objects counted as freed sees what
/// their destructors did, and the objects counted as sealed, in whichever account.
///
/// An account is written without read-modify-writes, and loom does not see that a store races with
/// another thread's load once the storing thread has loaded the same word. `turn` has it try the
/// orders all the same; it is relaxed, and so orders nothing itself.
fn counts_follow_frees(owner_frees: bool) {
    model(move || {
        let domain = Domain::<Sound>::new();
        let drops = Arc::new(AtomicUsize::new(0));
        assert_eq!(domain.buffer.append(tracked(&drops)), Pushed::Ok);
        let done = Arc::new(UnsafeCell::new(0_usize));
        let turn = Arc::new(AtomicUsize::new(0));
        let (theirs, doing, tells) = (Arc::clone(&domain), Arc::clone(&done), Arc::clone(&turn));
        let other = thread::spawn(move || {
            let (heap, buffer) = (&theirs.heap, &theirs.buffer);
            let page = buffer.open_page(Channel::Drop).expect("it is open");
            heap.note_sealed_by(buffer, page);
            tells.fetch_add(1, Ordering::Relaxed);
            // SAFETY: loom checks that it is not read meanwhile.
            doing.with_mut(|value| unsafe { *value = 1 });
            if owner_frees {
                heap.note_freed_by(buffer, Tally::of(page));
            } else {
                heap.note_gone(Tally::of(page), page.objects());
            }
            tells.fetch_add(1, Ordering::Relaxed);
        });
        turn.fetch_add(1, Ordering::Relaxed);
        let seen = domain.heap.waiting_sealed();
        assert!(seen.objects <= 1 && seen.pages <= 1, "the sum is too low");
        if seen.freed == 1 {
            // SAFETY: loom checks that it is not written meanwhile.
            done.with(|value| assert_eq!(unsafe { *value }, 1));
        }
        other.join().unwrap();
        domain.heap.free_all(&domain.engine);
        assert_eq!(drops.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn loom_counts_of_the_owner_follow_its_frees() {
    counts_follow_frees(true);
}

#[test]
fn loom_counts_of_others_follow_their_frees() {
    counts_follow_frees(false);
}
