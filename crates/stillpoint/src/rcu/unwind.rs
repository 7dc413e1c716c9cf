//! Panics of user code break nothing here: what the compiler could not know, because of the atomics
//! and locks inside.
//!
//! User code runs where our own state is whole and none of our locks is held, and what it was to
//! change stays as it was. So one may go on after a `catch_unwind` with whatever of this the
//! closure used; of a cell, if that goes for its value.

use super::{
    CallbackBarrier, Domain, GracePeriod, Guard, Offline, QsbrReader, Rcu, RcuOption, Retired,
    Snapshot,
};
use crate::tasks_trace::{self, OwnedGuard, TraceDomain};
use std::panic::{RefUnwindSafe, UnwindSafe};

impl<T: RefUnwindSafe + Send + Sync + 'static> UnwindSafe for Rcu<T> {}
impl<T: RefUnwindSafe + Send + Sync + 'static> RefUnwindSafe for Rcu<T> {}
impl<T: RefUnwindSafe + Send + Sync + 'static> UnwindSafe for RcuOption<T> {}
impl<T: RefUnwindSafe + Send + Sync + 'static> RefUnwindSafe for RcuOption<T> {}
impl<T: RefUnwindSafe + Send + Sync + 'static> UnwindSafe for Retired<T> {}
impl<T: RefUnwindSafe + Send + Sync + 'static> RefUnwindSafe for Retired<T> {}
impl<T: RefUnwindSafe + ?Sized, G: UnwindSafe> UnwindSafe for Snapshot<T, G> {}
impl<T: RefUnwindSafe + ?Sized, G: RefUnwindSafe> RefUnwindSafe for Snapshot<T, G> {}

impl UnwindSafe for Guard<'_> {}
impl RefUnwindSafe for Guard<'_> {}
impl UnwindSafe for tasks_trace::Guard<'_> {}
impl RefUnwindSafe for tasks_trace::Guard<'_> {}
impl UnwindSafe for OwnedGuard<'_> {}
impl RefUnwindSafe for OwnedGuard<'_> {}
impl UnwindSafe for QsbrReader<'_> {}
impl RefUnwindSafe for QsbrReader<'_> {}
impl UnwindSafe for Offline<'_, '_> {}
impl RefUnwindSafe for Offline<'_, '_> {}

impl UnwindSafe for Domain {}
impl RefUnwindSafe for Domain {}
impl UnwindSafe for TraceDomain {}
impl RefUnwindSafe for TraceDomain {}
impl UnwindSafe for GracePeriod<'_> {}
impl RefUnwindSafe for GracePeriod<'_> {}
impl UnwindSafe for CallbackBarrier<'_> {}
impl RefUnwindSafe for CallbackBarrier<'_> {}
