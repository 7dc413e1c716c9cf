//! liburcu's default flavour, driven by c/urcu_memb.c: threads registered, read side inlined in C,
//! deferred frees by `call_rcu` with its one worker or with a worker for every CPU.

use std::ffi::c_int;
#[cfg(have_liburcu_poll)]
use std::ffi::c_ulong;
use std::marker::PhantomData;

use anyhow::{Result, ensure};

use super::liburcu::{self, RcuHead, Run};

#[cfg(have_liburcu_poll)]
use crate::subject::Polled;
use crate::subject::{
    Callbacks, Object, Participant, Peer, ReadSide, Reader, Reclaimer, Registry, Updater,
};

const PEER: Peer = Peer::new("liburcu-memb");

/// What it takes part in.
pub fn register(to: &mut impl Registry) {
    to.reads::<LiburcuMemb>(PEER);
    to.reads_beside_flood::<LiburcuMemb>(PEER);
    to.reclaims::<LiburcuMemb>(PEER.variant("one-worker"));
    to.reclaims::<LiburcuMemb>(
        PEER.variant("per-cpu-workers")
            .prepared_by(start_worker_per_cpu),
    );
    to.waits::<LiburcuMemb>(PEER);
    to.calls::<LiburcuMemb>(PEER);
    #[cfg(have_liburcu_poll)]
    to.polls::<LiburcuMemb>(PEER);
}

unsafe extern "C" {
    fn lab_memb_register();
    fn lab_memb_unregister();
    fn lab_memb_read_lock();
    fn lab_memb_read_unlock();
    fn lab_memb_read_pairs(count: u64);
    fn lab_memb_synchronize();
    fn lab_memb_call_rcu(head: *mut RcuHead, reclaim: Run);
    safe fn lab_memb_barrier();
    safe fn lab_memb_start_worker_per_cpu() -> c_int;
    #[cfg(have_liburcu_poll)]
    fn lab_memb_start_poll() -> c_ulong;
    #[cfg(have_liburcu_poll)]
    safe fn lab_memb_poll(cookie: c_ulong) -> c_int;
}

/// Gives the process a `call_rcu` worker for every CPU.
pub fn start_worker_per_cpu() -> Result<()> {
    ensure!(
        lab_memb_start_worker_per_cpu() == 0,
        "liburcu could not start a worker for every CPU"
    );
    Ok(())
}

/// A thread's registration, which lasts until it is dropped; it cannot leave its thread.
pub struct LiburcuMemb(PhantomData<*mut ()>);

impl Participant for LiburcuMemb {
    fn register_thread() -> Self {
        // SAFETY: no value of this type lives on this thread yet, so the thread is not registered.
        unsafe { lab_memb_register() };
        Self(PhantomData)
    }
}

impl Drop for LiburcuMemb {
    fn drop(&mut self) {
        // SAFETY: `join` registered this thread, and no read section is open: each ends within the
        // call that began it.
        unsafe { lab_memb_unregister() };
    }
}

impl Reader for LiburcuMemb {
    fn read(&mut self, section: impl FnOnce()) {
        // SAFETY: the thread is registered while `self` lives, and the section is closed below.
        unsafe { lab_memb_read_lock() };
        section();
        // SAFETY: closes the section opened above.
        unsafe { lab_memb_read_unlock() };
    }
}

impl Updater for LiburcuMemb {
    fn synchronize(&mut self) {
        // SAFETY: no read section is open: each ends within the call that began it, and this is
        // none.
        unsafe { lab_memb_synchronize() };
    }
}

impl Callbacks for LiburcuMemb {
    fn call(&mut self, callback: impl FnOnce() + Send + 'static) {
        let (head, run) = liburcu::boxed(callback);
        // SAFETY: the thread is registered while `self` lives. The head is ours alone; from here on
        // it belongs to liburcu, which hands it to `run` once.
        unsafe { lab_memb_call_rcu(head, run) };
    }

    fn barrier() {
        lab_memb_barrier();
    }
}

#[cfg(have_liburcu_poll)]
impl Polled for LiburcuMemb {
    type Cookie = c_ulong;

    fn start_poll(&mut self) -> c_ulong {
        // SAFETY: the thread is registered while `self` lives: starting queues a callback.
        unsafe { lab_memb_start_poll() }
    }

    fn poll(cookie: c_ulong) -> bool {
        lab_memb_poll(cookie) != 0
    }
}

impl Reclaimer for LiburcuMemb {
    const DRAIN: Option<fn()> = Some(|| lab_memb_barrier());

    fn allocate_and_retire<const N: usize>(&mut self) {
        const { assert!(size_of::<Object<N>>() >= size_of::<RcuHead>()) };
        const { assert!(align_of::<Object<N>>() >= align_of::<RcuHead>()) };
        let head = Box::into_raw(Object::<N>::allocate()).cast::<RcuHead>();
        // SAFETY: the thread is registered while `self` lives. The object is ours alone and has
        // room for the head; from here on it belongs to liburcu, which hands it to `reclaim::<N>`
        // once.
        unsafe { lab_memb_call_rcu(head, reclaim::<N>) };
    }
}

impl ReadSide for LiburcuMemb {
    fn pairs(&mut self, count: u64) {
        // SAFETY: the thread is registered while `self` lives.
        unsafe { lab_memb_read_pairs(count) };
    }
}

/// Frees a retired object after its grace period.
///
/// # Safety
///
/// `head` is the address of an `Object<N>` that came from a Box and belongs to the callee.
unsafe extern "C" fn reclaim<const N: usize>(head: *mut RcuHead) {
    // SAFETY: the caller hands over a boxed `Object<N>`, whose bytes may hold any value.
    drop(unsafe { Box::from_raw(head.cast::<Object<N>>()) });
}
