//! Calls of user code: callbacks, deferred destructors, stall handlers, shrinkers, wakers of tasks,
//! subscribers of `tracing`.
//!
//! User code may panic, block, fork, and use the library. So every call of it, except by the caller
//! itself, goes through [`run`], which does the following, in this order:
//!
//! 1. The thread is marked as running user code of the domain ([`runs_for`]), so that a wait for
//!    the calling thread itself is refused. (No wait depends on a waker, which is called
//!    outside of passes, or on a weigher, which runs on the caller's thread: they have separate marks,
//!    [`wakes`] and [`weighs`].)
//! 2. A panic is caught, and one of the payload's destructor too.
//! 3. It is reported, with the feature `tracing`. The subscriber is user code: its panic is caught,
//!    and its actions within an event cause no further events on that thread; otherwise a
//!    subscriber that panics in each would never return.
//!
//! The caller holds no lock, and a destructor undoes its marks. A panic in a destructor that runs
//! because of a panic ends the process, as in all of Rust: so an object that is called and then
//! dropped takes two calls of [`run`].

use std::{
    cell::Cell,
    iter, mem,
    panic::{self, AssertUnwindSafe},
    ptr,
};

/// The domain number of user code that belongs to no domain.
pub const NO_DOMAIN: u64 = 0;

/// A domain whose user code runs on this thread, perhaps inside that of another domain: an object that a
/// destructor of one domain retires to another may be freed at once.
struct Frame {
    domain: u64,
    what: What,
    outer: *const Frame,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// Code that a barrier may wait for: a callback, a destructor, a handler.
    Called,
    /// A task's waker.
    Waker,
    /// A weigher.
    Weigher,
}

crate::thread_constant! {
    /// The innermost frame; null for none.
    static FRAMES: Cell<*const Frame> = Cell::new(ptr::null());
}

/// Returns whether the calling thread runs user code of domain `id` at this moment, other than
/// wakers and weighers.
#[inline]
pub fn runs_for(id: u64) -> bool {
    is_marked(id, What::Called)
}

/// Returns whether the calling thread runs a waker for domain `id`.
pub fn is_waking(id: u64) -> bool {
    is_marked(id, What::Waker)
}

/// Returns whether the calling thread runs a weigher of any domain.
pub fn is_weighing() -> bool {
    is_any_mark(|frame| frame.what == What::Weigher)
}

fn is_marked(id: u64, what: What) -> bool {
    is_any_mark(|frame| frame.domain == id && frame.what == what)
}

fn is_any_mark(is_it: impl Fn(&Frame) -> bool) -> bool {
    // SAFETY: null, or a frame of a `marked` that has not returned, on this thread's stack.
    let frame = |at: *const Frame| unsafe { at.as_ref() };
    iter::successors(frame(FRAMES.with(Cell::get)), |inner| frame(inner.outer)).any(is_it)
}

/// Returns whether the calling thread runs any user code that the library has called.
#[inline]
pub fn runs() -> bool {
    !FRAMES.with(Cell::get).is_null()
}

/// Runs `code`, of domain `id`, and reports whether it panicked. Nothing unwinds out of it.
///
/// `AssertUnwindSafe` holds because the caller touches nothing afterwards that `code` may have left half
/// changed.
pub fn panics(id: u64, code: impl FnOnce()) -> bool {
    run(id, code).is_none()
}

/// Runs `code` like [`run`], and returns its result; `None` if it panicked.
pub fn run<R>(id: u64, code: impl FnOnce() -> R) -> Option<R> {
    run_as(What::Called, id, code)
}

/// Calls a task's waker for domain `id`, and reports whether it panicked. It may wait for callbacks of
/// the domain.
pub fn wakes(id: u64, waker: impl FnOnce()) -> bool {
    run_as(What::Waker, id, waker).is_none()
}

/// Calls `weigh` and returns its result; `None` if it panics. It may wait for anything that its
/// caller may wait for.
pub fn weighs<R>(id: u64, weigh: impl FnOnce() -> R) -> Option<R> {
    run_as(What::Weigher, id, weigh)
}

fn run_as<R>(what: What, id: u64, code: impl FnOnce() -> R) -> Option<R> {
    marked(what, id, || {
        let result = contained(code);
        #[cfg(feature = "tracing")]
        if result.is_none() {
            once(|| {
                tracing::error!(
                    domain = id,
                    "a callback, destructor, waker, weigher or handler panicked"
                )
            });
        }
        result
    })
}

/// Calls the `tracing` subscriber with an event of domain `id`. Returns true if it panicked.
#[cfg(feature = "tracing")]
pub fn tell(id: u64, event: impl FnOnce()) -> bool {
    marked(What::Called, id, || once(event))
}

/// Runs `work` and returns its result; `None` if it panics. Nothing unwinds out of it, not even out
/// of the payload's destructor. It is for the outermost function of the library's own threads;
/// calls of user code go through [`run`].
pub fn contained<R>(work: impl FnOnce() -> R) -> Option<R> {
    let payload = match panic::catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => return Some(result),
        Err(payload) => payload,
    };
    if let Err(second) = panic::catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        // If the payload's destructor panics with another payload, that one is leaked.
        mem::forget(second);
    }
    None
}

/// Does `work` with the calling thread marked as running user code of domain `id`.
fn marked<R>(what: What, id: u64, work: impl FnOnce() -> R) -> R {
    struct Restore(*const Frame);
    impl Drop for Restore {
        fn drop(&mut self) {
            FRAMES.with(|frames| frames.set(self.0));
        }
    }
    let outer = FRAMES.with(Cell::get);
    let frame = Frame {
        domain: id,
        what,
        outer,
    };
    let _restore = Restore(outer);
    FRAMES.with(|frames| frames.set(&raw const frame));
    work()
}

#[cfg(feature = "tracing")]
thread_local! {
    /// The thread is within an event.
    static WITHIN: Cell<bool> = const { Cell::new(false) };
}

/// Makes an event, but not within an event. Returns whether the subscriber panicked.
#[cfg(feature = "tracing")]
fn once(event: impl FnOnce()) -> bool {
    if WITHIN.replace(true) {
        return false;
    }
    let panicked = contained(event).is_none();
    WITHIN.set(false);
    panicked
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    struct Bomb(u32);

    impl Drop for Bomb {
        fn drop(&mut self) {
            if self.0 > 0 {
                panic::resume_unwind(Box::new(Bomb(self.0 - 1)));
            }
        }
    }

    #[test]
    fn nothing_unwinds_not_even_from_the_payload() {
        assert!(!panics(1, || ()));
        assert_eq!(run(1, || 5), Some(5));
        assert!(panics(1, || panic::resume_unwind(Box::new("expected"))));
        assert!(panics(1, || panic::resume_unwind(Box::new(Bomb(2)))));
    }

    #[test]
    fn the_thread_is_marked_while_user_code_runs_and_its_payload_is_dropped() {
        static MARKED: AtomicBool = AtomicBool::new(false);
        struct Looks;
        impl Drop for Looks {
            fn drop(&mut self) {
                MARKED.store(
                    runs_for(7) && runs_for(8) && !runs_for(9),
                    Ordering::Relaxed,
                );
            }
        }
        assert!(!runs());
        assert!(!panics(7, || assert!(panics(8, || panic::resume_unwind(
            Box::new(Looks)
        )))));
        assert!(
            MARKED.load(Ordering::Relaxed),
            "the payload goes before the marks"
        );
        assert!(!runs() && !runs_for(7));
    }

    #[test]
    fn a_weigher_is_marked_and_is_nothing_that_a_barrier_waits_for() {
        assert!(!is_weighing());
        let marks = || panics(2, || assert!(is_weighing() && !runs_for(1) && runs_for(2)));
        assert_eq!(weighs(1, marks), Some(false));
        assert_eq!(
            weighs(1, || panic::resume_unwind(Box::new("expected"))),
            None::<()>
        );
        assert!(!is_weighing());
    }
}
