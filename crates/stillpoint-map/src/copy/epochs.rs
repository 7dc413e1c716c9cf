//! When a slot that was emptied may be written again: after a grace period, of which a whole map
//! keeps one cookie.
//!
//! Time is cut into *epochs*. An emptied slot is pending, and is stamped with the epoch that is open
//! after it was emptied. When slots are wanted, the open epoch is closed: the next one opens, and
//! *then* a cookie is taken. Once that has come true, the next epoch is closed, and what is stamped
//! with the first one is clean. So what is pending has the stamp of the open epoch, or of the one
//! before, and a few bits of the number are enough to tell: an old stamp that comes round again makes
//! a clean slot look pending, and never the other way round.

use std::fmt;
use stillpoint_platform::{
    barrier::{fence_after_rmw, full_fence},
    fork,
    sync::{AtomicU64, Ordering, UnsafeCell},
};

/// How many bits of an epoch's number a stamp has.
pub const STAMP_BITS: u32 = 9;
const STAMPS: u64 = (1 << STAMP_BITS) - 1;

/// Where grace periods come from.
pub trait GracePeriods {
    type Cookie: Copy;
    /// Names the next one.
    fn get_state(&self) -> Self::Cookie;
    /// Returns whether it has ended.
    fn has_ended(&self, cookie: Self::Cookie) -> bool;
    /// Has the next one end without further calls.
    fn start(&self);

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
    /// Which process's thread has taken the cookie, plus one; 0 while there is none. The child of a
    /// fork may find one that is half written, and does not use it.
    taken_by: AtomicU64,
    /// That of the closed epoch, and whether its grace period was started. Of the thread that closes.
    cookie: UnsafeCell<Option<(C, bool)>>,
}

// SAFETY: the cell is used by one thread at a time, as it says.
unsafe impl<C: Send> Sync for Epochs<C> {}

impl<C: Copy> Epochs<C> {
    pub fn new() -> Self {
        Self {
            open: AtomicU64::new(2),
            closing: AtomicU64::new(0),
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

    /// Closes the open epoch, if the one before is over. Otherwise has its grace period end soon,
    /// if it `presses`. Does nothing while another thread is here.
    #[cold]
    pub fn advance(&self, grace_periods: &impl GracePeriods<Cookie = C>, presses: bool) {
        let me = fork::process().generation() + 1;
        let closing = self.closing.load(Ordering::Relaxed);
        // That of another process is a thread that the fork has removed.
        // Acquire, pairs with the store below: the cookie.
        if closing == me
            || self
                .closing
                .compare_exchange(closing, me, Ordering::Acquire, Ordering::Relaxed)
                .is_err()
        {
            return;
        }
        self.cookie.with_mut(|cookie| {
            if self.taken_by.load(Ordering::Relaxed) != me {
                // SAFETY: this thread closes, until the store below. What is there needs no drop,
                // and is not read.
                unsafe { cookie.write(None) };
            }
            // SAFETY: as above. It is whole: this process has written it.
            self.advance_with(unsafe { &mut *cookie }, grace_periods, presses);
        });
        self.taken_by.store(me, Ordering::Relaxed);
        // Release, pairs with the exchange above: the cookie.
        self.closing.store(0, Ordering::Release);
    }

    fn advance_with<G: GracePeriods<Cookie = C>>(
        &self,
        kept: &mut Option<(C, bool)>,
        grace_periods: &G,
        presses: bool,
    ) {
        match kept {
            Some((cookie, started)) if !grace_periods.has_ended(*cookie) => {
                if presses && !*started {
                    *started = true;
                    grace_periods.start();
                }
                return;
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
        *kept = Some((grace_periods.get_state(), false));
    }
}

impl<C> fmt::Debug for Epochs<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Epochs")
            .field("open", &self.open)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;

    /// All have ended.
    struct Ended;

    impl GracePeriods for Ended {
        type Cookie = ();

        fn get_state(&self) {}

        fn has_ended(&self, (): ()) -> bool {
            true
        }

        fn start(&self) {}
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
