//! The methods that change a `CopyMap`, in a section.

use super::{core::Changed, fast::Cut, map::PinnedCopyMap};
use crate::outcome::Operation;
use equivalent::Equivalent;
use std::hash::{BuildHasher, Hash};

/// What [`PinnedCopyMap::compute`] has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyCompute<K, V, T> {
    /// It has inserted this entry.
    Inserted(K, V),
    /// It has replaced an entry.
    Updated {
        /// The entry that was replaced.
        old: (K, V),
        /// The one that has replaced it.
        new: (K, V),
    },
    /// It has removed this entry.
    Removed(K, V),
    /// It has done nothing.
    Aborted(T),
}

/// What is to be done with the entry of a key, and what to return then.
enum Act<K, V, R> {
    Put((K, V), R),
    Take(R),
    Leave(R),
}

impl<K, V, S> PinnedCopyMap<K, V, S>
where
    K: Copy + Hash + Eq + Send + 'static,
    V: Copy + Send + 'static,
    S: BuildHasher,
{
    /// Does what `decide` says about the entry of a key. It is asked again if another thread was
    /// faster.
    fn act<Q, R>(&self, key: &Q, decide: impl FnMut(Option<(K, V)>) -> Act<K, V, R>) -> R
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.act_on(key, self.hash(key), decide)
    }

    /// As `act`, for a key with this hash.
    fn act_on<Q, R>(
        &self,
        key: &Q,
        hash: u64,
        mut decide: impl FnMut(Option<(K, V)>) -> Act<K, V, R>,
    ) -> R
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        // What was decided for a map without a table.
        let mut decided = None;
        let writer = match self.writer() {
            Some(writer) => writer,
            None => match decide(None) {
                Act::Leave(with) => return with,
                act => {
                    decided = Some(act);
                    self.root
                        .core_for(0, false)
                        .and_then(|_| self.writer())
                        .unwrap_or_else(|| self.root.no_room(0))
                }
            },
        };
        loop {
            let look = writer.look(hash, |other| key.equivalent(other));
            let act = match decided.take() {
                Some(act) if look.pair().is_none() => act,
                _ => decide(look.pair()),
            };
            let (changed, with) = match act {
                Act::Leave(with) => return with,
                Act::Put(pair, with) => (look.put(pair), with),
                Act::Take(with) => (look.take(), with),
            };
            match changed {
                Changed::Done => return with,
                Changed::NotSame => {}
            }
        }
    }

    /// Inserts an entry if that asks for no more than [`Writer::add`](crate::section::Writer::add). Else
    /// returns the key's hash.
    #[inline(always)]
    fn add_at_once(&self, key: K, value: V) -> Result<(), u64> {
        let hash = self.hash(&key);
        match self.writer() {
            Some(writer) if writer.add(hash, (key, value)) => Ok(()),
            _ => Err(hash),
        }
    }

    #[inline(never)]
    fn insert_if_new(&self, key: K, hash: u64, make: impl FnOnce() -> V) -> Result<V, V> {
        let mut make = once(make);
        let insert = |found| match found {
            Some((_, value)) => Act::Leave(Err(value)),
            None => {
                let value = make();
                Act::Put((key, value), Ok(value))
            }
        };
        self.act_on(&key, hash, insert)
    }

    #[inline(never)]
    fn insert_slowly(&self, key: K, value: V, hash: u64) -> Option<V> {
        let replace = |found: Option<(K, V)>| Act::Put((key, value), found.map(|(_, value)| value));
        self.act_on(&key, hash, replace)
    }

    #[inline(never)]
    fn remove_slowly<Q>(&self, key: &Q, hash: u64) -> Option<(K, V)>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let take = |found: Option<(K, V)>| match found {
            Some(_) => Act::Take(found),
            None => Act::Leave(None),
        };
        self.act_on(key, hash, take)
    }

    /// Inserts an entry. Returns the value that it has replaced, if there was one with that key.
    /// The old key is replaced, too.
    ///
    /// Does not block, but for a lock of the bucket, which other threads hold for nanoseconds.
    /// Allocates if the bucket has no free slot. If the domain has used up its memory budget, the
    /// end of the section may wait, for a bounded time. Not async-signal-safe.
    ///
    /// ```
    /// let map = stillpoint_map::CopyMap::new();
    /// let map = map.pin();
    /// assert_eq!(map.insert(7, 1), None);
    /// assert_eq!(map.insert(7, 2), Some(1));
    /// assert_eq!(map.get(&7), Some(2));
    /// ```
    #[inline]
    pub fn insert(&self, key: K, value: V) -> Option<V> {
        match self.add_at_once(key, value) {
            Ok(()) => None,
            Err(hash) => self.insert_slowly(key, value, hash),
        }
    }

    /// Inserts an entry, unless there is one with that key. Returns the value. Otherwise as
    /// [`insert`](Self::insert).
    ///
    /// # Errors
    ///
    /// The value that is in the map.
    ///
    /// ```
    /// let map = stillpoint_map::CopyMap::new();
    /// let map = map.pin();
    /// assert_eq!(map.try_insert(7, 1), Ok(1));
    /// assert_eq!(map.try_insert(7, 2), Err(1));
    /// ```
    #[doc(alias("insert_unique", "put_if_absent"))]
    #[inline]
    pub fn try_insert(&self, key: K, value: V) -> Result<V, V> {
        match self.add_at_once(key, value) {
            Ok(()) => Ok(value),
            Err(hash) => self.insert_if_new(key, hash, || value),
        }
    }

    /// Inserts an entry with the value that `make` returns, unless there is one with that key.
    /// Returns the value. Otherwise as [`insert`](Self::insert).
    ///
    /// `make` is called once, if the key is not found at first.
    ///
    /// # Errors
    ///
    /// The value that is in the map.
    pub fn try_insert_with(&self, key: K, make: impl FnOnce() -> V) -> Result<V, V> {
        self.insert_if_new(key, self.hash(&key), make)
    }

    /// Returns the value of a key, which is `value` if there was none. Otherwise as
    /// [`insert`](Self::insert).
    #[doc(alias = "or_insert")]
    pub fn get_or_insert(&self, key: K, value: V) -> V {
        let (Ok(value) | Err(value)) = self.try_insert(key, value);
        value
    }

    /// Returns the value of a key, made by `make` if there was none. Otherwise as
    /// [`try_insert_with`](Self::try_insert_with).
    #[doc(alias("entry", "or_insert_with", "or_default"))]
    pub fn get_or_insert_with(&self, key: K, make: impl FnOnce() -> V) -> V {
        let (Ok(value) | Err(value)) = self.try_insert_with(key, make);
        value
    }

    /// Replaces the value of a key by what `update` makes of it. Returns the new value, or `None`
    /// if there is no such key. Otherwise as [`insert`](Self::insert).
    ///
    /// `update` is called again if another thread has changed the entry meanwhile.
    ///
    /// ```
    /// let map = stillpoint_map::CopyMap::from([(7, 1)]);
    /// let map = map.pin();
    /// assert_eq!(map.update(&7, |number| number + 1), Some(2));
    /// assert_eq!(map.update(&8, |number| number + 1), None);
    /// ```
    #[doc(alias("alter", "and_modify", "get_mut", "modify"))]
    pub fn update<Q>(&self, key: &Q, mut update: impl FnMut(V) -> V) -> Option<V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.act(key, |found| match found {
            Some((key, value)) => {
                let new = update(value);
                Act::Put((key, new), Some(new))
            }
            None => Act::Leave(None),
        })
    }

    /// Replaces the value of `key` with `update(old)`, or inserts `value` if there is none. Returns the new
    /// value. Otherwise as [`update`](Self::update).
    #[doc(alias = "upsert")]
    pub fn update_or_insert(&self, key: K, update: impl FnMut(V) -> V, value: V) -> V {
        self.update_or_insert_with(key, update, || value)
    }

    /// Replaces the value of `key` with `update(old)`, or inserts `make()` if there is none. Returns the new
    /// value. Otherwise as [`update`](Self::update). `make` is called at most once.
    #[doc(alias("upsert", "entry", "and_modify"))]
    pub fn update_or_insert_with(
        &self,
        key: K,
        mut update: impl FnMut(V) -> V,
        make: impl FnOnce() -> V,
    ) -> V {
        let mut make = once(make);
        self.act(&key, |found| {
            let new = found.map_or_else(&mut make, |(_, value)| update(value));
            Act::Put((key, new), new)
        })
    }

    /// Calls `compute` with the current entry of `key`, and inserts, replaces, removes or keeps it as the result
    /// says. Returns what was done. Otherwise as [`insert`](Self::insert).
    ///
    /// The operation is atomic: if another thread changes the entry meanwhile, `compute` is called again.
    ///
    /// ```
    /// use stillpoint_map::{CopyCompute, CopyMap, Operation};
    ///
    /// let stock = CopyMap::from([('a', 1)]);
    /// let stock = stock.pin();
    /// let take = |entry: Option<(char, u32)>| match entry {
    ///     None => Operation::Abort("sold out"),
    ///     Some((_, 1)) => Operation::Remove,
    ///     Some((_, number)) => Operation::Insert(number - 1),
    /// };
    /// assert_eq!(stock.compute(&'a', take), CopyCompute::Removed('a', 1));
    /// assert_eq!(stock.compute(&'a', take), CopyCompute::Aborted("sold out"));
    /// ```
    ///
    /// # Panics
    ///
    /// If `compute` returns [`Operation::Remove`] for `None`.
    #[doc(alias("entry", "alter"))]
    #[track_caller]
    pub fn compute<Q, T>(
        &self,
        key: &Q,
        mut compute: impl FnMut(Option<(K, V)>) -> Operation<V, T>,
    ) -> CopyCompute<K, V, T>
    where
        Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized,
    {
        self.act(key, |found| match (compute(found), found) {
            (Operation::Abort(with), _) => Act::Leave(CopyCompute::Aborted(with)),
            (Operation::Remove, Some((key, value))) => Act::Take(CopyCompute::Removed(key, value)),
            (Operation::Remove, None) => {
                panic!("`Operation::Remove` for a key that is not there: return `Abort` for `None`")
            }
            (Operation::Insert(value), Some(old)) => {
                let new = (key.to_owned(), value);
                Act::Put(new, CopyCompute::Updated { old, new })
            }
            (Operation::Insert(value), None) => {
                let key = key.to_owned();
                Act::Put((key, value), CopyCompute::Inserted(key, value))
            }
        })
    }

    /// Removes an entry, and returns its value.
    ///
    /// Does not block, but for a lock of the bucket. The removal of an entry that lies in a list behind
    /// its bucket ([costs](Self#costs)) copies another node of that: so it allocates, and without memory
    /// the process ends. If the domain has used up its memory budget, the end of
    /// the section may wait, for a bounded time. Not async-signal-safe.
    ///
    /// ```
    /// let map = stillpoint_map::CopyMap::from([(7, 1)]);
    /// let map = map.pin();
    /// assert_eq!(map.remove(&7), Some(1));
    /// assert_eq!(map.remove(&7), None);
    /// ```
    #[inline]
    pub fn remove<Q>(&self, key: &Q) -> Option<V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        Some(self.remove_entry(key)?.1)
    }

    /// Removes an entry, and returns its key and value. Otherwise as [`remove`](Self::remove).
    #[inline]
    pub fn remove_entry<Q>(&self, key: &Q) -> Option<(K, V)>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let (writer, hash) = (self.writer()?, self.hash(key));
        match writer.cut(hash, |other| key.equivalent(other)) {
            Cut::Done(key, value) => Some((key, value)),
            Cut::NotThere => None,
            Cut::NotSoFast => self.remove_slowly(key, hash),
        }
    }

    /// Removes an entry if `condition` returns true for it, and returns it; `None` if there is no
    /// such key. Otherwise as [`remove`](Self::remove).
    ///
    /// All of it is one atomic operation: `condition` is called again if another thread has
    /// replaced the entry meanwhile.
    ///
    /// # Errors
    ///
    /// The entry, if the condition was false.
    #[doc(alias = "compare_and_delete")]
    pub fn remove_if<Q>(
        &self,
        key: &Q,
        mut condition: impl FnMut(&K, &V) -> bool,
    ) -> Result<Option<(K, V)>, (K, V)>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.act(key, |found| match found {
            Some(pair) if condition(&pair.0, &pair.1) => Act::Take(Ok(found)),
            Some(pair) => Act::Leave(Err(pair)),
            None => Act::Leave(Ok(None)),
        })
    }

    /// Removes the entries for which `keep` returns false, as it visits them
    /// ([`iter`](Self::iter)).
    ///
    /// `keep` is called once about an entry, with its present value: again only if another thread changes or
    /// moves the entry's bucket between that call and the removal. Each entry costs a look-up.
    pub fn retain(&self, mut keep: impl FnMut(&K, &V) -> bool) {
        for (key, _) in self.iter() {
            self.act(&key, |found| match found {
                Some((key, value)) if !keep(&key, &value) => Act::Take(()),
                _ => Act::Leave(()),
            });
        }
    }

    /// Removes the entries one by one, as [`retain`](Self::retain) does. What other threads insert
    /// meanwhile may stay.
    #[doc(alias = "drain")]
    pub fn clear(&self) {
        self.retain(|_, _| false);
    }

    /// Lets the table shrink to what its entries need, below what the map was made with or has
    /// reserved. Does not wait for that: removals, inserts and the domain's service thread do it.
    ///
    /// A map that holds fewer entries than it did shrinks without this.
    pub fn shrink_to_fit(&self) {
        if let Some(writer) = self.writer() {
            writer.shrink_to_fit();
        }
    }
}

/// Calls `make` the first time, and returns the same value again after that.
fn once<V: Copy>(make: impl FnOnce() -> V) -> impl FnMut() -> V {
    let (mut make, mut made) = (Some(make), None::<V>);
    move || {
        let value = made.or_else(|| Some(make.take()?()));
        made = value;
        value.expect("it was made, or is made now")
    }
}
