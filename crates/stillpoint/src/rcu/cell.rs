//! Cells: `Rcu<T>`, a value that is read without a lock and replaced as a whole, and
//! `RcuOption<T>`, which may be empty. An `RcuOption` is a pointer that is replaced atomically; an
//! `Rcu` is one that is never null.
//!
//! The store that publishes a value (release) pairs with the load that finds it (acquire): the
//! reader sees the value complete. (Consume would do; Rust has none, and on x86-64 and AArch64 an
//! acquire load costs the same or one cycle more.) The store that replaces a value is also what
//! unlinks it; it comes before W1 in the program order of the thread that retires the old value.

use super::{
    core::{RCU, global_id},
    domain::{Domain, Kept, home},
    guard::Section,
    retired::{CopyOut, Retired, Weigher, request},
    thread,
    weigh::Weigh,
};
use std::{
    convert::Infallible,
    fmt,
    ptr::{self, NonNull},
    sync::atomic::{AtomicPtr, Ordering},
};

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
/// If the first value is a constant, use [`Rcu::from_static`]. If the program computes it, use an
/// [`RcuOption`], filled at the start or by [`RcuOption::load_or_init`]; or a `LazyLock<Rcu<T>>`
/// (also for a cell of another domain), if the program does not fork while another thread fills it.
///
/// # Values without a size
///
/// A cell is one word, and a pointer to a slice, `str` or trait object is two. Put such a value in
/// a box (or an `Arc`), which costs readers one more load: an `Rcu<Box<[T]>>`, `Rcu<Box<str>>` or
/// `Rcu<Box<dyn Trait>>` is read as a `&[T]`, `&str` or `&dyn Trait`.
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
    /// Never empty: only `into_inner`, which takes the cell apart, empties it.
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

    /// Makes a cell of the global domain that holds `value`, and whose values are weighed by
    /// [`Weigh`], which counts a collection's own block, and not what the elements own. See
    /// [`weighing`](Self::weighing).
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
        Self::new(value).weighing(T::heap_bytes)
    }

    /// Returns this cell, with its values weighed by `weigh`.
    ///
    /// `weigh` says how many bytes a value owns beside its own size: buffers, tables, nodes. Budgets,
    /// throttling and statistics then count that memory, too. Without it, a value with a destructor
    /// counts for 1 KiB, even if it is a map of gigabytes. [`Domain::retire_weighed`] says what is
    /// counted; the value that is in the cell is not.
    ///
    /// ```
    /// use std::collections::BTreeMap;
    /// use stillpoint::{Domain, Rcu, Weigh};
    /// static ROUTES: Rcu<BTreeMap<u32, &str>> =
    ///     Rcu::from_static(const { &BTreeMap::new() }).weighing(Weigh::heap_bytes);
    ///
    /// let of_a_domain = Rcu::new_in(&Domain::new(), String::from("v1")).weighing(String::capacity);
    ///
    /// // `Weigh` does not walk, so it does not count what the names own.
    /// let names = Rcu::new(vec!["a name".to_string()]).weighing(|names| {
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
    /// retires, with no lock of this library held and in no section that the cell has begun, while
    /// others may still read the value. So a walk over many elements costs that thread as much each
    /// time.
    ///
    /// If it panics, that is caught and counted ([`Statistics::panics`](crate::Statistics::panics)),
    /// and the value counts for its own size alone. It may use this cell; what it retires itself is not
    /// weighed. Its result is used as it is, up to 512 GiB; it is not called again for that value.
    #[must_use]
    pub const fn weighing(mut self, weigh: fn(&T) -> usize) -> Self {
        self.0.weigh = Some(weigh);
        self
    }

    /// Makes a cell of the global domain whose first value is a static one: for statics. Does not
    /// allocate.
    ///
    /// The first value is never freed or dropped. [`into_inner`](Self::into_inner),
    /// [`get_mut`](Self::get_mut) and the methods of [`Retired`] return a clone of it. Its type
    /// must have a size other than 0, which is checked: for a static, at compile time.
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

    /// Replaces the value if it is still `current`, a reference that [`Rcu::load`] returned.
    /// Returns the old value.
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
    /// Returns the old value: if you drop it, it is freed after a grace period; or
    /// [`wait`](Retired::wait) for its readers. Each attempt has a section, in which `update` runs,
    /// so it should be short. The value of a failed attempt is dropped between that section and the
    /// next. If `update` replaces this cell's value each time, it never ends.
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
    /// If a guard of that domain can only be dropped after this returns: an
    /// [`OwnedGuard`](crate::tasks_trace::OwnedGuard), or a [`Snapshot`](crate::Snapshot) with one,
    /// that the caller or another task of its thread keeps; or a guard that any thread has leaked.
    #[must_use]
    #[track_caller]
    pub fn get_mut(&mut self) -> &mut T {
        full(self.0.get_mut())
    }

    /// Returns the value, taken out of the cell. Waits for a grace period, and deadlocks, as
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

/// An [`Rcu`](crate::Rcu) cell that may be empty.
///
/// It has the methods of `Rcu`, with an `Option` in place of the value: [`load`](Self::load)
/// returns `Option<&T>`, and [`update`](Self::update) maps an `Option` to an `Option`, so that an
/// update of an empty cell is not lost. [`empty`](Self::empty) is `const`: for statics that the
/// program fills later.
///
/// ```
/// use stillpoint::{RcuOption, read_lock};
/// static CONFIG: RcuOption<Vec<&str>> = RcuOption::empty();
///
/// assert_eq!(CONFIG.load(&read_lock()), None);
/// CONFIG.store(vec!["fast"]);
/// assert_eq!(CONFIG.load(&read_lock()), Some(&vec!["fast"]));
/// ```
pub struct RcuOption<T: Send + Sync + 'static> {
    value: AtomicPtr<T>,
    /// `None`: the global one.
    domain: Option<Kept>,
    /// The value that a static cell started with, which is never freed.
    first: Option<First<T>>,
    /// Called once for each value that is retired.
    weigh: Option<Weigher<T>>,
}

struct First<T: 'static> {
    value: &'static T,
    copy: CopyOut<T>,
}

impl<T: Send + Sync + 'static> RcuOption<T> {
    /// Makes a cell of the global domain that holds nothing. Does not allocate.
    #[must_use]
    pub const fn empty() -> Self {
        Self {
            value: AtomicPtr::new(ptr::null_mut()),
            domain: None,
            first: None,
            weigh: None,
        }
    }

    /// Makes a cell of `domain` that holds nothing. The cell keeps the domain alive.
    #[must_use]
    pub fn empty_in(domain: &Domain) -> Self {
        Self::of(None, Some(domain.into()))
    }

    /// Makes a cell of the global domain that holds `value`. Allocates.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self::from(value)
    }

    /// Makes a cell of `domain` that holds `value`. Allocates. The cell keeps the domain alive.
    #[must_use]
    pub fn new_in(domain: &Domain, value: T) -> Self {
        Self::of(Some(Box::new(value)), Some(domain.into()))
    }

    /// Makes a cell whose first value is a static one. See
    /// [`Rcu::from_static`](crate::Rcu::from_static).
    const fn from_static(value: &'static T) -> Self
    where
        T: Clone,
    {
        // Otherwise a box of a value without size might have its address.
        assert!(
            size_of::<T>() != 0,
            "a value without size needs no static: use Rcu::new"
        );
        let first = First {
            value,
            copy: |value| Box::new(value.clone()),
        };
        Self {
            value: AtomicPtr::new(ptr::from_ref(value).cast_mut()),
            domain: None,
            first: Some(first),
            weigh: None,
        }
    }

    /// Returns this cell, with its values weighed by `weigh`. See
    /// [`Rcu::weighing`](crate::Rcu::weighing).
    ///
    /// ```
    /// use stillpoint::{RcuOption, Weigh};
    /// static WORDS: RcuOption<Vec<u8>> = RcuOption::empty().weighing(Weigh::heap_bytes);
    /// WORDS.store(vec![1; 1000]);
    /// ```
    #[must_use]
    pub const fn weighing(mut self, weigh: fn(&T) -> usize) -> Self {
        self.weigh = Some(weigh);
        self
    }

    fn of(value: Option<Box<T>>, domain: Option<Kept>) -> Self {
        Self {
            value: AtomicPtr::new(into_raw(value)),
            domain,
            first: None,
            weigh: None,
        }
    }

    /// Returns the present value. The kernel's `rcu_dereference()`.
    ///
    /// Costs a load and two comparisons; async-signal-safe. The value stays for as long as the
    /// guard does.
    ///
    /// # Panics
    ///
    /// If `guard` is of another domain than the cell, or an offline
    /// [`QsbrReader`](crate::QsbrReader): it would protect nothing.
    #[inline]
    #[must_use]
    #[track_caller]
    pub fn load<'g>(&self, guard: &'g impl Section) -> Option<&'g T> {
        // SAFETY: the value is alive now, because the thread that unlinks it retires it in the
        // cell's domain and the guard's section of that domain has begun before; it stays for as
        // long as the guard, which `'g` borrows.
        unsafe { self.pointer(guard).as_ref() }
    }

    /// Returns the present value's address, or null.
    #[inline(always)]
    #[track_caller]
    fn pointer(&self, guard: &impl Section) -> *const T {
        self.check(guard);
        // Acquire, pairs with `replace`, `compare_exchange` and `init`: the value is
        // complete.
        self.value.load(Ordering::Acquire)
    }

    #[inline(always)]
    #[track_caller]
    fn check(&self, guard: &impl Section) {
        let own = self
            .domain
            .as_ref()
            .map_or(const { global_id(RCU) }, |domain| domain.id());
        if guard.domain_id() != own {
            wrong_domain(guard.domain_id(), own);
        }
    }

    /// Returns a clone of the present value, which is made inside a separate section.
    #[must_use]
    pub fn load_cloned(&self) -> Option<T>
    where
        T: Clone,
    {
        self.read(|value| value.cloned())
    }

    /// Runs `read` with the present value, inside a separate section.
    ///
    /// ```
    /// let cell = stillpoint::RcuOption::new(vec![1, 2]);
    /// assert_eq!(cell.read(|value| value.map(Vec::len)), Some(2));
    /// ```
    pub fn read<R>(&self, read: impl FnOnce(Option<&T>) -> R) -> R {
        read(self.load(&home(&self.domain).read_lock()))
    }

    /// Returns the present value. If the cell is empty, stores the value that `init` returns, and
    /// returns that. If two threads do so at once, one value stays and both get it; the other is
    /// dropped, in its caller's section.
    ///
    /// It is for statics that fill themselves. It takes no lock, so several threads may call `init`
    /// at once, and a fork leaves nothing locked behind; if `init` panics, the cell stays empty for
    /// the next one. Allocates if the cell is empty. `init` runs in the caller's section: it must
    /// not wait for a grace period.
    ///
    /// ```
    /// use stillpoint::{RcuOption, read_lock};
    /// static WORDS: RcuOption<Vec<String>> = RcuOption::empty();
    /// let guard = read_lock();
    /// let words = WORDS.load_or_init(&guard, || vec!["found".to_string()]);
    /// assert_eq!(words, &["found"]);
    /// ```
    ///
    /// # Panics
    ///
    /// As [`load`](Self::load).
    #[inline]
    #[track_caller]
    pub fn load_or_init<'g>(&self, guard: &'g impl Section, init: impl FnOnce() -> T) -> &'g T {
        match self.load(guard) {
            Some(value) => value,
            None => self.init(guard, init()),
        }
    }

    /// Puts `value` into the cell if that is still empty.
    #[cold]
    #[track_caller]
    fn init<'g>(&self, guard: &'g impl Section, value: T) -> &'g T {
        let new = Box::into_raw(Box::new(value));
        loop {
            // Release, pairs with `pointer`: the value is complete.
            if self
                .value
                .compare_exchange(ptr::null_mut(), new, Ordering::Release, Ordering::Relaxed)
                .is_ok()
            {
                // SAFETY: as in `load`: if it has been unlinked since, then after the guard's
                // section had begun.
                return unsafe { &*new };
            }
            if let Some(value) = self.load(guard) {
                // SAFETY: it came out of a box above and was never published.
                drop(unsafe { Box::from_raw(new) });
                return value;
            }
        }
    }

    /// Returns the present value outside any section: for the only updater. See
    /// [`Rcu::peek`](crate::Rcu::peek).
    ///
    /// # Safety
    ///
    /// No thread replaces it for as long as the reference is used.
    #[must_use]
    pub unsafe fn peek(&self) -> Option<&T> {
        // SAFETY: alive, because only a thread that replaces it retires it.
        // Acquire, pairs with `replace`, `compare_exchange` and `init`: the value is complete.
        unsafe { self.value.load(Ordering::Acquire).as_ref() }
    }

    /// Returns whether the cell holds nothing at this moment.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.value.load(Ordering::Relaxed).is_null()
    }

    /// Replaces the value; the old one is freed after a grace period. The kernel's
    /// `rcu_assign_pointer()` and `kvfree_rcu()`.
    ///
    /// Allocates, retires; may wait a bounded time where [`Domain::retire`] does.
    #[inline]
    pub fn store(&self, value: T) {
        let old = self.replace(into_raw(Some(Box::new(value))));
        // As a `Retired` does when it is dropped, without a handle of the domain.
        if let Some(value) = NonNull::new(old)
            && self.copy_of_first(old).is_none()
        {
            let core = home(&self.domain).core();
            // SAFETY: it came out of a box when it was stored; it has just been unlinked, which only
            // one thread can; and it is Send.
            unsafe { thread::retire(core, request(core, value, self.weigh)) };
        }
    }

    /// Replaces the value and returns the old one, which readers may still be using. Allocates.
    #[inline]
    #[must_use = "to drop the old value: `store`"]
    pub fn swap(&self, value: T) -> Option<Retired<T>> {
        self.unlinked(self.replace(into_raw(Some(Box::new(value)))))
    }

    /// Empties the cell and returns what it held, which readers may still be using.
    pub fn take(&self) -> Option<Retired<T>> {
        self.unlinked(self.replace(ptr::null_mut()))
    }

    /// Puts `new` into the cell, and returns what that held.
    #[inline]
    fn replace(&self, new: *mut T) -> *mut T {
        // Release, pairs with `pointer`: the new value is complete. Acquire, pairs with the release
        // here: so is the old one.
        self.value.swap(new, Ordering::AcqRel)
    }

    #[inline]
    fn unlinked(&self, old: *mut T) -> Option<Retired<T>> {
        // SAFETY: it came out of a box when it was stored, or is the first; the caller has just
        // unlinked it, which only one can.
        NonNull::new(old).map(|old| unsafe {
            Retired::new(
                old,
                self.domain.clone(),
                self.copy_of_first(old.as_ptr()),
                self.weigh,
            )
        })
    }

    /// Returns the function that copies `value` if that is the first value of a static cell, which
    /// cannot be moved out.
    fn copy_of_first(&self, value: *const T) -> Option<CopyOut<T>> {
        self.first
            .as_ref()
            .filter(|first| ptr::eq(first.value, value))
            .map(|first| first.copy)
    }

    /// Replaces the value if it is still `current`, which [`load`](Self::load) returned. Returns
    /// the old value.
    ///
    /// There is no ABA: as long as `guard` is held, nothing else can come to lie at `current`'s
    /// address. (All values of a type of size 0 lie at one address, and count as one. A cell that
    /// is empty may have held a value meanwhile.)
    ///
    /// # Errors
    ///
    /// `new`, unchanged, if the cell holds something else.
    ///
    /// # Panics
    ///
    /// If `guard` is of another domain than the cell.
    #[track_caller]
    pub fn compare_exchange<'g>(
        &self,
        current: Option<&'g T>,
        new: Option<Box<T>>,
        guard: &'g impl Section,
    ) -> Result<Option<Retired<T>>, Option<Box<T>>> {
        self.check(guard);
        let current = current.map_or(ptr::null_mut(), |current| ptr::from_ref(current).cast_mut());
        let new = into_raw(new);
        // Release, pairs with `pointer`: the new value is complete. Acquire, pairs with `replace`:
        // so is the old one.
        match self
            .value
            .compare_exchange(current, new, Ordering::AcqRel, Ordering::Relaxed)
        {
            Ok(old) => Ok(self.unlinked(old)),
            // SAFETY: it came out of a box a moment ago and was never published.
            Err(_) => Err(NonNull::new(new).map(|new| unsafe { Box::from_raw(new.as_ptr()) })),
        }
    }

    /// Replaces what the cell holds by what `update` makes of it. See
    /// [`Rcu::update`](crate::Rcu::update).
    ///
    /// `update` is also called for an empty cell, and may empty the cell. Returns what it held.
    ///
    /// ```
    /// let count = stillpoint::RcuOption::empty();
    /// count.update(|old| Some(old.copied().unwrap_or_default() + 1));
    /// assert_eq!(count.into_inner(), Some(1));
    /// ```
    pub fn update(&self, mut update: impl FnMut(Option<&T>) -> Option<T>) -> Option<Retired<T>> {
        let Ok((old, ())) = self.try_replace(|old| Ok::<_, Infallible>((update(old), ())));
        old
    }

    /// Like [`RcuOption::update`], for a closure that may refuse, which leaves the cell as it is.
    /// See [`Rcu::try_update`](crate::Rcu::try_update).
    ///
    /// # Errors
    ///
    /// The error that `update` returned.
    #[inline]
    pub fn try_update<E>(
        &self,
        mut update: impl FnMut(Option<&T>) -> Result<Option<T>, E>,
    ) -> Result<Option<Retired<T>>, E> {
        self.try_replace(|old| Ok((update(old)?, ())))
            .map(|(old, ())| old)
    }

    /// Changes a clone of what the cell holds and publishes it. Returns what `modify` does. See
    /// [`Rcu::modify`](crate::Rcu::modify).
    pub fn modify<R>(&self, mut modify: impl FnMut(&mut Option<T>) -> R) -> R
    where
        T: Clone,
    {
        let Ok((_, result)) = self.try_replace(|old| {
            let mut new = old.cloned();
            let result = modify(&mut new);
            Ok::<_, Infallible>((new, result))
        });
        result
    }

    /// Replaces the value by what `replace` makes of it, until no other thread has been faster.
    /// Returns the old one and what else `replace` made.
    ///
    /// Each attempt has a separate section. The value of a failed one is dropped after that: a
    /// destructor may wait for a grace period.
    #[inline]
    fn try_replace<R, E>(
        &self,
        mut replace: impl FnMut(Option<&T>) -> Result<(Option<T>, R), E>,
    ) -> Result<(Option<Retired<T>>, R), E> {
        loop {
            let guard = home(&self.domain).read_lock();
            let current = self.load(&guard);
            let (new, result) = replace(current)?;
            match self.compare_exchange(current, new.map(Box::new), &guard) {
                Ok(old) => return Ok((old, result)),
                Err(rejected) => {
                    drop(guard);
                    drop((rejected, result));
                }
            }
        }
    }

    /// Returns the value, to be changed in place. See [`Rcu::get_mut`](crate::Rcu::get_mut).
    ///
    /// # Panics
    ///
    /// Inside a section of the cell's domain, unless the cell is empty.
    #[track_caller]
    pub fn get_mut(&mut self) -> Option<&mut T> {
        let value = *self.value.get_mut();
        if let Some(copy) = self.copy_of_first(value) {
            // SAFETY: the first value is static.
            *self.value.get_mut() = Box::into_raw(copy(unsafe { &*value }));
        } else if !value.is_null() {
            home(&self.domain).synchronize();
        }
        // SAFETY: it came out of a box, and is still ours. Readers can find it only through this
        // cell, which we have exclusively; readers that had found it have left, or it is a copy
        // that none has seen.
        unsafe { self.value.get_mut().as_mut() }
    }

    /// Takes the value out of the cell. See [`Rcu::into_inner`](crate::Rcu::into_inner).
    ///
    /// # Panics
    ///
    /// Inside a section of the cell's domain, unless the cell is empty.
    #[must_use]
    #[track_caller]
    pub fn into_inner(self) -> Option<T> {
        // Not `map`: the panic must name the caller's line.
        let value = self.take()?;
        Some(*value.wait())
    }
}

fn into_raw<T>(value: Option<Box<T>>) -> *mut T {
    value.map_or(ptr::null_mut(), Box::into_raw)
}

#[cold]
#[inline(never)]
#[track_caller]
fn wrong_domain(guard: u64, cell: u64) -> ! {
    assert!(
        guard != 0,
        "stillpoint: a QSBR reader that is offline (its `Offline` was leaked) protects nothing; register a new one"
    );
    panic!(
        "stillpoint: a guard of domain {guard} cannot protect a cell of domain {cell}; use the read_lock() of the domain that the \
         cell was made in (domain 1 is the crate's global one, domain 2 that of `tasks_trace`)"
    );
}

impl<T: Send + Sync + 'static> Drop for RcuOption<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

impl<T: Send + Sync + 'static> Default for RcuOption<T> {
    /// Makes an empty cell.
    fn default() -> Self {
        Self::empty()
    }
}

impl<T: Send + Sync + 'static> From<T> for RcuOption<T> {
    fn from(value: T) -> Self {
        Self::from(Box::new(value))
    }
}

impl<T: Send + Sync + 'static> From<Box<T>> for RcuOption<T> {
    fn from(value: Box<T>) -> Self {
        Self::of(Some(value), None)
    }
}

impl<T: Send + Sync + 'static> From<Option<T>> for RcuOption<T> {
    fn from(value: Option<T>) -> Self {
        Self::of(value.map(Box::new), None)
    }
}

impl<T: fmt::Debug + Send + Sync + 'static> fmt::Debug for RcuOption<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.read(|value| f.debug_tuple("RcuOption").field(&value).finish())
    }
}
