//! An entry as the cache sees it: the value, and beside it what the policy, the limits and the
//! wheel know of the entry.
//!
//! # Who may touch an entry, and for how long
//!
//! An entry is in the map, and, once it is *linked*, in a queue. The queues hold raw pointers. What
//! keeps these good is one rule: **an entry leaves its queue before it is retired**. A thread that
//! retires an entry has *claimed* it before, under the lock of the queues, or has found it claimed
//! there: a claimed entry has been taken out of its queue, and is never linked again. So what is in a
//! queue has not been retired. A thread that evicts begins its section before it takes the lock: the
//! entries that it claims are freed after that section, also if another thread takes them out of the
//! map, and retires them.
//!
//! The thread that takes an entry out of the map retires it. To remove one, it claims it first. To
//! replace one, it puts the new entry into its slot first: so one hold of the lock is enough, in which
//! the new one takes the old one's place in the queue. Between the two the old one is in a queue and
//! in no map, and may be evicted as any other. A thread that a fork removes there leaves it so.
//!
//! An entry that is in the map and not linked yet can be claimed, too: its inserter then finds it
//! claimed and leaves it. If it needs more room than one batch makes, its inserter leaves the section
//! and the entry waits in a list, which counts as a queue here (`state/evict`).

use crate::policy::{Links, MOST, Nodes, Place};
#[cfg(not(stillpoint_loom))]
use std::mem::offset_of;
use std::{
    cell::UnsafeCell,
    ptr::{self, NonNull},
    sync::atomic::AtomicPtr,
};
use stillpoint_map::internal::prefetch;
#[cfg(not(stillpoint_loom))]
use stillpoint_map::internal::{Entry, Found, Live};
use stillpoint_platform::sync::{AtomicU8, AtomicU64, Ordering};

/// The stage of an entry's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// It is not linked yet.
    New,
    /// A queue has it.
    Linked,
    /// Claimed: no queue has it, or will have it.
    Claimed,
}

/// An entry's weight, and the memory that it owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Weight {
    /// Weight in the unit of the cache's limits; never 0.
    pub weight: u64,
    /// Bytes of heap that its key and value own.
    pub owned: usize,
}

#[cfg(test)]
impl Weight {
    /// Returns the weight of an entry that owns nothing.
    pub fn of(weight: u64) -> Self {
        Self { weight, owned: 0 }
    }
}

/// Bytes in 16 bits, rounded down by a five hundredth at most: six bits say by how much the other ten
/// are shifted.
#[derive(Debug, Clone, Copy)]
pub struct Rounded(u16);

impl Rounded {
    const DIGITS: u32 = 10;

    #[inline]
    pub fn of(bytes: usize) -> Self {
        if bytes < 1 << Self::DIGITS {
            return Self(bytes as u16);
        }
        let shift = usize::BITS - bytes.leading_zeros() - Self::DIGITS;
        Self((bytes >> shift) as u16 | (shift as u16) << Self::DIGITS)
    }

    #[inline]
    pub fn get(self) -> usize {
        let digits = usize::from(self.0) & ((1 << Self::DIGITS) - 1);
        digits << (self.0 >> Self::DIGITS)
    }
}

/// The part of an entry that the lock of the queues guards.
#[derive(Debug)]
pub struct Guarded {
    place: Place,
    pub stage: Stage,
    /// Whether it is never to be evicted: a pinned one is in its tenant's queue of these.
    pub pinned: bool,
    /// Whether its tenant was in an odd [round](crate::policy::Policy::rounds) when it was linked.
    pub round: bool,
    /// Number of its tenant.
    pub tenant: u32,
    /// Key of its timer in the wheel; [`NO_TIMER`] for none.
    pub timer: u32,
    fingerprint: u32,
}

/// The cache's data of an entry. Fields that readers use come first, behind the value, and those that the
/// lock guards last: so a hit touches fewer cache lines, and seldom one that inserts write. A hit of an entry
/// that does not expire reads the first byte alone.
#[derive(Debug)]
#[repr(C)]
pub struct Meta {
    /// The frequency, and [`EXPIRES`].
    marks: AtomicU8,
    /// Bytes of heap that key and value own, rounded.
    owned: Rounded,
    /// The tick, as [`TICK`] has it, after which no use makes it last longer: its low bits, since
    /// that is less than [`LONGEST`] ahead while the entry lasts. `u32::MAX` for none.
    latest: u32,
    /// Time at which it expires, in nanoseconds of the monotonic clock; [`NEVER`], or [`HIDDEN`].
    pub expires: AtomicU64,
    pub weight: u64,
    neighbours: Neighbours,
    guarded: UnsafeCell<Guarded>,
}

/// The neighbours of an entry in its queue. While the entry is not linked, `prev` is the entry that it has
/// replaced in the map ([`Meta::set_replaced`]). Changed under the lock of the queues alone; a thread that is
/// about to take it reads them before, to [fetch](Id::fetch_neighbours) these, and for nothing else: by then
/// they may be others, or freed. So all of it is Relaxed, and the atomics are std's, of which models know
/// nothing.
#[derive(Debug)]
struct Neighbours {
    prev: AtomicPtr<Meta>,
    next: AtomicPtr<Meta>,
}

impl Neighbours {
    #[inline]
    fn get(of: &AtomicPtr<Meta>) -> Option<Id> {
        NonNull::new(of.load(Ordering::Relaxed)).map(Id)
    }

    #[inline]
    fn set(of: &AtomicPtr<Meta>, id: Option<Id>) {
        let to = id.map_or(ptr::null_mut(), |id| id.0.as_ptr());
        of.store(to, Ordering::Relaxed);
    }
}

/// The bit of the marks that says that the entry expires, which does not change.
const EXPIRES: u8 = 1 << 7;

/// The marks of an entry that never expires, and of which no use is noted any more.
const SETTLED: u8 = MOST;

/// With the map's head, an entry takes 64 bytes beside key and value, as [`crate::Cache`] says.
#[cfg(all(target_pointer_width = "64", not(stillpoint_loom)))]
const _: () = assert!(size_of::<Meta>() == 56);

// SAFETY: the cell is used under the lock of the queues alone.
unsafe impl Sync for Meta {}

/// Nanoseconds of a tick, as a power of two: 16.8 ms.
pub const TICK: u32 = 24;

/// Longest lifetime of an entry with a time to idle, in nanoseconds: 2.28 years.
pub const LONGEST: u64 = (u32::MAX as u64 - 16) << TICK;

/// Upper bound on how far the coarse clock is behind, in nanoseconds: two ticks of 100 Hz.
pub const COARSE: u64 = 20_000_000;

/// No timer.
pub const NO_TIMER: u32 = u32::MAX;

/// The expiry of an entry that never expires.
pub const NEVER: u64 = u64::MAX;

/// The expiry of a [hidden](Meta::hide) entry.
pub const HIDDEN: u64 = 0;

/// A value in the map.
#[derive(Debug)]
#[repr(C)]
pub struct Node<V> {
    pub value: V,
    pub meta: Meta,
}

/// An entry that a queue has, or a thread that has claimed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id(NonNull<Meta>);

// SAFETY: an address. What is done with it takes the lock.
unsafe impl Send for Id {}

impl Guarded {
    /// Makes it an entry of `tenant`, which is in a round of this parity.
    pub fn link(&mut self, tenant: u32, round: bool) {
        (self.stage, self.tenant, self.round) = (Stage::Linked, tenant, round);
    }
}

/// Returns the fingerprint by which a policy knows a key: the half of its hash of which each bit differs from
/// key to key. In the other one a bit is always 0 (`spread`), and half of a large table of ghosts would stay
/// empty.
#[inline]
fn fingerprint(hash: u64) -> u32 {
    (hash >> 32) as u32
}

impl Meta {
    /// Makes the data of a new entry. It expires at `expires` unless it is used, and at `latest` in any case.
    #[inline]
    pub fn new(weighed: Weight, hash: u64, expires: u64, latest: u64, pinned: bool) -> Self {
        Self {
            expires: AtomicU64::new(expires),
            latest: match latest {
                NEVER => u32::MAX,
                at => ((at >> TICK) as u32).min(u32::MAX - 1),
            },
            marks: AtomicU8::new(if expires == NEVER { 0 } else { EXPIRES }),
            weight: weighed.weight,
            owned: Rounded::of(weighed.owned),
            neighbours: Neighbours {
                prev: AtomicPtr::default(),
                next: AtomicPtr::default(),
            },
            guarded: UnsafeCell::new(Guarded {
                place: Place::None,
                stage: Stage::New,
                pinned,
                round: false,
                tenant: 0,
                timer: NO_TIMER,
                fingerprint: fingerprint(hash),
            }),
        }
    }

    /// Hides a new entry until it [appears](Self::appear), or a claimed one for ever: look-ups take it for
    /// one that has expired. They note uses by compare-exchange, so none shows it again.
    pub fn hide(&self) {
        self.expires.store(HIDDEN, Ordering::Relaxed);
        self.set_marks(EXPIRES);
    }

    /// Shows a hidden entry, which expires at `expires`.
    pub fn appear(&self, expires: u64) {
        if expires == NEVER {
            self.set_marks(0);
        }
        self.expires.store(expires, Ordering::Relaxed);
    }

    /// Returns what key and value own, in bytes, about.
    #[inline]
    pub fn owned(&self) -> usize {
        self.owned.get()
    }

    /// Notes which entry this one is about to replace in the map, before any other thread knows this one.
    /// So a walk finds out whose it is until its inserter has the lock: before that, the replaced one is not
    /// retired. Relaxed: the map publishes it.
    #[inline]
    pub fn set_replaced(&self, old: Option<Id>) {
        Neighbours::set(&self.neighbours.prev, old);
    }

    /// Notes that an entry was found that never expires; of one that does it notes nothing, and
    /// returns false. Writes nothing once it is noted often enough.
    #[inline(always)]
    pub fn mark_lasting(&self) -> bool {
        let marks = self.marks.load(Ordering::Relaxed);
        if marks == SETTLED {
            return true;
        }
        let lasts = marks & EXPIRES == 0;
        if lasts {
            self.note_use(marks);
        }
        lasts
    }

    /// Notes that an entry was found that expires.
    pub fn mark(&self) {
        let marks = self.marks.load(Ordering::Relaxed);
        if marks & !EXPIRES < MOST {
            self.note_use(marks);
        }
    }

    /// Notes a use, unless the marks are no longer `marks`: then it is a hit that is not noted. Relaxed: it
    /// must not undo [`hide`](Self::hide), and orders nothing.
    #[inline(always)]
    pub fn note_use(&self, marks: u8) {
        let (relaxed, more) = (Ordering::Relaxed, marks + 1);
        let _ = self.marks.compare_exchange(marks, more, relaxed, relaxed);
    }

    #[inline(always)]
    fn set_marks(&self, marks: u8) {
        self.marks.store(marks, Ordering::Relaxed);
    }

    fn frequency(&self) -> u8 {
        self.marks.load(Ordering::Relaxed) & !EXPIRES
    }

    fn set_frequency(&self, frequency: u8) {
        let marks = self.marks.load(Ordering::Relaxed);
        self.set_marks(marks & EXPIRES | frequency);
    }

    /// Notes a use, after which the entry lasts for `idle` nanoseconds. Writes once in a sixteenth of these, and
    /// reads the precise clock only then: the time `now` is at most [`COARSE`] ago.
    #[inline]
    pub fn touch(&self, now: u64, idle: u64, precise: impl FnOnce() -> u64) {
        let before = self.expires.load(Ordering::Relaxed);
        let is_worth_it = |expires: u64| expires.saturating_sub(before) > idle / 16;
        if !is_worth_it(self.expiry_at(now + COARSE, idle)) {
            return;
        }
        let now = precise();
        let expires = self.expiry_at(now, idle);
        // Otherwise its time has ended since the look-up.
        if now < before && is_worth_it(expires) {
            // If it is another one by now, the entry was hidden, or another use noted.
            let relaxed = Ordering::Relaxed;
            let _ = self
                .expires
                .compare_exchange(before, expires, relaxed, relaxed);
        }
    }

    /// Returns the time at which the entry expires after a use at `now`; 0 if that is too late.
    fn expiry_at(&self, now: u64, idle: u64) -> u64 {
        let tick = now >> TICK;
        let latest = match self.latest {
            u32::MAX => NEVER,
            latest => (tick + u64::from(latest.wrapping_sub(tick as u32))) << TICK,
        };
        if latest != NEVER && latest.saturating_sub(now) > LONGEST {
            return 0;
        }
        now.saturating_add(idle).min(latest)
    }
}

#[cfg(stillpoint_loom)]
impl Meta {
    /// Returns whether it is hidden, by the stores that were made last. A load will not do: loom does not know
    /// that a relaxed store comes after a compare-exchange that has read an older value.
    ///
    /// # Safety
    ///
    /// No other thread uses it.
    pub unsafe fn is_hidden_at_last(&self) -> bool {
        // SAFETY: the caller's promise.
        let (marks, expires) = unsafe { (self.marks.unsync_load(), self.expires.unsync_load()) };
        marks & EXPIRES != 0 && expires == HIDDEN
    }
}

/// The proof that the lock of the queues is held, and that all that is in queues can be read.
#[derive(Debug)]
pub struct Locked(());

impl Locked {
    /// # Safety
    ///
    /// The calling thread holds the lock of the queues for as long as this is used, and each [`Id`]
    /// that it is used with is in a queue, or of an entry that a section of the calling thread
    /// keeps.
    pub unsafe fn assume() -> Self {
        Self(())
    }

    pub fn of(&mut self, id: Id) -> &mut Guarded {
        // SAFETY: the contract of `assume`: the entry is there, and this thread alone is at its cell
        // for as long as `self` is borrowed.
        unsafe { &mut *id.0.as_ref().guarded.get() }
    }

    /// Hides an entry that was claimed. The thread that has claimed it may be preempted before it takes it
    /// out of the map, and others that take the lock meanwhile do not wait for it.
    pub fn hide(&mut self, id: Id) {
        // SAFETY: the contract of `assume`.
        unsafe { id.meta() }.hide();
    }
}

impl Id {
    /// Returns the id of an entry of a model.
    #[cfg(stillpoint_loom)]
    pub fn of_model(meta: NonNull<Meta>) -> Self {
        Self(meta)
    }

    /// Returns the id of an entry that was found.
    #[cfg(not(stillpoint_loom))]
    pub fn of<K, V>(found: Found<'_, K, Node<V>>) -> Self {
        let entry = found.pointer().as_ptr();
        // SAFETY: in bounds of the entry. Made from the pointer to all of it, so that the way back
        // is good, too.
        Self(unsafe { NonNull::new_unchecked(&raw mut (*entry).value.meta) })
    }

    /// Returns the entry of this id.
    ///
    /// # Safety
    ///
    /// Of an entry of that type, which a section that lasts for `'g` keeps.
    #[cfg(not(stillpoint_loom))]
    pub unsafe fn found<'g, K, V>(self) -> Found<'g, K, Node<V>> {
        let offset = offset_of!(Entry<K, Node<V>>, value) + offset_of!(Node<V>, meta);
        // SAFETY: in bounds of the entry, as `of` has made it.
        let entry: NonNull<Entry<K, Node<V>>> = unsafe { self.0.byte_sub(offset) }.cast();
        // SAFETY: the caller's promise.
        unsafe { Found::of(Live::of(entry.cast())) }
    }

    /// Fetches what the entry's neighbours in its queue change when another one takes its place: while
    /// the caller waits for the lock, and not while others wait for it.
    ///
    /// # Safety
    ///
    /// The calling thread is in a section that keeps the entry.
    #[cfg(not(stillpoint_loom))]
    #[inline]
    pub unsafe fn fetch_neighbours(self) {
        // SAFETY: the caller's promise.
        let Neighbours { prev, next } = unsafe { &self.meta().neighbours };
        for neighbour in [prev, next] {
            let there = neighbour.load(Ordering::Relaxed);
            prefetch(there.wrapping_byte_add(offset_of!(Meta, neighbours)));
        }
    }

    /// Returns the entry that its thread has claimed after this one in a batch. No other thread writes its
    /// `next`: a claimed entry is in no queue, and `link`, `replace` and `claim` leave it alone.
    ///
    /// # Safety
    ///
    /// It is in a batch of the calling thread, whose section keeps it.
    #[inline]
    pub unsafe fn claimed_after(self) -> Option<Self> {
        // SAFETY: the caller's promise.
        Neighbours::get(unsafe { &self.meta().neighbours.next })
    }

    /// # Safety
    ///
    /// The entry is kept by a section that lasts for `'g`, or is in a queue whose lock is held.
    pub unsafe fn meta<'g>(self) -> &'g Meta {
        // SAFETY: the caller's promise.
        unsafe { self.0.as_ref() }
    }
}

impl Nodes for Locked {
    type Id = Id;

    fn links(&self, id: Id) -> Links<Id> {
        // SAFETY: the contract of `assume`.
        let Neighbours { prev, next } = unsafe { &id.meta().neighbours };
        let [prev, next] = [prev, next].map(Neighbours::get);
        Links { prev, next }
    }

    fn set_prev(&mut self, id: Id, prev: Option<Id>) {
        // SAFETY: the contract of `assume`.
        Neighbours::set(unsafe { &id.meta().neighbours.prev }, prev);
    }

    fn set_next(&mut self, id: Id, next: Option<Id>) {
        // SAFETY: the contract of `assume`.
        Neighbours::set(unsafe { &id.meta().neighbours.next }, next);
    }

    fn place(&mut self, id: Id) -> &mut Place {
        &mut self.of(id).place
    }

    fn weight(&self, id: Id) -> u64 {
        // SAFETY: the contract of `assume`.
        unsafe { id.meta() }.weight
    }

    fn fingerprint(&self, id: Id) -> u32 {
        // SAFETY: the contract of `assume`; nothing changes it, and `self` is not borrowed mutably.
        unsafe { (*id.meta().guarded.get()).fingerprint }
    }

    fn round(&self, id: Id) -> bool {
        // SAFETY: the contract of `assume`, and `self` is not borrowed mutably.
        unsafe { (*id.meta().guarded.get()).round }
    }

    fn frequency(&self, id: Id) -> u8 {
        // SAFETY: the contract of `assume`.
        unsafe { id.meta() }.frequency()
    }

    fn set_frequency(&mut self, id: Id, frequency: u8) {
        // SAFETY: the contract of `assume`.
        unsafe { id.meta() }.set_frequency(frequency);
    }

    fn fetch(&self, id: Id) {
        let meta = id.0.as_ptr();
        prefetch(meta);
        // It may end in another line.
        prefetch(meta.wrapping_add(1).wrapping_byte_sub(1));
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use crate::Cache;

    #[test]
    fn each_bit_of_a_fingerprint_differs_from_key_to_key() {
        let cache: Cache<u64, u64> = Cache::builder().max_bytes(1).build();
        let (mut ones, mut zeros) = (0, 0);
        for key in 0..1000_u64 {
            let meta = Meta::new(Weight::of(1), cache.hash(&key), NEVER, NEVER, false);
            let fingerprint = meta.guarded.into_inner().fingerprint;
            (ones, zeros) = (ones | fingerprint, zeros | !fingerprint);
        }
        assert_eq!((ones, zeros), (u32::MAX, u32::MAX));
    }

    #[test]
    fn a_use_reads_the_precise_clock_only_where_it_extends_the_entry() {
        let idle = 3_600_000_000_000;
        let meta = Meta::new(Weight::of(1), 7, idle, NEVER, false);
        let unread = || panic!("nothing is to be extended");
        meta.touch(0, idle, unread);
        meta.touch(idle / 16 - COARSE, idle, unread);
        // The coarse clock leaves it open.
        meta.touch(idle / 16 - COARSE + 1, idle, || idle / 16);
        assert_eq!(meta.expires.load(Ordering::Relaxed), idle);
        meta.touch(idle / 8 - COARSE, idle, || idle / 8);
        assert_eq!(meta.expires.load(Ordering::Relaxed), idle + idle / 8);
    }

    #[test]
    fn rounded_bytes_are_near() {
        let all = (0..usize::BITS).map(|bit| usize::MAX >> bit);
        for bytes in (0..5000).chain(all).chain([1 << 20, (1 << 20) + 1]) {
            let rounded = Rounded::of(bytes).get();
            assert!(
                rounded <= bytes && bytes - rounded <= bytes / 500,
                "{bytes}: {rounded}"
            );
        }
    }
}
