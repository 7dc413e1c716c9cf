//! `Rcu<T>`: a value that is read without a lock and replaced as a whole.
//!
//! The store that publishes a value (release) pairs with the load that finds it (acquire): the reader sees the value complete. (Consume would do; Rust has none, and on x86-64 and AArch64 an acquire load costs the same or one cycle more.) The
//! store that replaces a value is also what unlinks it; it comes before W1 in the program order of whoever retires the old value.

use super::{
    Domain, Retired, Section,
    domain::Kept,
    thread::{RCU, global_id},
};
use std::{
    fmt,
    ptr::{self, NonNull},
    sync::atomic::{AtomicPtr, Ordering},
};

/// A cell whose value is read inside read-side critical sections, without a lock or a write, and replaced as a whole.
///
/// The kernel's `__rcu` pointer with `rcu_dereference()` and `rcu_assign_pointer()`. A cell may be empty. It belongs to a domain:
/// the global one ([`Rcu::new`], [`Rcu::empty`]) or another ([`Rcu::new_in`]). Dropping a cell retires its value, which readers
/// who have found it keep for as long as their sections last.
///
/// ```
/// use stillpoint::{Rcu, read_lock};
/// static CONFIG: Rcu<Vec<&str>> = Rcu::empty();
///
/// CONFIG.store(vec!["fast"]);
/// let guard = read_lock();
/// let config = CONFIG.load(&guard).expect("stored above");
/// CONFIG.store(vec!["fast", "small"]); // the old value is freed when no reader is left
/// assert_eq!(config, &["fast"]);
/// ```
///
/// A reference cannot outlive its guard:
///
/// ```compile_fail,E0505
/// let cell = stillpoint::Rcu::new(1);
/// let guard = stillpoint::read_lock();
/// let value = cell.load(&guard);
/// drop(guard);
/// println!("{value:?}");
/// ```
pub struct Rcu<T: Send + Sync + 'static> {
    value: AtomicPtr<T>,
    /// `None`: the global one.
    domain: Option<Kept>,
}

impl<T: Send + Sync + 'static> Rcu<T> {
    /// A cell of the global domain that holds `value`. Allocates.
    pub fn new(value: T) -> Self {
        Self::from(Box::new(value))
    }

    /// A cell of the global domain that holds nothing.
    #[must_use]
    pub const fn empty() -> Self {
        Self { value: AtomicPtr::new(ptr::null_mut()), domain: None }
    }

    /// A cell of `domain` that holds `value`. Allocates. The cell keeps the domain alive.
    pub fn new_in(domain: &Domain, value: T) -> Self {
        Self { value: AtomicPtr::new(Box::into_raw(Box::new(value))), domain: Some(domain.into()) }
    }

    /// A cell of `domain` that holds nothing.
    #[must_use]
    pub fn empty_in(domain: &Domain) -> Self {
        Self { value: AtomicPtr::new(ptr::null_mut()), domain: Some(domain.into()) }
    }

    /// The present value; `None` if the cell is empty. The kernel's `rcu_dereference()`.
    ///
    /// A load and a comparison; async-signal-safe. The value stays for as long as the guard does.
    ///
    /// # Panics
    ///
    /// If `guard` is of another domain than the cell, or an offline [`QsbrReader`](crate::QsbrReader): it would protect nothing.
    #[inline]
    pub fn load<'g>(&self, guard: &'g impl Section) -> Option<&'g T> {
        self.check(guard);
        // Acquire, pairs with `replace` and `compare_exchange`: the value is complete.
        // SAFETY: the value is alive now, because whoever unlinks it retires it in the cell's domain and the guard's section of
        // that domain has begun before; it stays for as long as the guard, which `'g` borrows.
        unsafe { self.value.load(Ordering::Acquire).as_ref() }
    }

    #[inline(always)]
    fn check(&self, guard: &impl Section) {
        let own = self.domain.as_ref().map_or(const { global_id(RCU) }, |domain| domain.id());
        if guard.domain_id() != own {
            wrong_domain(guard.domain_id(), own);
        }
    }

    /// The present value, outside any section: for the one who alone replaces it, under a lock say. The kernel's
    /// `rcu_dereference_protected()`.
    ///
    /// # Safety
    ///
    /// Nobody replaces it for as long as the reference is used.
    ///
    /// ```
    /// # use std::sync::Mutex;
    /// # use stillpoint::Rcu;
    /// static LIST: Rcu<Vec<u32>> = Rcu::empty();
    /// static CHANGE: Mutex<()> = Mutex::new(());
    ///
    /// fn add(number: u32) {
    ///     let _change = CHANGE.lock().unwrap();
    ///     // SAFETY: the list is replaced under this lock alone.
    ///     let mut list = unsafe { LIST.peek() }.cloned().unwrap_or_default();
    ///     list.push(number);
    ///     LIST.store(list);
    /// }
    /// add(1);
    /// add(2);
    /// stillpoint::read(|guard| assert_eq!(LIST.load(guard).unwrap(), &[1, 2]));
    /// ```
    pub unsafe fn peek(&self) -> Option<&T> {
        // Acquire, pairs with `replace` and `compare_exchange`: the value is complete.
        // SAFETY: alive, because only who replaces it retires it.
        unsafe { self.value.load(Ordering::Acquire).as_ref() }
    }

    /// Whether the cell holds nothing at this moment.
    pub fn is_empty(&self) -> bool {
        self.value.load(Ordering::Relaxed).is_null()
    }

    /// Replaces the value; the old one is freed after a grace period. The kernel's `rcu_assign_pointer()` and `kvfree_rcu()`.
    ///
    /// Allocates, retires; may wait a bounded time where [`Domain::retire`] does.
    pub fn store(&self, value: T) {
        drop(self.swap(value));
    }

    /// Replaces the value and returns the old one, which readers may still be using. Allocates.
    pub fn swap(&self, value: T) -> Option<Retired<T>> {
        self.replace(Box::into_raw(Box::new(value)))
    }

    /// Empties the cell and returns what it held.
    pub fn take(&self) -> Option<Retired<T>> {
        self.replace(ptr::null_mut())
    }

    fn replace(&self, new: *mut T) -> Option<Retired<T>> {
        // Release, pairs with `load`: the new value is complete. Acquire, pairs with the release here: so is the old one.
        let old = self.value.swap(new, Ordering::AcqRel);
        self.unlinked(old)
    }

    fn unlinked(&self, old: *mut T) -> Option<Retired<T>> {
        // SAFETY: it came out of a box when it was stored, and the caller has just unlinked it, which only one can.
        NonNull::new(old).map(|old| unsafe { Retired::new(old, self.domain.clone()) })
    }

    /// Replaces the value if it is still `current`, a reference that [`Rcu::load`] gave (`None`: if the cell is still empty).
    /// Returns the old value.
    ///
    /// There is no ABA: as long as `guard` is held, nothing else can come to lie at `current`'s address.
    ///
    /// # Errors
    ///
    /// `new`, unchanged, if the cell holds something else.
    ///
    /// # Panics
    ///
    /// If `guard` is of another domain than the cell.
    pub fn compare_exchange<'g>(
        &self, current: Option<&'g T>, new: Box<T>, guard: &'g impl Section,
    ) -> Result<Option<Retired<T>>, Box<T>> {
        self.check(guard);
        let current = current.map_or(ptr::null_mut(), |current| ptr::from_ref(current).cast_mut());
        let new = Box::into_raw(new);
        // Release, pairs with `load`: the new value is complete. Acquire, pairs with `replace`: so is the old one.
        match self.value.compare_exchange(current, new, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(old) => Ok(self.unlinked(old)),
            // SAFETY: it came out of a box a moment ago and nobody has seen it.
            Err(_) => Err(unsafe { Box::from_raw(new) }),
        }
    }

    /// Replaces the value by what `update` makes of it, again and again until nobody has been faster. Read, copy, update.
    ///
    /// `None` if the cell is empty (`update` is then not called), else the old value. Begins a section of its own; do not call
    /// it inside one that should stay short.
    ///
    /// ```
    /// let counts = stillpoint::Rcu::new(vec![1, 2]);
    /// counts.update(|old| old.iter().map(|n| n + 1).collect());
    /// assert_eq!(counts.into_inner(), Some(vec![2, 3]));
    /// ```
    pub fn update(&self, mut update: impl FnMut(&T) -> T) -> Option<Retired<T>> {
        let guard = super::home(&self.domain).read_lock();
        loop {
            let current = self.load(&guard)?;
            if let Ok(old) = self.compare_exchange(Some(current), Box::new(update(current)), &guard) {
                return old;
            }
        }
    }

    /// The value, taken out of the cell. Waits for a grace period if there is one: readers may have found it through a reference
    /// to the cell that is gone by now, in a section that is not.
    ///
    /// # Panics
    ///
    /// Inside a section of the cell's domain.
    #[must_use]
    pub fn into_inner(self) -> Option<T> {
        self.take().map(|value| *value.wait())
    }
}

#[cold]
#[inline(never)]
fn wrong_domain(guard: u64, cell: u64) -> ! {
    assert!(
        guard != 0,
        "stillpoint: a QSBR reader that is offline (its `Offline` was leaked) protects nothing; register a new one"
    );
    panic!(
        "stillpoint: a guard of domain {guard} cannot protect a cell of domain {cell}; use the read_lock() of the domain that the \
         cell was made in (domain 1 is the global one)"
    );
}

impl<T: Send + Sync + 'static> Drop for Rcu<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

impl<T: Send + Sync + 'static> Default for Rcu<T> {
    fn default() -> Self {
        Self::empty()
    }
}

impl<T: Send + Sync + 'static> From<Box<T>> for Rcu<T> {
    fn from(value: Box<T>) -> Self {
        Self { value: AtomicPtr::new(Box::into_raw(value)), domain: None }
    }
}

impl<T: fmt::Debug + Send + Sync + 'static> fmt::Debug for Rcu<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let guard = super::home(&self.domain).read_lock();
        f.debug_tuple("Rcu").field(&self.load(&guard)).finish()
    }
}
