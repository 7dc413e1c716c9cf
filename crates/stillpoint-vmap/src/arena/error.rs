//! Errors, with what to do about each.

use std::{fmt, io};
use stillpoint_platform::mmap::Refused;

/// There was no memory for the arena's lists.
pub(crate) const NO_MEMORY: Refused = Refused {
    call: "malloc",
    errno: libc::ENOMEM,
};

/// The reason why an arena refused a request. The message says what to do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// An area, or a range to be checked, of no bytes.
    ZeroSize,
    /// An alignment that is not a power of two.
    BadAlign {
        /// The alignment.
        align: usize,
    },
    /// A size or an alignment beyond what an area, or an arena, can have.
    TooLarge {
        /// Size in bytes that was asked for.
        size: usize,
        /// The limit, in bytes.
        most: usize,
    },
    /// The arena's address space is used up, or in pieces that are too small.
    AddressSpace {
        /// Size in bytes that was asked for.
        size: usize,
        /// The arena's capacity, in bytes.
        capacity: usize,
        /// Bytes that had been freed and could not be used again, because of a section that has not
        /// ended or a drain that failed.
        waiting: usize,
    },
    /// A system call failed.
    System {
        /// Its name.
        call: &'static str,
        /// Its error number.
        errno: i32,
    },
    /// The system's pages are not 4 KiB.
    PageSize {
        /// Their size in bytes.
        size: usize,
    },
    /// An allocation in the child of a fork, from an arena over a memory file: its parent hands out
    /// the same memory.
    Forked,
    /// A range that goes past the end of all addresses.
    Overflow {
        /// Its first address.
        addr: usize,
        /// Its length in bytes.
        len: usize,
    },
    /// An address that lies in no live area.
    NotLive {
        /// The address.
        addr: usize,
    },
    /// A range that begins in a live area and ends outside of it.
    CrossesEnd {
        /// Its first address.
        addr: usize,
        /// Its length in bytes.
        len: usize,
        /// The address behind the area's last byte.
        end: usize,
    },
    /// An address inside a live area, where the area's first address is needed.
    NotAStart {
        /// The address.
        addr: usize,
        /// The area's first address.
        start: usize,
    },
    /// A drain inside a read-side critical section of the arena's domain: it would wait for the
    /// calling thread itself.
    InSection,
}

impl From<Refused> for Error {
    fn from(Refused { call, errno }: Refused) -> Self {
        Self::System { call, errno }
    }
}

#[cfg(miri)]
impl From<std::convert::Infallible> for Error {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::ZeroSize => write!(f, "a size of 0 bytes: ask for 1 at least"),
            Self::BadAlign { align } => write!(
                f,
                "an alignment of {align}, which is no power of two: round it up to one"
            ),
            Self::TooLarge { size, most } => write!(
                f,
                "{size} bytes are asked for, and {most} are the most: split it up"
            ),
            Self::AddressSpace {
                size,
                capacity,
                waiting,
            } => {
                write!(
                    f,
                    "no {size} bytes in a row are left of the arena's {capacity}"
                )?;
                if waiting == 0 {
                    write!(
                        f,
                        ": free some areas, or build the arena with a larger capacity"
                    )
                } else {
                    write!(
                        f,
                        "; {waiting} that have been freed wait for readers or for a drain: drop the calling thread's guards and try \
                         again, or build the arena with a larger capacity"
                    )
                }
            }
            Self::System { call, errno } => {
                write!(
                    f,
                    "{call} failed: {}: {}",
                    io::Error::from_raw_os_error(errno),
                    advice(call, errno)
                )
            }
            Self::PageSize { size } => write!(
                f,
                "the system's pages are of {size} bytes; arenas need pages of 4096"
            ),
            Self::Forked => write!(
                f,
                "this process is a fork, and its parent hands out the memory of the same file: allocate in the parent, or make an \
                 arena of the child's own"
            ),
            Self::Overflow { addr, len } => write!(
                f,
                "{len} bytes from {addr:#x} go past the last address: check the length"
            ),
            Self::NotLive { addr } => {
                write!(
                    f,
                    "{addr:#x} lies in no live area: it has been freed, or is no address of this arena (see Arena::describe)"
                )
            }
            Self::CrossesEnd { addr, len, end } => {
                write!(
                    f,
                    "{len} bytes from {addr:#x} go past the end of their area at {end:#x}: shorten the range by {}",
                    addr.saturating_add(len).saturating_sub(end)
                )
            }
            Self::NotAStart { addr, start } => write!(
                f,
                "{addr:#x} is inside an area: free its first address, {start:#x}"
            ),
            Self::InSection => write!(
                f,
                "the calling thread is inside a read-side critical section of the arena's domain, which a drain would wait for: drop \
                 the guard first, or drain on another thread"
            ),
        }
    }
}

fn advice(call: &str, errno: i32) -> &'static str {
    match (call, errno) {
        ("mmap" | "mprotect", libc::ENOMEM) => {
            "the process has used up its address space (ulimit -v), its mappings (sysctl vm.max_map_count), or what the system \
             commits (sysctl vm.overcommit_memory): raise it, or build the arena with a smaller capacity"
        }
        ("madvise", libc::ENOMEM) => {
            "the system is short of memory for page tables: try again when some has been freed"
        }
        ("memfd_create", libc::EMFILE | libc::ENFILE) => {
            "close some files, or raise the limit on them (ulimit -n)"
        }
        (_, libc::EPERM | libc::ENOSYS | libc::EACCES) => {
            "a filter (seccomp) or policy forbids the call: allow it"
        }
        _ => "see the call's manual page",
    }
}

impl std::error::Error for Error {}
