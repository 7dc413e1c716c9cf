//! The memory file of a statistics page, and its mapping. Makes system calls only, because the
//! child of a fork does all of it, too.

use crate::mmap::{Mapping, Refused, refused};
use crate::stats::layout::{BYTES, NAME};
use rustix::{
    fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create},
    io::{Errno, fcntl_dupfd_cloexec},
    mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous},
};
use std::{
    mem,
    os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd},
    sync::atomic::{AtomicI32, AtomicU64, Ordering},
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
    pub(super) fn set(&self, file: OwnedFd) {
        let (device, inode) = identity(file.as_raw_fd()).unwrap_or_default();
        self.device.store(device, Ordering::Relaxed);
        self.inode.store(inode, Ordering::Relaxed);
        self.number.store(file.into_raw_fd(), Ordering::Relaxed);
    }

    /// Takes the file, unless the program has closed it: another file may have its number by now.
    ///
    /// # Safety
    ///
    /// The caller is the child of a fork, and has started no thread.
    pub(super) unsafe fn take(&self) -> Option<OwnedFd> {
        let number = self.number.swap(-1, Ordering::Relaxed);
        if number < 0 {
            return None;
        }
        let shown = (
            self.device.load(Ordering::Relaxed),
            self.inode.load(Ordering::Relaxed),
        );
        let is_ours = identity(number) == Some(shown);
        // SAFETY: the file that `set` has given up. It is open, and by the caller's promise no other
        // thread closes it meanwhile.
        is_ours.then(|| unsafe { OwnedFd::from_raw_fd(number) })
    }
}

/// Returns the device and the inode of the file that has this number, if one has.
fn identity(number: RawFd) -> Option<(u64, u64)> {
    let mut status = mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: writes to `status`. rustix's call is for files that are certain to be open.
    let result = unsafe { libc::fstat(number, status.as_mut_ptr()) };
    (result == 0).then(|| {
        // SAFETY: the call has succeeded, so it has written all of it.
        let status = unsafe { status.assume_init() };
        (status.st_dev, status.st_ino)
    })
}

/// Returns a new memory file of the page's length. Its descriptor is none of the three standard
/// ones: a program that has closed one would read the page as its input, or write to it.
pub(super) fn create() -> Result<OwnedFd, Refused> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Kernels before 6.3 do not know the flag that says that the file is not executable.
    let mut file = memfd_create(NAME, flags | MemfdFlags::NOEXEC_SEAL)
        .or_else(|_| memfd_create(NAME, flags))
        .map_err(refused("memfd_create"))?;
    if file.as_raw_fd() <= libc::STDERR_FILENO {
        file = fcntl_dupfd_cloexec(&file, libc::STDERR_FILENO + 1)
            .map_err(refused("fcntl(F_DUPFD_CLOEXEC)"))?;
    }
    // To grow a file past this limit raises a signal that ends the process.
    if longest_file() < BYTES as libc::rlim_t {
        return Err(refused("ftruncate")(Errno::FBIG));
    }
    ftruncate(&file, BYTES as u64).map_err(refused("ftruncate"))?;
    Ok(file)
}

/// Returns the length to which the process may grow a file; no bound if the system does not tell.
fn longest_file() -> libc::rlim_t {
    let mut limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // rustix 1.1 does not expect that a sandbox refuses this call, and returns uninitialised memory.
    // SAFETY: writes to `limit`.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    limit.rlim_cur
}

/// Moves `file` to the number `free`, if the system does it.
///
/// # Safety
///
/// No file but this one has that number, and no other thread opens one meanwhile.
pub(super) unsafe fn with_number(file: OwnedFd, free: RawFd) -> OwnedFd {
    // SAFETY: the caller's promise. If the number is the file's own, the call is refused.
    match unsafe { libc::dup3(file.as_raw_fd(), free, libc::O_CLOEXEC) } {
        -1 => file,
        // SAFETY: made just now.
        moved => unsafe { OwnedFd::from_raw_fd(moved) },
    }
}

/// Seals the file, which is mapped: nothing changes its length, and, since Linux 5.1, no one else
/// can write to it.
pub(super) fn seal(file: &OwnedFd) -> Result<(), Refused> {
    fcntl_add_seals(file, SealFlags::SHRINK | SealFlags::GROW)
        .map_err(refused("fcntl(F_ADD_SEALS)"))?;
    // Older kernels do not know the first, which is not needed to read safely.
    let _ = fcntl_add_seals(file, SealFlags::FUTURE_WRITE);
    let _ = fcntl_add_seals(file, SealFlags::SEAL);
    Ok(())
}

/// The mapping of a page's file.
pub(super) struct Page(Mapping);

impl Page {
    pub(super) fn of(file: &OwnedFd) -> Result<Self, Refused> {
        Mapping::shared(file, BYTES).map(Self)
    }

    pub(super) fn words(&self) -> &[AtomicU64] {
        // SAFETY: all of a shared mapping is readable and writable. Any bits are a word, and the start is a
        // multiple of the page size.
        unsafe {
            std::slice::from_raw_parts(
                self.0.start().as_ptr().cast(),
                self.0.len() / size_of::<AtomicU64>(),
            )
        }
    }

    /// Keeps the mapping for ever. Returns its first word.
    pub(super) fn keep(self) -> *mut AtomicU64 {
        mem::ManuallyDrop::new(self.0).start().as_ptr().cast()
    }

    /// Moves the mapping over that of `old`, which it replaces.
    ///
    /// # Safety
    ///
    /// `old` is all of a page that was kept.
    pub(super) unsafe fn move_over(self, old: &[AtomicU64]) -> Result<(), Refused> {
        let (from, to) = (self.0.start().as_ptr().cast(), old.as_ptr().cast_mut());
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        // rustix 1.1 passes the flag of `mmap` to this call, which the kernel refuses.
        // SAFETY: over our own mapping, by the caller's promise as a whole, with one of the same length.
        let moved = unsafe { libc::mremap(from, BYTES, BYTES, flags, to.cast::<libc::c_void>()) };
        if moved == libc::MAP_FAILED {
            return Err(refused("mremap")(
                Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL),
            ));
        }
        mem::forget(self);
        Ok(())
    }
}

/// Replaces the mapping of `old` by zeroed memory of the process alone.
///
/// # Safety
///
/// `old` is all of a page that was kept.
pub(super) unsafe fn hide(old: &[AtomicU64]) {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::PRIVATE | MapFlags::FIXED;
    let at = old.as_ptr().cast_mut().cast();
    // SAFETY: by the caller's promise our own mapping is replaced as a whole; pointers into it point to zeros. If even this
    // fails, the child writes its slots and counts into the parent's page, which misleads its readers
    // and no more.
    let _ = unsafe { mmap_anonymous(at, BYTES, access, flags) };
}

/// Takes the memory behind `words` now: if the system has none, a later store would end the
/// process. Kernels before 5.14 cannot do this; there the stores take the memory.
pub(super) fn take_memory(words: &[AtomicU64]) -> Result<(), Refused> {
    let page = rustix::param::page_size();
    let start = words.as_ptr().addr();
    let (first, end) = (start & !(page - 1), start + size_of_val(words));
    let at = words.as_ptr().map_addr(|_| first).cast_mut().cast();
    // SAFETY: pages of our own mapping, which can be written.
    match unsafe { madvise(at, end - first, Advice::LinuxPopulateWrite) } {
        // FAULT stands for the signal that a store would raise.
        Err(Errno::FAULT | Errno::NOMEM) => Err(refused("madvise")(Errno::NOMEM)),
        _ => Ok(()),
    }
}
