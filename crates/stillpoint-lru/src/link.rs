//! A list and the links in it: the only file that follows their pointers.
//!
//! A [`List`] is a ring of [`Link`]s and a head, oldest first, behind one lock; a link names the
//! list that it is on. The list knows nothing of tenants, nodes or what the links are part of. The
//! caller of `append` keeps the link in its place while it is on the list (`lru.rs`: the list holds a
//! strong reference to what the link is part of).
//!
//! # A link names its list
//!
//! `owner` is null (on no list), [`claimed`] (a thread that holds a list's lock is putting it there
//! or taking it off), [`marker`] (a walker's bookmark, no item), the list, or the list with a mark
//! ([`moving`]: a thread that holds its lock is putting the link elsewhere; for all others it is on
//! that list, until they have the lock and look again). Which list a link is on is known only under
//! that list's lock, so `del` looks twice:
//!
//! ```text
//!   read `owner`; lock that list; is it still the owner? else again
//! ```
//!
//! * The load of `owner` (acquire) pairs with the release store that names a list: the list is
//!   complete. RCU keeps it from being freed: `owner` is read inside a section, and a list is freed a
//!   grace period after its last link has left.
//! * The second look may be relaxed: a link becomes a list's, and ceases to be, under that list's
//!   lock alone.
//! * The exchange of null for `claimed` in `append` (acquire) pairs with the release store of null
//!   in `remove`: `append` finds the pointers as `remove` left them on another list, and overwrites
//!   them later. Of several threads that append a link only one wins.
//!
//! A list that has been emptied for good is **dead**: its length says so, and a thread that finds
//! that under its lock looks for another list.
//!
//! In the child of a fork a list may be in the middle of a change, if another thread held its lock.
//! Then the lock is lost, and the list is leaked (`lists.rs`).

#[cfg(all(test, not(stillpoint_loom)))]
use std::cell::Cell;
use std::{ptr, sync::OnceLock};
use stillpoint_platform::{
    fork_mutex::ForkMutex,
    sync::{AtomicPtr, AtomicUsize, MutexGuard, Ordering},
};

/// The length of a list that is dead.
const DEAD: usize = usize::MAX;

/// The owner of a link that a thread is moving.
fn claimed() -> *mut List {
    ptr::without_provenance_mut(1)
}

/// The owner of a link that has been on `list`, while a thread that holds the list's lock moves it.
/// Addresses of lists are even.
fn moving(list: *const List) -> *mut List {
    list.cast_mut().map_addr(|addr| addr | 1)
}

/// The owner of a walker's bookmark.
fn marker() -> *mut List {
    ptr::without_provenance_mut(2)
}

/// What an object embeds to be on a list.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Link {
    owner: AtomicPtr<List>,
    /// The next newer link. Written under the owner's lock.
    next: AtomicPtr<Link>,
    /// The next older link. Written under the owner's lock.
    prev: AtomicPtr<Link>,
}

impl Link {
    pub(crate) fn new() -> Self {
        Self::of(ptr::null_mut())
    }

    fn of(owner: *mut List) -> Self {
        Self {
            owner: AtomicPtr::new(owner),
            next: AtomicPtr::new(ptr::null_mut()),
            prev: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Returns the list that the link is on at this moment. The pointer may be followed inside a
    /// section that began before the call.
    pub(crate) fn owner(&self) -> Option<*const List> {
        // Acquire, pairs with `append`, `rotate`, `move_to` and `unlink`: the list that they name
        // is complete. The mask makes null of what is not a list.
        let list = self
            .owner
            .load(Ordering::Acquire)
            .map_addr(|addr| addr & !3);
        (!list.is_null()).then_some(list.cast_const())
    }

    /// Returns whether the link is on `list` at this moment.
    pub(crate) fn is_on(&self, list: &List) -> bool {
        ptr::eq(self.owner.load(Ordering::Relaxed), list)
    }

    pub(crate) fn next(&self) -> *const Link {
        self.next.load(Ordering::Relaxed)
    }

    fn prev(&self) -> *const Link {
        self.prev.load(Ordering::Relaxed)
    }
}

/// The reason why a link was not put on a list.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The link is on a list already.
    Linked,
    /// The list is dead: look for another.
    Dead,
}

/// A list.
///
/// It has two cache lines. Counting reads the line of the published count, to which writers only
/// store. So counting costs writers that one store, and never touches the lock.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct List {
    /// Written under the lock, read by anyone.
    count: AtomicUsize,
    changing: Changing,
}

/// The part of a list that only writers use.
#[derive(Debug)]
#[repr(C, align(64))]
struct Changing {
    lock: ForkMutex<()>,
    /// Number of links, or [`DEAD`]. Changed under the lock.
    len: AtomicUsize,
    head: Link,
    /// Number of the [`ListLru`](super::ListLru) that it belongs to; removal checks it.
    lru_id: u64,
}

/// A list whose lock is held.
#[derive(Debug)]
pub(crate) struct Locked<'a> {
    list: &'a List,
    _guard: MutexGuard<'a, ()>,
}

impl List {
    /// Creates a list, which is [initialised](List::init) once it is where it stays.
    pub(crate) fn new(lru_id: u64) -> Self {
        let changing = Changing {
            lock: ForkMutex::new(()),
            len: AtomicUsize::new(0),
            head: Link::of(marker()),
            lru_id,
        };
        Self {
            count: AtomicUsize::new(0),
            changing,
        }
    }

    /// Makes it an empty list. Called once, before the list is shared; it must not move afterwards.
    pub(crate) fn init(&self) {
        let head = &self.changing.head;
        for pointer in [&head.next, &head.prev] {
            pointer.store(self.head().cast_mut(), Ordering::Relaxed);
        }
    }

    pub(crate) fn lru_id(&self) -> u64 {
        self.changing.lru_id
    }

    /// Returns true if the list is known to be dead: then the caller need not take the lock.
    #[inline]
    pub(crate) fn looks_dead(&self) -> bool {
        self.changing.len.load(Ordering::Relaxed) == DEAD
    }

    /// Returns the number of links on it: exact at rest. A dead list has none. Takes no lock.
    #[inline(always)]
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    pub(crate) fn head(&self) -> *const Link {
        ptr::from_ref(&self.changing.head)
    }

    /// In the child of a fork: returns whether another thread held the lock.
    ///
    /// # Safety
    ///
    /// See [`ForkMutex::reset_in_child`].
    pub(crate) unsafe fn reset_in_child(&self) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.changing.lock.reset_in_child() }
    }

    /// Takes the lock.
    #[inline]
    pub(crate) fn lock(&self) -> Locked<'_> {
        #[cfg(all(test, not(stillpoint_loom)))]
        if let Some(work) = BEFORE_THE_LOCK.take() {
            work();
        }
        let guard = self.changing.lock.lock_telling(waiting, waited);
        Locked {
            list: self,
            _guard: guard,
        }
    }
}

impl<'a> Locked<'a> {
    fn is_dead(&self) -> bool {
        self.list.looks_dead()
    }

    /// Marks the list, which is empty, as dead: nothing is ever added to it again.
    pub(crate) fn mark_dead(&self) {
        debug_assert_eq!(self.list.count(), 0);
        self.list.changing.len.store(DEAD, Ordering::Relaxed);
        self.list.count.store(0, Ordering::Relaxed);
    }

    fn add_to_count(&self, change: isize) -> usize {
        // Under the lock: no read-modify-write is needed.
        let len = &self.list.changing.len;
        let sum = len.load(Ordering::Relaxed).wrapping_add_signed(change);
        len.store(sum, Ordering::Relaxed);
        self.list.count.store(sum, Ordering::Relaxed);
        sum
    }

    /// Returns whether the link is on this list. Under its lock this does not change.
    pub(crate) fn has(&self, link: &Link) -> bool {
        link.is_on(self.list)
    }

    /// Puts a link on the list, as the newest. Returns whether it is the only one.
    ///
    /// # Safety
    ///
    /// `link` stays alive and where it is until it has been taken off.
    pub(crate) unsafe fn append(&self, link: *const Link) -> Result<bool, Refused> {
        if self.is_dead() {
            return Err(Refused::Dead);
        }
        // SAFETY: alive, by the caller's promise.
        let owner = &unsafe { &*link }.owner;
        // Acquire, pairs with `remove`: the pointers are as the last list left them. Of several
        // threads one wins.
        if owner
            .compare_exchange(
                ptr::null_mut(),
                claimed(),
                Ordering::Acquire,
                Ordering::Relaxed,
            )
            .is_err()
        {
            return Err(Refused::Linked);
        }
        // SAFETY: claimed just now, by us; the rest is the caller's promise.
        unsafe { self.insert_before(self.list.head(), link) };
        // Release, pairs with `owner`: the list is complete for a thread that finds it.
        owner.store(ptr::from_ref(self.list).cast_mut(), Ordering::Release);
        Ok(self.add_to_count(1) == 1)
    }

    /// Takes a link off the list. Returns the pointer that it was put on with, which the list does
    /// not use any more.
    pub(crate) fn remove(&self, link: &Link) -> *const Link {
        assert!(
            self.has(link),
            "a link is taken off a list that it is not on"
        );
        let stored = self.unlink(link, claimed());
        self.add_to_count(-1);
        // Release, pairs with `append`: the link's pointers are left before it may go on another
        // list.
        link.owner.store(ptr::null_mut(), Ordering::Release);
        stored
    }

    /// Makes a link the newest one, if it is on this list.
    pub(crate) fn rotate(&self, link: &Link) {
        if self.has(link) {
            let stored = self.unlink(link, moving(self.list));
            // SAFETY: it has been taken out just now and is marked as moving; it is as alive as
            // before.
            unsafe { self.insert_before(self.list.head(), stored) };
            // Release, pairs with `owner`: the list is complete for a thread that finds it.
            link.owner
                .store(ptr::from_ref(self.list).cast_mut(), Ordering::Release);
        }
    }

    /// Moves up to `limit` links, oldest first, to `other`, whose lock is also held. Bookmarks stay.
    /// Returns whether any links are left.
    pub(crate) fn move_to(&self, other: &Locked<'_>, limit: usize) -> bool {
        assert!(
            !ptr::eq(self.list, other.list) && !other.is_dead(),
            "links move to another list that is alive"
        );
        let mut moved = 0;
        let mut at = self.first();
        while let Some(link) = at {
            if moved == limit {
                break;
            }
            // SAFETY: on this list, whose lock is held, so alive.
            let link = unsafe { &*link };
            at = self.after(link);
            let stored = self.unlink(link, moving(self.list));
            // SAFETY: taken out just now, and still marked as moving.
            unsafe { other.insert_before(other.list.head(), stored) };
            // Release, pairs with `owner`: the list is complete for a thread that finds it.
            link.owner
                .store(ptr::from_ref(other.list).cast_mut(), Ordering::Release);
            moved += 1;
        }
        self.add_to_count(-moved.cast_signed());
        other.add_to_count(moved.cast_signed());
        at.is_some()
    }

    /// Returns the oldest link that is not a bookmark.
    pub(crate) fn first(&self) -> Option<*const Link> {
        self.after(&self.list.changing.head)
    }

    /// Returns the next newer link that is not a bookmark.
    pub(crate) fn after(&self, link: &Link) -> Option<*const Link> {
        let mut at = link.next();
        while at != self.list.head() {
            // SAFETY: on this list, whose lock is held, so alive.
            let link = unsafe { &*at };
            if self.has(link) {
                return Some(at);
            }
            at = link.next();
        }
        None
    }

    /// # Safety
    ///
    /// `link` is on no list and the caller's alone; `place` is on this one, or its head.
    unsafe fn insert_before(&self, place: *const Link, link: *const Link) {
        // SAFETY: the caller's promise; the neighbour is on this list, whose lock is held.
        let (place_ref, link_ref) = unsafe { (&*place, &*link) };
        let older = place_ref.prev();
        link_ref.prev.store(older.cast_mut(), Ordering::Relaxed);
        link_ref.next.store(place.cast_mut(), Ordering::Relaxed);
        // SAFETY: as above.
        let older_next = unsafe { &(*older).next };
        older_next.store(link.cast_mut(), Ordering::Relaxed);
        place_ref.prev.store(link.cast_mut(), Ordering::Relaxed);
    }

    /// Takes `link` off this list and makes `mark` its owner. Returns the pointer that the list had.
    fn unlink(&self, link: &Link, mark: *mut List) -> *const Link {
        // Release, pairs with `owner`: a thread that follows the mark finds the list complete.
        link.owner.store(mark, Ordering::Release);
        let (older, newer) = (link.prev(), link.next());
        // SAFETY: the neighbours of a link are on its list, whose lock is held.
        let (older_ref, newer_ref) = unsafe { (&*older, &*newer) };
        let stored = older_ref.next();
        debug_assert!(ptr::eq(stored, link));
        older_ref.next.store(newer.cast_mut(), Ordering::Relaxed);
        newer_ref.prev.store(older.cast_mut(), Ordering::Relaxed);
        stored
    }
}

/// A walker's place in a list, which stays when the lock is released. On the heap, because it
/// outlives a walker that a fork removes.
#[derive(Debug)]
pub(crate) struct Bookmark(*const Link);

impl Bookmark {
    /// Creates a bookmark before the oldest link. The caller [removes](Bookmark::remove) it.
    pub(crate) fn at_start(list: &Locked<'_>) -> Self {
        let link = Box::into_raw(Box::new(Link::of(marker()))).cast_const();
        // SAFETY: new, and ours alone; the place is on the list.
        unsafe { list.insert_before(list.list.changing.head.next(), link) };
        Self(link)
    }

    fn link(&self) -> &Link {
        // SAFETY: ours until `remove`, which takes it.
        unsafe { &*self.0 }
    }

    /// Returns the first link behind it.
    pub(crate) fn next(&self, list: &Locked<'_>) -> Option<*const Link> {
        list.after(self.link())
    }

    /// Moves it behind `link`, which is on the list.
    pub(crate) fn move_behind(&self, list: &Locked<'_>, link: &Link) {
        assert!(list.has(link), "a bookmark goes where a link is");
        let stored = list.unlink(self.link(), marker());
        // SAFETY: taken out just now; what follows a link of the list is on it, or its head.
        unsafe { list.insert_before(link.next(), stored) };
    }

    /// Moves it before the oldest link.
    pub(crate) fn restart(&self, list: &Locked<'_>) {
        let stored = list.unlink(self.link(), marker());
        // SAFETY: taken out just now; the place is on the list, or its head.
        unsafe { list.insert_before(list.list.changing.head.next(), stored) };
    }

    pub(crate) fn remove(self, list: &Locked<'_>) {
        let stored = list.unlink(self.link(), marker());
        // SAFETY: it came out of a box and is off the list, and `self` ends here.
        drop(unsafe { Box::from_raw(stored.cast_mut()) });
    }
}

/// The functions of [`watch_waits`].
static WATCH: OnceLock<[fn(); 2]> = OnceLock::new();

/// Calls `waiting` when a thread finds a list's lock held by another thread, and `waited` when it has
/// got that lock, from now on. Only the first call has an effect. Taking a free lock costs nothing.
/// `waited` runs with the lock held: neither may use lists, or fork.
#[cfg_attr(stillpoint_loom, allow(dead_code, reason = "the lab's"))]
pub fn watch_waits(waiting: fn(), waited: fn()) {
    let _ = WATCH.set([waiting, waited]);
}

#[cold]
fn waiting() {
    if let Some([waiting, _]) = WATCH.get() {
        waiting();
    }
}

#[cold]
fn waited() {
    if let Some([_, waited]) = WATCH.get() {
        waited();
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
thread_local! {
    /// The calling thread runs this once, just before it takes a list's lock.
    pub(crate) static BEFORE_THE_LOCK: Cell<Option<Box<dyn FnOnce()>>> = const { Cell::new(None) };
}
