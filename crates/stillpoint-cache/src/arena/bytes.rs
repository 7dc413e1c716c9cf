//! [`Bytes`]: a value in an arena.

use super::{Arena, Shared, Size, region::Region};
use std::{
    borrow::Borrow,
    cmp,
    error::Error,
    fmt,
    hash::{Hash, Hasher},
    ops::Deref,
    process,
    ptr::{self, NonNull},
    slice,
    sync::Arc,
};
#[cfg(stillpoint_loom)]
use stillpoint_platform::sync::UnsafeCell;
use stillpoint_platform::sync::{AtomicPtr, AtomicUsize, Ordering, fence};

/// The head of a value, which lies before its bytes.
#[derive(Debug)]
#[repr(C)]
pub struct Slot {
    /// Number of [`Bytes`] that share it.
    owners: AtomicUsize,
    /// Stands for the bytes, so that loom sees who reads and writes them.
    #[cfg(stillpoint_loom)]
    content: UnsafeCell<()>,
}

/// With more owners, the process ends: they were leaked.
const MOST_OWNERS: usize = isize::MAX as usize;

/// Bytes that lie in an [`Arena`], as the values of a cache whose memory goes back to the system when
/// they go.
///
/// They do not change. Clones share them, and keep them after the cache, and its arena, have gone. A
/// clone adds one to a counter beside the bytes, a line that all threads write which clone the same
/// value: [`Cache::get_ref`](crate::Cache::get_ref) does not.
///
/// [`Arena::bytes`] makes them, and [`Cache::bytes`](crate::Cache::bytes).
#[derive(Default)]
pub struct Bytes {
    /// Null for none. Changes where the cache moves the value: see [`Bytes::leave`].
    slot: AtomicPtr<Slot>,
    len: usize,
}

// SAFETY: the slot is shared by its owners, which count themselves, and its bytes do not change.
unsafe impl Send for Bytes {}
// SAFETY: the same.
unsafe impl Sync for Bytes {}

/// The system had no memory for a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct NoMemory {
    /// Length of the value in bytes.
    pub bytes: usize,
}

impl Slot {
    /// Returns the size of a slot with `len` bytes behind its head.
    fn size(len: usize) -> Option<usize> {
        len.checked_add(size_of::<Self>())
    }

    /// Makes one with one owner.
    ///
    /// # Safety
    ///
    /// It was allocated for those bytes, and is the caller's.
    unsafe fn begin(slot: NonNull<Self>, bytes: &[u8]) {
        let this = Self {
            owners: AtomicUsize::new(1),
            #[cfg(stillpoint_loom)]
            content: UnsafeCell::new(()),
        };
        // SAFETY: the caller's promise.
        unsafe {
            slot.write(this);
            #[cfg(stillpoint_loom)]
            slot.as_ref().content.with_mut(|_| ());
            let to = slot.add(1).cast::<u8>();
            to.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len());
        }
    }

    /// # Safety
    ///
    /// The slot has so many bytes, and an owner for as long as `'a`.
    unsafe fn bytes<'a>(slot: NonNull<Self>, len: usize) -> &'a [u8] {
        // SAFETY: the caller's promise.
        unsafe {
            #[cfg(stillpoint_loom)]
            slot.as_ref().content.with(|_| ());
            slice::from_raw_parts(slot.as_ptr().add(1).cast(), len)
        }
    }

    /// Ends one ownership.
    ///
    /// # Safety
    ///
    /// It was the caller's; the slot has so many bytes.
    unsafe fn disown(slot: NonNull<Self>, len: usize) {
        // SAFETY: the caller owns it until the subtraction, and alone after the last one.
        unsafe {
            // Release, pairs with the fence of `disown`: the owner's last use.
            if slot.as_ref().owners.fetch_sub(1, Ordering::Release) != 1 {
                return;
            }
            // Acquire, pairs with the subtraction of `disown`: the last uses of the others.
            fence(Ordering::Acquire);
            #[cfg(stillpoint_loom)]
            slot.as_ref().content.with_mut(|_| ());
            Shared::free(slot, Self::size(len).expect("it was allocated"));
        }
    }
}

impl Bytes {
    pub(super) fn new(shared: &Arc<Shared>, bytes: &[u8]) -> Result<Self, NoMemory> {
        let len = bytes.len();
        if len == 0 {
            return Ok(Self::default());
        }
        let slot = Slot::size(len).and_then(|size| shared.allocate(size));
        let slot = slot.ok_or(NoMemory { bytes: len })?;
        // SAFETY: allocated just now.
        unsafe { Slot::begin(slot, bytes) };
        Ok(Self::of(slot, len))
    }

    fn of(slot: NonNull<Slot>, len: usize) -> Self {
        Self {
            slot: AtomicPtr::new(slot.as_ptr()),
            len,
        }
    }

    /// Returns the value's slot.
    #[cfg(all(test, stillpoint_loom, not(stillpoint_shuttle)))]
    pub(super) fn place(&self) -> Option<NonNull<Slot>> {
        self.slot()
    }

    #[inline]
    fn slot(&self) -> Option<NonNull<Slot>> {
        // Acquire, pairs with `leave`: the bytes are there.
        NonNull::new(self.slot.load(Ordering::Acquire))
    }

    /// Returns the size of the value in its arena, in bytes: its slot, the words before its bytes and what is
    /// rounded up included; whole pages, if it is larger than 8 KiB. None, if it has no bytes.
    #[must_use]
    pub fn footprint(&self) -> usize {
        let size = Slot::size(self.len).filter(|_| self.len > 0);
        size.and_then(Size::of).map_or(0, Size::bytes)
    }

    /// Moves the value, if it lies where the arena wants no values. Returns what owns the old place,
    /// where there is one.
    ///
    /// # Errors
    ///
    /// If the system has no memory for it.
    ///
    /// # Safety
    ///
    /// All threads that read from `self` without owning it exclusively, this one included, do so in
    /// sections, the results of whose reads they use no longer than those; what is returned is dropped
    /// after a grace period.
    pub(crate) unsafe fn leave(&self, arena: &Arena) -> Result<Option<Self>, NoMemory> {
        let Some(old) = self.slot() else {
            return Ok(None);
        };
        let size = Slot::size(self.len).and_then(Size::of);
        if !matches!(size, Some(Size::Slot(_))) {
            return Ok(None);
        }
        // SAFETY: the section keeps the slot, and so its region, whose first words do not change.
        let is_to_leave = unsafe {
            let region = Region::of(old.cast());
            arena.is((*region.as_ptr()).shared)
                // Relaxed: a hint.
                && Region::leaving(old.cast()).load(Ordering::Relaxed)
        };
        if !is_to_leave {
            return Ok(None);
        }
        // SAFETY: the section keeps it.
        let new = arena.bytes(unsafe { Slot::bytes(old, self.len) })?;
        let to = new.slot.load(Ordering::Relaxed);
        // Release, pairs with `slot`: its bytes are there.
        let set =
            self.slot
                .compare_exchange(old.as_ptr(), to, Ordering::Release, Ordering::Relaxed);
        // Another thread may have moved it.
        Ok(set.is_ok().then(|| {
            // Now the old place's.
            new.slot.store(old.as_ptr(), Ordering::Relaxed);
            new
        }))
    }
}

#[cfg(not(stillpoint_loom))]
impl Bytes {
    /// Writes over the bytes, while other threads read them. For the torture program.
    ///
    /// # Safety
    ///
    /// Who reads them takes them for whatever they are.
    pub(crate) unsafe fn overwrite(&self) {
        if let Some(slot) = self.slot() {
            // SAFETY: `self` owns it; the caller's promise.
            unsafe { slot.add(1).cast::<u8>().write_bytes(0xff, self.len) };
        }
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        // Relaxed: no other thread uses this any more.
        if let Some(slot) = NonNull::new(self.slot.load(Ordering::Relaxed)) {
            // SAFETY: it was this one's.
            unsafe { Slot::disown(slot, self.len) };
        }
    }
}

impl Clone for Bytes {
    fn clone(&self) -> Self {
        let slot = self.slot();
        if let Some(slot) = slot {
            // SAFETY: `self` owns it; or has until the section's end.
            let before = unsafe { slot.as_ref() }
                .owners
                .fetch_add(1, Ordering::Relaxed);
            if before > MOST_OWNERS {
                // As std does: what follows could free what is in use.
                process::abort();
            }
        }
        Self {
            slot: AtomicPtr::new(slot.map_or(ptr::null_mut(), NonNull::as_ptr)),
            len: self.len,
        }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self.slot() {
            // SAFETY: `self` owns it; where the cache moves it, the section keeps it in which
            // `self` was found.
            Some(slot) => unsafe { Slot::bytes(slot, self.len) },
            None => &[],
        }
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Borrow<[u8]> for Bytes {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl PartialEq for Bytes {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Bytes {}

impl PartialEq<[u8]> for Bytes {
    fn eq(&self, other: &[u8]) -> bool {
        **self == *other
    }
}

impl PartialOrd for Bytes {
    fn partial_cmp(&self, other: &Self) -> Option<cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Bytes {
    fn cmp(&self, other: &Self) -> cmp::Ordering {
        (**self).cmp(&**other)
    }
}

impl Hash for Bytes {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl fmt::Debug for Bytes {
    /// As a slice of bytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl fmt::Display for NoMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "no memory for a value of {} bytes: the system has no more, so lower the limit of the \
             cache, or free something else",
            self.bytes
        )
    }
}

impl Error for NoMemory {}
