//! How maps and sets with a hasher are made.

/// Defines the functions that make a map or a set. Its own `of` takes a hasher and a domain, `None` for the global one.
macro_rules! make {
    (
        $map:ident<$($param:ident),+; $hasher:ident> in $($root:ident).+, of $entries:literal,
        for example $example:literal
    ) => {
        impl<$($param),+> $map<$($param),+> {
            /// Creates an empty one in the global domain. Does not allocate.
            #[must_use]
            pub fn new() -> Self {
                Self::with_hasher($crate::DefaultHashBuilder::default())
            }

            /// Creates an empty one in `domain`, which it keeps alive. Does not allocate.
            ///
            /// ```
            /// let domain = stillpoint::Domain::new();
            #[doc = concat!("let map = stillpoint_map::", stringify!($map), "::<", $example, ">::new_in(&domain);")]
            /// assert!(map.with_guard(&domain.read_lock()).is_empty());
            /// ```
            #[must_use]
            pub fn new_in(domain: &stillpoint::Domain) -> Self {
                Self::with_hasher_in($crate::DefaultHashBuilder::default(), domain)
            }

            /// Creates one with a capacity, in the global domain. See
            /// [`with_capacity_and_hasher`](Self::with_capacity_and_hasher).
            #[must_use]
            #[track_caller]
            pub fn with_capacity(capacity: usize) -> Self {
                Self::with_capacity_and_hasher(capacity, $crate::DefaultHashBuilder::default())
            }

            /// Creates one with a capacity, in `domain`, which it keeps alive. See
            /// [`with_capacity_and_hasher`](Self::with_capacity_and_hasher).
            ///
            /// ```
            /// let domain = stillpoint::Domain::new();
            #[doc = concat!("let map = stillpoint_map::", stringify!($map), "::<", $example, ">::with_capacity_in(1000, &domain);")]
            /// assert!(map.pin().capacity() >= 1000);
            /// ```
            #[must_use]
            #[track_caller]
            pub fn with_capacity_in(capacity: usize, domain: &stillpoint::Domain) -> Self {
                let hasher = $crate::DefaultHashBuilder::default();
                Self::with_capacity_and_hasher_in(capacity, hasher, domain)
            }
        }

        impl<$($param),+, $hasher> $map<$($param),+, $hasher> {
            /// Creates an empty one with a hasher, in the global domain. Does not allocate.
            ///
            /// ```
            /// use std::hash::{BuildHasherDefault, DefaultHasher};
            #[doc = concat!("use stillpoint_map::", stringify!($map), ";")]
            ///
            /// // With a constant hasher it can be a `static`.
            #[doc = concat!("static MAP: ", stringify!($map), "<", $example, ", BuildHasherDefault<DefaultHasher>> =")]
            #[doc = concat!("    ", stringify!($map), "::with_hasher(BuildHasherDefault::new());")]
            /// assert!(MAP.is_empty());
            /// ```
            #[must_use]
            pub const fn with_hasher(hasher: $hasher) -> Self {
                Self::of(hasher, None)
            }

            /// Creates an empty one with a hasher, in `domain`, which it keeps alive. Does not allocate.
            #[must_use]
            pub fn with_hasher_in(hasher: $hasher, domain: &stillpoint::Domain) -> Self {
                Self::of(hasher, Some(domain.into()))
            }

            #[doc = concat!("Creates one with a hasher, and with capacity for `capacity` ", $entries, ", in the global domain.")]
            /// The table does not grow before it has more, and does not shrink below that unless `shrink_to_fit`
            /// is called.
            ///
            /// Without memory for the table the process ends, as with std's map; `try_reserve` returns an error
            /// instead.
            ///
            /// # Panics
            ///
            /// If no table can be so large: "capacity overflow".
            #[must_use]
            #[track_caller]
            pub fn with_capacity_and_hasher(capacity: usize, hasher: $hasher) -> Self {
                Self::of(hasher, None).with_room(capacity, true)
            }

            /// Creates one in `domain`, which it keeps alive. Otherwise as
            /// [`with_capacity_and_hasher`](Self::with_capacity_and_hasher).
            #[must_use]
            #[track_caller]
            pub fn with_capacity_and_hasher_in(
                capacity: usize,
                hasher: $hasher,
                domain: &stillpoint::Domain,
            ) -> Self {
                Self::of(hasher, Some(domain.into())).with_room(capacity, true)
            }

            /// Creates one in the global domain with room for the number that an iterator says it has. It shrinks
            /// like one that has grown to that.
            #[track_caller]
            pub(crate) fn with_hint(capacity: usize, hasher: $hasher) -> Self {
                Self::of(hasher, None).with_room(capacity, false)
            }

            #[track_caller]
            fn with_room(self, capacity: usize, stays: bool) -> Self {
                self.$($root).+.make_room(capacity, stays);
                self
            }

            #[doc = concat!("Returns the number of ", $entries, ". Exact while no thread makes changes; else it counts")]
            /// some of the changes under way.
            #[inline]
            pub fn len(&self) -> usize {
                self.$($root).+.len()
            }

            #[doc = concat!("Returns whether there are no ", $entries, ", as [`len`](Self::len) counts them.")]
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }
        }

        impl<$($param),+, $hasher: Default> Default for $map<$($param),+, $hasher> {
            /// Creates an empty one in the global domain. Does not allocate.
            fn default() -> Self {
                Self::with_hasher($hasher::default())
            }
        }
    };
}
pub(crate) use make;
