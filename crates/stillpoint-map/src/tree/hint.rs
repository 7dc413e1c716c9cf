//! Numbers in the order of keys, for the types whose order is known: most comparisons then touch no
//! entry.
//!
//! Types are recognized by their identity. All of them are std's, own no interior mutability and have
//! no lifetimes, so that what is read of a key is what its `Ord` reads.

use super::search::Hints;
use std::{any::TypeId, mem::transmute_copy, sync::Arc};

/// Types whose values compare with one another, as `Borrow` has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// Of any other type.
    Unknown,
    /// One type, of at most 64 bits: the hint tells the key.
    Number(TypeId),
    /// One type, of 128 bits.
    Wide(TypeId),
    /// By its bytes.
    Text,
    /// The same, of other types.
    Bytes,
}

fn is<T: ?Sized, U: ?Sized + 'static>() -> bool {
    typeid::of::<T>() == TypeId::of::<U>()
}

fn is_any<T: ?Sized>(types: &[TypeId]) -> bool {
    types.contains(&typeid::of::<T>())
}

macro_rules! each_number {
    ($with:ident) => {
        $with!(
            u8, u16, u32, u64, usize, i8, i16, i32, i64, isize, char, bool
        )
    };
}

/// The family of a type.
#[inline(always)]
pub fn family<T: ?Sized>() -> Family {
    macro_rules! numbers {
        ($($number:ty),*) => { $(is::<T, $number>())||* };
    }
    if each_number!(numbers) {
        return Family::Number(typeid::of::<T>());
    }
    if is::<T, u128>() || is::<T, i128>() {
        return Family::Wide(typeid::of::<T>());
    }
    if is::<T, str>() || is::<T, String>() || is::<T, Box<str>>() || is::<T, Arc<str>>() {
        return Family::Text;
    }
    if is::<T, [u8]>() || is::<T, Vec<u8>>() || is::<T, Box<[u8]>>() || is::<T, Arc<[u8]>>() {
        return Family::Bytes;
    }
    Family::Unknown
}

/// What hints tell of keys of a type.
#[inline(always)]
pub fn hints<K>() -> Hints {
    match family::<K>() {
        Family::Unknown => Hints::Nothing,
        Family::Number(_) => Hints::Key,
        Family::Wide(_) | Family::Text | Family::Bytes => Hints::Order,
    }
}

/// What hints tell where a `Q` is sought among keys of type `K`.
#[inline(always)]
pub fn hints_for<K, Q: ?Sized>() -> Hints {
    if family::<K>() == family::<Q>() {
        hints::<K>()
    } else {
        Hints::Nothing
    }
}

/// Numbers of at most 64 bits.
trait Number: Copy + 'static {
    fn hint(self) -> u64;
    fn of_hint(hint: u64) -> Self;
}

macro_rules! unsigned {
    ($($number:ty),*) => {$(
        impl Number for $number {
            #[inline(always)]
            fn hint(self) -> u64 {
                self as u64
            }
            fn of_hint(hint: u64) -> Self {
                hint as Self
            }
        }
    )*};
}
unsigned!(u8, u16, u32, u64, usize);

const SIGN: u64 = 1 << 63;

macro_rules! signed {
    ($($number:ty),*) => {$(
        impl Number for $number {
            #[inline(always)]
            fn hint(self) -> u64 {
                (self as i64).cast_unsigned() ^ SIGN
            }
            fn of_hint(hint: u64) -> Self {
                (hint ^ SIGN) as Self
            }
        }
    )*};
}
signed!(i8, i16, i32, i64, isize);

impl Number for char {
    #[inline(always)]
    fn hint(self) -> u64 {
        u64::from(u32::from(self))
    }
    fn of_hint(hint: u64) -> Self {
        u32::try_from(hint)
            .ok()
            .and_then(Self::from_u32)
            .unwrap_or_default()
    }
}

impl Number for bool {
    #[inline(always)]
    fn hint(self) -> u64 {
        u64::from(self)
    }
    fn of_hint(hint: u64) -> Self {
        hint != 0
    }
}

/// The first eight bytes.
#[inline(always)]
fn first(bytes: &[u8]) -> u64 {
    match bytes.first_chunk() {
        Some(first) => u64::from_be_bytes(*first),
        None => {
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            u64::from_be_bytes(padded)
        }
    }
}

/// The hint of a key that has its size.
#[inline(always)]
pub fn of<T>(key: &T) -> u64 {
    macro_rules! numbers {
        ($($number:ty),*) => {$(
            if is::<T, $number>() {
                // SAFETY: it is that type.
                return unsafe { transmute_copy::<T, $number>(key) }.hint();
            }
        )*};
    }
    each_number!(numbers);
    if is::<T, u128>() {
        // SAFETY: it is that type.
        return (unsafe { transmute_copy::<T, u128>(key) } >> 64) as u64;
    }
    if is::<T, i128>() {
        // SAFETY: it is that type.
        return ((unsafe { transmute_copy::<T, i128>(key) } >> 64) as i64).hint();
    }
    macro_rules! owned {
        ($bytes:ident: $($owned:ty),*) => {$(
            if is::<T, $owned>() {
                // SAFETY: it is that type.
                return first(unsafe { &*std::ptr::from_ref(key).cast::<$owned>() }.$bytes());
            }
        )*};
    }
    owned!(as_bytes: String, Box<str>, Arc<str>);
    owned!(as_ref: Vec<u8>, Box<[u8]>, Arc<[u8]>);
    0
}

/// The hint of a key that is sought.
#[inline(always)]
pub fn of_sought<Q: ?Sized>(key: &Q) -> u64 {
    if is_any::<Q>(&[TypeId::of::<str>(), TypeId::of::<[u8]>()]) {
        let bytes: *const u8 = std::ptr::from_ref(key).cast();
        // SAFETY: both are slices of bytes, of that size.
        return first(unsafe { std::slice::from_raw_parts(bytes, size_of_val(key)) });
    }
    /// Reads a key of an unsized type parameter that is known to be sized.
    macro_rules! thin {
        ($($thin:ty),*) => {$(
            if is::<Q, $thin>() {
                // SAFETY: it is that type.
                return of(unsafe { &*std::ptr::from_ref(key).cast::<$thin>() });
            }
        )*};
    }
    each_number!(thin);
    thin!(
        u128,
        i128,
        String,
        Box<str>,
        Arc<str>,
        Vec<u8>,
        Box<[u8]>,
        Arc<[u8]>
    );
    0
}

/// Has `with` look at the key of a hint.
///
/// # Panics
///
/// If hints of this type do not tell keys.
pub fn with_key<K, R>(hint: u64, with: impl FnOnce(&K) -> R) -> R {
    macro_rules! numbers {
        ($($number:ty),*) => {$(
            if is::<K, $number>() {
                let key = <$number>::of_hint(hint);
                // SAFETY: it is that type.
                return with(unsafe { &*std::ptr::from_ref(&key).cast::<K>() });
            }
        )*};
    }
    each_number!(numbers);
    unreachable!("a fence without an entry, of a type whose hints tell no keys")
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;

    fn ordered<T: Ord + Clone>(keys: &[T]) {
        for (one, other) in keys
            .iter()
            .flat_map(|one| keys.iter().map(move |other| (one, other)))
        {
            let order = of(one).cmp(&of(other));
            match hints::<T>() {
                Hints::Key => assert_eq!(order, one.cmp(other)),
                Hints::Order => assert!(order.is_eq() || order == one.cmp(other)),
                Hints::Nothing => panic!("no hints"),
            }
        }
        for key in keys {
            assert_eq!(of(key), of_sought(key));
            if hints::<T>() == Hints::Key {
                assert!(with_key::<T, _>(of(key), |same| same == key));
            }
        }
    }

    #[test]
    fn hints_are_in_the_order_of_keys() {
        ordered(&[0_u8, 1, 127, 128, 255]);
        ordered(&[0_u64, 1, u64::MAX, 1 << 63, 77]);
        ordered(&[0_usize, usize::MAX]);
        ordered(&[i8::MIN, -1, 0, 1, i8::MAX]);
        ordered(&[i32::MIN, -1, 0, 1, i32::MAX]);
        ordered(&[i64::MIN, -1, 0, 1, i64::MAX]);
        ordered(&[isize::MIN, -1, 0, isize::MAX]);
        ordered(&['a', '\0', char::MAX, '\u{d7ff}', '\u{e000}']);
        ordered(&[false, true]);
        ordered(&[0_u128, 1, 1 << 64, u128::MAX]);
        ordered(&[i128::MIN, -1, 0, 1, 1 << 100, i128::MAX]);
        let texts = [
            "",
            "\0",
            "a",
            "a\0",
            "aaaaaaaa",
            "aaaaaaaab",
            "b",
            "\u{ff}",
            "z",
        ];
        ordered(&texts.map(String::from));
        ordered(&texts.map(Box::<str>::from));
        ordered(&texts.map(Arc::<str>::from));
        ordered(&texts.map(|text| text.as_bytes().to_vec()));
        ordered(&texts.map(|text| Box::<[u8]>::from(text.as_bytes())));
        ordered(&texts.map(|text| Arc::<[u8]>::from(text.as_bytes())));
        for text in texts {
            assert_eq!(of_sought(text), of(&text.to_owned()));
            assert_eq!(of_sought(text.as_bytes()), of(&text.as_bytes().to_vec()));
        }
    }

    #[test]
    fn others_have_none() {
        assert_eq!(hints::<(u64, u64)>(), Hints::Nothing);
        assert_eq!(hints::<std::cmp::Reverse<u64>>(), Hints::Nothing);
        assert_eq!(hints_for::<u64, u32>(), Hints::Nothing);
        assert_eq!(hints_for::<u64, u64>(), Hints::Key);
        assert_eq!(hints_for::<String, str>(), Hints::Order);
        assert_eq!(hints_for::<Vec<u8>, [u8]>(), Hints::Order);
        assert_eq!(hints_for::<String, [u8]>(), Hints::Nothing);
    }
}
