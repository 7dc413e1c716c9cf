//! Ways to find the area around an address.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{PoisonError, RwLock};
use std::thread;

use stillpoint::Guard;
use stillpoint_vmap::Arena;

use super::connections::Turn;

/// Areas by their first address: their lengths.
pub type Tree = BTreeMap<usize, usize>;

/// Something that knows areas.
pub trait Index: Sync {
    /// Knows the areas of `arena`, which are at `areas`.
    fn new(arena: &Arena, areas: &[Range<usize>]) -> Self;

    /// The area around an address: its first address, and its length. Those that do not look it up
    /// take any address for the first of an area.
    #[inline(always)]
    fn find(&self, addr: usize) -> Option<(usize, usize)> {
        Some((addr, usize::MAX))
    }

    /// Returns whether a range lies inside one area.
    #[inline(always)]
    fn check(&self, addr: usize, len: usize) -> bool {
        self.find(addr)
            .is_some_and(|(start, size)| len <= size && addr - start <= size - len)
    }

    /// Checks a range, and copies it out; in one section where there is one.
    #[inline(always)]
    fn copy_to(&self, _arena: &Arena, addr: usize, to: &mut [u8]) -> bool {
        let fits = self.check(addr, to.len());
        if fits {
            unchecked_copy_to(addr, to);
        }
        fits
    }

    /// Checks a range, and copies into it.
    #[inline(always)]
    fn copy_from(&self, _arena: &Arena, addr: usize, from: &[u8]) -> bool {
        let fits = self.check(addr, from.len());
        if fits {
            unchecked_copy_from(addr, from);
        }
        fits
    }

    /// Serves a thread's connections once: false if a range was refused.
    #[inline(always)]
    fn serve(&self, arena: &Arena, turn: Turn<'_>) -> bool {
        turn.each(
            |to, from| self.copy_from(arena, to, from),
            |from, to| self.copy_to(arena, from, to),
        )
    }
}

/// The copy of all that do not check by the arena: `memcpy`.
#[inline(always)]
pub(super) fn unchecked_copy_to(addr: usize, to: &mut [u8]) {
    // SAFETY: each connection's area lives as long as its threads, one of which alone uses it.
    unsafe {
        std::ptr::copy_nonoverlapping(
            std::ptr::with_exposed_provenance(addr),
            to.as_mut_ptr(),
            to.len(),
        )
    }
}

#[inline(always)]
pub(super) fn unchecked_copy_from(addr: usize, from: &[u8]) {
    // SAFETY: as above.
    unsafe {
        std::ptr::copy_nonoverlapping(
            from.as_ptr(),
            std::ptr::with_exposed_provenance_mut(addr),
            from.len(),
        )
    }
}

/// No check, and the arena's own copy.
pub struct OwnCopy;

impl Index for OwnCopy {
    fn new(_arena: &Arena, _areas: &[Range<usize>]) -> Self {
        Self
    }

    #[inline(always)]
    fn copy_to(&self, _arena: &Arena, addr: usize, to: &mut [u8]) -> bool {
        // SAFETY: each connection's area lives as long as its threads.
        unsafe {
            stillpoint_vmap::lab::copy(
                to.as_mut_ptr(),
                std::ptr::with_exposed_provenance(addr),
                to.len(),
            )
        };
        true
    }

    #[inline(always)]
    fn copy_from(&self, _arena: &Arena, addr: usize, from: &[u8]) -> bool {
        // SAFETY: as above.
        unsafe {
            stillpoint_vmap::lab::copy(
                std::ptr::with_exposed_provenance_mut(addr),
                from.as_ptr(),
                from.len(),
            )
        };
        true
    }
}

/// Checks a range by the arena, in a section, and copies it out.
#[inline(always)]
fn checked_copy_to(arena: &Arena, addr: usize, to: &mut [u8], guard: &Guard<'_>) -> bool {
    let checked = arena.check(addr, to.len(), guard);
    checked.map(|checked| checked.copy_to(to)).is_ok()
}

/// Checks a range by the arena, in a section, and copies into it.
#[inline(always)]
fn checked_copy_from(arena: &Arena, addr: usize, from: &[u8], guard: &Guard<'_>) -> bool {
    let checked = arena.check(addr, from.len(), guard);
    checked.map(|checked| checked.copy_from(from)).is_ok()
}

/// The arena's own look-up.
pub struct Rcu(Arena);

impl Index for Rcu {
    fn new(arena: &Arena, _areas: &[Range<usize>]) -> Self {
        Self(arena.clone())
    }

    #[inline(always)]
    fn find(&self, addr: usize) -> Option<(usize, usize)> {
        let guard = stillpoint::read_lock();
        self.0
            .find(addr, &guard)
            .map(|found| (found.addr(), found.len()))
    }

    #[inline(always)]
    fn check(&self, addr: usize, len: usize) -> bool {
        let guard = stillpoint::read_lock();
        self.0.check(addr, len, &guard).is_ok()
    }

    #[inline(always)]
    fn copy_to(&self, arena: &Arena, addr: usize, to: &mut [u8]) -> bool {
        checked_copy_to(arena, addr, to, &stillpoint::read_lock())
    }

    #[inline(always)]
    fn copy_from(&self, arena: &Arena, addr: usize, from: &[u8]) -> bool {
        checked_copy_from(arena, addr, from, &stillpoint::read_lock())
    }
}

/// A check for each copy, but one section for all copies of a turn.
pub struct OneSection;

impl Index for OneSection {
    fn new(_arena: &Arena, _areas: &[Range<usize>]) -> Self {
        Self
    }

    #[inline(always)]
    fn serve(&self, arena: &Arena, turn: Turn<'_>) -> bool {
        let guard = stillpoint::read_lock();
        turn.each(
            |to, from| checked_copy_from(arena, to, from, &guard),
            |from, to| checked_copy_to(arena, from, to, &guard),
        )
    }
}

/// One section for all copies of a turn, and one look-up for both copies of a message, each of
/// which is compared with the area that was found.
pub struct FoundOnce;

impl Index for FoundOnce {
    fn new(_arena: &Arena, _areas: &[Range<usize>]) -> Self {
        Self
    }

    #[inline(always)]
    fn serve(&self, arena: &Arena, turn: Turn<'_>) -> bool {
        let guard = stillpoint::read_lock();
        turn.each_in(
            |ring| arena.find(ring, &guard),
            |area, bytes, from| {
                area.get(bytes)
                    .map(|checked| checked.copy_from(from))
                    .is_some()
            },
            |area, bytes, to| area.get(bytes).map(|checked| checked.copy_to(to)).is_some(),
        )
    }
}

/// No check, and `memcpy`.
pub struct Unchecked;

impl Index for Unchecked {
    fn new(_arena: &Arena, _areas: &[Range<usize>]) -> Self {
        Self
    }
}

/// The limit: start and length of the area of each page in an array.
pub struct Flat {
    first: usize,
    pages: Vec<(usize, usize)>,
}

impl Index for Flat {
    fn new(_arena: &Arena, areas: &[Range<usize>]) -> Self {
        let first = areas.iter().map(|area| area.start).min().unwrap_or(0) >> 12;
        let end = areas.iter().map(|area| area.end).max().unwrap_or(0);
        let last = end.div_ceil(4096);
        let mut pages = vec![(0, 0); last - first];
        for area in areas {
            (area.start >> 12..area.end.div_ceil(4096))
                .for_each(|page| pages[page - first] = (area.start, area.len()));
        }
        Self { first, pages }
    }

    #[inline(always)]
    fn find(&self, addr: usize) -> Option<(usize, usize)> {
        let (start, len) = *self.pages.get((addr >> 12).wrapping_sub(self.first))?;
        (addr.wrapping_sub(start) < len).then_some((start, len))
    }
}

/// No check, but a section for each look-up in the limit's array, and for each copy by the arena's
/// own instructions: what [`Rcu`] costs at least.
pub struct SectionAlone(Flat);

impl Index for SectionAlone {
    fn new(arena: &Arena, areas: &[Range<usize>]) -> Self {
        Self(Flat::new(arena, areas))
    }

    #[inline(always)]
    fn find(&self, addr: usize) -> Option<(usize, usize)> {
        let _guard = stillpoint::read_lock();
        self.0.find(addr)
    }

    #[inline(always)]
    fn copy_to(&self, arena: &Arena, addr: usize, to: &mut [u8]) -> bool {
        let _guard = stillpoint::read_lock();
        OwnCopy.copy_to(arena, addr, to)
    }

    #[inline(always)]
    fn copy_from(&self, arena: &Arena, addr: usize, from: &[u8]) -> bool {
        let _guard = stillpoint::read_lock();
        OwnCopy.copy_from(arena, addr, from)
    }
}

/// A lock around a tree.
pub trait Locked: From<Tree> + Sync {
    /// Reads the tree under the lock.
    fn read<R>(&self, read: impl FnOnce(&Tree) -> R) -> R;
}

impl Locked for RwLock<Tree> {
    #[inline(always)]
    fn read<R>(&self, read: impl FnOnce(&Tree) -> R) -> R {
        read(&Self::read(self).unwrap_or_else(PoisonError::into_inner))
    }
}

impl Locked for spin::Mutex<Tree> {
    #[inline(always)]
    fn read<R>(&self, read: impl FnOnce(&Tree) -> R) -> R {
        read(&self.lock())
    }
}

impl Locked for parking_lot::Mutex<Tree> {
    #[inline(always)]
    fn read<R>(&self, read: impl FnOnce(&Tree) -> R) -> R {
        read(&self.lock())
    }
}

#[inline(always)]
fn find_in(tree: &Tree, addr: usize) -> Option<(usize, usize)> {
    let (&start, &len) = tree.range(..=addr).next_back()?;
    (addr - start < len).then_some((start, len))
}

fn tree_of<'a>(areas: impl Iterator<Item = &'a Range<usize>>) -> Tree {
    areas.map(|area| (area.start, area.len())).collect()
}

/// One tree under one lock: the kernel before its nodes.
pub struct Global<L>(L);

impl<L: Locked> Index for Global<L> {
    fn new(_arena: &Arena, areas: &[Range<usize>]) -> Self {
        Self(tree_of(areas.iter()).into())
    }

    #[inline(always)]
    fn find(&self, addr: usize) -> Option<(usize, usize)> {
        self.0.read(|tree| find_in(tree, addr))
    }
}

/// The same with the standard library's lock for readers.
pub type StdTree = Global<RwLock<Tree>>;

/// A tree and a lock a node, as many as CPUs; zones of 16 pages in turn, and a search that goes on
/// where an area began in another zone: the kernel with its nodes.
pub struct Nodes<L>(Vec<L>);

const ZONE: usize = 16 * 4096;

impl<L: Locked> Index for Nodes<L> {
    fn new(_arena: &Arena, areas: &[Range<usize>]) -> Self {
        let nodes = thread::available_parallelism()
            .map_or(1, usize::from)
            .clamp(1, 128);
        let is_in = |area: &&Range<usize>, node| area.start / ZONE % nodes == node;
        let of_node = |node| tree_of(areas.iter().filter(|area| is_in(area, node)));
        Self((0..nodes).map(|node| of_node(node).into()).collect())
    }

    #[inline(always)]
    fn find(&self, addr: usize) -> Option<(usize, usize)> {
        let (nodes, first) = (self.0.len(), addr / ZONE);
        // Backwards: an area that spans zones begins in a lower one.
        (0..nodes).find_map(|step| {
            self.0[(first + nodes - step) % nodes].read(|tree| find_in(tree, addr))
        })
    }
}
