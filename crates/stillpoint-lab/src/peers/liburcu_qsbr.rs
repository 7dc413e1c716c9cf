//! liburcu's quiescent-state flavour, driven by c/urcu_qsbr.c.

use std::marker::PhantomData;

use crate::scale::Participant;
use crate::scale::read::ReadSide;

unsafe extern "C" {
    fn lab_qsbr_register();
    fn lab_qsbr_unregister();
    fn lab_qsbr_read_pairs(count: u64);
}

/// A thread's registration, which lasts until it is dropped; it cannot leave its thread.
pub struct LiburcuQsbr(PhantomData<*mut ()>);

impl Participant for LiburcuQsbr {
    fn join() -> Self {
        // SAFETY: no value of this type lives on this thread yet, so the thread is not registered.
        unsafe { lab_qsbr_register() };
        Self(PhantomData)
    }
}

impl Drop for LiburcuQsbr {
    fn drop(&mut self) {
        // SAFETY: `join` registered this thread, and no read section is open: each ends within the call that began it.
        unsafe { lab_qsbr_unregister() };
    }
}

impl ReadSide for LiburcuQsbr {
    fn pairs(&mut self, count: u64) {
        // SAFETY: the thread is registered while `self` lives.
        unsafe { lab_qsbr_read_pairs(count) };
    }
}
