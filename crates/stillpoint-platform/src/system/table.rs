//! Tables in address space. Under Miri, which has no system calls for that, they are boxed.

#[cfg(miri)]
pub use crate::simple::table::{NoTable, Table};
#[cfg(not(miri))]
pub use mapped::{NoTable, Table};

#[cfg(not(miri))]
mod mapped {
    use crate::mmap::{Mapping, Refused, Zeroed, page_size};
    use std::{marker::PhantomData, ops::Deref};

    /// The error of a table: the system call that failed.
    pub type NoTable = Refused;

    /// A table of atomics that starts out zero. Only pages that were written take memory.
    #[derive(Debug)]
    pub struct Table<T> {
        mapping: Mapping,
        len: usize,
        entries: PhantomData<T>,
    }

    impl<T: Zeroed> Table<T> {
        /// Returns a table of `len` zeroes.
        ///
        /// # Errors
        ///
        /// If the system has no address space for it.
        pub fn new(len: usize) -> Result<Self, NoTable> {
            let mapping = Mapping::zeroed((len * size_of::<T>()).next_multiple_of(page_size()))?;
            Ok(Self {
                mapping,
                len,
                entries: PhantomData,
            })
        }
    }

    impl<T: Zeroed> Deref for Table<T> {
        type Target = [T];

        #[inline(always)]
        fn deref(&self) -> &[T] {
            // SAFETY: the mapping holds that many, readable and writable, page-aligned, zero at
            // first, which is a value of T.
            unsafe {
                std::slice::from_raw_parts(self.mapping.start().as_ptr().cast::<T>(), self.len)
            }
        }
    }

    // SAFETY: it owns atomics, as a box of them would.
    unsafe impl<T: Send> Send for Table<T> {}
    // SAFETY: the same.
    unsafe impl<T: Sync> Sync for Table<T> {}
}
