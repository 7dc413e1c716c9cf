//! Deferred frees: what [`Domain`](crate::Domain) documents.

use super::Core;
use crate::{
    gp::CallbackHead,
    kvfree::{OnNoPage, Policy, Pushed, RetireRequest, Slot},
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
        unsafe { self.retire_or_call(RetireRequest::boxed(object)) };
    }

    /// [`Domain::retire_inline`](crate::Domain::retire_inline).
    ///
    /// # Safety
    ///
    /// As there.
    #[inline]
    pub unsafe fn retire_inline<T: Send + 'static>(&self, object: NonNull<T>) {
        // SAFETY: the caller's promise.
        unsafe { self.retire_or_call(RetireRequest::boxed_plain(object)) };
    }

    /// [`Domain::retire_with_head`](crate::Domain::retire_with_head).
    ///
    /// # Safety
    ///
    /// As there.
    pub unsafe fn retire_with_head<T: EmbedsHead>(&self, object: NonNull<T>) {
        unsafe fn free<T: EmbedsHead>(head: NonNull<CallbackHead>) {
            // SAFETY: the head lies at this offset in a boxed T, by `EmbedsHead` and `retire_with_head`'s contract.
            drop(unsafe { Box::from_raw(head.as_ptr().byte_sub(T::HEAD_OFFSET).cast::<T>()) });
        }
        // SAFETY: the caller's promise; T is Send, so it may be freed on any thread.
        if unsafe { self.retire_object(RetireRequest::boxed(object), OnNoPage::Fail) }.is_err() {
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
    pub(in crate::rcu) unsafe fn retire_or_call(&self, object: RetireRequest) {
        // SAFETY: the caller's promise.
        if let Err(slot) = unsafe { self.retire_object(object, OnNoPage::Block) } {
            // SAFETY: the caller's promise: the object is still its own.
            unsafe { self.free_by_callback(slot) };
        }
    }

    /// Frees what could not be remembered otherwise.
    ///
    /// # Safety
    ///
    /// As for [`Domain::retire`](crate::Domain::retire), and the object may be freed on any thread.
    #[cold]
    unsafe fn free_by_callback(&self, slot: Slot) {
        thread::with_share(self.id(), |local| {
            let reader = thread::bound_record(self).zip(local);
            // SAFETY: the caller's promise.
            unsafe { self.inner.heap.chain(self.engine(), reader, slot) };
        });
    }

    /// # Safety
    ///
    /// As for [`Domain::retire`](crate::Domain::retire), and the object may be freed on any thread.
    #[inline]
    pub(in crate::rcu) unsafe fn retire_object(&self, object: RetireRequest, on_no_page: OnNoPage) -> Result<(), Slot> {
        let heap = &self.inner.heap;
        let retired = thread::with(self, |record, local| {
            // SAFETY: the share and the record are the calling thread's; the rest is the caller's promise.
            unsafe { heap.retire(self.engine(), local, Some(record), object, on_no_page) }
        });
        // SAFETY: the caller's promise.
        retired.unwrap_or_else(|| unsafe { heap.retire_late(self.engine(), object) })
    }

    /// The rest of a retire by the calling thread whose append to its own share was not the usual one.
    ///
    /// # Safety
    ///
    /// As for [`Domain::retire`](crate::Domain::retire), and the object may be freed on any thread.
    #[cold]
    #[inline(never)]
    pub(in crate::rcu) unsafe fn retire_unusual(&self, object: RetireRequest, appended: Option<Pushed>) {
        // SAFETY: the caller's promise.
        if let Err(slot) = unsafe { self.try_retire_unusual(object, appended, OnNoPage::Block) } {
            // SAFETY: the caller's promise: the object is still its own.
            unsafe { self.free_by_callback(slot) };
        }
    }

    /// The same, but gives the object back if there is no memory for a page and no waiting.
    ///
    /// # Safety
    ///
    /// As for [`Domain::retire`](crate::Domain::retire), and the object may be freed on any thread.
    #[cold]
    #[inline(never)]
    pub(in crate::rcu) unsafe fn try_retire_unusual(
        &self, object: RetireRequest, appended: Option<Pushed>, on_no_page: OnNoPage,
    ) -> Result<(), Slot> {
        let heap = &self.inner.heap;
        match appended {
            // SAFETY: the caller's promise.
            None => unsafe { self.retire_object(object, on_no_page) },
            Some(appended) => {
                thread::with(self, |record, local| heap.see_to(self.engine(), local, Some(record), object, appended, on_no_page))
                    .expect("the thread has a share, since it has appended to it")
            }
        }
    }
}
