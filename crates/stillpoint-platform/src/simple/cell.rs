//! An `UnsafeCell` with loom's interface, without its checks.

use std::cell;

/// A cell whose accesses loom can check: closures instead of `get`, as in `loom::cell::UnsafeCell`.
#[derive(Debug)]
pub struct UnsafeCell<T>(cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    /// Makes a cell.
    pub const fn new(value: T) -> Self {
        Self(cell::UnsafeCell::new(value))
    }

    /// Calls `read` with a pointer to the value, which is valid during the call.
    #[inline(always)]
    pub fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        read(self.0.get())
    }

    /// Calls `write` with a pointer to the value, which is valid during the call.
    #[inline(always)]
    pub fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        write(self.0.get())
    }
}
