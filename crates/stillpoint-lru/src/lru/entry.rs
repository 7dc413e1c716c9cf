//! [`Entry`]: a value with a link, which can be on an LRU list.

use crate::link::Link;
use std::{fmt, ops::Deref, sync::Arc};

/// A value that can be on an LRU list: put it into an [`Arc`] and [add](crate::ListLru::add) that.
///
/// The link (three words) lies beside the value, so that a list allocates nothing for it. An entry is
/// on one list at a time; a value that is on two lists has two layers, each in an [`Arc`]:
/// `Entry<Arc<Entry<T>>>`.
///
/// ```
/// use stillpoint_lru::{Entry, ListLru};
/// use std::sync::Arc;
/// let (by_use, by_age) = (ListLru::new(), ListLru::new());
/// let page = Arc::new(Entry::new("page"));
/// let aging = Arc::new(Entry::new(page.clone()));
/// assert!(by_use.add(None, page.clone()) && by_age.add(None, aging.clone()));
/// assert!(by_age.del(&aging).is_some_and(|aging| by_use.del(&aging).is_some()));
/// assert!(!page.is_linked() && !aging.is_linked());
/// ```
#[repr(C)]
pub struct Entry<T> {
    /// First, so that a pointer to it is one to the whole.
    link: Link,
    value: T,
}

impl<T> Entry<T> {
    /// Creates an entry that is on no list.
    pub fn new(value: T) -> Self {
        Self {
            link: Link::new(),
            value,
        }
    }

    /// Returns the value. The caller owns the entry, so it is on no list.
    #[must_use]
    pub fn into_inner(self) -> T {
        self.value
    }

    /// Returns whether it is on a list of any [`ListLru`](crate::ListLru) at this moment.
    #[must_use]
    pub fn is_linked(&self) -> bool {
        self.link.owner().is_some()
    }

    pub(crate) fn link(&self) -> &Link {
        &self.link
    }

    /// Returns the entry that a link on one of `ListLru<T>`'s lists is part of, with the reference
    /// that the list has to it.
    ///
    /// # Safety
    ///
    /// `link` was stored by [`ListLru::add`](crate::ListLru::add) of an entry of this type, and the
    /// list's reference is the caller's now.
    pub(crate) unsafe fn from_link(link: *const Link) -> Arc<Self> {
        // SAFETY: the pointer is that of the whole, as `add` got it from `Arc::into_raw`.
        unsafe { Arc::from_raw(link.cast::<Self>()) }
    }
}

impl<T> Deref for Entry<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> From<T> for Entry<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T: Default> Default for Entry<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: fmt::Debug> fmt::Debug for Entry<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("value", &self.value)
            .field("linked", &self.is_linked())
            .finish()
    }
}
