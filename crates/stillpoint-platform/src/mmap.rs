//! Address space on Linux: reservations, access, giving memory back, guard pages, memory files. Also tables
//! of atomics that are zero until they are written.

pub use crate::seam::table::{NoTable, Table};

use crate::sync::{AtomicPtr, AtomicU32, AtomicU64};
use rustix::{
    fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create},
    io::Errno,
    mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mmap_anonymous, mprotect, munmap},
};
use std::{
    ffi::c_void,
    io,
    os::fd::{BorrowedFd, OwnedFd},
    ptr::{self, NonNull},
};

/// A kind of atomic whose zero is all zero bits.
///
/// # Safety
///
/// Zero bits are a value of it, and it needs no drop.
pub unsafe trait Zeroed: Default {}

// SAFETY: a plain integer in std; the model never looks at the bits.
unsafe impl Zeroed for AtomicU64 {}
// SAFETY: the same.
unsafe impl Zeroed for AtomicU32 {}
// SAFETY: a plain pointer.
unsafe impl<T> Zeroed for AtomicPtr<T> {}

/// A system call that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    /// Name of the call.
    pub call: &'static str,
    /// The system's error number.
    pub errno: i32,
}

pub(crate) fn refused(call: &'static str) -> impl Fn(Errno) -> Refused {
    move |errno| Refused {
        call,
        errno: errno.raw_os_error(),
    }
}

/// Returns the size of a page in bytes.
pub fn page_size() -> usize {
    rustix::param::page_size()
}

/// The kind of memory behind a reservation.
#[derive(Debug, Clone, Copy)]
pub enum Backing<'a> {
    /// Memory of the process alone. The system does not count it before it is used.
    Anonymous,
    /// Memory of the process alone. [`Mapping::allow`] counts it towards the system's limit, and fails
    /// for more than the system could ever provide.
    Accounted,
    /// Shared with all other mappings of the file; from its offset 0.
    File(BorrowedFd<'a>),
}

/// An owned range of address space; dropping it unmaps it.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: it is a right to addresses, and gives no access by itself.
unsafe impl Send for Mapping {}
// SAFETY: the same.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Reserves `len` bytes of inaccessible address space at a multiple of `align`, a power of two.
    pub fn reserve(len: usize, align: usize, backing: Backing<'_>) -> Result<Self, Refused> {
        let enough = len.checked_add(align).ok_or(Refused {
            call: "mmap",
            errno: libc::ENOMEM,
        })?;
        let none = ProtFlags::empty();
        // SAFETY: a new mapping wherever the kernel likes, or over the one just made.
        unsafe {
            let flags = match backing {
                Backing::Accounted => MapFlags::PRIVATE,
                Backing::Anonymous | Backing::File(_) => MapFlags::PRIVATE | MapFlags::NORESERVE,
            };
            let at =
                mmap_anonymous(ptr::null_mut(), enough, none, flags).map_err(refused("mmap"))?;
            let whole = Self::of(at, enough);
            let mapping = whole.trim(len, align);
            if let Backing::File(file) = backing {
                let flags = MapFlags::SHARED | MapFlags::NORESERVE | MapFlags::FIXED;
                mmap(mapping.start.as_ptr().cast(), len, none, flags, file, 0)
                    .map_err(refused("mmap"))?;
            }
            Ok(mapping)
        }
    }

    /// Maps `len` bytes, a multiple of the page size, that are zero and take memory only where they are
    /// written.
    #[cfg_attr(miri, allow(dead_code))]
    pub fn zeroed(len: usize) -> Result<Self, Refused> {
        Self::zeroed_at(ptr::null_mut(), len)
    }

    /// Maps `len` bytes of a file from its offset 0, readable, writable, and shared with all other mappings.
    #[cfg_attr(any(miri, stillpoint_loom), allow(dead_code))]
    pub(crate) fn shared(file: &OwnedFd, len: usize) -> Result<Self, Refused> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping wherever the kernel likes.
        let at = unsafe { mmap(ptr::null_mut(), len, access, MapFlags::SHARED, file, 0) };
        at.map(|at| Self::of(at, len)).map_err(refused("mmap"))
    }

    /// Maps zeros like [`Mapping::zeroed`], at a multiple of `align`, a power of two. Prefers the address
    /// `hint`, which is such a multiple, if it is free: the kernel counts neighbours of the same kind as
    /// one mapping.
    pub fn zeroed_near(hint: usize, len: usize, align: usize) -> Result<Self, Refused> {
        let mapping = Self::zeroed_at(ptr::without_provenance_mut(hint), len)?;
        if mapping.start.addr().get().is_multiple_of(align) {
            return Ok(mapping);
        }
        drop(mapping);
        let mapping = Self::reserve(len, align, Backing::Anonymous)?;
        mapping.allow(0, len)?;
        Ok(mapping)
    }

    fn zeroed_at(hint: *mut c_void, len: usize) -> Result<Self, Refused> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping there if that is free, or where the kernel likes.
        let at = unsafe { mmap_anonymous(hint, len, access, flags) };
        at.map(|at| Self::of(at, len)).map_err(refused("mmap"))
    }

    fn of(at: *mut c_void, len: usize) -> Self {
        Self {
            start: NonNull::new(at.cast()).expect("the kernel maps nothing at 0 unasked"),
            len,
        }
    }

    /// Gives back all but `len` bytes at a multiple of `align`.
    fn trim(self, len: usize, align: usize) -> Self {
        let whole = std::mem::ManuallyDrop::new(self);
        let before = whole.start.addr().get().next_multiple_of(align) - whole.start.addr().get();
        let after = whole.len - before - len;
        // SAFETY: inside the mapping, and at page boundaries.
        let start = unsafe { whole.start.add(before) };
        if before > 0 {
            // SAFETY: the front of a mapping that is not in use yet. If unmapping fails it stays
            // reserved.
            let _ = unsafe { munmap(whole.start.as_ptr().cast(), before) };
        }
        if after > 0 {
            // SAFETY: its end.
            let _ = unsafe { munmap(start.add(len).as_ptr().cast(), after) };
        }
        Self { start, len }
    }

    /// Returns the first byte.
    #[inline]
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Returns the length in bytes.
    #[cfg_attr(miri, allow(dead_code))]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Makes `len` bytes from `offset` readable and writable. As long as each call extends the same
    /// range from the start, that range takes one entry of the process's map count, whatever its
    /// length.
    pub fn allow(&self, offset: usize, len: usize) -> Result<(), Refused> {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len));
        let flags = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: inside our own mapping.
        unsafe { mprotect(self.start.add(offset).as_ptr().cast(), len, flags) }
            .map_err(refused("mprotect"))
    }

    /// Returns the pages of `len` bytes from `offset`.
    pub fn pages(&self, offset: usize, len: usize) -> Pages {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len));
        Pages(libc::iovec {
            // SAFETY: inside the mapping.
            iov_base: unsafe { self.start.add(offset) }.as_ptr().cast(),
            iov_len: len,
        })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: ours, and users of its contents borrow from us. If unmapping fails it stays
        // mapped, which does no harm.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// A range of pages, in the form that the kernel's calls take.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub struct Pages(libc::iovec);

/// What to do with pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Advice {
    /// Their memory is given up; private ones read zero afterwards.
    DontNeed = libc::MADV_DONTNEED,
    /// The same for the pages of a shared file: a hole is punched.
    Remove = libc::MADV_REMOVE,
    /// Their memory may come in huge pages.
    HugePages = libc::MADV_HUGEPAGE,
    /// It may not.
    SmallPages = libc::MADV_NOHUGEPAGE,
    /// They give up their memory, and an access to them raises SIGSEGV.
    InstallGuards = 102,
    /// They take memory again.
    RemoveGuards = 103,
}

/// Names the calling process to `process_madvise`, without a descriptor that a child would inherit.
const THIS_PROCESS: i32 = -10_000;

/// Number of ranges that one call takes.
const MOST_RANGES: usize = 1024;

/// Number of times that a call is made which fails with `EINTR` or `EAGAIN`.
const MOST_REFUSALS: usize = 100;

/// Gives `advice` on every range, in as few calls as the kernel allows. Returns how many of the
/// first ranges are done, and why it stopped there.
///
/// # Safety
///
/// The contents of those pages may be lost or, for guard pages, become inaccessible.
pub unsafe fn advise(
    ranges: &[Pages],
    advice: Advice,
    vectored: bool,
) -> (usize, Result<(), Refused>) {
    let mut done = 0;
    while vectored && ranges.len() - done > 1 {
        let some = &ranges[done..][..MOST_RANGES.min(ranges.len() - done)];
        // SAFETY: the caller's promise; `Pages` is an iovec.
        match unsafe { process_madvise(some, advice) } {
            Ok(mut bytes) if bytes > 0 => {
                // A range that was done in part is done again, which does no harm.
                let whole = |range: &&Pages| {
                    let fits = range.0.iov_len <= bytes;
                    bytes -= if fits { range.0.iov_len } else { 0 };
                    fits
                };
                let count = some.iter().take_while(whole).count();
                done += count;
                if count == 0 {
                    break;
                }
            }
            // One range at a time succeeds, or shows the reason.
            _ => break,
        }
    }
    for range in &ranges[done..] {
        // SAFETY: the caller's promise.
        if let Err(error) = unsafe { madvise(*range, advice) } {
            return (done, Err(error));
        }
        done += 1;
    }
    (done, Ok(()))
}

/// Returns whether one call may advise many ranges of this very process: the kernel allows that
/// since 6.13. Tries it on `range`.
///
/// # Safety
///
/// As for [`advise`].
pub unsafe fn has_vectored_advice(range: Pages, advice: Advice) -> bool {
    // SAFETY: the caller's promise.
    unsafe { process_madvise(&[range], advice) }.is_ok()
}

/// # Safety
///
/// As for [`advise`].
unsafe fn process_madvise(ranges: &[Pages], advice: Advice) -> io::Result<usize> {
    // SAFETY: the caller's promise; the kernel reads that many iovecs.
    let done = unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            THIS_PROCESS,
            ranges.as_ptr(),
            ranges.len(),
            advice as libc::c_int,
            0,
        )
    };
    usize::try_from(done).map_err(|_| io::Error::last_os_error())
}

/// # Safety
///
/// As for [`advise`].
unsafe fn madvise(range: Pages, advice: Advice) -> Result<(), Refused> {
    let mut refusals = 0;
    loop {
        // SAFETY: the caller's promise.
        if unsafe { libc::madvise(range.0.iov_base, range.0.iov_len, advice as libc::c_int) } == 0 {
            return Ok(());
        }
        let errno = io::Error::last_os_error().raw_os_error().unwrap_or(0);
        refusals += 1;
        // The kernel refuses memory that its owner has locked. It is unlocked for the next owner, who
        // does not expect locked memory either.
        // SAFETY: changes no bytes.
        let unlocked = errno == libc::EINVAL
            && refusals == 1
            && unsafe { libc::munlock(range.0.iov_base, range.0.iov_len) } == 0;
        // EAGAIN may last for ever, if the process has all the mappings that it may have.
        let again = (errno == libc::EINTR || errno == libc::EAGAIN) && refusals < MOST_REFUSALS;
        if !unlocked && !again {
            return Err(Refused {
                call: "madvise",
                errno,
            });
        }
    }
}

/// Returns an unnamed file in memory of `len` bytes, all holes, sealed against changes of its length.
pub fn memory_file(name: &str, len: u64) -> Result<OwnedFd, Refused> {
    let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
        .map_err(refused("memfd_create"))?;
    ftruncate(&file, len).map_err(refused("ftruncate"))?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
        .map_err(refused("fcntl(F_ADD_SEALS)"))?;
    Ok(file)
}
