//! A callback and its link, and the queue of those that wait.

use super::seq::Cookie;
use std::{
    alloc::Layout,
    cell::UnsafeCell,
    ptr::{self, NonNull},
};

/// The link of a callback, to be embedded in the object that the callback is about: the kernel's
/// `struct rcu_head`, with the grace period's cookie in it. Three words.
///
/// Used by [`Domain::call_head`](crate::Domain::call_head), which allocates nothing.
#[repr(C)]
pub struct CallbackHead {
    /// Meaningless while the callback is not queued; owned by the queue while it is.
    links: UnsafeCell<Links>,
}

#[derive(Clone, Copy)]
pub(super) struct Links {
    pub(super) next: *mut CallbackHead,
    pub(super) run: Option<unsafe fn(NonNull<CallbackHead>)>,
    pub(super) cookie: Cookie,
}

// SAFETY: a head holds no data of a thread; while it is queued only the queue touches it,
// through raw pointers, and the caller of `call_head` promised that the object may be handed to
// another thread.
unsafe impl Send for CallbackHead {}
// SAFETY: a shared reference to a head gives access to nothing.
unsafe impl Sync for CallbackHead {}

impl CallbackHead {
    /// The offset of a queued head's function, in bytes: the C library detects by it a head that is
    /// queued already.
    pub(crate) const FUNCTION_OFFSET: usize = std::mem::offset_of!(Links, run);

    /// Makes a head that is not queued. Async-signal-safe.
    pub const fn new() -> Self {
        let links = Links {
            next: ptr::null_mut(),
            run: None,
            cookie: Cookie::from_raw(0),
        };
        Self {
            links: UnsafeCell::new(links),
        }
    }
}

impl Default for CallbackHead {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for CallbackHead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallbackHead").finish_non_exhaustive()
    }
}

/// A callback as a closure: the head in front, so that a pointer to the one is a pointer to the
/// other.
#[repr(C)]
struct Boxed<F> {
    head: CallbackHead,
    run: F,
}

/// # Safety
///
/// The head is the first field of a `Boxed<F>` that a box holds, and is run once.
unsafe fn run_boxed<F: FnOnce()>(head: NonNull<CallbackHead>) {
    // SAFETY: the caller's promise.
    let boxed = unsafe { Box::from_raw(head.cast::<Boxed<F>>().as_ptr()) };
    (boxed.run)();
}

/// Returns a heap-allocated callback that is not queued yet.
pub(super) fn boxed<F: FnOnce() + Send + 'static>(run: F) -> Callback {
    let head = NonNull::from(Box::leak(Box::new(Boxed {
        head: CallbackHead::new(),
        run,
    })))
    .cast();
    Callback {
        head,
        run: run_boxed::<F>,
    }
}

/// Like the function above, but fails without memory.
pub(super) fn try_boxed<F: FnOnce() + Send + 'static>(run: F) -> Option<Callback> {
    // SAFETY: the size is not 0: there is a head in it.
    let place =
        NonNull::new(unsafe { std::alloc::alloc(Layout::new::<Boxed<F>>()) }.cast::<Boxed<F>>())?;
    // SAFETY: allocated for it just now.
    unsafe {
        place.write(Boxed {
            head: CallbackHead::new(),
            run,
        })
    };
    Some(Callback {
        head: place.cast(),
        run: run_boxed::<F>,
    })
}

/// The function to call, and the offset of its link.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Callback {
    pub(crate) head: NonNull<CallbackHead>,
    pub(crate) run: unsafe fn(NonNull<CallbackHead>),
}

/// Callbacks in order, linked through their heads. It owns them.
#[derive(Debug)]
pub(super) struct Queue {
    first: *mut CallbackHead,
    pub(super) last: *mut CallbackHead,
    /// How many have ever come.
    pub(super) came: u64,
    /// How many have ever left.
    pub(super) left: u64,
}

// SAFETY: the queue owns its callbacks, and `call`'s contract lets them run on any thread.
unsafe impl Send for Queue {}

impl Queue {
    /// Makes an empty queue, to which `came` callbacks have been added before, and have left.
    pub(super) const fn new(came: u64) -> Self {
        Self {
            first: ptr::null_mut(),
            last: ptr::null_mut(),
            came,
            left: came,
        }
    }

    pub(super) fn links(head: *mut CallbackHead) -> *mut Links {
        // SAFETY: `head` is queued, so it is valid and the queue's alone.
        unsafe { (*head).links.get() }
    }

    pub(super) fn push_back(&mut self, head: *mut CallbackHead) {
        // SAFETY: both are queued; see `links`.
        unsafe {
            (*Self::links(head)).next = ptr::null_mut();
            if self.last.is_null() {
                self.first = head;
            } else {
                (*Self::links(self.last)).next = head;
            }
        }
        self.last = head;
        self.came += 1;
    }

    pub(super) fn front(&self) -> Option<Links> {
        // SAFETY: a queued head; see `links`.
        (!self.first.is_null()).then(|| unsafe { *Self::links(self.first) })
    }

    pub(super) fn pop_front(&mut self) -> Option<Callback> {
        let links = self.front()?;
        let head = NonNull::new(self.first)?;
        self.first = links.next;
        self.left += 1;
        if self.first.is_null() {
            self.last = ptr::null_mut();
        }
        Some(Callback {
            head,
            run: links.run.expect("a queued callback has a function"),
        })
    }

    pub(super) fn has(&self, head: *const CallbackHead) -> bool {
        // SAFETY: a queued head; see `links`.
        let next = |&at: &*mut CallbackHead| unsafe { (*Self::links(at)).next };
        let some = |at: *mut CallbackHead| (!at.is_null()).then_some(at);
        std::iter::successors(some(self.first), |at| some(next(at))).any(|at| ptr::eq(at, head))
    }

    pub(super) fn cookies(&self) -> impl Iterator<Item = Cookie> {
        std::iter::successors(self.front(), |links| {
            // SAFETY: a queued head; see `links`.
            (!links.next.is_null()).then(|| unsafe { *Self::links(links.next) })
        })
        .map(|links| links.cookie)
    }
}
