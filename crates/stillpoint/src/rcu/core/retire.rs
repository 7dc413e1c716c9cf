//! Deferred frees: what [`Domain`](crate::Domain) documents.

use super::Core;
use crate::{
    gp::CallbackHead,
    kvfree::{NoPage, OnNoPage, Policy, Pushed, RetireRequest, Retirer},
    platform::user_code,
    rcu::{EmbedsHead, thread},
};
use std::ptr::NonNull;

impl<P: Policy> Core<P> {
    /// [`Domain::retire`](crate::Domain::retire).
    ///
    /// # Safety
    ///
    /// As there.
    #[inline]
    pub unsafe fn retire<T: Send + 'static>(&self, object: NonNull<T>) {
        // SAFETY: the caller's promise.
        unsafe { self.retire_request(RetireRequest::boxed(object)) };
    }

    /// [`Domain::retire_weighed`](crate::Domain::retire_weighed).
    ///
    /// # Safety
    ///
    /// As there.
    pub unsafe fn retire_weighed<T: Send + 'static>(&self, object: NonNull<T>, heap_bytes: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.retire_request(RetireRequest::weighed(object, heap_bytes)) };
    }

    /// Returns the bytes that `value` owns, by `weigh`. That is user code: 0 if it panics, and
    /// within another such call, since a weigher that replaces a cell's value would call itself for
    /// ever.
    pub(in crate::rcu) fn weigh<T>(&self, value: &T, weigh: fn(&T) -> usize) -> usize {
        self.weigh_by(|| weigh(value))
    }

    /// The same for what a closure weighs.
    pub(crate) fn weigh_by(&self, weigh: impl FnOnce() -> usize) -> usize {
        if user_code::is_weighing() {
            return 0;
        }
        user_code::weighs(self.id(), weigh).unwrap_or_else(|| {
            self.inner.parts.heap().note_weigher_panicked();
            0
        })
    }

    /// [`Domain::retire_inline`](crate::Domain::retire_inline).
    ///
    /// # Safety
    ///
    /// As there.
    #[inline]
    pub unsafe fn retire_inline<T: Send + 'static>(&self, object: NonNull<T>) {
        // SAFETY: the caller's promise.
        unsafe { self.retire_request(RetireRequest::boxed_plain(object)) };
    }

    /// [`Domain::retire_with_head`](crate::Domain::retire_with_head).
    ///
    /// # Safety
    ///
    /// As there.
    pub unsafe fn retire_with_head<T: EmbedsHead>(&self, object: NonNull<T>) {
        unsafe fn free<T: EmbedsHead>(head: NonNull<CallbackHead>) {
            // SAFETY: the head lies at this offset in a boxed T, by `EmbedsHead` and
            // `retire_with_head`'s contract.
            drop(unsafe { Box::from_raw(head.as_ptr().byte_sub(T::HEAD_OFFSET).cast::<T>()) });
        }
        // SAFETY: the caller's promise; T is Send, so it may be freed on any thread.
        if unsafe { self.try_retire_request(RetireRequest::boxed(object), OnNoPage::Fail) }.is_err()
        {
            // SAFETY: in bounds, by `EmbedsHead`'s contract.
            let head = unsafe { object.byte_add(T::HEAD_OFFSET) }.cast();
            // SAFETY: the object is given up to the callback, and is Send.
            unsafe { self.call_head(head, free::<T>) };
        }
    }

    /// # Safety
    ///
    /// As for [`Domain::retire`](crate::Domain::retire), and the object may be freed on any thread.
    #[inline]
    pub(crate) unsafe fn retire_request(&self, object: RetireRequest) {
        // SAFETY: the caller's promise.
        let retired = unsafe { self.try_retire_request(object, OnNoPage::BlockOrCall) };
        debug_assert!(retired.is_ok(), "a callback never gives it back");
    }

    /// Like the function above, but `on_no_page` says what happens if there is no memory.
    ///
    /// # Safety
    ///
    /// As for [`Domain::retire`](crate::Domain::retire), and the object may be freed on any thread.
    #[inline]
    pub(in crate::rcu) unsafe fn try_retire_request(
        &self,
        object: RetireRequest,
        on_no_page: OnNoPage,
    ) -> Result<(), NoPage> {
        match thread::append(self, object) {
            Some(Pushed::Ok) => Ok(()),
            // SAFETY: the caller's promise.
            pushed => unsafe { self.retire_slow(object, pushed, on_no_page) },
        }
    }

    /// The slow path of every retire: what follows an append that was not `Ok`, or was not made.
    /// See `kvfree/retire.rs`.
    ///
    /// # Safety
    ///
    /// As for [`Domain::retire`](crate::Domain::retire), and the object may be freed on any thread.
    #[cold]
    #[inline(never)]
    pub(in crate::rcu) unsafe fn retire_slow(
        &self,
        object: RetireRequest,
        pushed: Option<Pushed>,
        on_no_page: OnNoPage,
    ) -> Result<(), NoPage> {
        let (engine, heap) = (self.engine(), self.inner.parts.heap());
        let retire = |retirer: Retirer<'_>| {
            // SAFETY: the caller's promise.
            unsafe { heap.retire_slow(engine, retirer, object, pushed, on_no_page) }
        };
        thread::with(self, retire).unwrap_or_else(|| {
            let record = thread::bound_record(self);
            // SAFETY: the caller's promise.
            unsafe { heap.retire_unbuffered(engine, record, object, pushed, on_no_page) }
        })
    }
}
