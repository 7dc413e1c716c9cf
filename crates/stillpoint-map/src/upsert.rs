//! `update_or_insert`, `update_or_insert_with` and `compute`, shared by `HashMap` and `BTreeMap`.

/// Defines the three methods. The type must have `compute_again`. Its closure also gets a value whose insertion was
/// refused because another thread had inserted the key.
macro_rules! upserts {
    ($map:literal $(, panics as $as:literal)?, compute where $($bounds:tt)*) => {
        /// Replaces the value of `key` with `update(&old)`, or inserts `value` if there is none. Returns the new
        /// value. Otherwise as [`update`](Self::update).
        ///
        /// ```
        #[doc = concat!("let map = stillpoint_map::", $map, "::new();")]
        /// assert_eq!(map.pin().update_or_insert("a", |number| number + 1, 1), &1);
        /// assert_eq!(map.pin().update_or_insert("a", |number| number + 1, 1), &2);
        /// ```
        $(#[doc = concat!("\n# Panics\n\nAs ", $as, ".")])?
        #[doc(alias = "upsert")]
        pub fn update_or_insert(&self, key: K, update: impl FnMut(&V) -> V, value: V) -> &V {
            self.update_or_insert_with(key, update, || value)
        }

        /// Replaces the value of `key` with `update(&old)`, or inserts `make()` if there is none. Returns the new
        /// value. Otherwise as [`update`](Self::update). `make` is called at most once.
        ///
        /// ```
        #[doc = concat!("let words = stillpoint_map::", $map, "::new();")]
        /// for word in ["to", "be", "or", "not", "to", "be"] {
        ///     words.pin().update_or_insert_with(word, |count| count + 1, || 1);
        /// }
        /// assert_eq!(words.pin().get("be"), Some(&2));
        /// ```
        $(#[doc = concat!("\n# Panics\n\nAs ", $as, ".")])?
        #[doc(alias("upsert", "entry", "and_modify"))]
        pub fn update_or_insert_with(
            &self,
            key: K,
            mut update: impl FnMut(&V) -> V,
            make: impl FnOnce() -> V,
        ) -> &V {
            let (mut make, mut made) = (Some(make), None);
            let operation = |entry: Option<(&K, &V)>, refused: Option<V>| {
                // `make` runs at most once: its value is kept across retries.
                made = refused.or(made.take());
                Operation::<V, Infallible>::Insert(match entry {
                    Some((_, value)) => update(value),
                    None => made
                        .take()
                        .or_else(|| make.take().map(|make| make()))
                        .expect("a value that was not inserted comes back as refused"),
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

        /// Calls `compute` with the current entry of `key`, and inserts, replaces, removes or keeps it as the
        /// result says. Returns what was done. Otherwise as [`insert`](Self::insert).
        ///
        /// The operation is atomic: if another thread changes the entry meanwhile, `compute` is called again.
        /// `key` is copied (`to_owned`) for each [`Operation::Insert`] that it returns, also for one that
        /// replaces.
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
        #[doc = concat!("If `compute` returns [`Operation::Remove`] for `None`", $("; and as ", $as,)? ".")]
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
