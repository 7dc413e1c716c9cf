//! liburcu, driven by the C in `c`: threads registered, read side inlined there. Its default flavour
//! defers frees by `call_rcu` with its one worker, or with a worker for every CPU. Under its
//! quiescent-state flavour a thread reports a quiescent state after every section, and is offline
//! around what blocks.

use std::ffi::c_int;
#[cfg(have_liburcu_poll)]
use std::ffi::c_ulong;
use std::marker::PhantomData;

use anyhow::{Result, ensure};

#[cfg(have_liburcu_poll)]
use crate::subject::Polled;
use crate::subject::{
    Callbacks, Object, Participant, Peer, ReadSide, Reader, Reclaimer, Registry, Updater,
};

const MEMB: Peer = Peer::new("liburcu-memb");
const QSBR: Peer = Peer::new("liburcu-qsbr");

/// Adds what they take part in.
pub fn register(to: &mut impl Registry) {
    to.reads::<LiburcuMemb>(MEMB);
    to.reads_beside_flood::<LiburcuMemb>(MEMB);
    to.reclaims::<LiburcuMemb>(MEMB.variant("one-worker"));
    let workers = MEMB.variant("per-cpu-workers");
    to.reclaims::<LiburcuMemb>(workers.prepared_by(start_worker_per_cpu));
    to.waits::<LiburcuMemb>(MEMB);
    to.calls::<LiburcuMemb>(MEMB);
    to.reads::<LiburcuQsbr>(QSBR);
    to.waits::<LiburcuQsbr>(QSBR);
    to.calls::<LiburcuQsbr>(QSBR);
    #[cfg(have_liburcu_poll)]
    {
        to.polls::<LiburcuMemb>(MEMB);
        to.polls::<LiburcuQsbr>(QSBR);
    }
}

/// liburcu's `struct rcu_head`: a link and a function, which `call_rcu` writes at the object's
/// start.
#[repr(C)]
struct RcuHead {
    words: [usize; 2],
}

/// A function that liburcu calls with a head.
type Run = unsafe extern "C" fn(*mut RcuHead);

#[repr(C)]
struct Deferred<F> {
    head: RcuHead,
    callback: F,
}

/// Boxes `callback` behind a head; `run` called with that head invokes and frees it. To be handed
/// to `call_rcu` at once.
fn boxed<F: FnOnce() + Send + 'static>(callback: F) -> (*mut RcuHead, Run) {
    let head = RcuHead { words: [0; 2] };
    let deferred = Box::new(Deferred { head, callback });
    (Box::into_raw(deferred).cast(), run::<F>)
}

/// Invokes and frees a closure of [`boxed`].
///
/// # Safety
///
/// `head` came from `boxed::<F>` and belongs to the callee.
unsafe extern "C" fn run<F: FnOnce()>(head: *mut RcuHead) {
    // SAFETY: the head is the first field of a boxed `Deferred<F>`, which the caller gives up.
    let Deferred { callback, .. } = *unsafe { Box::from_raw(head.cast::<Deferred<F>>()) };
    callback();
}

/// Defines a thread's registration with a flavour, and what both flavours can do, by C's names.
macro_rules! flavour {
    ($(#[$about:meta])* $name:ident, $register:ident, $unregister:ident, $read_pairs:ident, $synchronize:ident, $call_rcu:ident,
     $barrier:ident, $start_poll:ident, $poll:ident) => {
        unsafe extern "C" {
            fn $register();
            fn $unregister();
            fn $read_pairs(count: u64);
            fn $synchronize();
            fn $call_rcu(head: *mut RcuHead, run: Run);
            safe fn $barrier();
            #[cfg(have_liburcu_poll)]
            fn $start_poll() -> c_ulong;
            #[cfg(have_liburcu_poll)]
            safe fn $poll(cookie: c_ulong) -> c_int;
        }

        $(#[$about])*
        /// It lasts until it is dropped, and cannot leave its thread.
        pub struct $name(PhantomData<*mut ()>);

        impl Participant for $name {
            fn register_thread() -> Self {
                // SAFETY: no value of this type lives on this thread yet, so the thread is not registered.
                unsafe { $register() };
                Self(PhantomData)
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                // SAFETY: `register_thread` registered this thread, and no read section is open: each
                // ends within the call that began it.
                unsafe { $unregister() };
            }
        }

        impl ReadSide for $name {
            fn pairs(&mut self, count: u64) {
                // SAFETY: the thread is registered while `self` lives.
                unsafe { $read_pairs(count) };
            }
        }

        impl Updater for $name {
            fn synchronize(&mut self) {
                // SAFETY: the thread is registered while `self` lives, and no section is open: each ends
                // within the call that began it, and this is none.
                unsafe { $synchronize() };
            }
        }

        impl Callbacks for $name {
            fn call(&mut self, callback: impl FnOnce() + Send + 'static) {
                let (head, run) = boxed(callback);
                // SAFETY: the thread is registered and online while `self` lives. The head is ours alone;
                // from here on it belongs to liburcu, which hands it to `run` once.
                unsafe { $call_rcu(head, run) };
            }

            fn barrier() {
                $barrier();
            }
        }

        #[cfg(have_liburcu_poll)]
        impl Polled for $name {
            type Cookie = c_ulong;

            fn start_poll(&mut self) -> c_ulong {
                // SAFETY: the thread is registered and online while `self` lives: starting queues a callback.
                unsafe { $start_poll() }
            }

            fn poll(cookie: c_ulong) -> bool {
                $poll(cookie) != 0
            }
        }
    };
}

flavour! {
    /// A thread's registration with the default flavour.
    LiburcuMemb, lab_memb_register, lab_memb_unregister, lab_memb_read_pairs, lab_memb_synchronize, lab_memb_call_rcu,
    lab_memb_barrier, lab_memb_start_poll, lab_memb_poll
}

flavour! {
    /// A thread's registration with the quiescent-state flavour.
    LiburcuQsbr, lab_qsbr_register, lab_qsbr_unregister, lab_qsbr_read_pairs, lab_qsbr_synchronize, lab_qsbr_call_rcu,
    lab_qsbr_barrier, lab_qsbr_start_poll, lab_qsbr_poll
}

unsafe extern "C" {
    fn lab_memb_read_lock();
    fn lab_memb_read_unlock();
    safe fn lab_memb_start_worker_per_cpu() -> c_int;
    fn lab_qsbr_offline();
    fn lab_qsbr_online();
    fn lab_qsbr_quiescent_state();
}

/// Gives the process a `call_rcu` worker for every CPU.
fn start_worker_per_cpu() -> Result<()> {
    let has_started = lab_memb_start_worker_per_cpu() == 0;
    ensure!(
        has_started,
        "liburcu could not start a worker for every CPU"
    );
    Ok(())
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

/// Frees a retired object after its grace period.
///
/// # Safety
///
/// `head` is the address of an `Object<N>` that came from a Box and belongs to the callee.
unsafe extern "C" fn reclaim<const N: usize>(head: *mut RcuHead) {
    // SAFETY: the caller hands over a boxed `Object<N>`, whose bytes may hold any value.
    drop(unsafe { Box::from_raw(head.cast::<Object<N>>()) });
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
