//! `UnwindSafe` and `RefUnwindSafe`, which the compiler does not derive because of the atomics and
//! locks inside.
//!
//! User code runs only while our own state is whole and none of our locks is held. If it panics,
//! what it was to change stays as it was. So all of these can be used after a `catch_unwind`; a
//! cell, if its value can.

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
