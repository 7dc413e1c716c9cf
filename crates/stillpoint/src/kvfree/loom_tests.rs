//! Model-checked tests of what the owner of a share and the drain do to it at the same time.

use super::{
    heap::{Heap, OnNoPage},
    local::{Channel, Pushed, RetireRequest, ThreadBuffer},
    page::Page,
    policy::Policy,
};
use crate::{
    gp::{self, BarrierMode, Engine, Seq, Sequence, policy::Sound},
    platform::sync::{Arc, AtomicUsize, Ordering, UnsafeCell, lock},
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

fn model(test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(test);
}

struct Share<P> {
    engine: Engine<P>,
    heap: Heap,
    local: Arc<ThreadBuffer>,
}

impl<P: Policy> Share<P> {
    /// A share with an open page that is not parked.
    fn new() -> Arc<Self> {
        let heap = Heap::new(1);
        let local = heap.join().expect("memory");
        local.replace(&mut lock(&local.queue), Channel::Drop, Page::try_new());
        local.unpark();
        Arc::new(Self { engine: Engine::new(1, BarrierMode::Membarrier, Sequence::new(Seq::from_bits(0))), heap, local })
    }
}

/// An object that says when it is dropped; its cell has loom check that its making is ordered before that.
struct Tracked {
    value: UnsafeCell<usize>,
    drops: Arc<AtomicUsize>,
}

// SAFETY: loom checks each access to the cell.
unsafe impl Send for Tracked {}

impl Drop for Tracked {
    fn drop(&mut self) {
        // SAFETY: the object is being dropped, so it is ours.
        let value = self.value.with_mut(|value| unsafe { std::mem::take(&mut *value) });
        self.drops.fetch_add(value, Ordering::Relaxed);
    }
}

fn tracked(drops: &Arc<AtomicUsize>) -> RetireRequest {
    let object = Box::new(Tracked { value: UnsafeCell::new(1), drops: Arc::clone(drops) });
    RetireRequest::boxed(NonNull::from(Box::leak(object)))
}

/// P1, P2, P3 with D1, D2, D3: after both are through, an object that waits is in a share that is not parked, or its owner has
/// been told to attend.
fn append_while_parking<P: Policy>() {
    model(|| {
        let share = Share::<P>::new();
        let drops = Arc::new(AtomicUsize::new(0));
        let (theirs, slot) = (Arc::clone(&share), tracked(&drops));
        let appended = move || theirs.local.append(slot);
        let owner = thread::spawn(appended);
        share.heap.park(&share.engine, &[&share.local]);
        let appended = owner.join().unwrap();
        assert!(appended == Pushed::PageFull || !share.local.is_parked(), "an object is forgotten");
        share.heap.free_all(&share.engine);
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

/// P1 with D3: the drain copies what the owner has published, while the owner fills and replaces the page. Every object is freed
/// once, complete.
#[test]
fn loom_append_while_draining() {
    model(|| {
        let share = Share::<Sound>::new();
        let drops = Arc::new(AtomicUsize::new(0));
        let (theirs, slots) = (Arc::clone(&share), [tracked(&drops), tracked(&drops)]);
        let owner = thread::spawn(move || {
            for slot in slots {
                // SAFETY: the objects are ours alone, the share is this thread's.
                let retired = unsafe { theirs.heap.retire(&theirs.engine, &theirs.local, None, slot, OnNoPage::Block) };
                assert!(retired.is_ok());
            }
        });
        // Twice: at the first look every thread seems active.
        for _ in 0..2 {
            share.heap.drain_as_flush(&share.engine);
        }
        owner.join().unwrap();
        share.heap.free_all(&share.engine);
        assert_eq!(drops.load(Ordering::Relaxed), 2);
        assert_eq!(share.heap.waiting().objects, 0);
    });
}

/// A thread's end hands over what it has left, while the drain looks at it.
#[test]
fn loom_leave_while_draining() {
    model(|| {
        let share = Share::<Sound>::new();
        let drops = Arc::new(AtomicUsize::new(0));
        let (theirs, slot) = (Arc::clone(&share), tracked(&drops));
        let owner = thread::spawn(move || {
            assert_ne!(theirs.local.append(slot), Pushed::NoPage);
            theirs.heap.leave(&theirs.engine, &theirs.local);
        });
        share.heap.drain_as_flush(&share.engine);
        owner.join().unwrap();
        share.heap.free_all(&share.engine);
        assert_eq!(drops.load(Ordering::Relaxed), 1);
    });
}
