//! The methods that update or insert, which a pinned `HashMap` and a pinned `BTreeMap` have alike.

/// Defines them in a map that has `compute_again`, whose closure also gets the value whose insertion was refused
/// since the last call, because another thread had inserted the key.
macro_rules! upserts {
    ($map:literal, compute where $($bounds:tt)*) => {
        /// Replaces the value of a key by what `update` makes of it, or inserts `value`. Returns the
        /// new value. Otherwise as [`update`](Self::update).
        ///
        /// ```
        #[doc = concat!("let map = stillpoint_map::", $map, "::new();")]
        /// assert_eq!(map.pin().update_or_insert("a", |number| number + 1, 1), &1);
        /// assert_eq!(map.pin().update_or_insert("a", |number| number + 1, 1), &2);
        /// ```
        #[doc(alias = "upsert")]
        pub fn update_or_insert(&self, key: K, update: impl FnMut(&V) -> V, value: V) -> &V {
            self.update_or_insert_with(key, update, || value)
        }

        /// Replaces the value of a key by what `update` makes of it, or inserts what `make` returns.
        /// Returns the new value. Otherwise as [`update`](Self::update).
        ///
        /// ```
        #[doc = concat!("let words = stillpoint_map::", $map, "::new();")]
        /// for word in ["to", "be", "or", "not", "to", "be"] {
        ///     words.pin().update_or_insert_with(word, |count| count + 1, || 1);
        /// }
        /// assert_eq!(words.pin().get("be"), Some(&2));
        /// ```
        #[doc(alias("upsert", "entry", "and_modify"))]
        pub fn update_or_insert_with(
            &self,
            key: K,
            mut update: impl FnMut(&V) -> V,
            make: impl FnOnce() -> V,
        ) -> &V {
            let (mut make, mut made) = (Some(make), None);
            let operation = |entry: Option<(&K, &V)>, refused: Option<V>| {
                // `make` runs once: what it has made is kept until it is inserted.
                made = refused.or(made.take());
                Operation::<V, Infallible>::Insert(match entry {
                    Some((_, value)) => update(value),
                    None => made
                        .take()
                        .or_else(|| make.take().map(|make| make()))
                        .expect("what was made and not inserted is refused"),
                })
            };
            match self.compute_again(Some(key), operation) {
                Compute::Updated {
                    new: (_, value), ..
                }
                | Compute::Inserted(_, value) => value,
                Compute::Removed(..) => unreachable!("it always inserts"),
                Compute::Aborted(never) => match never {},
            }
        }

        /// Inserts, replaces, removes or leaves the entry of a key, as `compute` says, which gets the
        /// present one. Returns what it has done. Otherwise as [`insert`](Self::insert).
        ///
        /// All of it is one atomic operation: `compute` is called again if another thread has changed
        /// the entry meanwhile. A new entry has an owned copy of `key`, which is made when it is needed.
        ///
        /// ```
        #[doc = concat!("use stillpoint_map::{", $map, ", Compute, Operation};")]
        ///
        #[doc = concat!("let stock = ", $map, "::from([(\"apple\".to_owned(), 1)]);")]
        /// let stock = stock.pin();
        /// let take = |entry: Option<(&String, &u32)>| match entry {
        ///     None => Operation::Abort("sold out"),
        ///     Some((_, 1)) => Operation::Remove,
        ///     Some((_, number)) => Operation::Insert(number - 1),
        /// };
        /// assert_eq!(stock.compute("apple", take), Compute::Removed(&"apple".to_owned(), &1));
        /// assert_eq!(stock.compute("apple", take), Compute::Aborted("sold out"));
        /// ```
        ///
        /// # Panics
        ///
        /// If `compute` returns [`Operation::Remove`] for `None`; and as [`insert`](Self::insert).
        #[doc(alias("entry", "alter"))]
        #[track_caller]
        pub fn compute<'g, Q, T>(
            &'g self,
            key: &Q,
            mut compute: impl FnMut(Option<(&'g K, &'g V)>) -> Operation<V, T>,
        ) -> Compute<'g, K, V, T>
        where
            $($bounds)*
        {
            self.compute_again(key, |entry, _| compute(entry))
        }
    };
}
pub(crate) use upserts;
