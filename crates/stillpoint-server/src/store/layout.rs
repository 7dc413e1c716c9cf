//! An item in memory.
//!
//! | bytes | what | changes |
//! |---|---|---|
//! | 0 | length of the key (8 bits), of the value (24; all ones: the segment has it) | never |
//! | 4 | last access in seconds (24 bits), heat (2), fetched, win; stale, which options | the first four |
//! | 8 | CAS value (48 bits) | its low 32 bits |
//! | 14 | flags, if they have 16 bits | never |
//! | 16 | options: expiry (4), flags (4), CAS value (8) | the expiry, the low half of the CAS value |
//! | | key, value, up to 3 bytes of padding | never |
//!
//! So an item costs 16 bytes; with an expiry 20; 8 more if a client has chosen a CAS value of more
//! than 48 bits, 4 more for flags of more than 16. What never changes is written before the item is
//! published, so readers have slices of it. What changes is atomic, and lies in no slice: the
//! access word is written by readers, which may lose each other's heat; the expiry, the CAS value, the
//! win and the stale mark only under the lock of the item's bucket, under which it is copied, too, so
//! no copy loses them.

use super::{
    access::{Access, CasWord},
    class::{PAGE, SEGMENT_HEADER, SIZES},
};
use std::{
    ptr, slice,
    sync::atomic::{AtomicU32, Ordering},
};

const FIXED: usize = 16;

/// Bytes of the smallest item.
const MIN_ITEM: usize = FIXED + 4;

const _: () = assert!(SIZES[0] > SEGMENT_HEADER + 4 * MIN_ITEM);

/// Marks that the segment's header has the value's length.
const LONG: u32 = (1 << 24) - 1;

const HAS_EXPIRY: u32 = 1 << 29;
const HAS_FLAGS: u32 = 1 << 30;
const HAS_CAS: u32 = 1 << 31;

/// The parts of an item: they decide its size, and are written into its header.
#[derive(Debug, Clone, Copy, Default)]
pub struct Shape<'a> {
    pub key: &'a [u8],
    pub value_len: usize,
    pub flags: u32,
    pub exptime: u32,
    pub cas: u64,
    /// The marks of [`Access`].
    pub marks: u32,
    /// Whether it has all options, so that a later change finds room.
    pub all: bool,
}

impl Shape<'_> {
    fn options(&self) -> u32 {
        let option = |wanted: bool, bit| if wanted || self.all { bit } else { 0 };
        option(self.exptime != 0, HAS_EXPIRY)
            | option(self.flags > 0xffff, HAS_FLAGS)
            | option(self.cas >> 48 != 0, HAS_CAS)
    }

    pub fn size(&self) -> usize {
        (header_len(self.options()) + self.key.len() + self.value_len).next_multiple_of(4)
    }

    /// Writes header and key. Returns where the value goes.
    ///
    /// # Safety
    ///
    /// There are [`size`](Self::size) bytes at `at`, a multiple of 4, which no other thread
    /// accesses. If the value is too long for the header, the segment is of its own.
    pub unsafe fn write(&self, at: *mut u8, now: u32) -> *mut u8 {
        let options = self.options();
        let long = (self.value_len as u64) >= u64::from(LONG);
        let value_len = if long { LONG } else { self.value_len as u32 };
        let head = [
            self.key.len() as u32 | value_len << 8,
            Access::first_bits(now, self.marks | options),
            self.cas as u32,
            ((self.cas >> 32) as u32 & 0xffff) | (self.flags & 0xffff) << 16,
        ];
        let mut to = at.cast::<u32>();
        let mut put = |word: u32| {
            // SAFETY: inside the header, as `header_len` counts what is put here.
            unsafe {
                to.write(word);
                to = to.add(1);
            }
        };
        head.into_iter().for_each(&mut put);
        if options & HAS_EXPIRY != 0 {
            put(self.exptime);
        }
        if options & HAS_FLAGS != 0 {
            put(self.flags);
        }
        if options & HAS_CAS != 0 {
            put(self.cas as u32);
            put((self.cas >> 32) as u32);
        }
        // SAFETY: the caller's promise: the key is in the size.
        unsafe {
            let key = to.cast::<u8>();
            ptr::copy_nonoverlapping(self.key.as_ptr(), key, self.key.len());
            let value = key.add(self.key.len());
            if long {
                let start = at.map_addr(|at| at & !(PAGE - 1)).cast::<u64>();
                start.add(1).write(self.value_len as u64);
            }
            value
        }
    }
}

fn header_len(options: u32) -> usize {
    let mut len = FIXED;
    if options & HAS_EXPIRY != 0 {
        len += 4;
    }
    if options & HAS_FLAGS != 0 {
        len += 4;
    }
    if options & HAS_CAS != 0 {
        len += 8;
    }
    len
}

/// An item whose memory stays: it was found in the present section, or the caller owns it.
#[derive(Debug, Clone, Copy)]
pub struct RawItem(*mut u8);

impl RawItem {
    /// # Safety
    ///
    /// [`Shape::write`] has written an item there, which happened before, and its memory stays for
    /// as long as the result and what it lends are used.
    #[inline]
    pub unsafe fn at(address: usize) -> Self {
        // The memory was exposed when its segment was made.
        Self(ptr::with_exposed_provenance_mut(address))
    }

    #[inline]
    fn word(self, number: usize) -> u32 {
        // SAFETY: the promise of `at`; the words that this is asked for never change.
        unsafe { self.0.cast::<u32>().add(number).read() }
    }

    #[inline]
    fn atomic<'a>(self, number: usize) -> &'a AtomicU32 {
        // SAFETY: the promise of `at`; the words that this is asked for are accessed by this alone,
        // once the item is written.
        unsafe { AtomicU32::from_ptr(self.0.cast::<u32>().add(number)) }
    }

    /// Returns the word that changes.
    #[inline]
    pub fn access<'a>(self) -> &'a Access {
        // SAFETY: the promise of `at`; the word is accessed by this alone, once the item is written.
        unsafe { &*self.0.cast::<u32>().add(1).cast() }
    }

    #[inline]
    fn bits(self) -> u32 {
        self.access().bits()
    }

    #[inline]
    pub fn key<'a>(self) -> &'a [u8] {
        let (at, len) = (header_len(self.bits()), self.word(0) & 0xff);
        // SAFETY: the promise of `at`; the key never changes.
        unsafe { slice::from_raw_parts(self.0.add(at), len as usize) }
    }

    #[inline]
    pub fn value_len(self) -> usize {
        let len = self.word(0) >> 8;
        if len == LONG {
            let start = self.0.map_addr(|at| at & !(PAGE - 1)).cast::<u64>();
            // SAFETY: the only item of its segment, whose header is there as the item is.
            return unsafe { start.add(1).read() } as usize;
        }
        len as usize
    }

    #[inline]
    pub fn value<'a>(self) -> &'a [u8] {
        let at = header_len(self.bits()) + (self.word(0) & 0xff) as usize;
        // SAFETY: the promise of `at`; the value never changes.
        unsafe { slice::from_raw_parts(self.0.add(at), self.value_len()) }
    }

    #[inline]
    pub fn size(self) -> usize {
        let fixed = header_len(self.bits()) + (self.word(0) & 0xff) as usize;
        (fixed + self.value_len()).next_multiple_of(4)
    }

    pub fn flags(self) -> u32 {
        let bits = self.bits();
        match bits & HAS_FLAGS {
            0 => self.word(3) >> 16,
            _ => self.word(4 + usize::from(bits & HAS_EXPIRY != 0)),
        }
    }

    /// Index of the word with the low half of the CAS value.
    #[inline]
    fn cas_at(self) -> usize {
        let bits = self.bits();
        match bits & HAS_CAS {
            0 => 2,
            _ => 4 + usize::from(bits & HAS_EXPIRY != 0) + usize::from(bits & HAS_FLAGS != 0),
        }
    }

    #[inline]
    fn cas_word<'a>(self) -> &'a CasWord {
        // SAFETY: the promise of `at`; the word is accessed by this alone, once the item is written.
        unsafe { &*self.0.cast::<u32>().add(self.cas_at()).cast() }
    }

    #[inline]
    pub fn cas(self) -> u64 {
        let high = match self.cas_at() {
            2 => self.word(3) & 0xffff,
            at => self.word(at + 1),
        };
        u64::from(self.cas_word().get()) | u64::from(high) << 32
    }

    /// Marks the value as stale and changes the CAS value, under the lock of the bucket. Returns false
    /// if the high halves of the CAS values differ, which never change in place.
    pub fn set_stale(self, cas: u64) -> bool {
        if cas >> 32 != self.cas() >> 32 {
            return false;
        }
        self.access().set_stale();
        self.cas_word().set(cas as u32);
        true
    }

    /// 0: never.
    #[inline]
    pub fn exptime(self) -> u32 {
        match self.bits() & HAS_EXPIRY {
            0 => 0,
            _ => self.atomic(4).load(Ordering::Relaxed),
        }
    }

    #[inline]
    pub fn is_expired(self, now: u32) -> bool {
        let exptime = self.exptime();
        exptime != 0 && exptime <= now
    }

    /// Changes the expiry, under the lock of the bucket. Returns false if there is no room for one.
    pub fn set_exptime(self, exptime: u32) -> bool {
        if self.bits() & HAS_EXPIRY == 0 {
            return exptime == 0;
        }
        self.atomic(4).store(exptime, Ordering::Relaxed);
        true
    }

    pub fn address(self) -> usize {
        self.0.addr()
    }

    /// Copies the item, with less heat.
    ///
    /// # Safety
    ///
    /// There are [`size`](Self::size) bytes at `to`, a multiple of 4, which no other thread
    /// accesses. The bucket is locked. The item is not in a segment of its own.
    pub unsafe fn copy_to(self, to: *mut u8, cooler: u32) -> RawItem {
        let bits = self.bits();
        let size = self.size();
        let options = header_len(bits) / 4;
        let words = to.cast::<u32>();
        // SAFETY: the caller's promise. What readers or `set_exptime` write is loaded atomically;
        // the rest never changes.
        unsafe {
            for number in (0..options).filter(|&number| number != 1) {
                words.add(number).write(match number {
                    4 if bits & HAS_EXPIRY != 0 => self.exptime(),
                    _ if number == self.cas_at() => self.cas_word().get(),
                    _ => self.word(number),
                });
            }
            words.add(1).write(Access::cooler_bits(bits, cooler));
            let rest = header_len(bits);
            ptr::copy_nonoverlapping(self.0.add(rest), to.add(rest), size - rest);
        }
        Self(to)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::access::{FETCHED, HEAT_MAX, STALE, WIN},
        *,
    };

    fn shape<'a>(flags: u32, exptime: u32, cas: u64) -> Shape<'a> {
        Shape {
            key: b"a key",
            value_len: 7,
            flags,
            exptime,
            cas,
            marks: STALE,
            ..Shape::default()
        }
    }

    #[test]
    fn what_is_written_is_read() {
        for (flags, exptime, cas, size) in [
            (0, 0, 0, 28),
            (0xffff, 0, (1 << 48) - 1, 28),
            (0x1_0000, 0, 1, 32),
            (u32::MAX, 9, 1 << 48, 44),
            (3, u32::MAX, u64::MAX, 40),
        ] {
            for all in [false, true] {
                let shape = Shape {
                    all,
                    ..shape(flags, exptime, cas)
                };
                assert_eq!(shape.size(), if all { 44 } else { size });
                let mut memory = [0u32; 24];
                let base = memory.as_mut_ptr().cast::<u8>();
                base.expose_provenance();
                // SAFETY: the array is larger than two items, and ours.
                let item = unsafe {
                    let value = shape.write(base, 0x0123_4567);
                    ptr::copy_nonoverlapping(b"a value".as_ptr(), value, 7);
                    RawItem::at(base.addr())
                };
                item.access().touch(0x0123_4568);
                // SAFETY: the second half.
                let copy = unsafe { item.copy_to(base.add(48), 1) };
                for (item, heat) in [(item, 1), (copy, 0)] {
                    assert_eq!((item.key(), item.value()), (&b"a key"[..], &b"a value"[..]));
                    assert_eq!(
                        (item.flags(), item.exptime(), item.cas()),
                        (flags, exptime, cas)
                    );
                    assert_eq!((item.size(), item.access().heat()), (shape.size(), heat));
                    assert_eq!(item.access().marks(), STALE | FETCHED);
                    assert_eq!(item.access().last_access(0x0123_456a), 0x0123_4568);
                }
            }
        }
    }

    #[test]
    fn heat_rises_to_its_end_and_a_win_comes_once() {
        let mut memory = [0u32; 8];
        let base = memory.as_mut_ptr().cast::<u8>();
        base.expose_provenance();
        // SAFETY: the array is as large as the item, and ours.
        let item = unsafe {
            shape(0, 0, 1).write(base, 5);
            RawItem::at(base.addr())
        };
        // Of the CAS value only the low half changes in place.
        assert!(!item.set_stale(1 << 32) && item.cas() == 1);
        assert!(item.set_stale(7) && item.cas() == 7);
        (0..10).for_each(|_| item.access().touch(5));
        assert_eq!(item.access().heat(), HEAT_MAX);
        assert!(item.access().win() && !item.access().win());
        assert_eq!(item.access().marks(), STALE | FETCHED | WIN);
        assert!(item.set_exptime(0) && !item.set_exptime(1), "no room");
    }
}
