//! What liburcu's flavours share: the head that `call_rcu` takes, and a Rust closure behind one.

/// liburcu's `struct rcu_head`: a link and a function, which `call_rcu` writes at the object's
/// start.
#[repr(C)]
pub struct RcuHead {
    words: [usize; 2],
}

/// A function that liburcu calls with a head.
pub type Run = unsafe extern "C" fn(*mut RcuHead);

#[repr(C)]
struct Deferred<F> {
    head: RcuHead,
    callback: F,
}

/// Boxes `callback` behind a head; `run` called with that head invokes and frees it. To be handed
/// to `call_rcu` at once.
pub fn boxed<F: FnOnce() + Send + 'static>(callback: F) -> (*mut RcuHead, Run) {
    let deferred = Box::new(Deferred {
        head: RcuHead { words: [0; 2] },
        callback,
    });
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
