//! How to write a structure with a collector.
//!
//! A structure keeps a [`Collector`](crate::Collector) beside the atomic pointer through which its
//! nodes are found. Each operation
//!
//! 1. takes a guard ([`Collector::enter`](crate::Collector::enter)),
//! 2. loads pointers through it ([`Guard::protect`](crate::Guard::protect)): what they point to
//!    stays while the guard does,
//! 3. retires a node once no thread that enters later can find it
//!    ([`Guard::defer_retire`](crate::Guard::defer_retire)).
//!
//! A value that is replaced as a whole:
//!
//! ```
//! use seize::{Collector, Guard, reclaim};
//! use std::sync::atomic::{AtomicPtr, Ordering};
//!
//! struct Shared<T> {
//!     value: AtomicPtr<T>,
//!     collector: Collector,
//! }
//!
//! impl<T: Clone + Send + Sync> Shared<T> {
//!     fn new(value: T) -> Self {
//!         Self {
//!             value: AtomicPtr::new(Box::into_raw(Box::new(value))),
//!             collector: Collector::new(),
//!         }
//!     }
//!
//!     fn get(&self) -> T {
//!         let guard = self.collector.enter();
//!         // SAFETY: never null, and the guard keeps it.
//!         unsafe { &*guard.protect(&self.value, Ordering::Acquire) }.clone()
//!     }
//!
//!     fn set(&self, value: T) {
//!         let guard = self.collector.enter();
//!         let new = Box::into_raw(Box::new(value));
//!         let old = guard.swap(&self.value, new, Ordering::AcqRel);
//!         // SAFETY: out of a box, and no thread that enters from now on finds it.
//!         unsafe { guard.defer_retire(old, reclaim::boxed) };
//!     }
//! }
//!
//! impl<T> Drop for Shared<T> {
//!     fn drop(&mut self) {
//!         // SAFETY: the last one; the collector has those before it.
//!         drop(unsafe { Box::from_raw(*self.value.get_mut()) });
//!     }
//! }
//!
//! let shared = Shared::new(String::from("old"));
//! shared.set(String::from("new"));
//! assert_eq!(shared.get(), "new");
//! ```
//!
//! Two things to know:
//!
//! * [`Collector::retire`](crate::Collector::retire) may free at once what no *other* thread's guard
//!   protects. Where the thread goes on using it, it takes `defer_retire`.
//! * A guard that is held for long keeps memory: all that is retired into its collector meanwhile.
//!   [`Guard::refresh`](crate::Guard::refresh) lets that be freed.
