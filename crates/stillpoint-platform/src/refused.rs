//! The process's queue of services whose thread the system has refused to start, for other threads to
//! try again.
//!
//! A thread is often refused for lack of memory, so the queue has room for all services ([`Place`]). Its
//! lock is a leaf: no other lock is taken under it, and no user code runs. In the child of a fork the
//! queue is empty, because the child forgets the services' work.

use super::{
    clock::{self, Nanos},
    fork::AtForkHandle,
};
// std's also in the model, which has no statics and refuses no thread.
#[cfg(not(stillpoint_loom))]
use super::sync::Mutex;
#[cfg(stillpoint_loom)]
use std::sync::Mutex;
use std::{
    collections::VecDeque,
    sync::{
        MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

/// The shortest time between two attempts, in nanoseconds.
const INTERVAL: Nanos = 10_000_000;

/// A service whose thread could not be started.
pub trait Refused: Send + Sync {
    /// Tries again to start the thread, if there is work for it. Returns false if the system refuses
    /// it again: it has then been listed again.
    fn start_again(&self) -> bool;
}

type Queue = VecDeque<Weak<dyn Refused>>;

static QUEUE: Mutex<Queue> = Mutex::new(Queue::new());

/// Number of services that there are. Written under the lock.
static SERVICES: AtomicUsize = AtomicUsize::new(0);

/// Whether a service is listed. Written under the lock.
static ANY: AtomicBool = AtomicBool::new(false);

/// The earliest time of the next attempt, in nanoseconds.
static NEXT: AtomicU64 = AtomicU64::new(0);

fn queue() -> MutexGuard<'static, Queue> {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The place of a service in the queue.
#[derive(Debug)]
pub struct Place(Weak<dyn Refused>);

impl Place {
    /// Reserves the place of a service. The handle proves that the fork handler is registered, which resets
    /// the lock in the child.
    pub fn new(_: &AtForkHandle, service: Weak<dyn Refused>) -> Self {
        let mut queue = queue();
        let services = SERVICES.fetch_add(1, Ordering::Relaxed) + 1;
        let unlisted = services.saturating_sub(queue.len());
        // If there is no memory for it now, `list` tries again.
        let _ = queue.try_reserve(unlisted);
        Self(service)
    }

    /// Lists the service, until [`retry`] tries again to start its thread. Allocates only in the child of
    /// a fork, or if [`new`](Self::new) found no memory. Returns false if there is none now.
    pub fn list(&self) -> bool {
        let mut queue = queue();
        let is_listed = queue.try_reserve(1).is_ok();
        if is_listed {
            queue.push_back(Weak::clone(&self.0));
            ANY.store(true, Ordering::Relaxed);
        }
        is_listed
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut queue = queue();
        SERVICES.fetch_sub(1, Ordering::Relaxed);
        queue.retain(|service| !service.ptr_eq(&self.0));
        ANY.store(!queue.is_empty(), Ordering::Relaxed);
    }
}

fn take() -> Option<Weak<dyn Refused>> {
    let mut queue = queue();
    let service = queue.pop_front();
    ANY.store(!queue.is_empty(), Ordering::Relaxed);
    service
}

/// Tries again to start the threads of the services that are listed, until one is refused again; at
/// most a hundred times a second in the process. Runs no user code. If none are listed this is one
/// load.
#[inline]
pub fn retry() {
    // Needs no partner: a hint, and `take` looks again.
    if ANY.load(Ordering::Relaxed) {
        retry_if_due(clock::now());
    }
}

#[cold]
fn retry_if_due(now: Nanos) {
    // Need no partner: a thread that loses the exchange leaves the attempt to the other one.
    let next = NEXT.load(Ordering::Relaxed);
    let is_due = now >= next
        && NEXT
            .compare_exchange(
                next,
                now.saturating_add(INTERVAL),
                Ordering::Relaxed,
                Ordering::Relaxed,
            )
            .is_ok();
    if !is_due {
        return;
    }
    while let Some(service) = take() {
        let service = service.upgrade();
        if service.is_some_and(|service| !service.start_again()) {
            return;
        }
    }
}

/// Empties the queue, in the child of a fork.
///
/// # Safety
///
/// As for [`ForkReset::reset_in_child`](crate::fork::ForkReset::reset_in_child).
#[cfg(not(stillpoint_loom))]
pub(crate) unsafe fn reset_in_child() {
    // SAFETY: the caller's promise; no user code runs under this lock.
    unsafe { QUEUE.reinit(Queue::new()) };
    ANY.store(false, Ordering::Relaxed);
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use std::{
        panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
        sync::Arc,
    };

    /// Counts its calls, and lists itself again while no thread can be started.
    struct Service {
        place: Place,
        can_start: AtomicBool,
        panics: AtomicBool,
        attempts: AtomicUsize,
    }

    impl Refused for Service {
        fn start_again(&self) -> bool {
            self.attempts.fetch_add(1, Ordering::Relaxed);
            if self.panics.swap(false, Ordering::Relaxed) {
                resume_unwind(Box::new("expected"));
            }
            self.can_start.load(Ordering::Relaxed) || !self.place.list()
        }
    }

    /// One test: the queue is the process's.
    #[test]
    fn refused_services_are_tried_until_one_is_refused_again() {
        let handler = AtForkHandle::reserve();
        let service = |me: &Weak<Service>| Service {
            place: Place::new(&handler, me.clone()),
            can_start: AtomicBool::new(false),
            panics: AtomicBool::new(false),
            attempts: AtomicUsize::new(0),
        };
        let services: Vec<_> = (0..3).map(|_| Arc::new_cyclic(service)).collect();
        let room = queue().capacity();
        let attempts = || {
            services
                .iter()
                .map(|it| it.attempts.load(Ordering::Relaxed))
                .collect::<Vec<_>>()
        };
        let any = || ANY.load(Ordering::Relaxed);
        let start = clock::now();
        // As if that number of intervals had passed.
        let retry_after = |intervals| retry_if_due(start + intervals * INTERVAL);
        retry_after(0);
        assert!(!any());
        assert!(services.iter().all(|service| service.place.list()));
        (0..10).for_each(|_| retry_after(0));
        assert_eq!(attempts(), [0; 3], "not again within an interval");
        retry_after(1);
        retry_after(1);
        assert_eq!(attempts(), [1, 0, 0], "one refusal is enough");
        retry_after(2);
        assert_eq!(attempts(), [1, 1, 0], "the others come first");

        for service in &services {
            service.can_start.store(true, Ordering::Relaxed);
            service.panics.store(true, Ordering::Relaxed);
        }
        for intervals in 3..6 {
            let called = catch_unwind(AssertUnwindSafe(|| retry_after(intervals)));
            assert!(
                called.is_err(),
                "a panic is passed on, and loses no other entry"
            );
        }
        assert_eq!(attempts(), [2, 2, 1]);
        assert!(!any());

        assert!(services.iter().all(|service| service.place.list()));
        retry_after(6);
        assert_eq!(attempts(), [3, 3, 2]);
        assert!(!any());

        assert!(services.iter().all(|service| service.place.list()));
        assert!(
            room >= 3 && queue().capacity() == room,
            "no memory is needed"
        );
        drop(services);
        assert!(!any(), "one that is gone leaves the queue");
    }
}
