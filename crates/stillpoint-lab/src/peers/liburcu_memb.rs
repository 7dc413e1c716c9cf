//! liburcu's default flavour, driven by c/urcu_memb.c: threads registered, read side inlined in C, deferred frees by
//! `call_rcu` with its one worker or with a worker for every CPU.

use std::ffi::c_int;
use std::marker::PhantomData;

use anyhow::{Result, ensure};

use crate::scale::Participant;
use crate::scale::kfree::{Object, Reclaimer};
use crate::scale::read::ReadSide;

/// liburcu's `struct rcu_head`: a link and a function, which `call_rcu` writes at the object's start.
#[repr(C)]
struct RcuHead {
    words: [usize; 2],
}

unsafe extern "C" {
    fn lab_memb_register();
    fn lab_memb_unregister();
    fn lab_memb_read_lock();
    fn lab_memb_read_unlock();
    fn lab_memb_read_pairs(count: u64);
    fn lab_memb_call_rcu(head: *mut RcuHead, reclaim: unsafe extern "C" fn(*mut RcuHead));
    safe fn lab_memb_barrier();
    safe fn lab_memb_start_worker_per_cpu() -> c_int;
}

/// Gives the process a `call_rcu` worker for every CPU.
pub fn start_worker_per_cpu() -> Result<()> {
    ensure!(lab_memb_start_worker_per_cpu() == 0, "liburcu could not start a worker for every CPU");
    Ok(())
}

/// A thread's registration, which lasts until it is dropped; it cannot leave its thread.
pub struct LiburcuMemb(PhantomData<*mut ()>);

impl Participant for LiburcuMemb {
    fn join() -> Self {
        // SAFETY: no value of this type lives on this thread yet, so the thread is not registered.
        unsafe { lab_memb_register() };
        Self(PhantomData)
    }
}

impl Drop for LiburcuMemb {
    fn drop(&mut self) {
        // SAFETY: `join` registered this thread, and no read section is open: each ends within the call that began it.
        unsafe { lab_memb_unregister() };
    }
}

impl Reclaimer for LiburcuMemb {
    const DRAIN: Option<fn()> = Some(|| lab_memb_barrier());

    fn retire<const N: usize>(&mut self, object: Box<Object<N>>) {
        const { assert!(size_of::<Object<N>>() >= size_of::<RcuHead>()) };
        const { assert!(align_of::<Object<N>>() >= align_of::<RcuHead>()) };
        let head = Box::into_raw(object).cast::<RcuHead>();
        // SAFETY: the thread is registered while `self` lives. The object is ours alone and has room for the head; from here
        // on it belongs to liburcu, which hands it to `reclaim::<N>` once.
        unsafe { lab_memb_call_rcu(head, reclaim::<N>) };
    }

    fn read(&mut self, section: impl FnOnce()) {
        // SAFETY: the thread is registered while `self` lives, and the section is closed below.
        unsafe { lab_memb_read_lock() };
        section();
        // SAFETY: closes the section opened above.
        unsafe { lab_memb_read_unlock() };
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
