//! The address space.

use crate::{
    deferred_area,
    domain::{Domain, check_unused, pointer},
    ffi::{Errno, catch_panic, check, done, misuse},
    handle::{check_output, deref, free_handle, get, new_handle, write_if_wanted, write_sized},
};
use std::{
    ffi::{c_char, c_int, c_void},
    os::fd::AsRawFd,
    ptr::{self, NonNull},
    slice,
};
use stillpoint_vmap::{ArenaStatistics, Error};

/// A range of address space.
#[derive(Debug)]
pub struct Arena {
    arena: stillpoint_vmap::Arena,
    /// Whether the arena made its own domain, which ends with it.
    has_own_domain: bool,
}

/// The options of an arena. Zeroes are the defaults.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct ArenaOptions {
    /// The size of the address space in bytes; 64 GiB by default.
    pub capacity: usize,
    /// How many bytes may be freed but not yet given back to the system.
    pub lazy_limit: usize,
    /// Whether to omit the guard page behind each area.
    pub no_guards: bool,
    /// Whether access to freed memory faults.
    pub poison: bool,
    /// Whether to advise huge pages.
    pub huge_pages: bool,
    /// Whether a file backs the memory: stillpoint_arena_file().
    pub memory_file: bool,
    /// The domain whose sections keep areas in place; NULL for a private one.
    pub domain: *mut Domain,
}

impl From<Error> for Errno {
    // Inlined because each check of a buffer uses it, and a call would pass the result in memory.
    #[inline(always)]
    fn from(error: Error) -> Self {
        Self(match error {
            Error::ZeroSize | Error::BadAlign { .. } | Error::NotAStart { .. } => libc::EINVAL,
            Error::TooLarge { .. } => libc::E2BIG,
            Error::AddressSpace { .. } => libc::ENOMEM,
            Error::System { errno, .. } => errno,
            Error::PageSize { .. } => libc::ENOTSUP,
            Error::Forked => libc::EPERM,
            Error::Overflow { .. } => libc::EOVERFLOW,
            Error::NotLive { .. } => libc::EFAULT,
            Error::CrossesEnd { .. } => libc::ERANGE,
            Error::InSection => {
                return misuse(
                    libc::EDEADLK,
                    "a drain inside a section of the arena's domain",
                );
            }
            _ => libc::EIO,
        })
    }
}

/// Creates an arena. -EINVAL or -E2BIG for a bad capacity; otherwise the system's error.
///
/// # Safety
///
/// The options are NULL or valid; the handle can be written to `arena`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_arena_new(
    options: *const ArenaOptions,
    arena: *mut *mut Arena,
) -> c_int {
    let make = || {
        let mut builder = stillpoint_vmap::Arena::builder();
        let mut has_own_domain = true;
        // SAFETY: the caller's promise.
        if let Some(options) = unsafe { options.as_ref() } {
            if options.capacity > 0 {
                builder = builder.capacity(options.capacity);
            }
            if options.lazy_limit > 0 {
                builder = builder.lazy_limit(options.lazy_limit);
            }
            // SAFETY: the caller's promise.
            if let Some(domain) = unsafe { options.domain.as_ref() } {
                builder = builder.domain(&domain.0);
                has_own_domain = false;
            }
            builder = builder
                .guards(!options.no_guards)
                .poison(options.poison)
                .huge_pages(options.huge_pages)
                .memory_file(options.memory_file);
        }
        let arena = builder.build()?;
        Ok(Arena {
            arena,
            has_own_domain,
        })
    };
    // SAFETY: the caller's promise.
    unsafe { new_handle(arena, make) }
}

/// Releases the handle. The arena ends once its last area has been freed, too. Its private domain
/// ends with it, and must not be used afterwards. NULL does nothing.
///
/// If the domain ends here, this first calls its pending callbacks and frees its objects, like
/// stillpoint_domain_destroy(), and may block for as long as callbacks take. For a private domain:
/// -EDEADLK inside a section or a callback of it, -EBUSY if another thread is detected inside a
/// section; the handle is then still valid.
///
/// # Safety
///
/// No other thread uses the handle, and it is not used afterwards; areas may still be used, but no
/// longer freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_arena_free(arena: *mut Arena) -> c_int {
    done(|| {
        // SAFETY: the caller's promise.
        let Some(used) = (unsafe { arena.as_ref() }) else {
            return Ok(());
        };
        if used.has_own_domain {
            check_unused(used.arena.domain())?;
        }
        // Dropping a domain's handle waits for the domain's end; dropping the arena's own reference
        // does not. The program may unload the code of callbacks afterwards.
        let domain = used.arena.domain().clone();
        // SAFETY: the caller's promise.
        unsafe { free_handle(arena) };
        drop(domain);
        Ok(())
    })
}

/// Allocates an area of `size` zeroed bytes at a multiple of `align` (a power of two): vmalloc().
/// Returns NULL if that fails, with the negative errno in `error` unless that is NULL: -EINVAL,
/// -E2BIG, -ENOMEM, -EPERM in the child of a fork over a memory file, or the system's error.
///
/// # Safety
///
/// The handle is valid; `error` is NULL or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_arena_alloc(
    arena: *mut Arena,
    size: usize,
    align: usize,
    error: *mut c_int,
) -> *mut c_void {
    let mut area = ptr::null_mut();
    let outcome = done(|| {
        // SAFETY: the caller's promise.
        let made = unsafe { deref(arena) }?.arena.alloc(size, align)?;
        area = made.into_raw().as_ptr().cast();
        Ok(())
    });
    // SAFETY: the caller's promise.
    unsafe { write_if_wanted(error, outcome) };
    area
}

/// Frees the area that starts at the address: vfree(). -EFAULT if there is none, -EINVAL if the
/// address is inside one, -ENOMEM if there is no memory to record it as free; nothing is freed
/// then.
///
/// # Safety
///
/// The handle is valid; the area is the caller's alone, except for readers that check it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_arena_free_area(arena: *mut Arena, area: *mut c_void) -> c_int {
    done(|| {
        // SAFETY: the caller's promise.
        let freed = unsafe { deref(arena)?.arena.free_raw(area.cast()) };
        freed.map_err(|error| match Errno::from(error) {
            Errno(libc::EFAULT) => misuse(
                libc::EFAULT,
                "stillpoint_arena_free_area() where no area starts: freed already, or of another arena",
            ),
            other => other,
        })
    })
}

/// Frees the area after a grace period of the arena's domain, on that domain's service thread:
/// vfree_rcu(). Until then, readers find it as before. -EFAULT and -EINVAL as for
/// stillpoint_arena_free_area(); nothing is freed then. If memory is short when the grace period
/// has ended, the free is retried after another one until it succeeds; barriers do not wait for the
/// retries. No budget bounds what waits.
///
/// # Safety
///
/// As for stillpoint_arena_free_area().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_arena_free_area_rcu(
    arena: *mut Arena,
    area: *mut c_void,
) -> c_int {
    done(|| {
        // SAFETY: the caller's promise.
        let arena = &unsafe { deref(arena) }?.arena;
        let start = area.cast::<u8>();
        let found = arena
            .find(start.addr(), &arena.read_lock())
            .map(|around| around.as_ptr().addr());
        check(
            found == Some(start.addr()),
            found.map_or(libc::EFAULT, |_| libc::EINVAL),
            "stillpoint_arena_free_area_rcu() where no area starts",
        )?;
        // SAFETY: the caller's promise.
        unsafe { deferred_area::free_after_grace_period(arena, start) };
        Ok(())
    })
}

/// Returns the domain whose sections keep areas in place. It belongs to the arena: do not pass it
/// to stillpoint_domain_destroy(). NULL for NULL.
///
/// # Safety
///
/// The handle is valid or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_arena_domain(arena: *const Arena) -> *mut Domain {
    // SAFETY: the caller's promise.
    unsafe {
        get(arena, ptr::null_mut(), |arena| {
            pointer(arena.arena.domain())
        })
    }
}

/// Checks that `size` bytes from an address lie inside one live area: check_object_size(). Inside a
/// section of the arena's domain, the bytes stay in place until the section ends. -EFAULT if the
/// first byte is in no live area, -ERANGE if the area ends before the last byte, -EOVERFLOW,
/// -EINVAL for no bytes. Async-signal-safe in a thread that is registered.
///
/// # Safety
///
/// The handle is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_arena_check(
    arena: *const Arena,
    address: *const c_void,
    size: usize,
) -> c_int {
    catch_panic(|| {
        // SAFETY: the caller's promise.
        let arena = &unsafe { deref(arena) }?.arena;
        let guard = arena.read_lock();
        arena
            .check(address.addr(), size, &guard)
            .map(|_| 0)
            .map_err(Errno::from)
    })
}

/// Finds the area around an address: find_vmap_area(). Returns its first address, and its length in
/// `size` unless that is NULL; NULL if there is none. The area stays in place until the caller's
/// section of the arena's domain ends.
///
/// # Safety
///
/// The handle is valid or NULL; `size` is NULL or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_arena_find(
    arena: *const Arena,
    address: *const c_void,
    size: *mut usize,
) -> *mut c_void {
    let find = |Arena { arena, .. }: &Arena| {
        let guard = arena.read_lock();
        arena
            .find(address.addr(), &guard)
            .map_or(ptr::null_mut(), |found| {
                // SAFETY: the caller's promise.
                unsafe { write_if_wanted(size, found.len()) };
                found.as_ptr().cast()
            })
    };
    // SAFETY: the caller's promise.
    unsafe { get(arena, ptr::null_mut(), find) }
}

/// Returns whether a caller's buffer is plausible: not NULL unless empty, and not longer than any
/// object can be.
fn buffer(at: *const c_void, size: usize) -> Result<NonNull<u8>, Errno> {
    if size == 0 {
        return Ok(NonNull::dangling());
    }
    let at = NonNull::new(at.cast_mut()).filter(|_| isize::try_from(size).is_ok());
    at.map(NonNull::cast)
        .ok_or_else(|| misuse(libc::EINVAL, "a buffer that is null or too long"))
}

/// Checks `size` bytes from an address of the arena, and copies them out. Errors as for
/// stillpoint_arena_check(), but 0 bytes are no error.
///
/// # Safety
///
/// The handle is valid; `size` bytes can be written at `to`; no other thread uses them, and they
/// lie in no arena.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_arena_copy_out(
    arena: *const Arena,
    to: *mut c_void,
    from: *const c_void,
    size: usize,
) -> c_int {
    done(|| {
        // SAFETY: the caller's promise.
        let arena = &unsafe { deref(arena) }?.arena;
        let to = buffer(to, size)?.as_ptr();
        // SAFETY: the caller's promise. The bytes are only written.
        Ok(arena.copy_to(from.addr(), unsafe { slice::from_raw_parts_mut(to, size) })?)
    })
}

/// Checks `size` bytes at an address of the arena, and copies them in.
///
/// # Safety
///
/// The handle is valid; `size` bytes can be read at `from`; no thread writes them meanwhile, and
/// they lie in no arena.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_arena_copy_in(
    arena: *const Arena,
    to: *mut c_void,
    from: *const c_void,
    size: usize,
) -> c_int {
    done(|| {
        // SAFETY: the caller's promise.
        let arena = &unsafe { deref(arena) }?.arena;
        let from = buffer(from, size)?.as_ptr();
        // SAFETY: the caller's promise.
        Ok(arena.copy_from(to.addr(), unsafe { slice::from_raw_parts(from, size) })?)
    })
}

/// Checks `size` bytes at two addresses of the arena, and copies from one to the other; they may
/// overlap.
///
/// # Safety
///
/// The handle is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_arena_copy_between(
    arena: *const Arena,
    to: *mut c_void,
    from: *const c_void,
    size: usize,
) -> c_int {
    done(|| {
        // SAFETY: the caller's promise.
        let arena = &unsafe { deref(arena) }?.arena;
        Ok(arena.copy_between(to.addr(), from.addr(), size)?)
    })
}

/// Gives the memory of all areas freed before the call back to the system; waits for a grace
/// period. -EDEADLK inside a section of the arena's domain.
///
/// # Safety
///
/// The handle is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_arena_drain(arena: *mut Arena) -> c_int {
    // SAFETY: the caller's promise.
    done(|| Ok(unsafe { deref(arena) }?.arena.drain()?))
}

/// Gives back the memory that needs no waiting; returns its size in bytes.
///
/// # Safety
///
/// The handle is valid or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_arena_shrink(arena: *mut Arena) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { get(arena, 0, |arena| arena.arena.shrink()) }
}

/// Returns the file descriptor of an arena created with `memory_file`; it stays the arena's.
/// -ENOENT for other arenas. To share areas, give another process the file (execve() closes it) and
/// the offset of an area (stillpoint_arena_offset()); that process maps the file by mmap().
///
/// # Safety
///
/// The handle is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_arena_file(arena: *const Arena) -> c_int {
    catch_panic(|| {
        // SAFETY: the caller's promise.
        let file = unsafe { deref(arena) }?.arena.file().ok_or(libc::ENOENT)?;
        Ok(file.as_raw_fd())
    })
}

/// Returns the first address that areas can have, and the number of bytes in `size` unless that is
/// NULL; NULL for NULL. With a memory file, these bytes are the whole file in order.
/// Async-signal-safe.
///
/// # Safety
///
/// The handle is valid or NULL; `size` is NULL or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_arena_addresses(
    arena: *const Arena,
    size: *mut usize,
) -> *mut c_void {
    let first = |arena: &Arena| {
        let addresses = arena.arena.addresses();
        // SAFETY: the caller's promise.
        unsafe { write_if_wanted(size, addresses.len()) };
        ptr::without_provenance_mut(addresses.start)
    };
    // SAFETY: the caller's promise.
    unsafe { get(arena, ptr::null_mut(), first) }
}

/// Writes the offset of an address in the arena, in bytes from its first address: a process that
/// has mapped the file of stillpoint_arena_file() finds the same bytes at that offset. -EFAULT for
/// an address outside of the arena. Does not check for an area. Async-signal-safe.
///
/// # Safety
///
/// The handle is valid; `offset` can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_arena_offset(
    arena: *const Arena,
    address: *const c_void,
    offset: *mut u64,
) -> c_int {
    done(|| {
        // SAFETY: the caller's promise.
        let addresses = unsafe { deref(arena) }?.arena.addresses();
        check_output(offset)?;
        if !addresses.contains(&address.addr()) {
            return Err(libc::EFAULT.into());
        }
        // SAFETY: the caller's promise.
        unsafe { offset.write((address.addr() - addresses.start) as u64) };
        Ok(())
    })
}

/// Writes a description of an address, as snprintf() does: ends it with a null byte if there is
/// space, and returns the length of the whole text.
///
/// # Safety
///
/// The handle is valid; `size` bytes can be written at `text`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_arena_describe(
    arena: *const Arena,
    address: *const c_void,
    text: *mut c_char,
    size: usize,
) -> c_int {
    catch_panic(|| {
        // SAFETY: the caller's promise.
        let arena = &unsafe { deref(arena) }?.arena;
        let whole = arena.describe(address.addr()).to_string();
        if size > 0 {
            let length = whole.len().min(size - 1);
            let text = buffer(text.cast(), size)?.as_ptr();
            // SAFETY: the caller's promise.
            unsafe {
                ptr::copy_nonoverlapping(whole.as_ptr(), text, length);
                text.add(length).write(0);
            }
        }
        Ok(c_int::try_from(whole.len()).unwrap_or(c_int::MAX))
    })
}

/// Writes the statistics, as stillpoint_domain_statistics() does.
///
/// # Safety
///
/// The handle is valid; `size` bytes can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_arena_get_statistics(
    arena: *const Arena,
    statistics: *mut ArenaStatistics,
    size: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    done(|| unsafe { write_sized(&deref(arena)?.arena.statistics(), statistics, size) })
}
