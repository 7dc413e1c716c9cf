//! A page of slots, what a slot knows of an object, and lists of pages.
//!
//! A page has one owner, which appends, and readers on other threads. The slots before `len` are
//! written and never change again (P1 release, D3 acquire: `buffer.rs`). The rest of the head
//! belongs to the holder of the lock of the list or queue that the page is in.

use crate::{
    gp::Cookie,
    platform::{
        fork,
        sync::{AtomicU32, AtomicU64, AtomicUsize, Mutex, Ordering, UnsafeCell, lock},
        user_code,
    },
};
use std::{
    alloc::{self, Layout},
    mem::{self, MaybeUninit},
    ptr::{self, NonNull},
    // Not the model's, which counts references as steps.
    sync::Arc,
};

/// How [`Domain::retire_with`](crate::Domain::retire_with) frees an object, and how large that is.
#[derive(Debug)]
pub struct Destructor {
    run: unsafe fn(*mut u8),
    bytes: usize,
}

impl Destructor {
    /// Makes a destructor. `run` is called with the object, once. `bytes` is the number of bytes
    /// that this frees, as the budget counts them: an estimate will do.
    ///
    /// A panic of `run` is caught and counted in [`Statistics::panics`](crate::Statistics::panics).
    #[must_use]
    pub const fn new(run: unsafe fn(*mut u8), bytes: usize) -> Self {
        Self { run, bytes }
    }

    #[inline(always)]
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }
}

/// An object that waits. Either a block of memory of a known layout, or an object with a
/// destructor.
///
/// The layout lies in the address bits of `how`, marked by an odd address; a `Destructor` is
/// aligned and never odd.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slot {
    object: *mut u8,
    how: *const Destructor,
}

// SAFETY: the retiring caller promises that the object may be freed on any thread.
unsafe impl Send for Slot {}

const LAYOUT_TAG: usize = 1;
const ALIGN_BITS: u32 = 6;
const SIZE_SHIFT: u32 = 1 + ALIGN_BITS;

/// The destructor that turns a pointer back into a `Box<T>` and drops that.
struct Boxed<T>(T);

impl<T> Boxed<T> {
    const DESTRUCTOR: &'static Destructor = &Destructor::new(Self::free, size_of::<T>());

    /// # Safety
    ///
    /// `object` came from `Box::<T>::into_raw` and is freed once.
    unsafe fn free(object: *mut u8) {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(object.cast::<T>()) });
    }
}

/// The destructor that drops one reference of an `Arc<T>`.
struct Shared<T>(T);

impl<T> Shared<T> {
    const DESTRUCTOR: &'static Destructor = &Destructor::new(Self::free, size_of::<T>());

    /// # Safety
    ///
    /// `object` came from `Arc::<T>::into_raw`, and the reference is dropped once.
    unsafe fn free(object: *mut u8) {
        // SAFETY: the caller's promise.
        drop(unsafe { Arc::from_raw(object.cast::<T>()) });
    }
}

/// Instead of a layout's alignment: the block came from `malloc()`.
pub(super) const MALLOCED: usize = (1 << ALIGN_BITS) - 1;

impl Slot {
    /// Makes the slot of a block of `bytes` bytes. `align_bits` is the logarithm of its alignment, or
    /// [`MALLOCED`].
    #[inline(always)]
    pub(super) fn block(object: NonNull<u8>, bytes: usize, align_bits: usize) -> Self {
        let how = bytes << SIZE_SHIFT | align_bits << 1 | LAYOUT_TAG;
        Self {
            object: object.as_ptr(),
            how: ptr::without_provenance(how),
        }
    }

    /// Makes the slot of what `how` frees; only `how` gives `object` a meaning.
    #[inline(always)]
    pub(crate) fn with(object: *mut u8, how: &'static Destructor) -> Self {
        Self { object, how }
    }

    /// Makes the slot of a block from the global allocator.
    #[inline(always)]
    pub(crate) fn memory(object: NonNull<u8>, layout: Layout) -> Self {
        let align_bits = layout.align().trailing_zeros() as usize;
        Self::block(object, layout.size(), align_bits)
    }

    /// Makes the slot of a boxed object. If nothing needs dropping, it is plain memory.
    #[inline(always)]
    pub(crate) fn boxed<T>(object: NonNull<T>) -> Self {
        if mem::needs_drop::<T>() || mem::size_of::<T>() == 0 {
            Self::with(object.as_ptr().cast(), Boxed::<T>::DESTRUCTOR)
        } else {
            Self::memory(object.cast(), Layout::new::<T>())
        }
    }

    /// Makes the slot of a reference to a shared object.
    pub(crate) fn shared<T>(object: Arc<T>) -> Self {
        let object = Arc::into_raw(object).cast_mut();
        Self::with(object.cast(), Shared::<T>::DESTRUCTOR)
    }

    /// Returns whether freeing it runs user code.
    #[inline(always)]
    pub(crate) fn has_destructor(self) -> bool {
        self.how.addr() & LAYOUT_TAG == 0
    }

    /// Returns the layout of a block.
    ///
    /// # Safety
    ///
    /// The slot is one of [`Slot::memory`].
    unsafe fn layout(self) -> Layout {
        let how = self.how.addr();
        let align = 1 << (how >> 1 & ((1 << ALIGN_BITS) - 1));
        // SAFETY: `memory` made it from a valid layout.
        unsafe { Layout::from_size_align_unchecked(how >> SIZE_SHIFT, align) }
    }

    /// Prefetches the object's memory, which is about to be freed.
    #[inline(always)]
    pub(crate) fn prefetch(self) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // Such a small word is most often a number that a deferred function has captured. As an
        // address it is not mapped, and the page walk would cost more than the free.
        if self.object.addr() >> 32 != 0 {
            // SAFETY: every x86-64 processor has SSE, and a prefetch of any address is no access to
            // it.
            unsafe {
                use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
                _mm_prefetch::<_MM_HINT_T0>(self.object.cast());
            }
        }
    }

    /// Frees the object.
    ///
    /// # Safety
    ///
    /// Called once, on a thread that the object may be on, when it has no readers any more.
    #[inline]
    pub(crate) unsafe fn free(self) {
        if self.has_destructor() {
            // SAFETY: an even `how` was made from a `&'static Destructor` that suits the object;
            // the rest is the caller's.
            return unsafe { ((*self.how).run)(self.object) };
        }
        #[cfg(unix)]
        if self.how.addr() >> 1 & MALLOCED == MALLOCED {
            // SAFETY: the maker of the slot promised that the block came from `malloc()`.
            return unsafe { libc::free(self.object.cast()) };
        }
        // SAFETY: the maker of the slot promised that the block came from the global allocator with
        // this layout.
        unsafe { alloc::dealloc(self.object, self.layout()) }
    }
}

/// Returns what a block of `size` bytes takes up: the size class of a general-purpose allocator
/// (glibc's: 8 bytes of header, classes 16 apart, 32 at least). The estimate is good for other
/// allocators, too.
#[inline(always)]
pub(crate) const fn footprint(size: usize) -> usize {
    let class = size.saturating_add(8 + 15) & !15;
    if class < 32 { 32 } else { class }
}

/// The size of a page in memory.
pub(super) const PAGE_BYTES: usize = 4096;

const HEAD_BYTES: usize = 48;

/// Whether this is the model: its pages are as short as possible, and its cells have a separate
/// state.
const IS_MODEL: bool = cfg!(stillpoint_loom);

/// Number of objects that a page holds.
pub(crate) const SLOTS: usize = if IS_MODEL {
    2
} else {
    (PAGE_BYTES - HEAD_BYTES) / size_of::<Slot>()
};

/// Bytes of objects at which an open page is sealed early.
pub(super) const OPEN_BYTES: usize = 64 << 10;

/// The most that an object counts for, 512 GiB: the bytes of a page cannot overflow then, whatever
/// weights the user gives.
pub(super) const HEAVIEST: usize = 1 << 39;

/// Number of objects by which prefetching is ahead of freeing.
const PREFETCH: usize = 8;

/// How full a page is: the length in the low 16 bits, the bytes above, so that one store publishes
/// both.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fill(u64);

impl Fill {
    #[inline(always)]
    pub(super) fn len(self) -> usize {
        usize::from(self.0 as u16)
    }

    #[inline(always)]
    pub(super) fn bytes(self) -> usize {
        (self.0 >> 16) as usize
    }

    /// Returns the fill with one more object, which counts for [`HEAVIEST`] at most.
    #[inline(always)]
    pub(super) fn with(self, bytes: usize) -> Self {
        Self(
            self.0
                .wrapping_add(((bytes.min(HEAVIEST) as u64) << 16) + 1),
        )
    }
}

#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Page {
    /// How many slots are written [P1], and the footprint of the objects in them: see [`Fill`].
    /// Written by the owner.
    fill: AtomicU64,
    /// Slots before this one have been handed on. Written under the lock.
    first: AtomicU32,
    /// The bytes of the objects in the slots before `first`. Written under the lock.
    handed_on: AtomicUsize,
    /// Once this grace period has ended, all of the page may be freed. Written under the lock, when
    /// the page is sealed.
    cookie: AtomicU64,
    next: UnsafeCell<*mut Page>,
    /// Only where pages wait in the order of their cookies: see
    /// [`PendingPages`](super::pending::PendingPages).
    previous: UnsafeCell<*mut Page>,
    slots: [UnsafeCell<MaybeUninit<Slot>>; SLOTS],
}

const _: () = assert!(IS_MODEL || size_of::<Page>() == PAGE_BYTES);
const _: () = assert!(IS_MODEL || size_of::<UnsafeCell<MaybeUninit<Slot>>>() == size_of::<Slot>());

impl Page {
    /// Allocates an empty page. `None` if there is no memory.
    pub(super) fn try_new() -> Option<NonNull<Page>> {
        let layout = Layout::new::<Page>();
        // SAFETY: the layout is not of size 0.
        let page = NonNull::new(unsafe { std::alloc::alloc(layout) }.cast::<Page>())?;
        let at = page.as_ptr();
        // SAFETY: the memory is ours and of this layout; every field is written, the slots (which
        // may hold anything) only where cells have a separate state.
        unsafe {
            (&raw mut (*at).fill).write(AtomicU64::new(0));
            (&raw mut (*at).first).write(AtomicU32::new(0));
            (&raw mut (*at).handed_on).write(AtomicUsize::new(0));
            (&raw mut (*at).cookie).write(AtomicU64::new(0));
            (&raw mut (*at).next).write(UnsafeCell::new(ptr::null_mut()));
            (&raw mut (*at).previous).write(UnsafeCell::new(ptr::null_mut()));
            if IS_MODEL {
                for slot in 0..SLOTS {
                    (&raw mut (*at).slots[slot]).write(UnsafeCell::new(MaybeUninit::uninit()));
                }
            }
        }
        Some(page)
    }

    /// Gives the memory of an empty page back.
    ///
    /// # Safety
    ///
    /// The page came from [`Page::try_new`], is in no list, and no other thread knows it.
    pub(super) unsafe fn release(page: NonNull<Page>) {
        // SAFETY: the caller's promise.
        unsafe {
            ptr::drop_in_place(page.as_ptr());
            alloc::dealloc(page.as_ptr().cast(), Layout::new::<Page>());
        }
    }

    /// Appends `slot`. Returns how full the page then is. For the owner, and only while the page
    /// has room.
    #[inline(always)]
    pub(super) fn push(&self, slot: Slot, bytes: usize) -> Fill {
        let fill = Fill(self.fill.load(Ordering::Relaxed));
        debug_assert!(fill.len() < SLOTS, "an open page has room");
        // SAFETY: the length is below SLOTS: an owner replaces a page when the push that fills it
        // returns.
        let free = unsafe { self.slots.get_unchecked(fill.len()) };
        // SAFETY: no thread reads the slot before `fill` says that it is there, and only the owner
        // writes.
        free.with_mut(|at| unsafe { (*at).write(slot) });
        let fill = fill.with(bytes);
        // Publish [P1], Release: the slot is written, and the object unlinked, before the length
        // says so.
        self.fill.store(fill.0, Ordering::Release);
        fill
    }

    /// Returns how full the page is. Look [D3], Acquire: the caller sees what the owner did before
    /// it published that.
    pub(super) fn fill(&self) -> Fill {
        Fill(self.fill.load(Ordering::Acquire))
    }

    /// Returns how many slots are written. As [`Page::fill`].
    pub(super) fn len(&self) -> usize {
        self.fill().len()
    }

    /// Returns the first slot that has not been handed on. Under the lock.
    fn first(&self) -> usize {
        self.first.load(Ordering::Relaxed) as usize
    }

    /// Returns the bytes of the page's remaining objects. Exact for the owner and once the page is
    /// sealed.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        Fill(self.fill.load(Ordering::Relaxed))
            .bytes()
            .saturating_sub(self.handed_on.load(Ordering::Relaxed))
    }

    /// Returns how many objects remain. Under the lock.
    pub(super) fn objects(&self) -> usize {
        self.len() - self.first()
    }

    /// Returns whether the page is to be sealed, if it is open.
    pub(super) fn is_full(&self) -> bool {
        self.len() == SLOTS || self.bytes() >= OPEN_BYTES
    }

    /// Moves the objects that remain to an empty page. Under the lock; the owner may append
    /// meanwhile.
    pub(super) fn move_to(&self, copy: &Page) {
        // One load for both: no slot tells its bytes, so the sum must be that of exactly these
        // objects.
        let fill = self.fill();
        for slot in self.first()..fill.len() {
            copy.push(self.slot(slot), 0);
        }
        let bytes = fill.bytes() - self.handed_on.load(Ordering::Relaxed);
        copy.fill.fetch_add((bytes as u64) << 16, Ordering::Relaxed);
        self.first.store(fill.len() as u32, Ordering::Relaxed);
        self.handed_on.store(fill.bytes(), Ordering::Relaxed);
    }

    /// Hands on as many of the objects that remain as `taken` has room for, and copies their slots
    /// there. Returns how many, and their bytes: of a part of them, the same part of the bytes. Of a
    /// page that is not open any more, under the lock.
    pub(super) fn take(&self, taken: &mut [MaybeUninit<Slot>]) -> Tally {
        let (fill, first) = (self.fill(), self.first());
        let remaining = fill.len() - first;
        let objects = remaining.min(taken.len());
        if objects == 0 {
            return Tally::default();
        }
        self.copy_slots(first, &mut taken[..objects]);
        let handed_on = self.handed_on.load(Ordering::Relaxed);
        let footprint = (fill.bytes() - handed_on) * objects / remaining;
        self.first
            .store((first + objects) as u32, Ordering::Relaxed);
        self.handed_on
            .store(handed_on + footprint, Ordering::Relaxed);
        Tally {
            objects,
            pages: 0,
            footprint,
        }
    }

    /// Copies the slots from `first` on to `copies`. They are written.
    fn copy_slots(&self, first: usize, copies: &mut [MaybeUninit<Slot>]) {
        let slots = &self.slots[first..first + copies.len()];
        if IS_MODEL {
            for (slot, copy) in slots.iter().zip(copies) {
                // SAFETY: it is written, and stays as it is.
                *copy = slot.with(|at| unsafe { at.read() });
            }
        } else {
            // SAFETY: these slots are written and stay as they are, and outside of the model a cell
            // is as large as what is in it.
            unsafe {
                let from = slots.as_ptr().cast::<MaybeUninit<Slot>>();
                ptr::copy_nonoverlapping(from, copies.as_mut_ptr(), copies.len());
            }
        }
    }

    fn slot(&self, index: usize) -> Slot {
        debug_assert!(index < self.len());
        // SAFETY: callers pass an index below a `len` that they have read, which is SLOTS at most.
        let written = unsafe { self.slots.get_unchecked(index) };
        // SAFETY: so the slot is written, and stays as it is.
        written.with(|at| unsafe { (*at).assume_init_read() })
    }

    pub(super) fn cookie(&self) -> Cookie {
        Cookie::from_raw(self.cookie.load(Ordering::Relaxed))
    }

    pub(super) fn seal(&self, cookie: Cookie) {
        self.cookie.store(cookie.into_raw(), Ordering::Relaxed);
    }

    /// Returns the page behind this one. Like the three below, for the exclusive owner of the list
    /// that the page is in.
    pub(super) fn next(&self) -> *mut Page {
        // SAFETY: the links of a page are its list's.
        self.next.with(|next| unsafe { *next })
    }

    pub(super) fn set_next(&self, next: *mut Page) {
        // SAFETY: as in `next`.
        self.next.with_mut(|at| unsafe { *at = next });
    }

    pub(super) fn previous(&self) -> *mut Page {
        // SAFETY: as in `next`.
        self.previous.with(|previous| unsafe { *previous })
    }

    pub(super) fn set_previous(&self, previous: *mut Page) {
        // SAFETY: as in `next`.
        self.previous.with_mut(|at| unsafe { *at = previous });
    }

    /// Makes the page empty, and leaves its objects where they are. Owner only.
    pub(super) fn forget_objects(&self) {
        self.first.store(0, Ordering::Relaxed);
        self.handed_on.store(0, Ordering::Relaxed);
        self.fill.store(0, Ordering::Relaxed);
    }

    /// Frees all that remains, which is of domain `id`, and makes the page empty. Returns how many
    /// destructors panicked. If one forks, the rest is forgotten in the child.
    ///
    /// # Safety
    ///
    /// The page is the caller's alone, its grace period has ended, and its objects may be freed on
    /// this thread.
    pub(super) unsafe fn free_objects(&self, id: u64) -> u64 {
        let mut slots = [const { MaybeUninit::uninit() }; SLOTS];
        let taken = self.take(&mut slots);
        self.forget_objects();
        // SAFETY: `take` has written these; the rest is the caller's promise.
        unsafe { free_slots(id, &slots[..taken.objects]) }
    }
}

/// Frees the objects in `slots`, of domain `id`. Returns how many destructors panicked. If one
/// forks, the rest is left alone in the child.
///
/// # Safety
///
/// The slots are written, the caller's alone, and not used again; their grace period has ended, and
/// their objects may be freed on this thread.
pub(super) unsafe fn free_slots(id: u64, slots: &[MaybeUninit<Slot>]) -> u64 {
    let process = fork::process();
    // SAFETY: the caller's promise.
    let written = |slot: &MaybeUninit<Slot>| unsafe { slot.assume_init_read() };
    let (mut left, mut panicked) = (slots.iter(), 0);
    while !left.as_slice().is_empty() {
        let free_rest = || {
            while let Some(slot) = left.next() {
                // An object was last used long ago, and freeing it writes to it.
                if let Some(ahead) = left.as_slice().get(PREFETCH - 1) {
                    written(ahead).prefetch();
                }
                let slot = written(slot);
                // SAFETY: the caller's promise; `left` has passed it, so it is freed once.
                unsafe { slot.free() };
                if slot.has_destructor() && fork::process() != process {
                    break;
                }
            }
        };
        panicked += u64::from(user_code::panics(id, free_rest));
        if fork::process() != process {
            break;
        }
    }
    panicked
}

/// Empty pages of a domain. The last is for when none can be allocated. The others are for threads
/// whose pages the service thread frees: to allocate one would make the C library join what has been
/// freed of small blocks, which takes longer than the rest of that retire.
#[derive(Debug)]
pub(super) struct Reserve(pub(super) Mutex<PageList>);

impl Reserve {
    pub(super) fn new() -> Self {
        Self(Mutex::new(PageList::new()))
    }

    /// Allocates the last page of the reserve, if it has none and there is memory.
    pub(super) fn fill(&self) {
        if lock(&self.0).is_empty()
            && let Some(page) = Page::try_new()
        {
            self.put(page, 1);
        }
    }

    /// Keeps an empty page in the reserve, or gives its memory back if the reserve has `most`.
    /// The page is the caller's.
    pub(super) fn put(&self, page: NonNull<Page>, most: usize) {
        let mut reserve = lock(&self.0);
        if reserve.pages() < most {
            reserve.push_back(page);
        } else {
            drop(reserve);
            // SAFETY: an empty page that is in no list.
            unsafe { Page::release(page) };
        }
    }

    /// Takes a page for when none can be allocated.
    pub(super) fn take(&self) -> Option<NonNull<Page>> {
        lock(&self.0).pop_front()
    }

    /// Takes a page, unless it is the last.
    pub(super) fn take_spare(&self) -> Option<NonNull<Page>> {
        let mut reserve = lock(&self.0);
        (reserve.pages() > 1).then(|| reserve.pop_front()).flatten()
    }

    /// Gives the memory of all pages but one back.
    pub(super) fn trim(&self) {
        while let Some(page) = self.take_spare() {
            // SAFETY: an empty page that is in no list any more.
            unsafe { Page::release(page) };
        }
    }
}

impl Drop for Reserve {
    fn drop(&mut self) {
        lock(&self.0).release();
    }
}

/// Pages in a row, first in first out. It owns them.
#[derive(Debug)]
pub(super) struct PageList {
    first: *mut Page,
    last: *mut Page,
    pages: usize,
    /// The weight of the pages and their objects, as of when each was added.
    footprint: usize,
}

// SAFETY: the list owns its pages; their objects are Send, as the retiring caller promised.
unsafe impl Send for PageList {}

impl PageList {
    pub(super) const fn new() -> Self {
        Self {
            first: ptr::null_mut(),
            last: ptr::null_mut(),
            pages: 0,
            footprint: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    pub(super) fn pages(&self) -> usize {
        self.pages
    }

    pub(super) fn footprint(&self) -> usize {
        self.footprint
    }

    /// Returns the oldest page.
    pub(super) fn front(&self) -> Option<&Page> {
        // SAFETY: a page in the list is valid and the list's.
        unsafe { self.first.as_ref() }
    }

    /// Returns the youngest page.
    pub(super) fn back(&self) -> Option<&Page> {
        // SAFETY: as in `front`.
        unsafe { self.last.as_ref() }
    }

    /// Takes over `page`.
    pub(super) fn push_back(&mut self, page: NonNull<Page>) {
        // SAFETY: the caller hands over a page that it owns.
        let at = unsafe { page.as_ref() };
        at.set_next(ptr::null_mut());
        // SAFETY: a page in the list is valid and the list's.
        match unsafe { self.last.as_ref() } {
            None => self.first = page.as_ptr(),
            Some(last) => last.set_next(page.as_ptr()),
        }
        self.last = page.as_ptr();
        self.pages += 1;
        self.footprint += footprint_of(at);
    }

    pub(super) fn pop_front(&mut self) -> Option<NonNull<Page>> {
        let page = NonNull::new(self.first)?;
        // SAFETY: a page in the list is valid and the list's.
        let at = unsafe { page.as_ref() };
        self.first = at.next();
        if self.first.is_null() {
            self.last = ptr::null_mut();
        }
        self.pages -= 1;
        self.footprint -= footprint_of(at);
        Some(page)
    }

    /// Takes objects out of the oldest page, as many as `taken` has room for. A page that this
    /// empties moves to `emptied`. Returns what the list has lost.
    pub(super) fn take_front(
        &mut self,
        taken: &mut [MaybeUninit<Slot>],
        emptied: &mut PageList,
    ) -> Tally {
        let Some(page) = self.front() else {
            return Tally::default();
        };
        let mut lost = page.take(taken);
        let is_empty = page.objects() == 0;
        self.footprint -= lost.footprint;
        if is_empty && let Some(page) = self.pop_front() {
            emptied.push_back(page);
            lost.pages = 1;
            lost.footprint += PAGE_BYTES;
        }
        lost
    }

    pub(super) fn append(&mut self, mut other: PageList) {
        if other.is_empty() {
            return;
        }
        // SAFETY: a page in the list is valid and the list's.
        match unsafe { self.last.as_ref() } {
            None => self.first = other.first,
            Some(last) => last.set_next(other.first),
        }
        self.last = other.last;
        self.pages += other.pages;
        self.footprint += other.footprint;
        other.first = ptr::null_mut();
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Page> {
        // SAFETY: pages in the list are valid and the list's.
        std::iter::successors(self.front(), |page| unsafe { page.next().as_ref() })
    }

    /// Returns whether they are in the order of their cookies.
    pub(super) fn is_sorted(&self) -> bool {
        self.iter()
            .map(Page::cookie)
            .is_sorted_by(|a, b| b.at_least(*a))
    }

    pub(super) fn take(&mut self) -> PageList {
        std::mem::replace(self, PageList::new())
    }

    /// Gives the memory of empty pages back.
    pub(super) fn release(&mut self) {
        while let Some(page) = self.pop_front() {
            // SAFETY: an empty page that is in no list any more.
            unsafe { Page::release(page) };
        }
    }

    /// Leaves the pages and their objects where they are, for ever.
    pub(super) fn forget(self) {
        std::mem::forget(self);
    }
}

impl Drop for PageList {
    fn drop(&mut self) {
        debug_assert!(
            self.is_empty(),
            "a list with pages in it is handed on, never dropped"
        );
    }
}

/// Pages, the objects in them, and the bytes of both. Sums and differences wrap.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tally {
    pub(super) objects: usize,
    pub(super) pages: usize,
    pub(super) footprint: usize,
}

impl Tally {
    pub(super) fn of(page: &Page) -> Self {
        Self {
            objects: page.objects(),
            pages: 1,
            footprint: footprint_of(page),
        }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            objects: self.objects.wrapping_add(other.objects),
            pages: self.pages.wrapping_add(other.pages),
            footprint: self.footprint.wrapping_add(other.footprint),
        }
    }

    pub(super) fn minus(self, other: Self) -> Self {
        Self {
            objects: self.objects.wrapping_sub(other.objects),
            pages: self.pages.wrapping_sub(other.pages),
            footprint: self.footprint.wrapping_sub(other.footprint),
        }
    }
}

/// Returns the bytes of a sealed page and its objects.
pub(super) fn footprint_of(page: &Page) -> usize {
    PAGE_BYTES + page.bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::atomic::AtomicUsize;

    proptest! {
        #[test]
        fn a_layout_survives(size in 0usize..1 << 40, log in 0u32..20) {
            let layout = Layout::from_size_align(size, 1 << log).unwrap();
            let slot = Slot::memory(NonNull::dangling(), layout);
            // SAFETY: it is one of `memory`.
            prop_assert_eq!(unsafe { slot.layout() }, layout);
        }

        #[test]
        fn a_footprint_holds_the_block(size in 0usize..1 << 40) {
            let bytes = footprint(size);
            prop_assert!(bytes >= size + 8 && bytes <= size + 32 && bytes.is_multiple_of(16));
        }
    }

    #[test]
    fn a_destructor_runs_once() {
        static DROPS: AtomicUsize = AtomicUsize::new(0);
        struct Loud([u64; 9]);
        impl Drop for Loud {
            fn drop(&mut self) {
                DROPS.fetch_add(self.0[8] as usize, Ordering::Relaxed);
            }
        }
        let slot = Slot::boxed(NonNull::from(Box::leak(Box::new(Loud([1; 9])))));
        // SAFETY: no other thread knows the object.
        unsafe { slot.free() };
        assert_eq!(DROPS.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_reference_is_dropped() {
        let object = Arc::new([0_u64; 9]);
        let slot = Slot::shared(Arc::clone(&object));
        assert_eq!(
            (Arc::strong_count(&object), slot.has_destructor()),
            (2, true)
        );
        // SAFETY: the slot's own reference.
        unsafe { slot.free() };
        assert_eq!(Arc::strong_count(&object), 1);
    }
}
