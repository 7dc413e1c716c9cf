//! Callbacks: each runs once, after its grace period, in order, whatever the others do.

mod common;

use common::{Count, Reader, Tally, Tell, eventually, returns};
use std::{
    mem::offset_of,
    panic,
    ptr::NonNull,
    sync::{
        Arc, Barrier, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc::channel,
    },
    thread,
};
use stillpoint::{CallbackHead, Domain, Rcu};

const THREADS: usize = if cfg!(miri) { 3 } else { 8 };
const CALLS: usize = if cfg!(miri) { 30 } else { 20_000 };

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
    let (domain, tally) = (Domain::new(), Tally::new());
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
        domain: Domain,
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
            ((*node.as_ptr()).domain.clone(), (*node.as_ptr()).left)
        };
        if left > 0 {
            // SAFETY: it is queued no more, and nothing of the node is used here after this.
            unsafe { domain.call_head(head, again) };
        } else {
            // SAFETY: boxed below, and queued no more.
            drop(unsafe { Box::from_raw(node.as_ptr()) });
        }
    }
    let domain = Domain::new();
    let count = Count::default();
    let node = Again {
        head: CallbackHead::new(),
        domain: domain.clone(),
        left: 50,
        count: count.clone(),
    };
    // SAFETY: no other thread knows the node, and its callback frees it in the end.
    unsafe { domain.call_head(NonNull::from(Box::leak(Box::new(node))).cast(), again) };
    eventually(|| count.get() == 50);
    // The last handle is not the callback's.
    domain.barrier();
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
fn the_last_handle_may_be_dropped_by_what_the_domain_frees() {
    let (domain, tally) = (Domain::new(), Tally::new());
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
                tell_too.tell(());
            });
            b.call(move || {
                met_b.wait();
                drop(of_a);
                tell.tell(());
            });
            drop((a, b));
            told.recv().expect("both return");
            told.recv().expect("both return");
        }
    });
}
