//! A value that is being read in.

use super::{
    access::{STALE, WIN},
    class::{Class, PAGE, SEGMENT_HEADER},
    error::{Outcome, Refused},
    layout::{RawItem, Shape},
    requests::{Condition, Mode},
    segment::SegmentRef,
    shared::Unfinished,
    space::{Open, Written},
    tenant::{Tenant, check_key, may_store},
    word::Word,
    write::{Put, Seen},
};
use std::{fmt, slice, sync::Arc};
use stillpoint::read_lock;

/// A value that is on its way, until it is stored. Dropping it stores nothing.
///
/// A large value is written to where it stays; its memory is charged to the tenant page by page, as
/// the value arrives. A smaller one is copied to a segment once it is there: so a client that sends
/// half a value keeps nothing but that.
///
/// Made by [`Tenant::prepare`].
pub struct Draft {
    tenant: Tenant,
    key: Box<[u8]>,
    flags: u32,
    exptime: u32,
    marks: u32,
    len: usize,
    value: Memory,
}

enum Memory {
    /// What has arrived.
    Small(Vec<u8>),
    Large {
        segment: SegmentRef,
        value: *mut u8,
        /// How many bytes have arrived.
        filled: usize,
        unfinished: Unfinished,
    },
}

// SAFETY: a large value's memory is that of a segment which nothing else refers to.
unsafe impl Send for Draft {}
// SAFETY: as above; shared, it is only read.
unsafe impl Sync for Draft {}

impl Draft {
    pub(super) fn new(
        tenant: &Tenant,
        key: &[u8],
        flags: u32,
        exptime: u32,
        len: usize,
    ) -> Result<Self, Refused> {
        check_key(key)?;
        let max = tenant.state.shared().config.item_max;
        if len > max {
            return Err(Refused::TooLarge { len, max });
        }
        if tenant.is_deleted() {
            return Err(Refused::Deleted);
        }
        let shape = shape(key, len, flags, exptime);
        let size = shape.size();
        let value = if Class::is_large(size) {
            let space = {
                let section = read_lock();
                let now = tenant.state.shared().now();
                Arc::clone(tenant.state.space(now, &section))
            };
            let unfinished = Unfinished::announce(&tenant.state.owner, Class::OWN.bytes(size))?;
            let segment = space.uncharged_segment(Class::OWN, size)?;
            let at = segment.base().wrapping_add(SEGMENT_HEADER);
            // SAFETY: the segment is ours, and has room for an item of that size.
            let value = unsafe { shape.write(at, 0) };
            Memory::Large {
                segment,
                value,
                filled: 0,
                unfinished,
            }
        } else {
            Memory::Small(Vec::new())
        };
        Ok(Self {
            tenant: tenant.clone(),
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
    /// At a limit, without memory, and if too much of the tenant's memory is taken by unfinished
    /// values. The bytes count as arrived; the draft can only be dropped then.
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
                if let Some(rest) = self.rest() {
                    rest[..bytes.len()].copy_from_slice(bytes);
                }
                self.advance(bytes.len())
            }
        }
    }

    /// Returns the place of the bytes that have not arrived yet, to read them there; `None` for a
    /// small value. Their contents are unspecified. Followed by [`Draft::advance`].
    pub fn rest(&mut self) -> Option<&mut [u8]> {
        let missing = self.missing();
        match &mut self.value {
            Memory::Small(_) => None,
            Memory::Large { value, filled, .. } => {
                // SAFETY: in the segment that is ours, behind the key, which has room for the whole
                // value; initialized memory, and not published while this is.
                Some(unsafe { slice::from_raw_parts_mut(value.add(*filled), missing) })
            }
        }
    }

    /// Notes that the next `bytes` have been written to [`Draft::rest`], and charges the tenant for
    /// them, which may evict.
    ///
    /// # Errors
    ///
    /// As [`Draft::push`].
    ///
    /// # Panics
    ///
    /// For a small value, and if these are more bytes than are missing.
    pub fn advance(&mut self, bytes: usize) -> Result<(), Refused> {
        assert!(bytes <= self.missing(), "more than was announced");
        let Memory::Large {
            segment,
            value,
            filled,
            unfinished,
        } = &mut self.value
        else {
            panic!("a small value is pushed");
        };
        *filled += bytes;
        let used = value.addr() - segment.base().addr() + *filled;
        let charged = match *filled == self.len {
            true => segment.bytes(),
            false => used.next_multiple_of(PAGE).min(segment.bytes()),
        };
        unfinished.charge(segment, charged)
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

    /// When the item expires.
    #[must_use]
    pub fn exptime(&self) -> u32 {
        self.exptime
    }

    /// Has the item expire then: a second of [`Store::now`](super::Store::now), 0 for never.
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
        if let Memory::Large { segment, .. } = &self.value
            && !matches!(mode, Mode::Append | Mode::Prepend)
            && let Some(stored) = self.store_large(segment, mode, &condition)
        {
            return stored;
        }
        let (key, value) = (&self.key, self.value());
        let Self {
            flags,
            exptime,
            marks,
            ..
        } = self;
        self.tenant
            .set_marked(key, flags, exptime, value, mode, condition, marks)
    }

    /// Returns the bytes that have arrived.
    fn value(&self) -> &[u8] {
        match &self.value {
            Memory::Small(bytes) => bytes,
            // SAFETY: in the segment that is ours, behind the key; initialized memory.
            &Memory::Large { value, filled, .. } => unsafe { slice::from_raw_parts(value, filled) },
        }
    }

    /// Stores the value where it is. `None`: its key space has been flushed.
    fn store_large(
        &self,
        segment: &SegmentRef,
        mode: Mode,
        condition: &Condition,
    ) -> Option<Result<u64, Outcome>> {
        let state = &self.tenant.state;
        let hash = state.shared().hash(&self.key);
        let depends = mode != Mode::Set || condition.compare.is_some();
        let mut shape = shape(&self.key, self.len, self.flags, self.exptime);
        let size = shape.size();
        let at = segment.base().wrapping_add(SEGMENT_HEADER);
        loop {
            let section = read_lock();
            let now = state.shared().now();
            let space = state.space(now, &section);
            if !segment.is_of(space) {
                return None;
            }
            let found = match depends {
                true => space
                    .find(hash, &self.key, &section)
                    .filter(|found| !space.is_gone(found.item, now)),
                false => None,
            };
            let seen = found.map(Seen::of);
            let old: Option<RawItem> = found.map(|found| found.item);
            let stale = match may_store(mode, condition, old) {
                Ok(stale) => stale,
                Err(outcome) => return Some(Err(outcome)),
            };
            (shape.exptime, shape.marks) = (self.exptime, self.marks);
            if let Some(old) = old.filter(|_| stale) {
                shape.exptime = old.exptime();
                shape.marks |= STALE | (old.access().marks() & WIN);
            }
            shape.cas = state.owner.next_cas();
            // SAFETY: as in `new`; it is published below. The value is not touched.
            unsafe { shape.write(at, now) };
            segment.forget_written(space);
            segment.add(size, SEGMENT_HEADER + size, shape.exptime);
            let word = Word::new(at.addr(), Class::OWN, hash);
            let expected = depends.then_some(seen);
            let put = space.put(
                hash,
                &self.key,
                Written { word, size },
                expected,
                now,
                &section,
            );
            match put {
                Ok(Put::Again) => {}
                Ok(put) => {
                    space.seal(Open::new(Arc::clone(segment)));
                    if put == Put::Crowded {
                        let space = Arc::clone(space);
                        drop(section);
                        space.grow_table();
                    }
                    return Some(Ok(shape.cas));
                }
                Err(refused) => return Some(Err(refused.into())),
            }
        }
    }
}

/// With all options, so that the value's place depends on the key alone.
fn shape(key: &[u8], value_len: usize, flags: u32, exptime: u32) -> Shape<'_> {
    Shape {
        key,
        value_len,
        flags,
        exptime,
        cas: 0,
        marks: 0,
        all: true,
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
