//! The process's list of services whose thread the system has refused to start, for other threads to
//! try again.
//!
//! The list is a lock-free stack: one exchange puts an entry in, one takes all out. So the child of a
//! fork finds it whole, except for entries that another thread had taken out. A service allocates its
//! entry when it is made ([`Place`]), because a thread is often refused for lack of memory.

use super::{
    clock::{self, Nanos},
    memory,
    sync::AtomicPtr as PlacePtr,
};
use std::{
    ptr,
    // std's also in the model, which has no statics and refuses no thread.
    sync::{
        Weak,
        atomic::{AtomicPtr, AtomicU64, Ordering},
    },
};

/// The shortest time between two attempts, in nanoseconds.
const INTERVAL: Nanos = 10_000_000;

/// A service whose thread could not be started.
pub trait Refused: Send + Sync {
    /// Returns the place that holds the service's entry.
    fn place(&self) -> &Place;

    /// Tries again to start the thread, if there is work for it. Returns false if the system refuses
    /// it again: it has then been listed again.
    fn start_again(&self) -> bool;
}

struct Entry {
    what: Weak<dyn Refused>,
    next: *mut Entry,
}

/// The place of a service's entry while it is not in the list.
#[derive(Debug)]
pub struct Place {
    what: Weak<dyn Refused>,
    /// From a box, or null.
    entry: PlacePtr<Entry>,
}

impl Place {
    /// Makes the place of a service. Allocates its entry.
    pub fn new(what: Weak<dyn Refused>) -> Self {
        let entry = PlacePtr::new(Entry::boxed(&what));
        Self { what, entry }
    }

    /// Lists the service, until [`retry`] tries again to start its thread. Allocates only if the entry
    /// was lost in a fork. Returns false if there is no memory for that.
    pub fn list(&self) -> bool {
        // Acquire, pairs with `put_back`: the entry is whole.
        let mut entry = self.entry.swap(ptr::null_mut(), Ordering::Acquire);
        if entry.is_null() {
            if !memory::is_there_for(size_of::<Entry>()) {
                return false;
            }
            entry = Entry::boxed(&self.what);
        }
        // SAFETY: from a box, and the exchange has given it to this thread alone.
        push(unsafe { Box::from_raw(entry) });
        true
    }

    fn put_back(&self, entry: Box<Entry>) {
        // Release, pairs with `list`: the entry is whole. Acquire: so is the one that it replaces, if
        // the child of a fork has made a second one.
        let before = self.entry.swap(Box::into_raw(entry), Ordering::AcqRel);
        // SAFETY: as in `list`.
        unsafe { Entry::free(before) };
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Needs no partner: no other thread has the place.
        let entry = self.entry.swap(ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: as in `list`.
        unsafe { Entry::free(entry) };
    }
}

impl Entry {
    fn boxed(what: &Weak<dyn Refused>) -> *mut Self {
        Box::into_raw(Box::new(Self {
            what: Weak::clone(what),
            next: ptr::null_mut(),
        }))
    }

    /// # Safety
    ///
    /// `entry` is null, or from a box that no other thread refers to.
    unsafe fn free(entry: *mut Self) {
        if !entry.is_null() {
            // SAFETY: the caller's promise.
            drop(unsafe { Box::from_raw(entry) });
        }
    }
}

static NEWEST: AtomicPtr<Entry> = AtomicPtr::new(ptr::null_mut());

/// The earliest time of the next attempt, in nanoseconds.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Returns whether a service is listed. One load.
#[inline]
fn any() -> bool {
    // Needs no partner: a hint, and `take` looks again.
    !NEWEST.load(Ordering::Relaxed).is_null()
}

fn push(entry: Box<Entry>) {
    let entry = Box::into_raw(entry);
    // Release, pairs with `take`: the entry is whole. The failure case needs no partner: only the
    // address is used.
    let _ = NEWEST.fetch_update(Ordering::Release, Ordering::Relaxed, |newest| {
        // SAFETY: the entry is ours until it is in the list.
        unsafe { (*entry).next = newest };
        Some(entry)
    });
}

/// Entries that a thread has taken out of the list. The drop lists the rest again.
struct Taken(*mut Entry);

fn take() -> Taken {
    // Acquire, pairs with `push`: the entries are whole.
    Taken(NEWEST.swap(ptr::null_mut(), Ordering::Acquire))
}

impl Iterator for Taken {
    type Item = Box<Entry>;

    fn next(&mut self) -> Option<Box<Entry>> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: from a box in `push`, and the exchange has given it to this thread alone.
        let entry = unsafe { Box::from_raw(self.0) };
        self.0 = entry.next;
        Some(entry)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.for_each(push);
    }
}

/// Tries again to start the threads of the services that are listed, until one is refused again; at
/// most a hundred times a second in the process. Runs no user code. If none are listed this is one
/// load.
#[inline]
pub fn retry() {
    if any() {
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
    for entry in take() {
        let Some(what) = entry.what.upgrade() else {
            continue;
        };
        // First: it lists itself again if it is refused.
        what.place().put_back(entry);
        if !what.start_again() {
            return;
        }
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use std::{
        panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
        sync::{
            Arc,
            atomic::{AtomicBool, AtomicUsize},
        },
    };

    /// Counts its calls, and lists itself again while no thread can be started.
    struct Service {
        place: Place,
        can_start: AtomicBool,
        panics: AtomicBool,
        attempts: AtomicUsize,
    }

    impl Refused for Service {
        fn place(&self) -> &Place {
            &self.place
        }

        fn start_again(&self) -> bool {
            self.attempts.fetch_add(1, Ordering::Relaxed);
            if self.panics.swap(false, Ordering::Relaxed) {
                resume_unwind(Box::new("expected"));
            }
            self.can_start.load(Ordering::Relaxed) || !self.place.list()
        }
    }

    /// One test: the list is the process's.
    #[test]
    fn refused_services_are_tried_until_one_is_refused_again() {
        let services: Vec<_> = (0..3)
            .map(|_| {
                Arc::new_cyclic(|me: &Weak<Service>| Service {
                    place: Place::new(me.clone()),
                    can_start: AtomicBool::new(false),
                    panics: AtomicBool::new(false),
                    attempts: AtomicUsize::new(0),
                })
            })
            .collect();
        let attempts = || {
            services
                .iter()
                .map(|it| it.attempts.load(Ordering::Relaxed))
                .sum::<usize>()
        };
        let start = clock::now();
        // As if that number of intervals had passed.
        let retry_after = |intervals| retry_if_due(start + intervals * INTERVAL);
        retry_after(0);
        assert!(!any() && attempts() == 0);
        assert!(services.iter().all(|service| service.place.list()));
        (0..10).for_each(|_| retry_after(0));
        assert_eq!(attempts(), 0, "not again within an interval");
        retry_after(1);
        retry_after(1);
        assert_eq!(attempts(), 1, "one refusal is enough");

        for service in &services {
            service.can_start.store(true, Ordering::Relaxed);
            service.panics.store(true, Ordering::Relaxed);
        }
        for intervals in 2..5 {
            let called = catch_unwind(AssertUnwindSafe(|| retry_after(intervals)));
            assert!(
                called.is_err(),
                "a panic is passed on, and loses no other entry"
            );
        }
        assert_eq!(attempts(), 4);
        assert!(!any());

        assert!(services.iter().all(|service| service.place.list()));
        retry_after(5);
        assert_eq!(attempts(), 7);
        assert!(!any());

        assert!(services[0].place.list());
        assert!(services[0].place.list(), "a child that has lost its entry");
        retry_after(6);
        assert!(services[0].place.list());
        drop(services);
        retry_after(7);
        assert!(!any(), "one that is gone is forgotten");
    }
}
