//! What waits for a thread that the system has refused to start: a list of the process, for those who
//! can try again.
//!
//! The list is a stack without a lock: one exchange puts an entry in, one takes all out. So the child of
//! a fork finds it whole. An entry there whose thread would have nothing to do says so.

use std::{
    ptr,
    // std's also in the model, which has no statics and refuses no thread.
    sync::{
        Weak,
        atomic::{AtomicPtr, Ordering},
    },
};

/// A service whose thread could not be started.
pub trait Refused: Send + Sync {
    /// Tries again to start the thread, if there is work for it. Returns false if the system refuses
    /// it again: it has then been listed again.
    fn start_again(&self) -> bool;

    /// Does the thread's work that is due, on the calling thread.
    fn stand_in(&self);
}

struct Entry {
    what: Weak<dyn Refused>,
    next: *mut Entry,
}

static NEWEST: AtomicPtr<Entry> = AtomicPtr::new(ptr::null_mut());

/// Returns whether there are any. One load.
#[inline]
pub fn any() -> bool {
    // Needs no partner: a hint, and `take` looks again.
    !NEWEST.load(Ordering::Relaxed).is_null()
}

/// Lists a service, until one of the functions below tries again to start its thread. Allocates.
pub fn add(what: Weak<dyn Refused>) {
    let next = ptr::null_mut();
    push(Box::new(Entry { what, next }));
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

/// Takes all out of the list.
fn take() -> impl Iterator<Item = Box<Entry>> {
    // Acquire, pairs with `push`: the entries are whole.
    let mut next = NEWEST.swap(ptr::null_mut(), Ordering::Acquire);
    std::iter::from_fn(move || {
        if next.is_null() {
            return None;
        }
        // SAFETY: from a box in `push`, and the exchange has given it to this thread alone.
        let entry = unsafe { Box::from_raw(next) };
        next = entry.next;
        Some(entry)
    })
}

/// Tries again to start the threads, until one is refused again. Runs no user code. If none are
/// listed this is one load.
#[inline]
pub fn retry() {
    if any() {
        retry_all();
    }
}

#[cold]
fn retry_all() {
    try_all(|_| ());
}

/// Tries again to start the threads, and does the work of those that are refused. For a service
/// thread, between its own passes: this runs user code.
pub fn stand_in() {
    if any() {
        try_all(|refused| refused.stand_in());
    }
}

fn try_all(without: impl Fn(&dyn Refused)) {
    let mut is_refused = false;
    for entry in take() {
        let Some(what) = entry.what.upgrade() else {
            continue;
        };
        if is_refused {
            push(entry);
        } else if what.start_again() {
            continue;
        }
        is_refused = true;
        without(&*what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize},
    };

    /// Counts its calls, and lists itself again while no thread can be started.
    struct Service {
        me: Weak<Service>,
        can_start: AtomicBool,
        attempts: AtomicUsize,
        passes: AtomicUsize,
    }

    impl Refused for Service {
        fn start_again(&self) -> bool {
            self.attempts.fetch_add(1, Ordering::Relaxed);
            let can_start = self.can_start.load(Ordering::Relaxed);
            if !can_start {
                add(self.me.clone());
            }
            can_start
        }

        fn stand_in(&self) {
            self.passes.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// One test: the list is the process's.
    #[test]
    fn refused_services_are_tried_until_one_is_refused_again_and_stood_in_for() {
        let services: Vec<_> = (0..3)
            .map(|_| {
                Arc::new_cyclic(|me: &Weak<Service>| Service {
                    me: me.clone(),
                    can_start: AtomicBool::new(false),
                    attempts: AtomicUsize::new(0),
                    passes: AtomicUsize::new(0),
                })
            })
            .collect();
        let counts = |what: fn(&Service) -> &AtomicUsize| {
            services
                .iter()
                .map(|it| what(it).load(Ordering::Relaxed))
                .sum::<usize>()
        };
        retry();
        assert!(!any() && counts(|it| &it.attempts) == 0);
        for service in &services {
            add(service.me.clone());
        }
        retry();
        assert_eq!((counts(|it| &it.attempts), counts(|it| &it.passes)), (1, 0));
        stand_in();
        assert_eq!((counts(|it| &it.attempts), counts(|it| &it.passes)), (2, 3));
        for service in &services {
            service.can_start.store(true, Ordering::Relaxed);
        }
        stand_in();
        assert_eq!((counts(|it| &it.attempts), counts(|it| &it.passes)), (5, 3));
        assert!(!any());
        add(services[0].me.clone());
        drop(services);
        retry();
        assert!(!any(), "one that is gone is forgotten");
    }
}
