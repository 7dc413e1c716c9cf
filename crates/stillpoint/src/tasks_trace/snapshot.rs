//! A section and what was found in it, in one value.

use super::guard::OwnedGuard;
use crate::rcu::{Rcu, RcuOption, Section};
use std::{
    fmt,
    ops::Deref,
    panic::{RefUnwindSafe, UnwindSafe},
    ptr::NonNull,
};

/// A value that was found in a cell, together with the guard of the section in which it was: it
/// derefs to the value.
///
/// Made by [`Rcu::load_owned`](crate::Rcu::load_owned). The value stays as it is for as long as the
/// snapshot is kept, whatever becomes of the cell; so does the section, with all that a section
/// holds up. Where the guard may be sent to other threads, so may the snapshot.
///
/// ```
/// use stillpoint::{Rcu, Snapshot, tasks_trace};
/// struct Config { greeting: String }
///
/// async fn answer(config: Snapshot<Config>) -> usize {
///     std::future::ready(()).await; // perhaps on another thread after this
///     config.greeting.len()
/// }
/// fn spawn(_: impl Future<Output = usize> + Send + 'static) {}
/// let cell = Rcu::new_in(tasks_trace::global(), Config { greeting: "hello".into() });
/// spawn(answer(cell.load_owned(tasks_trace::read_lock_owned())));
/// ```
///
/// A reference that it lends does not outlive it:
///
/// ```compile_fail,E0505
/// use stillpoint::{Rcu, read_lock};
/// let snapshot = Rcu::new(1).load_owned(read_lock());
/// let value: &i32 = &snapshot;
/// drop(snapshot);
/// println!("{value}");
/// ```
#[must_use = "the section ends as soon as the snapshot is dropped"]
pub struct Snapshot<T: ?Sized + 'static, G = OwnedGuard<'static>> {
    /// Valid as long as the guard, and only read. A pointer, because the guard is dropped while
    /// this struct still exists. `T: 'static` is for `map`: a shorter type would let its closure
    /// conclude that references it has captured live as long as the value.
    value: NonNull<T>,
    guard: G,
}

// SAFETY: it stands for a `&T`, which may be sent if T is Sync, and a guard.
unsafe impl<T: ?Sized + Sync + 'static, G: Send> Send for Snapshot<T, G> {}
// SAFETY: as for Send.
unsafe impl<T: ?Sized + Sync + 'static, G: Sync> Sync for Snapshot<T, G> {}

impl<T: ?Sized + 'static, G> Snapshot<T, G> {
    /// # Safety
    ///
    /// `value` may be read for as long as `guard` is there, wherever that is moved to.
    unsafe fn new(value: NonNull<T>, guard: G) -> Self {
        Self { value, guard }
    }

    /// Returns the guard, to load other cells of the domain in the same section.
    ///
    /// ```
    /// use stillpoint::{Rcu, Snapshot, read_lock};
    /// let (names, ports) = (Rcu::new("a"), Rcu::new(80));
    /// let name = names.load_owned(read_lock());
    /// assert_eq!((*name, ports.load(Snapshot::guard(&name))), ("a", &80));
    /// ```
    pub fn guard(this: &Self) -> &G {
        &this.guard
    }

    /// Returns the guard, for other uses. The value is given up.
    pub fn into_guard(this: Self) -> G {
        this.guard
    }

    /// Returns a part of the value, with the same guard.
    ///
    /// ```
    /// use stillpoint::{Rcu, Snapshot, read_lock};
    /// let pair = Rcu::new((1, String::from("one"))).load_owned(read_lock());
    /// let name: Snapshot<str, _> = Snapshot::map(pair, |pair| pair.1.as_str());
    /// assert_eq!(&*name, "one");
    /// ```
    pub fn map<U: ?Sized + 'static>(this: Self, part: impl FnOnce(&T) -> &U) -> Snapshot<U, G> {
        let value = NonNull::from(part(&this));
        // SAFETY: `part` is for a reference of any lifetime, and T and U have no other, so
        // what it returns is a part of the value, or lives for ever.
        unsafe { Snapshot::new(value, this.guard) }
    }

    /// Returns a part of the value, if there is one, with the same guard.
    ///
    /// # Errors
    ///
    /// The snapshot, unchanged, if `part` found nothing.
    ///
    /// ```
    /// use std::collections::HashMap;
    /// use stillpoint::{Rcu, Snapshot, read_lock};
    /// let tenants = Rcu::new(HashMap::from([("a", 1)])).load_owned(read_lock());
    /// let tenant = Snapshot::try_map(tenants, |tenants| tenants.get("a")).expect("it is there");
    /// assert_eq!(*tenant, 1);
    /// ```
    pub fn try_map<U: ?Sized + 'static>(
        this: Self,
        part: impl FnOnce(&T) -> Option<&U>,
    ) -> Result<Snapshot<U, G>, Self> {
        match part(&this).map(NonNull::from) {
            // SAFETY: as in `map`.
            Some(value) => Ok(unsafe { Snapshot::new(value, this.guard) }),
            None => Err(this),
        }
    }
}

impl<T: RefUnwindSafe + ?Sized, G: UnwindSafe> UnwindSafe for Snapshot<T, G> {}
impl<T: RefUnwindSafe + ?Sized, G: RefUnwindSafe> RefUnwindSafe for Snapshot<T, G> {}

impl<T: ?Sized + 'static, G> Deref for Snapshot<T, G> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard is there, and lent for as long as this reference is.
        unsafe { self.value.as_ref() }
    }
}

impl<T: fmt::Debug + ?Sized + 'static, G> fmt::Debug for Snapshot<T, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Snapshot").field(&&**self).finish()
    }
}

impl<T: fmt::Display + ?Sized + 'static, G> fmt::Display for Snapshot<T, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&**self, f)
    }
}

impl<T: Send + Sync + 'static> Rcu<T> {
    /// Returns the present value together with `guard`, in one value that derefs to it: for a
    /// request's struct, an extractor, a stream.
    ///
    /// With an [`OwnedGuard`](crate::tasks_trace::OwnedGuard), which must be of the cell's domain,
    /// it may move to other threads; with a guard of
    /// [`read_lock_static`](crate::tasks_trace::TraceDomain::read_lock_static) it borrows from
    /// nothing.
    ///
    /// ```
    /// use stillpoint::{Rcu, Snapshot, tasks_trace::TraceDomain};
    /// struct Request { config: Snapshot<String>, path: &'static str }
    ///
    /// let domain = TraceDomain::new();
    /// let config = Rcu::new_in(&domain, String::from("v1"));
    /// let request = Request { config: config.load_owned(domain.read_lock_static()), path: "/" };
    /// config.store("v2".into());
    /// std::thread::spawn(move || assert_eq!((&**request.config, request.path), ("v1", "/"))).join().unwrap();
    /// ```
    ///
    /// # Panics
    ///
    /// As [`load`](Self::load).
    #[track_caller]
    pub fn load_owned<G: Section>(&self, guard: G) -> Snapshot<T, G> {
        let value = NonNull::from(self.load(&guard));
        // SAFETY: `load` lends it for as long as the guard is there.
        unsafe { Snapshot::new(value, guard) }
    }
}

impl<T: Send + Sync + 'static> RcuOption<T> {
    /// Returns the present value together with `guard`, in one value that derefs to it. See
    /// [`Rcu::load_owned`](crate::Rcu::load_owned).
    ///
    /// # Panics
    ///
    /// As [`load`](Self::load).
    #[must_use]
    #[track_caller]
    pub fn load_owned<G: Section>(&self, guard: G) -> Option<Snapshot<T, G>> {
        let value = NonNull::from(self.load(&guard)?);
        // SAFETY: `load` lends it for as long as the guard is there.
        Some(unsafe { Snapshot::new(value, guard) })
    }
}
