//! Panics of user code break nothing here: what the compiler could not know, because of the atomics
//! and locks inside.
//!
//! User code runs where our own state is whole and none of our locks is held, and what it was to
//! change stays as it was. So one may go on after a `catch_unwind` with whatever of this the
//! closure used; of a cell, if that goes for its value.

use super::{
    cell::{Rcu, RcuOption},
    domain::Domain,
    future::{CallbackBarrier, GracePeriod},
    guard::Guard,
    qsbr::{Offline, QsbrReader},
    retired::Retired,
};
use std::panic::{RefUnwindSafe, UnwindSafe};

impl<T: RefUnwindSafe + Send + Sync + 'static> UnwindSafe for Rcu<T> {}
impl<T: RefUnwindSafe + Send + Sync + 'static> RefUnwindSafe for Rcu<T> {}
impl<T: RefUnwindSafe + Send + Sync + 'static> UnwindSafe for RcuOption<T> {}
impl<T: RefUnwindSafe + Send + Sync + 'static> RefUnwindSafe for RcuOption<T> {}
impl<T: RefUnwindSafe + Send + Sync + 'static> UnwindSafe for Retired<T> {}
impl<T: RefUnwindSafe + Send + Sync + 'static> RefUnwindSafe for Retired<T> {}

impl UnwindSafe for Guard<'_> {}
impl RefUnwindSafe for Guard<'_> {}
impl UnwindSafe for QsbrReader<'_> {}
impl RefUnwindSafe for QsbrReader<'_> {}
impl UnwindSafe for Offline<'_, '_> {}
impl RefUnwindSafe for Offline<'_, '_> {}

impl UnwindSafe for Domain {}
impl RefUnwindSafe for Domain {}
impl UnwindSafe for GracePeriod<'_> {}
impl RefUnwindSafe for GracePeriod<'_> {}
impl UnwindSafe for CallbackBarrier<'_> {}
impl RefUnwindSafe for CallbackBarrier<'_> {}
