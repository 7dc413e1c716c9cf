//! Maps in sections.
//!
//! A reference to a pinned map is the proof that a section of the map's domain is open for as long as
//! the reference lives. So what needs a section is a method of the pinned map, and what it returns
//! borrows from that.

use std::{fmt, ops::Deref};
use stillpoint::{Guard, tasks_trace::OwnedGuard};

/// Defines what a map's section is dropped with.
macro_rules! map_guard {
    ($(#[$attribute:meta])* $name:ident with $guard:ident) => {
        $(#[$attribute])*
        #[must_use = "the section ends as soon as this is dropped"]
        pub struct $name<'m, P> {
            /// Lent for no longer than this lives.
            map: &'m P,
            guard: $guard<'m>,
        }

        impl<'m, P> $name<'m, P> {
            /// # Safety
            ///
            /// The guard is of the map's domain, and `map` is used only through the result.
            #[inline(always)]
            pub(crate) unsafe fn new(map: &'m P, guard: $guard<'m>) -> Self {
                Self { map, guard }
            }

            /// Returns the guard, for [other maps](crate::HashMap::with_guard) of the domain.
            pub fn guard(&self) -> &$guard<'m> {
                &self.guard
            }
        }

        impl<P> Deref for $name<'_, P> {
            type Target = P;

            #[inline(always)]
            fn deref(&self) -> &P {
                self.map
            }
        }

        impl<P: fmt::Debug> fmt::Debug for $name<'_, P> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.map.fmt(f)
            }
        }

        impl<P: PartialEq> PartialEq for $name<'_, P> {
            fn eq(&self, other: &Self) -> bool {
                self.map == other.map
            }
        }

        impl<P: Eq> Eq for $name<'_, P> {}

        impl<'g, P> IntoIterator for &'g $name<'_, P>
        where
            &'g P: IntoIterator,
        {
            type Item = <&'g P as IntoIterator>::Item;
            type IntoIter = <&'g P as IntoIterator>::IntoIter;

            fn into_iter(self) -> Self::IntoIter {
                self.map.into_iter()
            }
        }
    };
}

map_guard! {
    /// A map in a section of the calling thread: what `pin` returns. The section is open until this is
    /// dropped.
    ///
    /// It derefs to the pinned map (`P` is a [`PinnedHashMap`](crate::PinnedHashMap), for example),
    /// whose methods look up and change. What these return lives as long as this does.
    ///
    /// It belongs to its thread, so a task that holds it across an `.await` is not `Send`. Where a runtime
    /// accepts that, the task delays all frees of the domain. Clippy can find this: see [Guards across
    /// await](https://github.com/stillpoint-rcu/stillpoint/blob/main/docs/src/async.md#guards-across-await).
    /// Use an [`OwnedMapGuard`] in tasks.
    ///
    /// ```
    /// use stillpoint_map::{HashMap, MapGuard, PinnedHashMap};
    ///
    /// let map = HashMap::from([(1, "one")]);
    /// let pinned: MapGuard<'_, PinnedHashMap<i32, &str>> = map.pin();
    /// let found = pinned.get(&1);
    /// assert_eq!(found, Some(&"one"));
    /// drop(pinned); // the section ends
    /// ```
    MapGuard with Guard
}

map_guard! {
    /// A map in a section that belongs to this and to no thread: what `pin_owned` returns. The section
    /// is open until this is dropped, on any thread.
    ///
    /// It derefs to the pinned map, as a [`MapGuard`] does, is `Send` and `Sync` if the map's entries
    /// are, and may be held across an `.await`.
    ///
    /// ```
    /// use stillpoint::tasks_trace::TraceDomain;
    /// use stillpoint_map::HashMap;
    ///
    /// let map = HashMap::new_in(&TraceDomain::new());
    /// map.pin().insert(1, "one");
    /// let pinned = map.pin_owned();
    /// std::thread::scope(|scope| {
    ///     scope.spawn(move || assert_eq!(pinned.get(&1), Some(&"one")));
    /// });
    /// ```
    OwnedMapGuard with OwnedGuard
}

/// Defines a type that is a map in a section, and derefs to the map.
macro_rules! view {
    (
        $(#[$attribute:meta])*
        $pinned:ident<$($param:ident $(: $bound:ident)? $(= $default:ident)?),+> of $map:ident
    ) => {
        $(#[$attribute])*
        #[repr(transparent)]
        pub struct $pinned<$($param $(: $bound)? $(= $default)?),+>($map<$($param),+>);

        impl<$($param $(: $bound)?),+> $pinned<$($param),+> {
            /// # Safety
            ///
            /// While the result is used, a section of the map's domain is open, or the caller is alone with the
            /// map.
            #[inline(always)]
            pub(crate) unsafe fn of(map: &$map<$($param),+>) -> &Self {
                // SAFETY: it is nothing but the map, by `repr(transparent)`.
                unsafe { &*std::ptr::from_ref(map).cast() }
            }
        }

        impl<$($param $(: $bound)?),+> std::ops::Deref for $pinned<$($param),+> {
            type Target = $map<$($param),+>;

            #[inline(always)]
            fn deref(&self) -> &$map<$($param),+> {
                &self.0
            }
        }

        impl<$($param $(: $bound)?),+> PartialEq for $pinned<$($param),+>
        where
            $map<$($param),+>: PartialEq,
        {
            /// Compares the maps.
            fn eq(&self, other: &Self) -> bool {
                self.0 == other.0
            }
        }

        impl<$($param $(: $bound)?),+> Eq for $pinned<$($param),+> where $map<$($param),+>: Eq {}
    };
}
pub(crate) use view;

/// Defines a map's pinned type, and how it is made.
macro_rules! pinned {
    (
        $(#[$attribute:meta])*
        $pinned:ident<$($param:ident $(= $default:ident)?),+> of $map:ident in $($home:ident).+,
        for example $type:literal, $example:literal
    ) => {
        $crate::pinned::view! {
            $(#[$attribute])*
            $pinned<$($param $(= $default)?),+> of $map
        }

        impl<$($param),+> $map<$($param),+> {
            /// Begins a section of the map's domain, which lasts until the result is dropped, and
            /// returns the map in it. Never blocks.
            ///
            /// ```
            #[doc = concat!("let map = stillpoint_map::", stringify!($map), "::from(", $example, ");")]
            /// let map = map.pin(); // a section, until this is dropped
            /// assert_eq!(map.iter().count(), 1);
            /// ```
            #[doc(alias("read", "guard"))]
            #[inline]
            pub fn pin(&self) -> $crate::MapGuard<'_, $pinned<$($param),+>> {
                let guard = self.$($home).+.read_lock();
                // SAFETY: in the guard's section.
                unsafe { $crate::MapGuard::new($pinned::of(self), guard) }
            }

            /// Returns the map in a section that is open already: that of any guard of its domain.
            /// Costs a comparison.
            ///
            /// ```
            #[doc = concat!("let map = stillpoint_map::", stringify!($map), "::from(", $example, ");")]
            #[doc = concat!("let other = stillpoint_map::", stringify!($map), "::from(", $example, ");")]
            /// let guard = stillpoint::read_lock(); // one section for both
            /// let entry = map.with_guard(&guard).iter().next();
            /// assert_eq!(entry, other.with_guard(&guard).iter().next());
            /// ```
            ///
            /// # Panics
            ///
            /// If the guard is of another domain, or is a [`QsbrReader`](stillpoint::QsbrReader) that
            /// is offline.
            #[inline]
            #[track_caller]
            pub fn with_guard<'g>(
                &'g self,
                guard: &'g impl stillpoint::Section,
            ) -> &'g $pinned<$($param),+> {
                self.$($home).+.check(guard);
                // SAFETY: in the guard's section, which lasts as long as the guard. A `QsbrReader`'s
                // may end earlier, but only by methods that take `&mut`, which this borrow excludes.
                unsafe { $pinned::of(self) }
            }

            /// Begins a section that belongs to the result and not to a thread, and returns the map in
            /// it: for async tasks. It may be held across an `.await`, and dropped on another thread.
            /// As [`TraceDomain::read_lock_owned`](stillpoint::tasks_trace::TraceDomain::read_lock_owned).
            ///
            /// ```
            /// use stillpoint::tasks_trace::TraceDomain;
            ///
            #[doc = concat!("let map = stillpoint_map::", $type, "::new_in(&TraceDomain::new());")]
            /// let pinned = map.pin_owned();
            /// std::thread::scope(|scope| {
            ///     scope.spawn(move || assert!(pinned.iter().next().is_none()));
            /// });
            /// ```
            ///
            /// # Panics
            ///
            /// If the map was not made in a [`TraceDomain`](stillpoint::tasks_trace::TraceDomain):
            /// other domains have no such sections.
            #[doc(alias = "owned_guard")]
            #[inline]
            #[track_caller]
            pub fn pin_owned(&self) -> $crate::OwnedMapGuard<'_, $pinned<$($param),+>> {
                let guard = self.$($home).+.read_lock_owned();
                // SAFETY: in the guard's section.
                unsafe { $crate::OwnedMapGuard::new($pinned::of(self), guard) }
            }

            /// Returns the domain that the map was made in.
            pub fn domain(&self) -> &stillpoint::Domain {
                self.$($home).+.domain()
            }
        }
    };
}
pub(crate) use pinned;
