//! Sections and grace periods of a model: as `rcu.rs`, with an engine of the model's own.

use std::{cell::Cell, mem::ManuallyDrop, ptr::NonNull};
pub use stillpoint::internal::{Cookie, Reader as Guard};
use stillpoint::internal::{GracePeriods, Sound};
use stillpoint_platform::{
    model::{lazy_static, thread_local},
    sync::UnsafeCell,
};

lazy_static! {
    static ref DOMAIN: Domain = Domain(ManuallyDrop::new(GracePeriods::new()));
}

thread_local! {
    static NUMBER: Cell<u64> = Cell::new(0);
}

std::thread_local! {
    /// Whether what is freed waits for no reader. Of the thread that runs the model, so of all its
    /// threads.
    static WAITS: Cell<bool> = const { Cell::new(true) };
}

pub struct Domain(ManuallyDrop<GracePeriods<Sound>>);

impl Drop for Domain {
    fn drop(&mut self) {
        // After a failure there is no model any more, in which it could be dropped.
        if !std::thread::panicking() {
            // SAFETY: it is not used again.
            unsafe { ManuallyDrop::drop(&mut self.0) };
        }
    }
}

/// The model's domain.
pub fn global() -> &'static Domain {
    &DOMAIN
}

/// Gives the calling thread of the model its number.
pub fn be(number: u64) {
    NUMBER.with(|own| own.set(number));
}

/// Breaks grace periods on purpose while `model` runs.
pub fn without_waiting(model: impl FnOnce()) {
    struct End;
    impl Drop for End {
        fn drop(&mut self) {
            WAITS.set(true);
        }
    }
    WAITS.set(false);
    let _end = End;
    model();
}

/// That of the calling thread, as the engine wants it.
fn number() -> u64 {
    NUMBER.with(Cell::get) + 1
}

pub fn read_lock() -> Guard<'static> {
    global().0.enter(number())
}

impl Domain {
    pub fn get_state(&self) -> Cookie {
        self.0.get_state()
    }

    pub fn poll(&self, cookie: Cookie) -> bool {
        self.0.begin(cookie);
        !WAITS.get() || self.0.try_complete(cookie, number())
    }

    /// Frees it if no reader is left. Otherwise it stays: the model is over before it would go.
    ///
    /// # Safety
    ///
    /// As of the domain's.
    pub unsafe fn retire(&self, line: NonNull<super::index::Line>) {
        if self.poll(self.get_state()) {
            // SAFETY: what has been freed stays, so that loom sees who comes to it.
            unsafe { line.as_ref() }.note_free();
        }
    }
}

/// Memory that is not to be read once it is free.
#[derive(Debug)]
pub struct Watch(UnsafeCell<()>);

impl Default for Watch {
    fn default() -> Self {
        Self(UnsafeCell::new(()))
    }
}

impl Watch {
    pub fn note_read(&self) {
        self.0.with(|_| ());
    }

    pub fn note_free(&self) {
        self.0.with_mut(|_| ());
    }
}
