//! Sections and grace periods of a model: as `rcu.rs`, with an engine of the model's own.

use super::index::Line;
use std::{cell::Cell, mem::ManuallyDrop, ptr::NonNull, sync::Mutex};
pub use stillpoint::internal::{Cookie, Reader as Guard};
use stillpoint::internal::{GracePeriods, Sound};
use stillpoint_platform::{
    model::{lazy_static, thread_local},
    sync::UnsafeCell,
};

lazy_static! {
    static ref DOMAIN: Domain = Domain(ManuallyDrop::new(GracePeriods::new()), Mutex::default());
}

thread_local! {
    static NUMBER: Cell<u64> = Cell::new(0);
}

std::thread_local! {
    /// Whether what is freed waits for no reader. Of the thread that runs the model, so of all its
    /// threads.
    static WAITS: Cell<bool> = const { Cell::new(true) };

    /// How many lines were freed, in all executions of the models that this thread has run.
    static FREED: Cell<u64> = const { Cell::new(0) };
}

/// How many lines were freed.
pub fn lines_freed() -> u64 {
    FREED.get()
}

/// The engine, and lines that wait for readers.
pub struct Domain(ManuallyDrop<GracePeriods<Sound>>, Mutex<Vec<Retired>>);

struct Retired(Cookie, NonNull<Line>);

// SAFETY: it was unlinked; who frees it has it alone.
unsafe impl Send for Retired {}

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

    /// Has it freed by [`Domain::reclaim`]: its caller is in a section, which it would wait for.
    ///
    /// # Safety
    ///
    /// As of the domain's.
    pub unsafe fn retire(&self, line: NonNull<Line>) {
        let retired = Retired(self.get_state(), line);
        self.1.lock().unwrap().push(retired);
        if !WAITS.get() {
            self.reclaim();
        }
    }

    /// Frees what was retired and no reader may be at any more. Not in a section.
    pub fn reclaim(&self) {
        let retired = std::mem::take(&mut *self.1.lock().unwrap());
        for Retired(cookie, line) in retired {
            // Else it stays: the model is over before it would go.
            if self.poll(cookie) {
                FREED.set(FREED.get() + 1);
                // SAFETY: what has been freed stays, so that loom sees who comes to it.
                unsafe { line.as_ref() }.note_free();
            }
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
