//! Callbacks: each runs once, after its grace period, in order, whatever the others do.

mod common;

use common::{Reader, Tally, eventually, returns};
use std::{
    mem::offset_of,
    panic,
    ptr::NonNull,
    sync::{
        Arc, Barrier, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc::channel,
    },
    thread,
};
use stillpoint::{CallbackHead, Domain, Rcu, RcuOption};

const THREADS: usize = if cfg!(miri) { 3 } else { 8 };
const CALLS: usize = if cfg!(miri) { 30 } else { 20_000 };

/// A count, and callbacks that raise it.
#[derive(Debug, Clone, Default)]
struct Count(Arc<AtomicUsize>);

impl Count {
    fn raise(&self) -> impl FnOnce() + Send + 'static {
        let count = self.clone();
        move || {
            count.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

#[test]
fn callbacks_run_in_the_order_in_which_they_were_queued() {
    let domain = Domain::new();
    let order = Arc::new(Mutex::new(Vec::new()));
    for number in 0..CALLS {
        let order = Arc::clone(&order);
        domain.call(move || order.lock().expect("not poisoned").push(number));
    }
    domain.barrier();
    let order = order.lock().expect("not poisoned");
    assert_eq!(order.len(), CALLS);
    assert!(order.iter().enumerate().all(|(at, &number)| at == number));
}

#[test]
fn callbacks_of_one_thread_keep_their_order_among_those_of_others() {
    let domain = Domain::new();
    let order = Arc::new(Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (domain, order) = (&domain, &order);
            scope.spawn(move || {
                for number in 0..CALLS / THREADS {
                    let order = Arc::clone(order);
                    domain.call(move || order.lock().expect("not poisoned").push((thread, number)));
                }
            });
        }
    });
    domain.barrier();
    let mut next = [0; THREADS];
    for &(thread, number) in &*order.lock().expect("not poisoned") {
        assert_eq!(number, next[thread]);
        next[thread] += 1;
    }
    assert_eq!(next, [CALLS / THREADS; THREADS]);
}

#[test]
fn callbacks_run_one_after_the_other_on_one_other_thread() {
    let domain = Domain::new();
    let (running, ids) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(Mutex::new(Vec::new())),
    );
    for _ in 0..CALLS / 10 {
        let (running, ids) = (Arc::clone(&running), Arc::clone(&ids));
        domain.call(move || {
            assert!(!running.swap(true, Ordering::Relaxed), "two run at once");
            ids.lock()
                .expect("not poisoned")
                .push(thread::current().id());
            running.store(false, Ordering::Relaxed);
        });
        domain.synchronize();
    }
    domain.barrier();
    let mut ids = ids.lock().expect("not poisoned").clone();
    assert_eq!(ids.len(), CALLS / 10);
    ids.dedup();
    assert_eq!((ids.len(), domain.statistics().panics), (1, 0));
    assert_ne!(ids[0], thread::current().id());
}

#[test]
fn a_callback_sees_what_was_done_before_its_call() {
    let domain = Domain::new();
    static PLACE: AtomicUsize = AtomicUsize::new(0);
    let (tell, told) = channel();
    for number in 1..=CALLS / 10 {
        PLACE.store(number, Ordering::Relaxed);
        let tell = tell.clone();
        domain.call(move || assert!(tell.send((number, PLACE.load(Ordering::Relaxed))).is_ok()));
    }
    domain.barrier();
    assert_eq!(
        told.try_iter()
            .filter(|(number, seen)| seen >= number)
            .count(),
        CALLS / 10
    );
}

#[test]
fn a_callback_runs_although_no_thread_waits_for_it() {
    let count = Count::default();
    stillpoint::call(count.raise());
    eventually(|| count.get() == 1);
}

#[test]
fn a_callback_waits_for_the_readers_of_before_its_call() {
    let domain = Domain::new();
    let count = Count::default();
    let reader = Reader::enter(&domain);
    let tries = domain.statistics().heavy_barriers;
    domain.call(count.raise());
    eventually(|| domain.statistics().heavy_barriers > tries);
    assert_eq!(count.get(), 0);
    reader.leave();
    // Without a further call: the reader wakes the service thread when it leaves.
    eventually(|| count.get() == 1);
}

#[test]
fn a_call_inside_a_section_waits_for_that_section() {
    let domain = Domain::new();
    let count = Count::default();
    let tally = Tally::new();
    let cell = RcuOption::new_in(&domain, tally.value(1));
    let guard = domain.read_lock();
    let value = cell.load(&guard).expect("just made");
    let mut unlinked = cell.take();
    let raise = count.raise();
    let tries = domain.statistics().heavy_barriers;
    domain.call(move || {
        drop(unlinked.take());
        raise();
    });
    eventually(|| domain.statistics().heavy_barriers > tries);
    assert_eq!((value.get(), count.get()), (1, 0));
    drop(guard);
    eventually(|| count.get() == 1);
    domain.kvfree_barrier();
    assert!(tally.all_dropped());
}

#[test]
fn a_callback_may_queue_another() {
    fn go_on(domain: &Domain, left: usize, count: Count) {
        let theirs = domain.clone();
        domain.call(move || {
            count.raise()();
            if left > 1 {
                go_on(&theirs, left - 1, count);
            }
        });
    }
    let domain = Domain::new();
    let count = Count::default();
    go_on(&domain, 100, count.clone());
    // A barrier waits for what was queued before it, and that is one after the other.
    eventually(|| count.get() == 100);
    domain.barrier();
    eventually(|| domain.statistics().callbacks_pending == 0);
}

#[derive(Debug)]
struct Node {
    before: [u8; 40],
    head: CallbackHead,
    value: common::Tracked,
}

/// # Safety
///
/// `head` is that of a boxed `Node`.
unsafe fn reclaim(head: NonNull<CallbackHead>) {
    // SAFETY: that is how far into a node its head lies.
    let node = unsafe {
        Box::from_raw(
            head.as_ptr()
                .byte_sub(offset_of!(Node, head))
                .cast::<Node>(),
        )
    };
    assert_eq!(node.before, [3; 40]);
    node.value.get();
}

#[test]
fn a_callback_without_allocation_gets_its_head_back() {
    let domain = Domain::new();
    let tally = Tally::new();
    let reader = Reader::enter(&domain);
    for number in 0..CALLS / 10 {
        let node = Node {
            before: [3; 40],
            head: CallbackHead::new(),
            value: tally.value(number as u64),
        };
        let node = NonNull::from(Box::leak(Box::new(node)));
        // SAFETY: inside the node.
        let head = unsafe { node.byte_add(offset_of!(Node, head)) }.cast();
        // SAFETY: no other thread knows the node, which may be dropped on any thread, and `reclaim`
        // frees it.
        unsafe { domain.call_head(head, reclaim) };
    }
    assert_eq!(tally.dropped(), 0);
    assert_eq!(domain.statistics().callbacks_pending, CALLS as u64 / 10);
    reader.leave();
    domain.barrier();
    assert!(tally.all_dropped());
    assert_eq!(domain.statistics().panics, 0);
}

#[test]
fn a_head_may_be_queued_again_from_its_own_callback() {
    #[repr(C)]
    struct Again {
        head: CallbackHead,
        domain: &'static Domain,
        left: usize,
        count: Count,
    }
    /// # Safety
    ///
    /// `head` is that of a boxed `Again`.
    unsafe fn again(head: NonNull<CallbackHead>) {
        let node = head.cast::<Again>();
        // SAFETY: the head is the node's first field, and the node is this callback's alone.
        let (domain, left) = unsafe {
            (*node.as_ptr()).left -= 1;
            (*node.as_ptr()).count.raise()();
            ((*node.as_ptr()).domain, (*node.as_ptr()).left)
        };
        if left > 0 {
            // SAFETY: it is queued no more, and nothing of the node is used here after this.
            unsafe { domain.call_head(head, again) };
        } else {
            // SAFETY: boxed below, and queued no more.
            drop(unsafe { Box::from_raw(node.as_ptr()) });
        }
    }
    let domain: &'static Domain = Box::leak(Box::new(Domain::new()));
    let count = Count::default();
    let node = Again {
        head: CallbackHead::new(),
        domain,
        left: 50,
        count: count.clone(),
    };
    // SAFETY: no other thread knows the node, and its callback frees it in the end.
    unsafe { domain.call_head(NonNull::from(Box::leak(Box::new(node))).cast(), again) };
    eventually(|| count.get() == 50);
}

#[test]
fn a_callback_that_panics_is_counted_and_the_others_run() {
    let domain = Domain::new();
    let count = Count::default();
    for number in 0..30 {
        if number % 3 == 0 {
            domain.call(|| panic::resume_unwind(Box::new("without a message")));
        } else {
            domain.call(count.raise());
        }
    }
    domain.barrier();
    assert_eq!((count.get(), domain.statistics().panics), (20, 10));
    domain.call(count.raise());
    domain.barrier();
    assert_eq!((count.get(), domain.statistics().panics), (21, 10));
}

/// A panic's payload whose destructor panics with another one.
struct Bomb(u32);

impl Drop for Bomb {
    fn drop(&mut self) {
        if self.0 > 0 {
            panic::resume_unwind(Box::new(Bomb(self.0 - 1)));
        }
    }
}

#[test]
fn a_payload_whose_destructor_panics_is_contained() {
    for depth in 0..3 {
        let domain = Domain::new();
        let count = Count::default();
        domain.call(count.raise());
        domain.call(move || panic::resume_unwind(Box::new(Bomb(depth))));
        domain.call(count.raise());
        domain.barrier();
        assert_eq!((count.get(), domain.statistics().panics), (2, 1));
    }
}

#[test]
fn a_barrier_waits_for_all_callbacks_of_before() {
    let domain = Domain::new();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let count = Count::default();
                for round in 1..=10 {
                    (0..CALLS / 100).for_each(|_| domain.call(count.raise()));
                    domain.barrier();
                    assert_eq!(count.get(), round * (CALLS / 100));
                }
            });
        }
    });
    eventually(|| domain.statistics().callbacks_pending == 0);
}

#[test]
fn a_barrier_waits_for_the_callbacks_of_other_threads() {
    let domain = Domain::new();
    let count = Count::default();
    for round in 1..=5 {
        let callers: Vec<_> = (0..THREADS)
            .map(|_| {
                let (domain, count) = (domain.clone(), count.clone());
                thread::spawn(move || (0..CALLS / 50).for_each(|_| domain.call(count.raise())))
            })
            .collect();
        callers
            .into_iter()
            .for_each(|caller| caller.join().expect("no panic"));
        domain.barrier();
        assert_eq!(count.get(), round * THREADS * (CALLS / 50));
    }
}

#[test]
fn a_barrier_with_nothing_queued_returns() {
    let domain = Domain::new();
    returns(move || (0..100).for_each(|_| domain.barrier()));
    returns(stillpoint::barrier);
}

#[test]
fn the_end_of_a_domain_invokes_what_is_queued() {
    for calls in [1, 10, CALLS / 10] {
        let domain = Domain::new();
        let count = Count::default();
        (0..calls).for_each(|_| domain.call(count.raise()));
        drop(domain);
        assert_eq!(count.get(), calls);
    }
}

#[test]
fn the_end_of_a_domain_contains_the_panics_of_what_is_queued() {
    let domain = Domain::new();
    let count = Count::default();
    for _ in 0..100 {
        domain.call(|| panic::resume_unwind(Box::new(Bomb(1))));
        domain.call(count.raise());
    }
    drop(domain);
    assert_eq!(count.get(), 100);
}

#[test]
fn the_last_handle_may_be_dropped_inside_a_callback() {
    for _ in 0..if cfg!(miri) { 3 } else { 200 } {
        let domain = Domain::new();
        let count = Count::default();
        let tally = Tally::new();
        let last = domain.clone();
        let (dropping, may_drop) = channel::<()>();
        domain.call(move || {
            // The other handle has gone when this comes.
            may_drop.recv().expect_err("nothing is sent");
            drop(last);
        });
        (0..50).for_each(|_| domain.call(count.raise()));
        for number in 0..50 {
            drop(Rcu::new_in(&domain, tally.value(number)));
        }
        returns(move || drop(domain));
        assert!(
            count.get() == 0 && tally.dropped() == 0,
            "the first callback has not returned"
        );
        drop(dropping);
        eventually(|| count.get() == 50 && tally.all_dropped());
    }
}

#[test]
fn the_last_handle_of_another_domain_may_be_dropped_inside_a_callback() {
    let outer = Domain::new();
    let (count, tally) = (Count::default(), Tally::new());
    let inner = Domain::new();
    (0..50).for_each(|_| inner.call(count.raise()));
    (0..50).for_each(|number| drop(Rcu::new_in(&inner, tally.value(number))));
    outer.call(move || drop(inner));
    returns(move || outer.barrier());
    // A callback does not wait for the end of a domain that it drops.
    eventually(|| count.get() == 50 && tally.all_dropped());
}

#[test]
fn the_last_handle_may_be_dropped_by_what_the_domain_frees() {
    let domain = Domain::new();
    let tally = Tally::new();
    let (mine, theirs) = (domain.clone(), Rcu::new_in(&domain, tally.value(1)));
    // A value that holds a handle of the domain that frees it, and a cell of it too.
    let cell = Rcu::new_in(&domain, (mine, theirs, tally.value(2)));
    drop(domain);
    drop(cell);
    eventually(|| tally.all_dropped());
}

#[test]
fn callbacks_of_two_domains_may_drop_each_other() {
    returns(|| {
        for _ in 0..50 {
            let (a, b) = (Domain::new(), Domain::new());
            let meet = Arc::new(Barrier::new(2));
            let (met_a, met_b) = (Arc::clone(&meet), meet);
            let (tell, told) = channel();
            let (of_a, of_b) = (a.clone(), b.clone());
            let tell_too = tell.clone();
            a.call(move || {
                met_a.wait();
                drop(of_b);
                tell_too.send(()).expect("the receiver is there");
            });
            b.call(move || {
                met_b.wait();
                drop(of_a);
                tell.send(()).expect("the receiver is there");
            });
            drop((a, b));
            told.recv().expect("both return");
            told.recv().expect("both return");
        }
    });
}
