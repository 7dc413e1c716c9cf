//! liburcu's quiescent-state flavour, driven by c/urcu_qsbr.c: threads registered, a quiescent
//! state after every section, offline around what blocks.

#[cfg(have_liburcu_poll)]
use std::ffi::{c_int, c_ulong};
use std::marker::PhantomData;

use super::liburcu::{self, RcuHead, Run};

#[cfg(have_liburcu_poll)]
use crate::subject::Polled;
use crate::subject::{Callbacks, Participant, Peer, ReadSide, Reader, Registry, Updater};

const PEER: Peer = Peer::new("liburcu-qsbr");

/// The experiments that the peer takes part in.
pub fn register(to: &mut impl Registry) {
    to.reads::<LiburcuQsbr>(PEER);
    to.waits::<LiburcuQsbr>(PEER);
    to.calls::<LiburcuQsbr>(PEER);
    #[cfg(have_liburcu_poll)]
    to.polls::<LiburcuQsbr>(PEER);
}

unsafe extern "C" {
    fn lab_qsbr_register();
    fn lab_qsbr_unregister();
    fn lab_qsbr_offline();
    fn lab_qsbr_online();
    fn lab_qsbr_quiescent_state();
    fn lab_qsbr_read_pairs(count: u64);
    fn lab_qsbr_synchronize();
    fn lab_qsbr_call_rcu(head: *mut RcuHead, run: Run);
    safe fn lab_qsbr_barrier();
    #[cfg(have_liburcu_poll)]
    fn lab_qsbr_start_poll() -> c_ulong;
    #[cfg(have_liburcu_poll)]
    safe fn lab_qsbr_poll(cookie: c_ulong) -> c_int;
}

/// A thread's registration, which lasts until it is dropped; it cannot leave its thread.
pub struct LiburcuQsbr(PhantomData<*mut ()>);

impl Participant for LiburcuQsbr {
    fn register_thread() -> Self {
        // SAFETY: no value of this type lives on this thread yet, so the thread is not registered.
        unsafe { lab_qsbr_register() };
        Self(PhantomData)
    }
}

impl Drop for LiburcuQsbr {
    fn drop(&mut self) {
        // SAFETY: `join` registered this thread, and no read section is open: each ends within the
        // call that began it.
        unsafe { lab_qsbr_unregister() };
    }
}

impl ReadSide for LiburcuQsbr {
    fn pairs(&mut self, count: u64) {
        // SAFETY: the thread is registered while `self` lives.
        unsafe { lab_qsbr_read_pairs(count) };
    }
}

impl Reader for LiburcuQsbr {
    fn read(&mut self, section: impl FnOnce()) {
        // Lock and unlock are nothing in this flavour.
        section();
        // SAFETY: the thread is registered while `self` lives, and the section has ended.
        unsafe { lab_qsbr_quiescent_state() };
    }

    fn offline<T>(&mut self, work: impl FnOnce() -> T) -> T {
        // SAFETY: the thread is registered and online while `self` lives, and no section is open:
        // `read` does not call this.
        unsafe { lab_qsbr_offline() };
        let result = work();
        // SAFETY: taken offline above.
        unsafe { lab_qsbr_online() };
        result
    }
}

impl Updater for LiburcuQsbr {
    fn synchronize(&mut self) {
        // SAFETY: the thread is registered while `self` lives, and no section is open.
        unsafe { lab_qsbr_synchronize() };
    }
}

impl Callbacks for LiburcuQsbr {
    fn call(&mut self, callback: impl FnOnce() + Send + 'static) {
        let (head, run) = liburcu::boxed(callback);
        // SAFETY: the thread is registered and online while `self` lives. The head is ours alone;
        // from here on it belongs to liburcu, which hands it to `run` once.
        unsafe { lab_qsbr_call_rcu(head, run) };
    }

    fn barrier() {
        lab_qsbr_barrier();
    }
}

#[cfg(have_liburcu_poll)]
impl Polled for LiburcuQsbr {
    type Cookie = c_ulong;

    fn start_poll(&mut self) -> c_ulong {
        // SAFETY: the thread is registered and online while `self` lives: starting queues a
        // callback.
        unsafe { lab_qsbr_start_poll() }
    }

    fn poll(cookie: c_ulong) -> bool {
        lab_qsbr_poll(cookie) != 0
    }
}
