//! A value that is being read in.

use super::{
    access::WIN,
    class::{Class, PAGE, SEGMENT_HEADER},
    error::{Outcome, Refused},
    layout::Shape,
    requests::{Condition, Mode},
    state::{TenantState, check_key},
    unfinished::Unfinished,
};
use std::{convert::Infallible, fmt, slice, sync::Arc};
use stillpoint::read_lock;

/// A value that is arriving. Dropping it stores nothing.
///
/// A large value is written to its final place, whose memory is charged to the tenant page by page as
/// the value arrives. A smaller one is copied to a segment once it has arrived, so that a client that
/// sends half a value keeps no segment.
///
/// Made by [`Tenant::prepare`](super::Tenant::prepare).
pub struct Draft {
    state: Arc<TenantState>,
    key: Box<[u8]>,
    flags: u32,
    exptime: u32,
    marks: u32,
    len: usize,
    value: Memory,
}

enum Memory {
    /// The bytes that have arrived.
    Small(Vec<u8>),
    Large {
        unfinished: Unfinished,
        /// Offset of the value in its segment, in bytes.
        at: usize,
        /// Number of bytes that have arrived.
        filled: usize,
    },
}

impl Draft {
    pub(super) fn new(
        state: &Arc<TenantState>,
        key: &[u8],
        flags: u32,
        exptime: u32,
        len: usize,
    ) -> Result<Self, Refused> {
        check_key(key)?;
        let max = state.common().config.item_max;
        if len > max {
            return Err(Refused::TooLarge { len, max });
        }
        if state.owner.is_deleted() {
            return Err(Refused::Deleted);
        }
        let shape = shape(key, len, flags, exptime);
        let size = shape.size();
        let value = if Class::is_large(size) {
            let space = {
                let section = read_lock();
                let now = state.common().now();
                Arc::clone(state.space(now, &section))
            };
            let mut unfinished = Unfinished::announce(&space, &state.waiting, size)?;
            let written = unfinished.with(|arriving, _| {
                let base = arriving.segment.base();
                // SAFETY: the segment is ours while it is arriving, and has room for an item of that
                // size.
                let value = unsafe { shape.write(base.wrapping_add(SEGMENT_HEADER), 0) };
                value.addr() - base.addr()
            });
            let at = written.ok_or_else(|| space.owner.ended_unfinished())?;
            Memory::Large {
                unfinished,
                at,
                filled: 0,
            }
        } else {
            Memory::Small(Vec::new())
        };
        Ok(Self {
            state: Arc::clone(state),
            key: key.into(),
            flags,
            exptime,
            marks: 0,
            len,
            value,
        })
    }

    /// Appends the next bytes of the value, and charges the tenant for them, which may evict.
    ///
    /// # Errors
    ///
    /// At a limit, without memory, and if the memory of a large value was needed for another
    /// unfinished one. The draft can only be dropped then.
    ///
    /// # Panics
    ///
    /// If more bytes arrive than were announced.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), Refused> {
        assert!(bytes.len() <= self.missing(), "more than was announced");
        match &mut self.value {
            Memory::Small(value) => {
                let reserved = value.try_reserve(bytes.len());
                reserved.map_err(|_| Refused::OutOfMemory)?;
                value.extend_from_slice(bytes);
                Ok(())
            }
            Memory::Large { .. } => {
                let copy = |rest: &mut [u8]| {
                    rest[..bytes.len()].copy_from_slice(bytes);
                    Ok::<_, Infallible>(bytes.len())
                };
                match self.read(copy) {
                    Some((_, charged)) => charged,
                    None => Err(self.state.owner.ended_unfinished()),
                }
            }
        }
    }

    /// Reads the next bytes of a large value to their place, and charges the tenant for them, which
    /// may evict. `read` writes to the beginning of a slice that has room for all missing bytes and
    /// unspecified contents, and returns the number of bytes it has written.
    ///
    /// Returns the result of `read`, and whether the value can still be stored: the errors are those
    /// of [`Draft::push`]. Returns `None` without calling `read` for a small value, and for one whose
    /// memory was needed: `push` stores the former and reports the latter.
    ///
    /// # Panics
    ///
    /// If `read` returns more than the length of the slice.
    pub fn read<E>(
        &mut self,
        read: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Option<(Result<usize, E>, Result<(), Refused>)> {
        let missing = self.missing();
        let Memory::Large {
            unfinished,
            at,
            filled,
        } = &mut self.value
        else {
            return None;
        };
        let read = unfinished.with(|arriving, waiting| {
            let segment = &arriving.segment;
            let rest = segment.base().wrapping_add(*at + *filled);
            // SAFETY: in the segment, which is ours while it is arriving and has room for the whole
            // value behind the key; initialized memory.
            let result = read(unsafe { slice::from_raw_parts_mut(rest, missing) });
            let Ok(bytes @ 1..) = result else {
                return (result, Ok(()));
            };
            assert!(bytes <= missing, "more than was announced");
            *filled += bytes;
            let charged = match bytes == missing {
                true => segment.bytes(),
                false => (*at + *filled).next_multiple_of(PAGE).min(segment.bytes()),
            };
            (result, arriving.charge(charged, waiting))
        })?;
        if read.1.is_err() {
            // It can no longer be stored, and takes no part of the memory.
            drop(unfinished.take());
        }
        Some(read)
    }

    /// Returns the length of the value in bytes, as it was announced.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "it is the announced length")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the number of bytes that have not arrived yet.
    #[must_use]
    pub fn missing(&self) -> usize {
        self.len
            - match &self.value {
                Memory::Small(value) => value.len(),
                Memory::Large { filled, .. } => *filled,
            }
    }

    /// Sets the win mark of the item: the caller has told its client to make the value.
    pub fn set_win(&mut self) {
        self.marks |= WIN;
    }

    /// Returns the second in which the item expires, 0 for never.
    #[must_use]
    pub fn exptime(&self) -> u32 {
        self.exptime
    }

    /// Sets the second of [`Store::now`](super::Store::now) in which the item expires, 0 for never.
    pub fn set_exptime(&mut self, exptime: u32) {
        self.exptime = exptime;
    }

    /// Returns the memory that it takes and no tenant is charged for, in bytes.
    #[must_use]
    pub fn footprint(&self) -> usize {
        match &self.value {
            Memory::Small(bytes) => bytes.capacity(),
            // The page of the key.
            Memory::Large { filled: 0, .. } => PAGE,
            Memory::Large { .. } => 0,
        }
    }

    /// Stores the value. Returns its CAS value.
    ///
    /// # Errors
    ///
    /// [`Outcome::NotStored`], [`Outcome::NotFound`] and [`Outcome::Exists`] as `mode` and
    /// `condition` say; [`Outcome::Refused`].
    ///
    /// # Panics
    ///
    /// If bytes of the value are missing.
    pub fn store(self, mode: Mode, condition: Condition) -> Result<u64, Outcome> {
        assert_eq!(self.missing(), 0, "bytes of the value are missing");
        let arriving;
        let (value, place) = match &self.value {
            Memory::Small(bytes) => (&bytes[..], None),
            Memory::Large { unfinished, at, .. } => {
                let owner = &self.state.owner;
                arriving = unfinished.take().ok_or_else(|| owner.ended_unfinished())?;
                let segment = &arriving.segment;
                // SAFETY: as in `read`; all of it has arrived. Only what is before it is written.
                let value =
                    unsafe { slice::from_raw_parts(segment.base().wrapping_add(*at), self.len) };
                let is_whole = !matches!(mode, Mode::Append | Mode::Prepend);
                (value, is_whole.then_some(segment))
            }
        };
        let shape = Shape {
            marks: self.marks,
            all: place.is_some(),
            ..shape(&self.key, self.len, self.flags, self.exptime)
        };
        self.state.set(shape, value, place, mode, condition)
    }
}

/// Returns the shape with all options, so that the value's place depends only on the key.
fn shape(key: &[u8], value_len: usize, flags: u32, exptime: u32) -> Shape<'_> {
    Shape {
        key,
        value_len,
        flags,
        exptime,
        all: true,
        ..Shape::default()
    }
}

impl fmt::Debug for Draft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Draft")
            .field("key", &self.key)
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}
