//! The memory file of a statistics page, and its mapping. Makes system calls only, because the
//! child of a fork does all of it, too.

use crate::mmap::Refused;
use crate::stats::layout::{BYTES, NAME, WORD, WORDS};
use std::{
    ffi::CStr,
    io, mem, ptr,
    sync::atomic::{AtomicI32, AtomicU64, Ordering},
};

/// The file's name.
const FILE_NAME: &CStr = {
    const BYTES: &[u8] = b"stillpoint-stats\0";
    assert!(BYTES.len() == NAME.len() + 1);
    match CStr::from_bytes_with_nul(BYTES) {
        Ok(name) => name,
        Err(_) => unreachable!(),
    }
};

/// The file that others find, which stays open.
pub(super) struct Shown {
    /// -1 for none.
    number: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
}

impl Shown {
    pub(super) const fn none() -> Self {
        Self {
            number: AtomicI32::new(-1),
            device: AtomicU64::new(0),
            inode: AtomicU64::new(0),
        }
    }

    /// Makes `file` the one that others find.
    pub(super) fn set(&self, file: Descriptor) {
        let (device, inode) = file.identity().unwrap_or_default();
        self.device.store(device, Ordering::Relaxed);
        self.inode.store(inode, Ordering::Relaxed);
        self.number.store(file.0, Ordering::Relaxed);
        mem::forget(file);
    }

    /// Takes the descriptor, unless the program has closed it: another file may have its number by
    /// now.
    pub(super) fn take(&self) -> Option<Descriptor> {
        let number = self.number.swap(-1, Ordering::Relaxed);
        let file = Descriptor(number);
        let shown = (
            self.device.load(Ordering::Relaxed),
            self.inode.load(Ordering::Relaxed),
        );
        if number >= 0 && file.identity() == Some(shown) {
            return Some(file);
        }
        mem::forget(file);
        None
    }
}

/// A descriptor that is closed when it is dropped.
pub(super) struct Descriptor(libc::c_int);

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: ours.
        unsafe { libc::close(self.0) };
    }
}

fn refused(call: &'static str) -> Refused {
    Refused {
        call,
        errno: io::Error::last_os_error().raw_os_error().unwrap_or(0),
    }
}

impl Descriptor {
    /// Returns a new memory file of the page's length. Its descriptor is none of the three standard
    /// ones: a program that has closed one would read the page as its input, or write to it.
    pub(super) fn new() -> Result<Self, Refused> {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: a name that ends with a zero, and flags.
        let create = |flags| unsafe { libc::memfd_create(FILE_NAME.as_ptr(), flags) };
        // Kernels before 6.3 do not know the flag that says that the file is not executable.
        let file = match create(flags | libc::MFD_NOEXEC_SEAL) {
            -1 => create(flags),
            file => file,
        };
        if file < 0 {
            return Err(refused("memfd_create"));
        }
        let file = Self(file).no_standard_one()?;
        let mut limit = libc::rlimit {
            rlim_cur: libc::RLIM_INFINITY,
            rlim_max: libc::RLIM_INFINITY,
        };
        // To grow a file past this limit raises a signal that ends the process.
        // SAFETY: writes to `limit`.
        unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
        if limit.rlim_cur < BYTES as libc::rlim_t {
            return Err(Refused {
                call: "ftruncate",
                errno: libc::EFBIG,
            });
        }
        // SAFETY: our own file.
        match unsafe { libc::ftruncate(file.0, BYTES as libc::off_t) } {
            0 => Ok(file),
            _ => Err(refused("ftruncate")),
        }
    }

    fn no_standard_one(self) -> Result<Self, Refused> {
        if self.0 > libc::STDERR_FILENO {
            return Ok(self);
        }
        let from = libc::STDERR_FILENO + 1;
        // SAFETY: our own file.
        match unsafe { libc::fcntl(self.0, libc::F_DUPFD_CLOEXEC, from) } {
            -1 => Err(refused("fcntl(F_DUPFD_CLOEXEC)")),
            other => Ok(Self(other)),
        }
    }

    /// Moves the descriptor to the number `free`, if the system does it. For the child of a fork, in which
    /// no other thread opens anything.
    pub(super) fn with_number_of(self, free: Option<libc::c_int>) -> Self {
        let Some(free) = free.filter(|&free| free != self.0) else {
            return self;
        };
        // SAFETY: ours, and a number that no file has.
        match unsafe { libc::dup3(self.0, free, libc::O_CLOEXEC) } {
            -1 => self,
            free => Self(free),
        }
    }

    /// Returns the descriptor's number.
    pub(super) fn number(&self) -> libc::c_int {
        self.0
    }

    /// Returns the file's device and inode.
    fn identity(&self) -> Option<(u64, u64)> {
        let mut status = mem::MaybeUninit::<libc::stat>::zeroed();
        // SAFETY: writes to `status`.
        if unsafe { libc::fstat(self.0, status.as_mut_ptr()) } != 0 {
            return None;
        }
        // SAFETY: zeros are a value of it, too.
        let status = unsafe { status.assume_init() };
        Some((status.st_dev, status.st_ino))
    }

    /// Maps the file, to be written.
    pub(super) fn map(&self) -> Result<Mapped, Refused> {
        Mapped::new(WORDS, libc::MAP_SHARED, self.0)
    }

    /// Seals the file, which is mapped: nothing changes its length, and, since Linux 5.1, no one else
    /// can write to it.
    pub(super) fn seal(&self) -> Result<(), Refused> {
        // SAFETY: our own file.
        let add = |seals: libc::c_int| unsafe { libc::fcntl(self.0, libc::F_ADD_SEALS, seals) };
        if add(libc::F_SEAL_SHRINK | libc::F_SEAL_GROW) != 0 {
            return Err(refused("fcntl(F_ADD_SEALS)"));
        }
        // Older kernels do not know the first, which is not needed to read safely.
        let _ = add(libc::F_SEAL_FUTURE_WRITE);
        let _ = add(libc::F_SEAL_SEAL);
        Ok(())
    }
}

/// A mapping of words; dropping it unmaps it.
pub(super) struct Mapped {
    at: *mut AtomicU64,
    words: usize,
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: ours, and not shown.
        unsafe { libc::munmap(self.at.cast(), self.words * WORD) };
    }
}

impl Mapped {
    fn new(words: usize, flags: libc::c_int, file: libc::c_int) -> Result<Self, Refused> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping wherever the kernel likes.
        let at = unsafe { libc::mmap(ptr::null_mut(), words * WORD, access, flags, file, 0) };
        if at == libc::MAP_FAILED {
            return Err(refused("mmap"));
        }
        let at = at.cast();
        Ok(Self { at, words })
    }

    /// Maps memory of the process alone, which is zero.
    pub(super) fn of_process(words: usize) -> Result<Self, Refused> {
        Self::new(words, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)
    }

    /// Returns its words.
    pub(super) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has that number of words, while this exists. Zero bits are the zero of every
        // word, and the start is a multiple of the page size.
        unsafe { std::slice::from_raw_parts(self.at, self.words) }
    }

    /// Keeps the mapping for ever. Returns its first word.
    pub(super) fn keep(self) -> *mut AtomicU64 {
        let at = self.at;
        mem::forget(self);
        at
    }

    /// Moves the mapping over the one of `old`, a whole page, which it replaces.
    pub(super) fn move_over(self, old: &[AtomicU64]) -> Result<(), Refused> {
        let to = old.as_ptr().cast_mut().cast::<libc::c_void>();
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        // SAFETY: over our own mapping, as a whole, with one of the same length.
        let moved = unsafe { libc::mremap(self.at.cast(), BYTES, BYTES, flags, to) };
        if moved == libc::MAP_FAILED {
            return Err(refused("mremap"));
        }
        mem::forget(self);
        Ok(())
    }
}

/// Replaces the mapping of `old`, a whole page, by zeroed memory of the process alone.
pub(super) fn hide(old: &[AtomicU64]) {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    let at = old.as_ptr().cast_mut().cast();
    // SAFETY: our own mapping is replaced as a whole; pointers into it point to zeros. If even this
    // fails, the child counts in the parent's page, which misleads its readers and no more.
    unsafe { libc::mmap(at, BYTES, access, flags, -1, 0) };
}

/// Takes the memory behind `words` now: if the system has none, a later store would end the
/// process. Kernels before 5.14 cannot do this; there the stores take the memory.
pub(super) fn take_memory(words: &[AtomicU64]) -> Result<(), Refused> {
    let page = rustix::param::page_size();
    let start = words.as_ptr().addr();
    let (first, end) = (start & !(page - 1), start + size_of_val(words));
    let at = words.as_ptr().map_addr(|_| first).cast_mut().cast();
    // SAFETY: pages of our own mapping, which can be written.
    let taken = unsafe { libc::madvise(at, end - first, libc::MADV_POPULATE_WRITE) };
    match io::Error::last_os_error().raw_os_error() {
        // EFAULT stands for the signal that a store would raise.
        Some(libc::EFAULT | libc::ENOMEM) if taken != 0 => Err(Refused {
            call: "madvise",
            errno: libc::ENOMEM,
        }),
        _ => Ok(()),
    }
}
