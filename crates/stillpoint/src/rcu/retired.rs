//! A value that has been taken out of a cell, and may still have readers.

use super::{
    core::Core,
    domain::{Domain, Kept, home},
    thread,
};
use crate::{
    gp::{Cookie, policy::Sound},
    kvfree::RetireRequest,
};
use std::{fmt, mem, ops::Deref, ptr::NonNull};

/// Function that clones a value, which is not in a box, into one.
pub(super) type CopyOut<T> = fn(&T) -> Box<T>;

/// Function that returns how many bytes a value owns beside its own size: user code.
pub(super) type Weigher<T> = fn(&T) -> usize;

/// A value that was taken out of an [`Rcu`](crate::Rcu) cell: readers that found it before may
/// still be using it.
///
/// Drop it, and it is freed after a grace period; a value of a weighed cell is weighed when you drop it.
/// Or get the box back: [`Retired::wait`], [`Retired::try_into_box`] (of a
/// [static](crate::Rcu::from_static) value, a clone in a box). It can be read meanwhile: it derefs to
/// the value.
///
/// ```
/// let cell = stillpoint::Rcu::new(String::from("old"));
/// let old = cell.swap(String::from("new"));
/// assert_eq!(*old, "old");
/// let mut back: Box<String> = old.wait();
/// back.push_str(" and mine again");
/// ```
pub struct Retired<T: Send + Sync + 'static> {
    value: NonNull<T>,
    /// `None`: the global one.
    domain: Option<Kept>,
    cookie: Option<Cookie>,
    /// Clones a static's value, which is never freed.
    copy: Option<CopyOut<T>>,
    weigh: Option<Weigher<T>>,
}

// SAFETY: it owns a T that others may still read: both ways of sharing apply, and T is Send and
// Sync.
unsafe impl<T: Send + Sync> Send for Retired<T> {}
// SAFETY: as for Send.
unsafe impl<T: Send + Sync> Sync for Retired<T> {}

impl<T: Send + Sync + 'static> Retired<T> {
    /// # Safety
    ///
    /// `value` came out of a box, new readers of `domain` cannot find it, and only this frees it;
    /// or it is static, and `copy` is there.
    pub(super) unsafe fn new(
        value: NonNull<T>,
        domain: Option<Kept>,
        copy: Option<CopyOut<T>>,
        weigh: Option<Weigher<T>>,
    ) -> Self {
        Self {
            value,
            domain,
            cookie: None,
            copy,
            weigh,
        }
    }

    fn domain(&self) -> &Domain {
        home(&self.domain)
    }

    /// Returns the grace period after which the value has no readers. The first call starts it.
    pub fn cookie(&mut self) -> Cookie {
        let domain = home(&self.domain);
        *self.cookie.get_or_insert_with(|| domain.start_poll())
    }

    /// Waits for a grace period and gives the box back. May block: as [`Domain::synchronize`].
    ///
    /// # Panics
    ///
    /// Inside a section of the domain; the value is then freed later, as if dropped.
    #[must_use]
    #[track_caller]
    pub fn wait(self) -> Box<T> {
        match self.cookie {
            Some(cookie) => self.domain().cond_synchronize(cookie),
            None => self.domain().synchronize(),
        }
        self.into_box()
    }

    /// Gives the box back if there can be no readers any more. The first call starts a grace
    /// period; none of them waits.
    ///
    /// # Errors
    ///
    /// `self`, if the grace period has not ended yet.
    pub fn try_into_box(mut self) -> Result<Box<T>, Self> {
        let cookie = self.cookie();
        if self.domain().poll(cookie) {
            Ok(self.into_box())
        } else {
            Err(self)
        }
    }

    fn into_box(mut self) -> Box<T> {
        if let Some(copy) = self.copy {
            return copy(&self);
        }
        let (value, domain) = (self.value, self.domain.take());
        mem::forget(self);
        drop(domain);
        // SAFETY: it came out of a box, and the callers have seen a grace period end that started
        // after it was unlinked.
        unsafe { Box::from_raw(value.as_ptr()) }
    }
}

impl<T: Send + Sync + 'static> Deref for Retired<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: only we free the value, and readers only read.
        unsafe { self.value.as_ref() }
    }
}

impl<T: Send + Sync + 'static> Drop for Retired<T> {
    fn drop(&mut self) {
        if self.copy.is_none() {
            let core = self.domain().core();
            // SAFETY: by `new`'s contract, and T is Send; this is the end of our own use.
            unsafe { thread::retire(core, request(core, self.value, self.weigh)) };
        }
    }
}

impl<T: fmt::Debug + Send + Sync + 'static> fmt::Debug for Retired<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Retired").field(&**self).finish()
    }
}

/// Returns the request to retire the value of a cell of the domain of `core`. The value is weighed
/// now, because a cell is one word and cannot remember what its value weighed when it was stored.
///
/// # Safety
///
/// `value` came out of a box; until this returns, nothing frees it, and readers only read it.
#[inline(always)]
pub(super) unsafe fn request<T>(
    core: &Core<Sound>,
    value: NonNull<T>,
    weigh: Option<Weigher<T>>,
) -> RetireRequest {
    let Some(weigh) = weigh else {
        return RetireRequest::boxed(value);
    };
    // SAFETY: the caller's promise.
    let weight = core.weigh(|| weigh(unsafe { value.as_ref() }));
    RetireRequest::weighed(value, weight)
}
