//! How much memory values own beside their own size, for budgets that count it.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, HashSet, LinkedList, VecDeque},
    ffi::{CStr, CString, OsStr, OsString},
    marker::PhantomData,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    num::{NonZeroU8, NonZeroU16, NonZeroU32, NonZeroU64, NonZeroUsize},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU32, AtomicU64, AtomicUsize},
    },
    time::{Duration, Instant, SystemTime},
};

/// Computes roughly how much memory a value owns beside its own size: for cells that are
/// [`weighed`](crate::Rcu::weighed), and for [`Domain::retire_weighed`](crate::Domain).
///
/// It takes constant time for the types of `std`, because it is called each time a value is
/// retired. So it counts a collection's own block, by its capacity; **what its elements own in turn
/// is not counted**. If that is most of the memory, count it in your own function
/// ([`Rcu::weighing`](crate::Rcu::weighing)), and pay for the walk.
///
/// | type | what it owns |
/// |---|---|
/// | `Vec`, `VecDeque`, `BinaryHeap`, `String`, `OsString`, `PathBuf` | its capacity |
/// | `HashMap`, `HashSet` | its table, by its capacity |
/// | `BTreeMap`, `BTreeSet`, `LinkedList` | an estimate of its nodes, by the number of entries |
/// | `Box<T>` | the `T`, and what that owns; for a slice, only the elements |
/// | `Arc<T>` | the same and two counts, for each `Arc` of it |
/// | `Option`, `Result`, `Cow`, tuples, arrays | the sum of what their parts own |
/// | numbers, `&T`, times, addresses | 0 |
///
/// ```
/// use std::collections::HashMap;
/// use stillpoint::Weigh;
///
/// struct Routes {
///     names: HashMap<u32, String>,
///     fallback: Option<Box<[u64]>>,
/// }
/// impl Weigh for Routes {
///     fn heap_bytes(&self) -> usize {
///         let names: usize = self.names.values().map(Weigh::heap_bytes).sum(); // a walk
///         names + self.names.heap_bytes() + self.fallback.heap_bytes()
///     }
/// }
/// let names = HashMap::from([(1, "a name".repeat(1000))]);
/// let routes = Routes { names, fallback: Some(Box::new([0; 100])) };
/// assert!(routes.heap_bytes() >= 6_000 + 800);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say how much memory it owns",
    label = "the trait `Weigh` is not implemented for `{Self}`",
    note = "implement `Weigh` for it, or give a function that says so: `weighing` of a cell, \
            `weigher` of a cache's builder",
    note = "a cache can count entries: `Cache::with_entries(n)`, `max_entries(n)` of its builder"
)]
pub trait Weigh {
    /// Returns the bytes that the value owns beside `size_of_val(self)`, roughly.
    ///
    /// Only budgets and statistics depend on it. It should be quick, and not block.
    fn heap_bytes(&self) -> usize;
}

macro_rules! own_nothing {
    ($($type:ty)*) => {
        $(impl Weigh for $type {
            fn heap_bytes(&self) -> usize {
                0
            }
        })*
    };
}

own_nothing! {
    () bool char str f32 f64
    u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize
    NonZeroU8 NonZeroU16 NonZeroU32 NonZeroU64 NonZeroUsize
    AtomicBool AtomicI32 AtomicI64 AtomicU32 AtomicU64 AtomicUsize
    CStr OsStr Path
    Duration Instant SystemTime
    IpAddr Ipv4Addr Ipv6Addr SocketAddr
}

impl<T: ?Sized> Weigh for &T {
    fn heap_bytes(&self) -> usize {
        0
    }
}

impl<T: ?Sized> Weigh for PhantomData<T> {
    fn heap_bytes(&self) -> usize {
        0
    }
}

/// 0: what elements own is not counted.
impl<T> Weigh for [T] {
    fn heap_bytes(&self) -> usize {
        0
    }
}

fn blocks_of<T>(count: usize) -> usize {
    count.saturating_mul(size_of::<T>())
}

macro_rules! own_their_capacity {
    ($($type:ident)*) => {
        $(impl<T> Weigh for $type<T> {
            fn heap_bytes(&self) -> usize {
                blocks_of::<T>(self.capacity())
            }
        })*
    };
}

own_their_capacity! { Vec VecDeque BinaryHeap }

impl Weigh for String {
    fn heap_bytes(&self) -> usize {
        self.capacity()
    }
}

impl Weigh for OsString {
    fn heap_bytes(&self) -> usize {
        self.capacity()
    }
}

impl Weigh for PathBuf {
    fn heap_bytes(&self) -> usize {
        self.capacity()
    }
}

impl Weigh for CString {
    fn heap_bytes(&self) -> usize {
        self.as_bytes_with_nul().len()
    }
}

/// Returns the size in bytes of a hash table for `capacity` entries: they take seven eighths of its
/// buckets, a power of two, and each bucket has a control byte.
fn table_of<Entry>(capacity: usize) -> usize {
    if capacity == 0 {
        return 0;
    }
    let buckets = capacity.saturating_mul(8).div_ceil(7);
    let buckets = buckets.checked_next_power_of_two().unwrap_or(usize::MAX);
    buckets.saturating_mul(size_of::<Entry>() + 1)
}

impl<K, V, S> Weigh for HashMap<K, V, S> {
    fn heap_bytes(&self) -> usize {
        table_of::<(K, V)>(self.capacity())
    }
}

impl<T, S> Weigh for HashSet<T, S> {
    fn heap_bytes(&self) -> usize {
        table_of::<T>(self.capacity())
    }
}

/// Returns the approximate size in bytes of a B-tree with `entries` entries. A node has space for
/// eleven entries, of which some eight are used; one node in eight also has pointers to twelve
/// nodes below it.
fn tree_of<Entry>(entries: usize) -> usize {
    let node = 11 * size_of::<Entry>() + 16 + 12;
    entries.div_ceil(8).saturating_mul(node)
}

impl<K, V> Weigh for BTreeMap<K, V> {
    fn heap_bytes(&self) -> usize {
        tree_of::<(K, V)>(self.len())
    }
}

impl<T> Weigh for BTreeSet<T> {
    fn heap_bytes(&self) -> usize {
        tree_of::<T>(self.len())
    }
}

impl<T> Weigh for LinkedList<T> {
    fn heap_bytes(&self) -> usize {
        blocks_of::<(T, [usize; 2])>(self.len())
    }
}

impl<T: Weigh + ?Sized> Weigh for Box<T> {
    fn heap_bytes(&self) -> usize {
        size_of_val(&**self).saturating_add((**self).heap_bytes())
    }
}

/// Counts a shared value in full for each reference: which of them is the last to go is not known.
impl<T: Weigh + ?Sized> Weigh for Arc<T> {
    fn heap_bytes(&self) -> usize {
        (size_of_val(&**self) + 2 * size_of::<usize>()).saturating_add((**self).heap_bytes())
    }
}

impl<T: Weigh> Weigh for Option<T> {
    fn heap_bytes(&self) -> usize {
        self.as_ref().map_or(0, Weigh::heap_bytes)
    }
}

impl<T: Weigh, E: Weigh> Weigh for Result<T, E> {
    fn heap_bytes(&self) -> usize {
        self.as_ref()
            .map_or_else(Weigh::heap_bytes, Weigh::heap_bytes)
    }
}

impl<T: ToOwned<Owned: Weigh> + ?Sized> Weigh for Cow<'_, T> {
    fn heap_bytes(&self) -> usize {
        match self {
            Cow::Borrowed(_) => 0,
            Cow::Owned(owned) => owned.heap_bytes(),
        }
    }
}

impl<T: Weigh, const N: usize> Weigh for [T; N] {
    fn heap_bytes(&self) -> usize {
        self.iter()
            .map(Weigh::heap_bytes)
            .fold(0, usize::saturating_add)
    }
}

macro_rules! own_what_their_parts_own {
    ($($($part:ident)+;)*) => {
        $(#[allow(non_snake_case, reason = "parts are named as their types")]
        impl<$($part: Weigh),+> Weigh for ($($part,)+) {
            fn heap_bytes(&self) -> usize {
                let ($($part,)+) = self;
                0_usize$(.saturating_add($part.heap_bytes()))+
            }
        })*
    };
}

own_what_their_parts_own! {
    A;
    A B;
    A B C;
    A B C D;
    A B C D E;
    A B C D E F;
    A B C D E F G;
    A B C D E F G H;
}
