//! The bits of an address that its alignment leaves unused.

use crate::Pointable;
use std::fmt;

/// A mask of the bits.
#[inline(always)]
pub(crate) fn mask<T: ?Sized + Pointable>() -> usize {
    (1 << T::ALIGN.trailing_zeros()) - 1
}

/// Returns the address in `word`.
#[inline(always)]
pub(crate) fn address<T: ?Sized + Pointable>(word: usize) -> usize {
    word & !mask::<T>()
}

/// Returns the tag in `word`.
#[inline(always)]
pub(crate) fn tag<T: ?Sized + Pointable>(word: usize) -> usize {
    word & mask::<T>()
}

/// Returns the address in `word` with another tag, cut to the bits that fit.
#[inline(always)]
pub(crate) fn with_tag<T: ?Sized + Pointable>(word: usize, tag: usize) -> usize {
    address::<T>(word) | self::tag::<T>(tag)
}

/// Returns the word of a raw address.
///
/// # Panics
///
/// If it is not aligned.
#[inline]
pub(crate) fn aligned<T: ?Sized + Pointable>(address: usize) -> usize {
    assert_eq!(tag::<T>(address), 0, "unaligned pointer");
    address
}

/// Shows the two parts of `word`.
pub(crate) fn fmt<T: ?Sized + Pointable>(
    name: &str,
    word: usize,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    f.debug_struct(name)
        .field("raw", &address::<T>(word))
        .field("tag", &tag::<T>(word))
        .finish()
}
