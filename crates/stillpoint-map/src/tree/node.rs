//! Nodes: leaves and inner nodes.
//!
//! A node's range of keys never changes, from its first publication to the last reader that has it; but for a
//! caller that is alone with the tree ([`super::exclusive`]).
//! What would change a range replaces the nodes by others, and they are dead then. So a thread that
//! has found a node may go on there, whatever others do, and finds what was in the range when the
//! node died, at the least.

use super::{
    gate::Gate,
    order::{Order, SLOTS},
    search::Hints,
};
use crate::{memory::prefetch, section::Live, slab::Arena};
use std::{
    alloc::Layout,
    ptr::{self, NonNull},
};
use stillpoint_platform::sync::{AtomicPtr, AtomicU64, Ordering};

/// Separators of an inner node.
pub const KEYS: usize = if cfg!(stillpoint_loom) { 2 } else { 31 };

/// The beginning of each entry: all that nodes know of it. The lowest bit of its address is
/// [`FROZEN`]'s.
#[derive(Debug)]
#[repr(C)]
pub struct Head {
    /// Where its memory is from, and which parts of it have been dropped.
    pub state: std::sync::atomic::AtomicU32,
}

/// An entry and its key's hint, for a leaf that is made.
#[derive(Clone, Copy, Debug)]
pub struct Item {
    pub hint: u64,
    pub entry: NonNull<Head>,
}

impl Item {
    /// What is in no leaf.
    pub const NONE: Self = Self {
        hint: 0,
        entry: NonNull::dangling(),
    };
}

/// What separates two children of an inner node: the keys before are less, those behind are not.
#[derive(Clone, Copy, Debug)]
pub struct Fence {
    pub hint: u64,
    /// An entry with that key, which may no longer be in the map; null if the hint tells the key.
    pub entry: *mut Head,
}

/// The bit of a slot's pointer that says: only the holder of the leaf's lock replaces this entry. An
/// entry is replaced without the lock; what takes it out, or copies the leaf, freezes the slot before.
/// It stays frozen if the copy is not published after all: then the next replacement takes the lock.
const FROZEN: usize = 1;

const _: () = assert!(align_of::<Head>() > FROZEN);

/// A node with entries. A slot is filled once, and its entry may be replaced.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Leaf {
    order: AtomicU64,
    pub gate: Gate,
    hints: [AtomicU64; SLOTS],
    entries: [AtomicPtr<Head>; SLOTS],
    /// The fence before the first key; null for the first leaf, and if hints tell keys.
    pub lower: *mut Head,
}

#[cfg(not(stillpoint_loom))]
const _: () = assert!(size_of::<Leaf>() == 256);

impl Leaf {
    pub fn new(lower: *mut Head, items: &[Item]) -> Self {
        Self {
            order: AtomicU64::new(Order::first(items.len()).bits()),
            gate: Gate::new(items.len()),
            hints: std::array::from_fn(|slot| {
                AtomicU64::new(items.get(slot).map_or(0, |item| item.hint))
            }),
            entries: std::array::from_fn(|slot| {
                let item = items.get(slot);
                AtomicPtr::new(item.map_or(ptr::null_mut(), |item| item.entry.as_ptr()))
            }),
            lower,
        }
    }

    #[inline(always)]
    pub fn order(&self) -> Order {
        // Acquire, pairs with `set_order`: the slots in it are filled.
        Order::from_bits(self.order.load(Ordering::Acquire))
    }

    fn set_order(&self, order: Order) {
        // Release, pairs with `order`: the slots in it are filled.
        self.order.store(order.bits(), Ordering::Release);
    }

    /// The hint of a slot that an order has.
    #[inline(always)]
    pub fn hint(&self, slot: usize) -> u64 {
        self.hints[slot].load(Ordering::Relaxed)
    }

    /// The entry of a slot that an order has.
    #[inline(always)]
    pub fn entry(&self, slot: usize) -> NonNull<Head> {
        // Acquire, pairs with `replace`: the entry is complete.
        let entry = self.entries[slot].load(Ordering::Acquire);
        let entry = entry.map_addr(|address| address & !FROZEN);
        if cfg!(any(debug_assertions, stillpoint_loom)) {
            assert!(!entry.is_null(), "an order has a slot that is not filled");
        }
        // SAFETY: an order has the slot, so it was filled before (`put`), and is never emptied.
        unsafe { NonNull::new_unchecked(entry) }
    }

    /// Puts an entry in a slot that was never used, at that place of the order. Under the lock.
    /// If the thread vanishes in the middle, the slot is lost until the leaf is replaced.
    pub fn put(&self, at: usize, item: Item) {
        let slot = self.gate.used();
        self.gate.use_another();
        self.hints[slot].store(item.hint, Ordering::Relaxed);
        self.entries[slot].store(item.entry.as_ptr(), Ordering::Relaxed);
        self.set_order(self.order().with(at, slot));
    }

    /// Replaces an entry, also without the lock. Returns false if another one is there, or if the
    /// slot is frozen.
    #[inline]
    pub fn replace(&self, slot: usize, old: NonNull<Head>, new: NonNull<Head>) -> bool {
        self.exchange(slot, old.as_ptr(), new)
    }

    /// The same, of a slot that is frozen or not. Under the lock, of a leaf that is alive.
    pub fn replace_locked(&self, slot: usize, old: NonNull<Head>, new: NonNull<Head>) -> bool {
        self.exchange(slot, frozen(old), new) || self.exchange(slot, old.as_ptr(), new)
    }

    #[inline(always)]
    fn exchange(&self, slot: usize, old: *mut Head, new: NonNull<Head>) -> bool {
        // Release, pairs with `entry`: it is complete. `fence_change` comes behind it.
        self.entries[slot]
            .compare_exchange(old, new.as_ptr(), Ordering::Release, Ordering::Relaxed)
            .is_ok()
    }

    /// Freezes a slot that has this entry. Returns false if it has another one. Under the lock.
    pub fn freeze(&self, slot: usize, entry: NonNull<Head>) -> bool {
        let frozen = frozen(entry);
        // Relaxed: of this and a replacement one comes first, and the other one fails.
        match self.entries[slot].compare_exchange(
            entry.as_ptr(),
            frozen,
            Ordering::Relaxed,
            Ordering::Relaxed,
        ) {
            Ok(_) => true,
            Err(seen) => seen == frozen,
        }
    }

    /// Freezes all slots that have entries, before they are copied. Under the lock.
    pub fn freeze_all(&self) {
        for slot in self.order().slots() {
            // Fails if another thread has replaced it just now.
            while !self.freeze(slot, self.entry(slot)) {}
        }
    }

    /// Takes an entry out; its slot is not used again. Under the lock.
    pub fn take(&self, at: usize) {
        self.set_order(self.order().without(at));
    }

    /// Its entries in order. Under the lock and frozen, or alone with it.
    pub fn items(&self) -> impl Iterator<Item = Item> + '_ {
        let item = |slot| Item {
            hint: self.hint(slot),
            entry: self.entry(slot),
        };
        self.order().slots().map(item)
    }

    /// Whether its fence is the key of an entry that is in it no longer. Under the lock and frozen,
    /// or alone with it.
    pub fn has_old_fence(&self) -> bool {
        !self.lower.is_null() && !self.items().any(|item| item.entry.as_ptr() == self.lower)
    }
}

fn frozen(entry: NonNull<Head>) -> *mut Head {
    entry.as_ptr().map_addr(|address| address | FROZEN)
}

/// A node with children. Its fences stay; a child may be replaced by another one of the same range.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Inner {
    pub gate: Gate,
    /// How many fences there are: one less than children.
    len: usize,
    hints: [u64; KEYS],
    entries: [*mut Head; KEYS],
    children: [AtomicPtr<()>; KEYS + 1],
}

impl Inner {
    /// Of one more child than fences.
    pub fn new(fences: &[Fence], children: &[Node]) -> Self {
        debug_assert_eq!(fences.len() + 1, children.len());
        Self {
            gate: Gate::new(0),
            len: fences.len(),
            hints: std::array::from_fn(|at| fences.get(at).map_or(0, |fence| fence.hint)),
            entries: std::array::from_fn(|at| {
                fences.get(at).map_or(ptr::null_mut(), |fence| fence.entry)
            }),
            children: std::array::from_fn(|at| {
                AtomicPtr::new(children.get(at).map_or(ptr::null_mut(), |child| child.0))
            }),
        }
    }

    /// How many fences there are.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Has the lines read that are read on the way through the node, at once and not one after the
    /// other.
    #[inline(always)]
    pub fn prefetch(&self, hints: Hints) {
        if hints == Hints::Nothing {
            prefetch_all(&self.entries);
        } else {
            prefetch_all(&self.hints);
        }
        prefetch_all(&self.children);
    }

    #[inline(always)]
    pub fn hints(&self) -> &[u64] {
        &self.hints[..self.len]
    }

    #[inline(always)]
    pub fn fence(&self, at: usize) -> Fence {
        Fence {
            hint: self.hints[at],
            entry: self.entries[at],
        }
    }

    /// The child of that number, up to [`len`](Self::len).
    #[inline(always)]
    pub fn child(&self, at: usize) -> Node {
        debug_assert!(at <= self.len);
        // Acquire, pairs with `set_child`: it is complete.
        Node(self.children[at].load(Ordering::Acquire))
    }

    /// Replaces a fence, for a caller that is alone with the tree.
    pub fn set_fence(&mut self, at: usize, fence: Fence) {
        (self.hints[at], self.entries[at]) = (fence.hint, fence.entry);
    }

    /// Removes a child, which is not the only one, with the fence before it (of the first child: the fence
    /// behind it). Returns the fence. For a caller that is alone with the tree.
    pub fn take_child(&mut self, at: usize) -> Fence {
        let (taken, len) = (at.saturating_sub(1), self.len);
        let fence = self.fence(taken);
        self.hints.copy_within(taken + 1..len, taken);
        self.entries.copy_within(taken + 1..len, taken);
        for at in at..len {
            self.set_child(at, self.child(at + 1));
        }
        self.len -= 1;
        fence
    }

    /// Replaces a child. Under the lock.
    pub fn set_child(&self, at: usize, child: Node) {
        // Release, pairs with `child`: it is complete.
        self.children[at].store(child.0, Ordering::Release);
    }
}

/// All lines of it; but perhaps the last one, if it does not begin a line.
#[inline(always)]
pub fn prefetch_all<T>(what: &T) {
    let start = ptr::from_ref(what).cast::<u8>();
    for line in 0..size_of::<T>().div_ceil(64) {
        prefetch(start.wrapping_add(64 * line));
    }
}

/// A node: the lowest bit of its address says which kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Node(pub *mut ());

/// What a node is.
#[derive(Debug)]
pub enum Kind<'t> {
    Leaf(Live<'t, Leaf>),
    Inner(Live<'t, Inner>),
}

const LEAF: usize = 1;

impl Node {
    pub fn leaf(leaf: NonNull<Leaf>) -> Self {
        Self(
            leaf.as_ptr()
                .cast::<()>()
                .map_addr(|address| address | LEAF),
        )
    }

    pub fn inner(inner: NonNull<Inner>) -> Self {
        Self(inner.as_ptr().cast())
    }

    /// The leaf's or the inner node's address, as it was allocated.
    #[inline(always)]
    pub fn pointer(self) -> Result<NonNull<Leaf>, NonNull<Inner>> {
        let start = self.0.map_addr(|address| address & !LEAF);
        // SAFETY: made of what is not null.
        unsafe {
            if self.0.addr() & LEAF == 0 {
                Err(NonNull::new_unchecked(start.cast()))
            } else {
                Ok(NonNull::new_unchecked(start.cast()))
            }
        }
    }

    /// # Safety
    ///
    /// It was found from the root, in a section of the tree's domain that lasts for `'t`, or the
    /// caller is alone with it for so long.
    #[inline(always)]
    pub unsafe fn kind<'t>(self) -> Kind<'t> {
        // SAFETY: the caller's promise: a node that was found is freed after the section.
        unsafe {
            match self.pointer() {
                Ok(leaf) => Kind::Leaf(Live::of(leaf)),
                Err(inner) => Kind::Inner(Live::of(inner)),
            }
        }
    }

    /// # Safety
    ///
    /// As for [`Node::kind`].
    pub unsafe fn gate<'t>(self) -> &'t Gate {
        // SAFETY: the caller's promise.
        match unsafe { self.kind() } {
            Kind::Leaf(leaf) => &leaf.get().gate,
            Kind::Inner(inner) => &inner.get().gate,
        }
    }

    /// # Safety
    ///
    /// No other thread uses it, nor does the caller any more.
    pub unsafe fn free(self) {
        // SAFETY: from an arena, or from `room`, which allocates as a box does; the caller's promise.
        unsafe {
            match self.pointer() {
                Ok(leaf) if (*leaf.as_ptr()).gate.is_in_slab() => Arena::free(leaf.cast()),
                Ok(leaf) => drop(Box::from_raw(leaf.as_ptr())),
                Err(inner) if (*inner.as_ptr()).gate.is_in_slab() => Arena::free(inner.cast()),
                Err(inner) => drop(Box::from_raw(inner.as_ptr())),
            }
        }
    }
}

/// Memory for a node, as a box's; `None` without memory.
pub fn room<T>() -> Option<NonNull<T>> {
    // SAFETY: nodes are not of size 0.
    NonNull::new(unsafe { std::alloc::alloc(Layout::new::<T>()) }.cast())
}

/// Gives back [`room`] in which no node was made.
///
/// # Safety
///
/// It is from there, and not used any more.
pub unsafe fn give_back<T>(room: NonNull<T>) {
    // SAFETY: the caller's promise.
    unsafe { std::alloc::dealloc(room.as_ptr().cast(), Layout::new::<T>()) };
}
