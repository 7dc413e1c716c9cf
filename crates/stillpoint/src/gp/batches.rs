//! Batches of retired objects, each given out after a grace period to a thread that frees it: no
//! heap, no budget, no service thread. For readers that free everything themselves, where they
//! leave: what seize's interface is made of (`rcu/batches.rs`).
//!
//! ```text
//!   updater   unlink; pending += 1; cookie = start    W1     reader   word = 0                    R4
//!             push the batch                                          light                       R5
//!             sweep: heavy  W3 , scan  W4                             if pending != 0 { sweep }
//! ```
//!
//! # A batch that is due is given out
//!
//! A sweep that cannot end a batch's grace period has found a reader (W4). That reader sweeps when
//! it leaves:
//!
//! * It sees `pending` counted. The count comes before W1, so before the heavy barrier W3 of the
//!   grace period, and the reader's R5 is after that barrier: else the scan would have found the
//!   section ended. Where readers fence at the end, R5 is a fence, and the same holds.
//! * It finds the batch. Each sweep begins with a read-modify-write of `requests`. The updater's
//!   came before its scan; if the reader's came before that one, the updater's scan would have seen
//!   the section ended (R4). So the reader's comes later and acquires the push.
//!
//! Only one thread sweeps at a time. A thread that finds another at it has left its request in
//! `requests`, and goes on; the sweeper looks again before it ends, or leaves that to its next
//! sweep, after it has freed what it has ([`Due::again`]). No thread ever waits, and the sweeper
//! runs no user code.
//!
//! A leaving reader need not sweep while the oldest section is known, and open
//! ([`Engine::is_stuck`]): nothing is due before that ends, and the reader in it sweeps then. Each
//! of the two has a full fence between its own R4 and its look at the other's record.

use super::{
    IN_MODEL,
    engine::Engine,
    policy::{Policy, Sound},
    seq::Cookie,
    stack::Stack,
};
use crate::platform::{
    barrier,
    sync::{AtomicUsize, Ordering, UnsafeCell},
    thread::Token,
};
use crossbeam_utils::CachePadded;
use std::{collections::VecDeque, fmt, iter, ptr};

/// How often a sweeper looks again before it frees what it has: under steady requests it must end.
const SWEEPS: usize = if IN_MODEL { 2 } else { 4 };

/// An empty queue keeps room for so many batches.
const ROOM: usize = 64;

struct Node<T> {
    cookie: Cookie,
    next: *mut Node<T>,
    batch: T,
}

/// Batches, linked; the owner's alone.
pub struct List<T>(*mut Node<T>);

impl<T> List<T> {
    const EMPTY: Self = Self(ptr::null_mut());

    fn push(&mut self, mut node: Box<Node<T>>) {
        node.next = self.0;
        self.0 = Box::into_raw(node);
    }

    fn pop(&mut self) -> Option<Box<Node<T>>> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: not null, so it came out of a box, and is this list's alone.
        let node = unsafe { Box::from_raw(self.0) };
        self.0 = node.next;
        Some(node)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_null()
    }
}

impl<T> Iterator for List<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.pop().map(|node| node.batch)
    }
}

impl<T> Drop for List<T> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}

impl<T> fmt::Debug for List<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("List").finish_non_exhaustive()
    }
}

/// What a sweep has given out.
#[derive(Debug)]
pub struct Due<T> {
    /// The batches, which the caller frees.
    pub batches: List<T>,
    /// Requests have come faster than the sweeper looked: it sweeps once more when it has freed
    /// these.
    pub again: bool,
}

/// Batches that wait for their grace periods, and the engine that ends these.
pub struct Batches<T, P: Policy = Sound> {
    pub(crate) engine: Engine<P>,
    list: CachePadded<Waiting<T>>,
}

struct Waiting<T> {
    /// Batches that no sweep has given out yet; for a moment it may be too high.
    pending: AtomicUsize,
    /// Those that no sweep has seen.
    incoming: Stack<Node<T>>,
    /// How many threads have asked for the present sweep; 0 for none.
    requests: AtomicUsize,
    /// Those that sweeps have seen, oldest first. The sweeper's.
    seen: UnsafeCell<VecDeque<Box<Node<T>>>>,
}

// SAFETY: batches go from thread to thread, each to one; `seen` is that of the thread that has
// raised `requests` from 0.
unsafe impl<T: Send, P: Policy> Send for Batches<T, P> {}
// SAFETY: as for Send.
unsafe impl<T: Send, P: Policy> Sync for Batches<T, P> {}

impl<T, P: Policy> fmt::Debug for Batches<T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batches").finish_non_exhaustive()
    }
}

impl<T, P: Policy> Batches<T, P> {
    pub(crate) fn new(engine: Engine<P>) -> Self {
        Self {
            engine,
            list: CachePadded::new(Waiting {
                pending: AtomicUsize::new(0),
                incoming: Stack::new(),
                requests: AtomicUsize::new(0),
                seen: UnsafeCell::new(VecDeque::new()),
            }),
        }
    }

    /// Has a later sweep give `batch` out, after all sections that are open now. The caller sweeps
    /// ([`Batches::sweep`], having pushed) as soon as it is in none itself.
    pub fn push(&self, batch: T) {
        // Relaxed [R5]: W1 orders it before the heavy barrier that the reader's end is after.
        self.list.pending.fetch_add(1, Ordering::Relaxed);
        let node = Box::into_raw(Box::new(Node {
            cookie: self.engine.start(),
            next: ptr::null_mut(),
            batch,
        }));
        // SAFETY: ours until it is pushed.
        let link = |next| unsafe { (*node).next = next };
        self.list.incoming.push(node, link);
    }

    /// Whether a reader that has just left had better sweep. One load, after the section's end.
    #[inline(always)]
    pub fn is_any_pending(&self) -> bool {
        // Relaxed: R5 has ordered it after the section's end.
        self.list.pending.load(Ordering::Relaxed) != 0
    }

    /// What [`Batches::is_any_pending`] looks at, for a reader that keeps it.
    pub(crate) fn pending(&self) -> &AtomicUsize {
        &self.list.pending
    }

    /// Gives out what is due. For a reader that has left a section (not `pushed`), and for a thread
    /// that has pushed since it swept last. `own` tells whether the thread `me` has a record here,
    /// in which it is in no section, and whether it has no other.
    ///
    /// Never waits, and runs no user code.
    pub(crate) fn sweep(&self, pushed: bool, own: bool, me: Token) -> Due<T> {
        let mut due = Due {
            batches: List::EMPTY,
            again: false,
        };
        if P::SWEEP_FENCE {
            // Fence, pairs with the same fence, in `sweep`, of the reader that holds all up: our
            // look at its record sees that it has left, or its scan sees that we have.
            barrier::full_fence();
        }
        if !pushed && self.engine.is_stuck() {
            return due;
        }
        let requests = &self.list.requests;
        // Acquire, pairs with the release below, in `sweep`: what the last sweeper left behind is
        // so for us. Release, pairs with that sweeper's acquire, in `sweep`: our push, our section's
        // end.
        if requests.fetch_add(1, Ordering::AcqRel) != 0 {
            return due;
        }
        let mut asked = 1;
        for _ in 0..if P::SWEEPS_AGAIN { SWEEPS } else { 1 } {
            // SAFETY: we have raised it from 0.
            unsafe { self.sweep_once(&mut due.batches, own, me) };
            // AcqRel, Acquire, pairs with the addition above, in `sweep`: as there.
            match requests.compare_exchange(asked, 0, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return due,
                Err(now) => asked = now,
            }
        }
        // No sweep has looked for those that have asked during the last one.
        // AcqRel, pairs with the addition above, in `sweep`: as there.
        requests.swap(0, Ordering::AcqRel);
        due.again = P::SWEEPS_AGAIN;
        due
    }

    /// # Safety
    ///
    /// The caller is the sweeper.
    unsafe fn sweep_once(&self, due: &mut List<T>, own: bool, me: Token) {
        let list = &self.list;
        list.seen.with_mut(|seen| {
            // SAFETY: the sweeper's.
            let seen = unsafe { &mut *seen };
            self.take_incoming(seen);
            let Some(newest) = seen.back().map(|node| node.cookie) else {
                return;
            };
            let alone = self.engine.has_no_reader(|| own);
            // Not before the newest is fenced: a reader that leaves sees its count by that barrier.
            let is_futile = alone || self.engine.is_fenced(newest) && self.engine.is_stuck();
            if !is_futile {
                self.engine.try_complete(newest, me);
            }
            let is_due = |cookie| alone || self.engine.has_ended(cookie);
            while seen.front().is_some_and(|node| is_due(node.cookie)) {
                list.pending.fetch_sub(1, Ordering::Relaxed);
                due.push(seen.pop_front().expect("the one that is due"));
            }
            if seen.is_empty() && seen.capacity() > ROOM {
                seen.shrink_to(ROOM);
            }
        });
    }

    /// Moves what has been pushed to the queue, which stays in the order of cookies: a few pushes
    /// side by side are all that can be out of it.
    fn take_incoming(&self, seen: &mut VecDeque<Box<Node<T>>>) {
        let before = seen.len();
        let mut incoming = List(self.list.incoming.take_all());
        seen.extend(iter::from_fn(|| incoming.pop()));
        // Newest first, as they came.
        let slice = seen.make_contiguous();
        slice[before..].reverse();
        for at in before..slice.len() {
            let mut at = at;
            while at > 0 && !slice[at].cookie.at_least(slice[at - 1].cookie) {
                slice.swap(at, at - 1);
                at -= 1;
            }
        }
    }

    /// Gives everything out at once.
    ///
    /// # Safety
    ///
    /// No other thread uses this, and no section is open in which an object of a batch is used.
    pub unsafe fn take_all(&self) -> List<T> {
        let mut all = List::EMPTY;
        if !self.is_any_pending() {
            return all;
        }
        self.list.seen.with_mut(|seen| {
            // SAFETY: the caller's promise.
            let seen = unsafe { &mut *seen };
            self.take_incoming(seen);
            while let Some(node) = seen.pop_back() {
                all.push(node);
            }
            *seen = VecDeque::new();
        });
        self.list.pending.store(0, Ordering::Relaxed);
        all
    }

    /// For the child of a fork: a sweep that another thread was in is over, and what it had is
    /// forgotten.
    ///
    /// # Safety
    ///
    /// The calling thread is the only one of the process, and in no call of this.
    #[cfg_attr(stillpoint_loom, allow(dead_code, reason = "the model has no forks"))]
    pub(crate) unsafe fn reset_in_child(&self) {
        let list = &self.list;
        let mut left = list.seen.with_mut(|seen| {
            if list.requests.swap(0, Ordering::Relaxed) != 0 {
                // SAFETY: the only thread. What was there is not looked at: it may be half changed.
                unsafe { seen.write(VecDeque::new()) };
            }
            // SAFETY: the only thread.
            unsafe { &*seen }.len()
        });
        // What has been pushed is whole: it was published so.
        let mut incoming = List(list.incoming.take_all());
        while !incoming.is_empty() {
            let node = incoming.0;
            // SAFETY: the list's, which lets it go.
            incoming.0 = unsafe { (*node).next };
            // SAFETY: ours until it is pushed.
            let link = |next| unsafe { (*node).next = next };
            list.incoming.push(node, link);
            left += 1;
        }
        list.pending.store(left, Ordering::Relaxed);
    }
}

impl<T, P: Policy> Drop for Batches<T, P> {
    fn drop(&mut self) {
        // SAFETY: no other reference is left.
        drop(unsafe { self.take_all() });
    }
}

#[cfg(all(test, stillpoint_loom, not(stillpoint_shuttle)))]
mod loom_tests;
#[cfg(all(test, not(stillpoint_loom)))]
mod tests;
