//! When a slot that was emptied may be written again: after a grace period, of which a whole map
//! keeps one cookie.
//!
//! Time is cut into *epochs*. An emptied slot is pending, and is stamped with the epoch that is open
//! after it was emptied. When slots are wanted, the open epoch is closed: the next one opens, and
//! *then* a cookie is taken. Once that has come true, the next epoch is closed, and what is stamped
//! with the first one is clean. So what is pending has the stamp of the open epoch, or of the one
//! before, and a few bits of the number are enough to tell: an old stamp that comes round again makes
//! a clean slot look pending, and never the other way round.
//!
//! Threads that want slots poll for that grace period, and end it. The service thread would have to be
//! woken for it, and again when the section ends that wants the slot. They do not poll each time: the
//! barrier of an epoch interrupts other threads.

use std::fmt;
use stillpoint_platform::{
    barrier::{fence_after_rmw, full_fence},
    fork,
    sync::{AtomicU64, Ordering, UnsafeCell},
};

/// How many bits of an epoch's number a stamp has.
pub const STAMP_BITS: u32 = 9;
const STAMPS: u64 = (1 << STAMP_BITS) - 1;

/// Of this number of calls that want the end of a grace period, one polls for it.
const CALLS_A_POLL: u32 = 32;

/// Where grace periods come from.
///
/// # Safety
///
/// They are of the map's domain: a period is said to have ended only if each section that was open when it was
/// named has ended since. The fences are left out in models alone.
pub unsafe trait GracePeriods {
    type Cookie: Copy;
    /// Names the next one.
    fn get_state(&self) -> Self::Cookie;
    /// Returns whether it has ended.
    fn has_ended(&self, cookie: Self::Cookie) -> bool;
    /// As `has_ended`, but tries to end it first. The caller's section may be what holds it up: then
    /// it ends by a call of a later one.
    fn poll(&self, cookie: Self::Cookie) -> bool;

    /// False in models that leave the fence out after a slot was emptied, and must fail.
    const FENCES_EMPTYING: bool = true;
    /// False in models that leave it out after an epoch was opened.
    const FENCES_OPENING: bool = true;
}

/// Which epoch was open at some instant.
#[derive(Clone, Copy, Debug)]
pub struct Moment(u64);

impl Moment {
    /// The stamp of what was emptied before it.
    pub fn stamp(self) -> u16 {
        (self.0 & STAMPS) as u16
    }

    /// Its number.
    pub fn number(self) -> u64 {
        self.0
    }

    /// Returns whether what has this stamp is clean.
    pub fn is_over(self, stamp: u16) -> bool {
        self.0.wrapping_sub(stamp.into()) & STAMPS >= 2
    }
}

/// The epochs of a map.
pub struct Epochs<C> {
    open: AtomicU64,
    /// Which process's thread closes an epoch, plus one; 0 if none does.
    closing: AtomicU64,
    /// Which process's thread polls for the cookie, plus one; 0 if none does.
    polling: AtomicU64,
    /// Which process's thread has taken the cookie, plus one; 0 while there is none. The child of a
    /// fork may find one that is half written, and does not use it.
    taken_by: AtomicU64,
    /// That of the closed epoch, and how many calls have wanted the end of its grace period. Of the
    /// thread that closes.
    cookie: UnsafeCell<Option<(C, u32)>>,
}

// SAFETY: the cell is used by one thread at a time, as it says.
unsafe impl<C: Send> Sync for Epochs<C> {}

impl<C: Copy> Epochs<C> {
    pub fn new() -> Self {
        Self {
            open: AtomicU64::new(2),
            closing: AtomicU64::new(0),
            polling: AtomicU64::new(0),
            taken_by: AtomicU64::new(0),
            cookie: UnsafeCell::new(None),
        }
    }

    /// The stamp of a slot that was emptied just now, by a read-modify-write.
    pub fn stamp<G: GracePeriods>(&self, _: &G) -> u16 {
        if G::FENCES_EMPTYING {
            // Fence, pairs with that in `advance`: its cookie is taken after the slot was emptied,
            // or this sees the epoch that it has opened before.
            fence_after_rmw();
        }
        self.now().stamp()
    }

    /// The epoch that is open.
    pub fn now(&self) -> Moment {
        // Acquire, pairs with `advance`: who writes what is clean does so after its last readers.
        Moment(self.open.load(Ordering::Acquire))
    }

    /// Returns whether a grace period has ended since that epoch was open. Not for slots: it orders
    /// nothing.
    pub fn is_past(&self, number: u64) -> bool {
        self.open.load(Ordering::Relaxed).wrapping_sub(number) >= 2
    }

    /// Closes the open epoch, if the one before is over. From the first call that `presses` on, calls want
    /// the end of the grace period of that one, and some try to end it. Does nothing while another thread
    /// is here.
    #[cold]
    pub fn advance<G: GracePeriods<Cookie = C>>(&self, grace_periods: &G, presses: bool) {
        let Some(cookie) = self.try_advance(grace_periods, presses) else {
            return;
        };
        // One at a time: barriers of several would hold each other up. It protects nothing, so that
        // of a process before this one is replaced, and no order is needed.
        let me = fork::process().generation() + 1;
        if self.polling.load(Ordering::Relaxed) == me
            || self.polling.swap(me, Ordering::Relaxed) == me
        {
            return;
        }
        // Not while this thread closes: a barrier takes long.
        let has_ended = grace_periods.poll(cookie);
        self.polling.store(0, Ordering::Relaxed);
        if has_ended {
            self.try_advance(grace_periods, false);
        }
    }

    /// Closes the open epoch, if the one before is known to be over. Returns the cookie of that one, if
    /// it is not, and this call is to poll for it.
    fn try_advance<G: GracePeriods<Cookie = C>>(
        &self,
        grace_periods: &G,
        presses: bool,
    ) -> Option<C> {
        let me = fork::process().generation() + 1;
        let closing = self.closing.load(Ordering::Relaxed);
        // That of another process is a thread that the fork has removed.
        // Acquire, pairs with `try_advance`: the cookie.
        if closing == me
            || self
                .closing
                .compare_exchange(closing, me, Ordering::Acquire, Ordering::Relaxed)
                .is_err()
        {
            return None;
        }
        let to_poll = self.cookie.with_mut(|cookie| {
            if self.taken_by.load(Ordering::Relaxed) != me {
                // SAFETY: this thread closes, until the store below. What is there needs no drop,
                // and is not read.
                unsafe { cookie.write(None) };
            }
            // SAFETY: as above. It is whole: this process has written it.
            self.advance_with(unsafe { &mut *cookie }, grace_periods, presses)
        });
        self.taken_by.store(me, Ordering::Relaxed);
        // Release, pairs with `try_advance`: the cookie.
        self.closing.store(0, Ordering::Release);
        to_poll
    }

    fn advance_with<G: GracePeriods<Cookie = C>>(
        &self,
        kept: &mut Option<(C, u32)>,
        grace_periods: &G,
        presses: bool,
    ) -> Option<C> {
        match kept {
            Some((cookie, wanted)) if !grace_periods.has_ended(*cookie) => {
                if !presses && *wanted == 0 {
                    return None;
                }
                *wanted = wanted.wrapping_add(1).max(1);
                return wanted.is_multiple_of(CALLS_A_POLL).then_some(*cookie);
            }
            Some(_) => {
                let next = self.open.load(Ordering::Relaxed).wrapping_add(1);
                // Release, pairs with `now`: the ends of the sections that the cookie was about.
                self.open.store(next, Ordering::Release);
            }
            // The first time, or after a fork: a cookie for the epoch that was closed last.
            None => {}
        }
        if G::FENCES_OPENING {
            // Fence, pairs with that in `stamp`: it sees the epoch that opens here, or the cookie is
            // taken after the slot was emptied.
            full_fence();
        }
        *kept = Some((grace_periods.get_state(), 0));
        None
    }
}

impl<C> fmt::Debug for Epochs<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Epochs")
            .field("open", &self.open)
            .finish_non_exhaustive()
    }
}

// Detects inserts that never poll, poll each time, beside another thread, or never again after a
// fork.
#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// All have ended.
    struct Ended;

    // SAFETY: without sections.
    unsafe impl GracePeriods for Ended {
        type Cookie = ();

        fn get_state(&self) {}

        fn has_ended(&self, (): ()) -> bool {
            true
        }

        fn poll(&self, (): ()) -> bool {
            true
        }
    }

    /// Ends a grace period when it is polled for the second time: at first the caller's section holds it
    /// up.
    #[derive(Default)]
    struct Polled {
        polls: Cell<u64>,
        taken: Cell<u64>,
    }

    // SAFETY: without sections.
    unsafe impl GracePeriods for Polled {
        type Cookie = u64;

        fn get_state(&self) -> u64 {
            self.taken.set(self.taken.get() + 1);
            self.taken.get()
        }

        fn has_ended(&self, cookie: u64) -> bool {
            self.polls.get() >= 2 * cookie
        }

        fn poll(&self, cookie: u64) -> bool {
            self.polls.set(self.polls.get() + 1);
            self.has_ended(cookie)
        }
    }

    /// From a call that presses on they want its end, until it has ended.
    #[test]
    fn a_call_that_presses_has_those_that_follow_poll() {
        let (epochs, periods) = (Epochs::new(), Polled::default());
        let advance = |presses| {
            epochs.advance(&periods, presses);
            (epochs.now().number(), periods.polls.get())
        };
        let (first, _) = advance(false);
        (0..2 * CALLS_A_POLL).for_each(|_| assert_eq!(advance(false), (first, 0), "none wants it"));
        assert_eq!(advance(true), (first, 0));
        (2..CALLS_A_POLL).for_each(|_| assert_eq!(advance(false), (first, 0)));
        (0..CALLS_A_POLL).for_each(|_| assert_eq!(advance(false), (first, 1)));
        assert_eq!(advance(false), (first + 1, 2));
        (0..2 * CALLS_A_POLL).for_each(|_| {
            assert_eq!(
                advance(false),
                (first + 1, 2),
                "that was about the one before"
            );
        });
    }

    /// Polls of which the first runs into another thread, which wants to poll, too.
    struct Beside<'e> {
        epochs: &'e Epochs<()>,
        polls: Cell<u64>,
    }

    // SAFETY: without sections.
    unsafe impl GracePeriods for Beside<'_> {
        type Cookie = ();

        fn get_state(&self) {}

        fn has_ended(&self, (): ()) -> bool {
            false
        }

        fn poll(&self, (): ()) -> bool {
            self.polls.set(self.polls.get() + 1);
            if self.polls.get() == 1 {
                (0..CALLS_A_POLL).for_each(|_| self.epochs.advance(self, true));
            }
            false
        }
    }

    /// Not one that a fork has removed.
    #[test]
    fn one_thread_polls_at_a_time() {
        let epochs = Epochs::new();
        let (epochs, polls) = (&epochs, Cell::new(0));
        let periods = Beside { epochs, polls };
        let want = || (0..CALLS_A_POLL).for_each(|_| epochs.advance(&periods, true));
        epochs.advance(&periods, true);
        want();
        assert_eq!(periods.polls.get(), 1, "the other one polls");
        want();
        assert_eq!(periods.polls.get(), 2, "it does no more");
        epochs.polling.store(1 << 32, Ordering::Relaxed);
        want();
        assert_eq!(periods.polls.get(), 3, "it is of another process");
    }

    /// The child of a fork may have found it half written.
    #[test]
    fn the_cookie_of_another_process_ends_no_epoch() {
        let epochs = Epochs::new();
        let advance = || {
            epochs.advance(&Ended, false);
            epochs.now().number()
        };
        let first = advance();
        assert_eq!(advance(), first + 1);
        epochs.taken_by.store(1 << 32, Ordering::Relaxed);
        assert_eq!(advance(), first + 1, "it takes a cookie of its own");
        assert_eq!(advance(), first + 2);
    }
}
