//! The objects that are allocated and freed.

use std::mem::MaybeUninit;
#[cfg(test)]
use std::sync::atomic::{AtomicU64, Ordering};

/// The sizes that the program is built for.
const SIZES: [usize; 9] = [16, 32, 64, 128, 256, 512, 1024, 2048, 4096];

/// `N` bytes, aligned as `malloc` aligns. A peer may write its own header over the bytes once the
/// object is retired.
#[repr(C, align(16))]
pub struct Object<const N: usize> {
    bytes: [MaybeUninit<u8>; N],
}

impl<const N: usize> Object<N> {
    /// An object with its first two words written, so that its memory is really there.
    #[inline]
    pub fn new() -> Self {
        let mut object = Self {
            bytes: [MaybeUninit::uninit(); N],
        };
        for byte in &mut object.bytes[..2 * size_of::<usize>()] {
            byte.write(1);
        }
        object
    }

    /// The same, allocated.
    #[inline]
    pub fn allocate() -> Box<Self> {
        Box::new(Self::new())
    }
}

/// How many objects have been dropped, by the logarithm of their size.
#[cfg(test)]
pub static DROPPED: [AtomicU64; 13] = [const { AtomicU64::new(0) }; 13];

#[cfg(test)]
impl<const N: usize> Drop for Object<N> {
    fn drop(&mut self) {
        DROPPED[N.ilog2() as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// Reads a size from the command line.
pub fn parse_size(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(size) if SIZES.contains(&size) => Ok(size),
        _ => Err(format!(
            "choose one of {}",
            SIZES.map(|size| size.to_string()).join(", ")
        )),
    }
}
