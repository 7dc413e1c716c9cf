//! Where byte values lie: in memory that goes back to the system when they go.
//!
//! An *arena* has *regions* of 2 MiB; a region has pages; and these are *runs* of 32 KiB, which have
//! *slots* of one size, or belong to one large value. A value larger than a region has a mapping of
//! its own. A run without values and the pages of a large value go back to the system at once, but
//! for one in 256 runs, which are kept for others.
//!
//! Where values go here and there, runs stay that are nearly empty. The arena knows how many it has
//! beyond what it needs ([`state`]). It then chooses the emptiest ones, and the cache moves the values
//! that lie there: see [`Bytes::leave`] and [`crate::compact`].
//!
//! One lock guards an arena. No system call is made under it, and no user code runs under it.
//!
//! # Ends
//!
//! A region keeps its arena, so an arena goes with the last of its values, wherever that is. In the
//! child of a fork, values of an arena whose lock another thread held are read as before, and leaked
//! when they go.

mod bytes;
mod class;
mod giant;
#[cfg(all(test, stillpoint_loom, not(stillpoint_shuttle)))]
mod loom_tests;
mod region;
mod state;
#[cfg(all(test, not(stillpoint_loom)))]
mod tests;

pub use bytes::{Bytes, NoMemory};

use bytes::Slot;
use class::PAGE;
use giant::Giant;
use region::{MOST_PAGES, Pages, Region};
use state::{Gone, State};
use std::{
    fmt,
    ptr::NonNull,
    sync::{Arc, OnceLock},
};
use stillpoint_platform::{
    fork::{AtForkHandle, ForkReset},
    fork_mutex::ForkMutex,
};

/// Memory for byte values, which goes back to the system when they go.
///
/// A handle: clones are the same arena. A [`Cache`](crate::Cache) of [`Bytes`] has one of its own
/// ([`Cache::arena`](crate::Cache::arena)), whose values it moves together when many have gone. Values
/// of an arena that is made here stay where they are.
///
/// ```
/// use stillpoint_cache::Arena;
///
/// let arena = Arena::new();
/// let page = arena.bytes(b"hello")?;
/// assert_eq!(&*page, b"hello");
/// assert_eq!(arena.statistics().values, 1);
/// # Ok::<(), stillpoint_cache::NoMemory>(())
/// ```
#[derive(Clone)]
pub struct Arena(Arc<Shared>);

/// The contents of an [`Arena`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArenaStatistics {
    /// Values there now. A value and its clones are one.
    pub values: u64,
    /// Size of the values in bytes: the sum of their [footprints](Bytes::footprint).
    pub bytes: u64,
    /// Upper bound on the memory that the arena holds, in bytes. It includes free memory between values, and
    /// leaves out the heads of regions, a page for each 2 MiB.
    pub held_bytes: u64,
    /// Values that were moved so far.
    pub moved: u64,
}

use ArenaStatistics as Statistics;

/// Asks for values to be moved. Returns false if that cannot be asked.
type Ask = dyn Fn() -> bool + Send + Sync;

/// An arena.
struct Shared {
    /// First, because fields are dropped in order: no fork finds the others half dropped.
    place: AtForkHandle,
    state: ForkMutex<State>,
    ask: OnceLock<Box<Ask>>,
}

/// The size of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Size {
    /// A slot of that class.
    Slot(usize),
    /// So many pages.
    Pages(usize),
    /// A mapping of so many bytes.
    Giant(usize),
}

impl Size {
    /// Returns the size for a slot of `slot` bytes; `None` if no memory is that large.
    fn of(slot: usize) -> Option<Self> {
        if let Some(number) = class::of(slot) {
            return Some(Self::Slot(number));
        }
        let pages = slot.div_ceil(PAGE);
        if pages <= MOST_PAGES {
            return Some(Self::Pages(pages));
        }
        giant::size(slot).map(Self::Giant)
    }

    fn bytes(self) -> usize {
        match self {
            Self::Slot(number) => class::class(number).size,
            Self::Pages(count) => count * PAGE,
            Self::Giant(bytes) => bytes,
        }
    }
}

impl Arena {
    /// Makes one without memory.
    #[must_use]
    pub fn new() -> Self {
        let shared = Arc::new(Shared {
            place: AtForkHandle::reserve(),
            state: ForkMutex::new(State::new()),
            ask: OnceLock::new(),
        });
        // SAFETY: once; complete, and it stays where it is: in the `Arc`, whose last owner drops the
        // place first.
        unsafe { shared.place.occupy(&*shared) };
        Self(shared)
    }

    /// Copies bytes into the arena.
    ///
    /// Takes the arena's lock, for some tens of nanoseconds. Not async-signal-safe.
    ///
    /// # Errors
    ///
    /// If the system has no memory for them.
    pub fn bytes(&self, bytes: &[u8]) -> Result<Bytes, NoMemory> {
        Bytes::new(&self.0, bytes)
    }

    /// Returns what the arena has.
    #[must_use]
    pub fn statistics(&self) -> ArenaStatistics {
        self.0.state.lock().counts
    }

    /// Sets a function that is called when values are worth moving, and again only after
    /// [`is_scattered`](Self::is_scattered) has returned false. It is called on any thread, outside of locks.
    /// It is set once.
    pub(crate) fn on_scattered(&self, ask: impl Fn() -> bool + Send + Sync + 'static) {
        let _ = self.0.ask.set(Box::new(ask));
    }

    /// Returns whether values are worth moving. If not, the function of [`on_scattered`](Self::on_scattered)
    /// is called once they are.
    pub(crate) fn is_scattered(&self) -> bool {
        let mut state = self.0.state.lock();
        let is_scattered = state.is_scattered();
        state.is_asked &= is_scattered;
        is_scattered
    }

    /// Returns whether a fork has removed the thread that held the lock.
    pub(crate) fn is_lost(&self) -> bool {
        self.0.state.is_lost()
    }

    /// Says whether the memory is wanted elsewhere, as after a shrink: then values are worth to be
    /// moved for little. Asks, if they are.
    pub(crate) fn want_back(&self, is_wanted: bool) {
        let Some(mut state) = self.0.state.lock_unless_lost() else {
            return;
        };
        state.is_wanted = is_wanted;
        let asks = state.is_scattered() && !std::mem::replace(&mut state.is_asked, true);
        drop(state);
        if asks {
            self.0.ask();
        }
    }

    /// Returns whether memory is [wanted back](Self::want_back).
    #[cfg(test)]
    pub(crate) fn is_wanted(&self) -> bool {
        self.0.state.lock().is_wanted
    }

    /// Chooses the runs whose values are to [leave](Bytes::leave). Returns how many; and how many
    /// have left so far, of all that were ever chosen.
    pub(crate) fn begin_moving(&self) -> (usize, u64) {
        self.0.state.lock().choose()
    }

    /// Counts values that were moved.
    pub(crate) fn note_moved(&self, number: usize) {
        self.0.state.lock().counts.moved += number as u64;
    }

    /// Returns whether this is the arena of `shared`.
    fn is(&self, shared: *const Shared) -> bool {
        Arc::as_ptr(&self.0) == shared
    }
}

impl Shared {
    /// Allocates a slot of `slot` bytes, whose head the caller writes. Returns `None` if out of memory.
    fn allocate(self: &Arc<Self>, slot: usize) -> Option<NonNull<Slot>> {
        let size = Size::of(slot)?;
        if let Size::Giant(bytes) = size {
            let slot = Giant::make(self, slot)?;
            let mut state = self.state.lock();
            state.note_taken(bytes);
            state.counts.held_bytes += bytes as u64;
            return Some(slot);
        }
        let take = |state: &mut State| match size {
            Size::Slot(number) => state.take_slot(number),
            Size::Pages(count) => state.take_pages(count),
            Size::Giant(_) => unreachable!("that is above"),
        };
        let mut state = self.state.lock();
        let taken = take(&mut state);
        drop(state);
        if let Some(slot) = taken {
            return Some(slot.cast());
        }
        // The kernel makes it, and clears a page, without the lock.
        let region = Region::new(self)?;
        let mut state = self.state.lock();
        state.open(region);
        let slot = take(&mut state);
        // Where other threads have made room meanwhile.
        let gone = state.is_gone(region);
        drop(state);
        if let Some(region) = gone {
            // SAFETY: nothing was taken of it, and the list has it no longer.
            unsafe { Region::delete(region) };
        }
        slot.map(NonNull::cast)
    }

    /// Frees a slot of so many bytes.
    ///
    /// # Safety
    ///
    /// It came from [`Shared::allocate`] with that size, and is not used any more.
    unsafe fn free(slot: NonNull<Slot>, size: usize) {
        let size = Size::of(size).expect("there was memory for it");
        if let Size::Giant(bytes) = size {
            // SAFETY: the caller's promise.
            unsafe {
                let giant = Giant::of(slot);
                let shared = &*giant.as_ref().shared;
                // Before the last owner of the arena goes.
                if let Some(mut state) = shared.state.lock_unless_lost() {
                    state.note_freed(bytes);
                    state.counts.held_bytes -= bytes as u64;
                }
                Giant::delete(giant);
            }
            return;
        }
        let region = Region::of(slot.cast());
        // SAFETY: the region stays while it has the slot, and keeps the arena; both are counted here
        // for as long as they are used.
        unsafe {
            let this = region.as_ptr();
            let shared = (*this).shared;
            Arc::increment_strong_count(shared);
            let shared = Arc::from_raw(shared);
            let Some(mut state) = shared.state.lock_unless_lost() else {
                return;
            };
            let gone = match size {
                Size::Pages(count) => {
                    state.note_freed(count * PAGE);
                    Gone([Some(Pages::at(slot.cast(), count)), None])
                }
                _ => state.put_slot(slot.cast()),
            };
            let asks = state.is_scattered() && !std::mem::replace(&mut state.is_asked, true);
            drop(state);
            for pages in gone.0.into_iter().flatten() {
                pages.release();
                let gone = shared.state.lock().note_released(pages);
                if let Some(region) = gone {
                    Region::delete(region);
                }
            }
            if asks {
                shared.ask();
            }
        }
    }

    #[cold]
    fn ask(&self) {
        if !self.ask.get().is_some_and(|ask| ask()) {
            // The next value that goes asks again, if there is anything to ask.
            self.state.lock().is_asked = self.ask.get().is_none();
        }
    }
}

impl ForkReset for Shared {
    unsafe fn reset_in_child(&self) {
        // SAFETY: the caller's promise; no user code runs under this lock.
        if !unsafe { self.state.reset_in_child() } {
            let mut state = self.state.lock();
            // The service thread has forgotten what was asked for.
            (state.is_asked, state.is_wanted) = (false, false);
        }
    }
}

impl Default for Arena {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Arena").field(&self.statistics()).finish()
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}
