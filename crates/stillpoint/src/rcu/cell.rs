//! `Rcu<T>`: a value that is read without a lock and replaced as a whole.

use super::{Domain, RcuOption, Retired, Section, Weigh};
use std::{convert::Infallible, fmt};

/// A cell whose value is read inside read-side critical sections, without a lock or a write, and
/// replaced as a whole.
///
/// The kernel's `__rcu` pointer with `rcu_dereference()` and `rcu_assign_pointer()`. It always
/// holds a value; one that may be empty is an [`RcuOption`]. It belongs to a domain: the global one
/// ([`Rcu::new`]) or another ([`Rcu::new_in`]). Dropping a cell retires its value, which stays in
/// place for readers that have found it, until their sections end.
///
/// ```
/// use stillpoint::{Rcu, read_lock};
///
/// let config = Rcu::new(vec!["fast"]);
/// let guard = read_lock();
/// let seen = config.load(&guard);
/// config.store(vec!["fast", "small"]); // the old value is freed when no reader is left
/// assert_eq!(seen, &["fast"]);
/// assert_eq!(config.load(&guard), &["fast", "small"]);
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
///
/// # Statics
///
/// If the compiler can make the first value, use [`Rcu::from_static`]. If the program makes it, use
/// an [`RcuOption`], filled at the start or by [`RcuOption::load_or_init`]; or a `LazyLock<Rcu<T>>`
/// (also for a cell of another domain), if the program does not fork while another thread fills it.
///
/// # Values without a size
///
/// A cell is one word that a reader loads, and a pointer to a slice, `str` or trait object is two.
/// Put it in a box (or an `Arc`), and a reader pays one more load: an `Rcu<Box<[T]>>`,
/// `Rcu<Box<str>>` or `Rcu<Box<dyn Trait>>` is read as a `&[T]`, `&str` or `&dyn Trait`.
///
/// ```
/// let ports = stillpoint::Rcu::new(Box::<[u16]>::from([80, 443]));
/// let guard = stillpoint::read_lock();
/// let ports: &[u16] = ports.load(&guard);
/// assert_eq!(ports, [80, 443]);
/// ```
///
/// # User code
///
/// Closures that are handed to a cell, `Clone` of its values, and their `Debug`, run inside a
/// section, with no lock held. They may use the same cell; they may panic, which leaves the cell as
/// it was. They must not wait for a grace period of the cell's domain: that panics, or never ends
/// if the section is an [`OwnedGuard`](crate::tasks_trace::OwnedGuard)'s, or if they block on a
/// future. Whatever else they wait for delays the domain's deferred frees, too.
pub struct Rcu<T: Send + Sync + 'static>(
    /// Never empty: it is made full, and none of our methods empties it but the one that takes the
    /// cell apart.
    RcuOption<T>,
);

/// Unwraps a value that an `Rcu` holds, or held.
#[track_caller]
fn full<V>(value: Option<V>) -> V {
    value.expect("an Rcu is never empty")
}

impl<T: Send + Sync + 'static> Rcu<T> {
    /// Makes a cell of the global domain that holds `value`. Allocates.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self(RcuOption::new(value))
    }

    /// Makes a cell of `domain` that holds `value`. Allocates. The cell keeps the domain alive.
    #[must_use]
    pub fn new_in(domain: &Domain, value: T) -> Self {
        Self(RcuOption::new_in(domain, value))
    }

    /// Makes a cell of the global domain that holds `value`, and whose values are weighed.
    /// Allocates.
    ///
    /// `weigh` says how many bytes a value owns beside its own size: buffers, tables, nodes.
    /// Budgets, throttling and statistics then count that memory, too. Without it, a value with a
    /// destructor counts for 1 KiB, be it a map of gigabytes. [`Domain::retire_weighed`] says what is
    /// counted; the present value is not.
    ///
    /// ```
    /// use stillpoint::{Rcu, Weigh};
    /// // What the names own is not seen by `Weigh`, which does not walk.
    /// let names = Rcu::weighed_by(vec!["a name".to_string()], |names| {
    ///     names.heap_bytes() + names.iter().map(Weigh::heap_bytes).sum::<usize>()
    /// });
    /// names.modify(|names| names.push("another".into()));
    /// ```
    ///
    /// # When it is called
    ///
    /// `weigh` is called once for each value, when it is retired: in [`store`](Self::store), in
    /// [`modify`](Self::modify), where a [`Retired`] is dropped, and where the cell is dropped; not
    /// where the value is given back, by [`into_inner`](Self::into_inner) or [`Retired::wait`], and
    /// not for the first value of a [static](Self::from_static). It runs on the thread that
    /// retires, with nothing locked and in no section of ours, while others may still read the
    /// value. So a walk over many elements costs that thread as much each time.
    ///
    /// If it panics, that is caught and counted
    /// ([`Statistics::panics`](crate::Statistics::panics)); and the value weighs its own size alone. It
    /// may use this cell; what it retires itself is not weighed. Its answer is counted as it is, at
    /// most 512 GiB, and no second one is asked for.
    #[must_use]
    pub fn weighed_by(value: T, weigh: fn(&T) -> usize) -> Self {
        Self(RcuOption::weighed_by(value, weigh))
    }

    /// Like [`weighed_by`](Self::weighed_by), with [`Weigh`], which counts a collection's own
    /// block, and not what the elements own.
    ///
    /// ```
    /// use std::collections::HashMap;
    /// use stillpoint::{Rcu, global};
    /// let guard = global().read_lock();
    /// let map: HashMap<u32, u32> = (0..50_000).map(|route| (route, route)).collect();
    /// let routes = Rcu::weighed(map);
    /// routes.modify(|routes| routes.insert(1, 7));
    /// assert!(global().statistics().bytes_pending > 50_000 * 8); // one map
    /// # drop(guard);
    /// ```
    #[must_use]
    pub fn weighed(value: T) -> Self
    where
        T: Weigh,
    {
        Self(RcuOption::weighed(value))
    }

    /// Returns this cell, with its values weighed by `weigh`, as in
    /// [`weighed_by`](Self::weighed_by): for statics, and cells of other domains.
    ///
    /// ```
    /// use std::collections::BTreeMap;
    /// use stillpoint::{Domain, Rcu, Weigh};
    /// static ROUTES: Rcu<BTreeMap<u32, &str>> =
    ///     Rcu::from_static(const { &BTreeMap::new() }).weighing(Weigh::heap_bytes);
    ///
    /// let of_a_domain = Rcu::new_in(&Domain::new(), String::from("v1")).weighing(String::capacity);
    /// ```
    #[must_use]
    pub const fn weighing(mut self, weigh: fn(&T) -> usize) -> Self {
        self.0.weigh = Some(weigh);
        self
    }

    /// Makes a cell of the global domain whose first value is a static one: for statics. Does not
    /// allocate.
    ///
    /// The first value is never freed or dropped. Where a value is given away, by
    /// [`into_inner`](Self::into_inner), [`get_mut`](Self::get_mut) or a method of [`Retired`], a
    /// clone of it is given. Its type must have a size other than 0, which is checked: in a static,
    /// when it is compiled.
    ///
    /// ```
    /// use std::collections::BTreeMap;
    /// use stillpoint::{Rcu, read_lock};
    ///
    /// #[derive(Clone)]
    /// struct Limits { requests: u32 }
    /// static LIMITS: Rcu<Limits> = Rcu::from_static(&Limits { requests: 100 });
    /// // `const`, because a map has a destructor.
    /// static ROUTES: Rcu<BTreeMap<u32, &str>> = Rcu::from_static(const { &BTreeMap::new() });
    ///
    /// assert_eq!(LIMITS.load(&read_lock()).requests, 100);
    /// LIMITS.store(Limits { requests: 200 });
    /// ROUTES.modify(|routes| routes.insert(1, "eth0"));
    /// assert_eq!(ROUTES.load(&read_lock()).len(), 1);
    /// ```
    #[must_use]
    pub const fn from_static(value: &'static T) -> Self
    where
        T: Clone,
    {
        Self(RcuOption::from_static(value))
    }

    /// Returns the present value. The kernel's `rcu_dereference()`.
    ///
    /// Costs a load and a comparison; async-signal-safe. The value stays for as long as the guard
    /// does.
    ///
    /// # Panics
    ///
    /// If `guard` is of another domain than the cell, or an offline
    /// [`QsbrReader`](crate::QsbrReader): it would protect nothing.
    #[inline]
    #[must_use]
    #[track_caller]
    pub fn load<'g>(&self, guard: &'g impl Section) -> &'g T {
        // SAFETY: never null, by the field's promise; it is alive, and stays for as long as the
        // guard, as in `RcuOption::load`.
        unsafe { &*self.0.pointer(guard) }
    }

    /// Returns a clone of the present value, which is made inside a separate section.
    #[must_use]
    pub fn load_cloned(&self) -> T
    where
        T: Clone,
    {
        self.read(T::clone)
    }

    /// Runs `read` with the present value, inside a separate section.
    ///
    /// ```
    /// let cell = stillpoint::Rcu::new(vec![1, 2]);
    /// assert_eq!(cell.read(Vec::len), 2);
    /// ```
    pub fn read<R>(&self, read: impl FnOnce(&T) -> R) -> R {
        self.0.read(|value| read(full(value)))
    }

    /// Returns the present value outside any section: for the only updater, which holds a lock,
    /// say. The kernel's `rcu_dereference_protected()`.
    ///
    /// # Safety
    ///
    /// No thread replaces it for as long as the reference is used.
    ///
    /// ```
    /// # use std::sync::Mutex;
    /// # use stillpoint::Rcu;
    /// static LIST: Rcu<Vec<u32>> = Rcu::from_static(const { &Vec::new() });
    /// static CHANGE: Mutex<()> = Mutex::new(());
    ///
    /// fn add(number: u32) {
    ///     let _change = CHANGE.lock().unwrap();
    ///     // SAFETY: the list is replaced under this lock alone.
    ///     let mut list = unsafe { LIST.peek() }.clone();
    ///     list.push(number);
    ///     LIST.store(list);
    /// }
    /// add(1);
    /// add(2);
    /// stillpoint::read(|guard| assert_eq!(LIST.load(guard), &[1, 2]));
    /// ```
    #[must_use]
    pub unsafe fn peek(&self) -> &T {
        // SAFETY: the caller's promise.
        full(unsafe { self.0.peek() })
    }

    /// Replaces the value; the old one is freed after a grace period. The kernel's
    /// `rcu_assign_pointer()` and `kvfree_rcu()`.
    ///
    /// Allocates, retires; may wait a bounded time where [`Domain::retire`] does.
    #[inline]
    pub fn store(&self, value: T) {
        self.0.store(value);
    }

    /// Replaces the value and returns the old one, which readers may still be using. Allocates.
    #[inline]
    #[must_use = "to drop the old value: `store`"]
    pub fn swap(&self, value: T) -> Retired<T> {
        full(self.0.swap(value))
    }

    /// Replaces the value if it is still `current`, a reference that [`Rcu::load`] gave. Returns
    /// the old value.
    ///
    /// There is no ABA: as long as `guard` is held, nothing else can come to lie at `current`'s
    /// address. (All values of a type of size 0 lie at one address, and count as one.)
    ///
    /// # Errors
    ///
    /// `new`, unchanged, if the cell holds something else.
    ///
    /// # Panics
    ///
    /// As [`load`](Self::load).
    #[track_caller]
    pub fn compare_exchange<'g>(
        &self,
        current: &'g T,
        new: Box<T>,
        guard: &'g impl Section,
    ) -> Result<Retired<T>, Box<T>> {
        self.0
            .compare_exchange(Some(current), Some(new), guard)
            .map(full)
            .map_err(full)
    }

    /// Replaces the value by what `update` makes of it, again and again until no other thread has
    /// been faster. Read, copy, update.
    ///
    /// Returns the old value: drop it to have it freed after a grace period, or
    /// [`wait`](Retired::wait) for its readers. Each attempt has a section, in which `update` runs,
    /// so it should be short. The value of a failed attempt is dropped between that section and the
    /// next. If it replaces this cell's value itself, each time, it never ends.
    ///
    /// ```
    /// let counts = stillpoint::Rcu::new(vec![1, 2]);
    /// counts.update(|old| old.iter().map(|n| n + 1).collect());
    /// assert_eq!(counts.into_inner(), [2, 3]);
    /// ```
    #[inline]
    pub fn update(&self, mut update: impl FnMut(&T) -> T) -> Retired<T> {
        let Ok(old) = self.try_update(|old| Ok::<_, Infallible>(update(old)));
        old
    }

    /// Like [`Rcu::update`], for a closure that may refuse, which leaves the cell as it is.
    ///
    /// ```
    /// let seats = stillpoint::Rcu::new(1_u32);
    /// let book = || seats.try_update(|free| free.checked_sub(1).ok_or("sold out")).map(drop);
    /// assert_eq!((book(), book()), (Ok(()), Err("sold out")));
    /// ```
    ///
    /// # Errors
    ///
    /// The error that `update` returned.
    #[inline]
    pub fn try_update<E>(
        &self,
        mut update: impl FnMut(&T) -> Result<T, E>,
    ) -> Result<Retired<T>, E> {
        self.0
            .try_update(|old| update(full(old)).map(Some))
            .map(full)
    }

    /// Changes a clone of the value and publishes it, again and again until no other thread has
    /// been faster. Returns what `modify` does.
    ///
    /// As [`update`](Self::update); the old value is freed after a grace period.
    ///
    /// ```
    /// use std::collections::HashMap;
    /// let routes = stillpoint::Rcu::new(HashMap::from([(1, "eth0")]));
    /// let removed = routes.modify(|routes| routes.remove(&1));
    /// assert_eq!(removed, Some("eth0"));
    /// ```
    pub fn modify<R>(&self, mut modify: impl FnMut(&mut T) -> R) -> R
    where
        T: Clone,
    {
        let Ok((_, result)) = self.0.try_replace(|old| {
            let mut new = full(old).clone();
            let result = modify(&mut new);
            Ok::<_, Infallible>((Some(new), result))
        });
        result
    }

    /// Returns the value, to be changed in place. Waits for a grace period: readers may have found
    /// it through a reference to the cell that no longer exists, in a section that has not ended.
    /// (The first value of a [static](Self::from_static) is cloned instead, without waiting.)
    ///
    /// # Panics
    ///
    /// Inside a section of the cell's domain, unless it clones.
    ///
    /// # Deadlocks
    ///
    /// If a guard of that domain is never dropped before this returns: an
    /// [`OwnedGuard`](crate::tasks_trace::OwnedGuard) or a [`Snapshot`](crate::Snapshot) with one
    /// that the caller keeps, or another task of its thread; one that any thread has leaked.
    #[must_use]
    #[track_caller]
    pub fn get_mut(&mut self) -> &mut T {
        full(self.0.get_mut())
    }

    /// The value, taken out of the cell. Waits for a grace period, and deadlocks, as
    /// [`get_mut`](Self::get_mut).
    ///
    /// # Panics
    ///
    /// Inside a section of the cell's domain; the value is then retired, and lost to the caller.
    #[must_use]
    #[track_caller]
    pub fn into_inner(self) -> T {
        full(self.0.into_inner())
    }
}

impl<T: Default + Send + Sync + 'static> Default for Rcu<T> {
    /// Makes a cell of the global domain that holds `T`'s default.
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: Send + Sync + 'static> From<T> for Rcu<T> {
    /// Makes a cell of the global domain.
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T: Send + Sync + 'static> From<Box<T>> for Rcu<T> {
    /// Makes a cell of the global domain.
    fn from(value: Box<T>) -> Self {
        Self(value.into())
    }
}

impl<T: fmt::Debug + Send + Sync + 'static> fmt::Debug for Rcu<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.read(|value| f.debug_tuple("Rcu").field(value).finish())
    }
}
