//! Nodes: leaves and inner nodes.
//!
//! A node's range of keys stays the same from its first publication until the last reader has left it. Only a
//! caller that is alone with the tree ([`super::exclusive`]) changes it.
//! What would change a range replaces the nodes by others, and they are dead then. So a thread that
//! has found a node may go on there, whatever others do, and finds what was in the range when the
//! node died, at the least.

use super::{
    gate::{Gate, Locked},
    order::{Order, SLOTS},
    search::Hints,
};
use crate::{memory::prefetch, section::Live, slab::UsedSlot};
use std::{
    marker::PhantomData,
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

/// An entry for a tree, which is complete.
#[derive(Debug)]
pub struct Offer(Item);

impl Offer {
    /// # Safety
    ///
    /// The entry is of the types of the tree that gets it, complete, and in no tree. Once it is in, it stays until it
    /// has been taken out and readers have left.
    #[inline(always)]
    pub unsafe fn of(item: Item) -> Self {
        Self(item)
    }

    /// Returns the entry, and its hint.
    pub fn item(&self) -> Item {
        self.0
    }
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
                AtomicU64::new(items.get(slot).unwrap_or(&Item::NONE).hint)
            }),
            entries: std::array::from_fn(|slot| {
                AtomicPtr::new(items.get(slot).unwrap_or(&Item::NONE).entry.as_ptr())
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
        // SAFETY: made of what is not null, also in a slot that is not filled.
        unsafe { NonNull::new_unchecked(entry.map_addr(|address| address & !FROZEN)) }
    }

    /// Locks the leaf. Returns `None` if it is dead.
    pub fn lock(&self) -> Option<LockedLeaf<'_>> {
        let lock = self.gate.lock();
        (!self.gate.is_dead()).then_some(LockedLeaf { leaf: self, lock })
    }

    /// Replaces an entry, also without the lock.
    ///
    /// # Errors
    ///
    /// `new`, if another entry is there, or if the slot is frozen.
    #[inline]
    pub fn replace(&self, slot: usize, old: NonNull<Head>, new: Offer) -> Result<(), Offer> {
        self.exchange(slot, old.as_ptr(), new)
    }

    #[inline(always)]
    fn exchange(&self, slot: usize, old: *mut Head, new: Offer) -> Result<(), Offer> {
        let entry = new.0.entry.as_ptr();
        // Release, pairs with `entry`: it is complete. `fence_change` comes behind it.
        self.entries[slot]
            .compare_exchange(old, entry, Ordering::Release, Ordering::Relaxed)
            .map_or(Err(new), |_| Ok(()))
    }

    /// Stands for a free in a model: puts another entry into a slot.
    #[cfg(all(test, stillpoint_loom))]
    pub fn overwrite(&self, slot: usize, entry: NonNull<Head>) {
        self.entries[slot].store(entry.as_ptr(), Ordering::Release);
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

/// A leaf that is alive, and whose lock is held.
#[derive(Debug)]
pub struct LockedLeaf<'t> {
    leaf: &'t Leaf,
    lock: Locked<'t>,
}

impl LockedLeaf<'_> {
    /// Puts an entry in a slot that was never used, at that place of the order. If the thread vanishes in the
    /// middle, the slot is lost until the leaf is replaced.
    pub fn put(&self, at: usize, Offer(item): Offer) {
        let (leaf, order) = (self.leaf, self.leaf.order());
        assert!(at <= order.len());
        let slot = self.lock.use_another();
        leaf.hints[slot].store(item.hint, Ordering::Relaxed);
        leaf.entries[slot].store(item.entry.as_ptr(), Ordering::Relaxed);
        leaf.set_order(order.with(at, slot));
    }

    /// Replaces an entry, also if its slot is frozen. Otherwise as [`Leaf::replace`].
    ///
    /// # Errors
    ///
    /// `new`, if another entry is there.
    pub fn replace(&self, slot: usize, old: NonNull<Head>, new: Offer) -> Result<(), Offer> {
        self.leaf
            .exchange(slot, frozen(old), new)
            .or_else(|new| self.leaf.exchange(slot, old.as_ptr(), new))
    }

    /// Takes an entry out; its slot is not used again.
    pub fn take(&self, at: usize) {
        let order = self.leaf.order();
        assert!(at < order.len());
        self.leaf.set_order(order.without(at));
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
    children: [Hook; KEYS + 1],
}

impl Inner {
    /// Of one more child than fences.
    ///
    /// # Safety
    ///
    /// Children stay as [`Hook::set`] says, and fences until no reader finds the node.
    pub unsafe fn new(fences: &[Fence], children: &[Link]) -> Self {
        assert!(fences.len() <= KEYS && children.len() == fences.len() + 1);
        Self {
            gate: Gate::new(0),
            len: fences.len(),
            hints: std::array::from_fn(|at| fences.get(at).map_or(0, |fence| fence.hint)),
            entries: std::array::from_fn(|at| {
                fences.get(at).map_or(ptr::null_mut(), |fence| fence.entry)
            }),
            children: std::array::from_fn(|at| {
                // SAFETY: the caller's promise; what leads nowhere is behind `len`.
                unsafe { Hook::of(children.get(at).copied().unwrap_or(Link::NONE)) }
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

    /// Where the child of that number hangs, up to [`len`](Self::len).
    #[inline(always)]
    pub fn hook(&self, at: usize) -> &Hook {
        assert!(at <= self.len);
        // SAFETY: there are at most `KEYS` fences.
        unsafe { self.children.get_unchecked(at) }
    }

    /// Replaces a fence, for a caller that is alone with the tree.
    ///
    /// # Safety
    ///
    /// It stays until no reader finds the node.
    pub unsafe fn set_fence(&mut self, at: usize, fence: Fence) {
        (self.hints[at], self.entries[at]) = (fence.hint, fence.entry);
    }

    /// Removes a child, which is not the only one, with the fence before it (of the first child: the fence
    /// behind it). Returns the fence. For a caller that is alone with the tree.
    pub fn take_child(&mut self, at: usize) -> Fence {
        let (taken, len) = (at.saturating_sub(1), self.len);
        let fence = self.fence(taken);
        self.hints.copy_within(taken + 1..len, taken);
        self.entries.copy_within(taken + 1..len, taken);
        self.children[at..=len].rotate_left(1);
        self.len -= 1;
        fence
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

impl<'t> Live<'t, Inner> {
    /// Returns the child of that number, up to [`len`](Inner::len).
    #[inline(always)]
    pub fn child(self, at: usize) -> Node<'t> {
        // SAFETY: a child of a node that was found is freed no sooner than that, by the promises of `Hook::of` and `Hook::set`.
        unsafe { Node::of(self.hook(at).link()) }
    }
}

/// Where a node hangs in a tree: in the place of the root, or of a child.
#[derive(Debug)]
#[repr(transparent)]
pub struct Hook(AtomicPtr<()>);

impl Hook {
    /// # Safety
    ///
    /// As for [`set`](Self::set); or it leads nowhere, and no thread follows it.
    pub unsafe fn of(node: Link) -> Self {
        Self(AtomicPtr::new(node.0))
    }

    #[inline(always)]
    pub fn link(&self) -> Link {
        // Acquire, pairs with `set`: the node is complete.
        Link(self.0.load(Ordering::Acquire))
    }

    /// Replaces the node. Under the lock.
    ///
    /// # Safety
    ///
    /// The new node and those below are complete. Each is freed when it has left the tree, and readers have
    /// left it.
    pub unsafe fn set(&self, node: Link) {
        // Release, pairs with `link`: the node is complete.
        self.0.store(node.0, Ordering::Release);
    }
}

/// What leads to a node: its address, whose lowest bit says which kind it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link(*mut ());

impl Link {
    /// What leads nowhere.
    pub const NONE: Self = Self(ptr::null_mut());

    pub fn leaf(leaf: NonNull<Leaf>) -> Self {
        let leaf = leaf.as_ptr().cast::<()>();
        Self(leaf.map_addr(|address| address | LEAF))
    }

    pub fn inner(inner: NonNull<Inner>) -> Self {
        Self(inner.as_ptr().cast())
    }
}

/// A node that was found, in a section that lasts for `'t`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Node<'t> {
    link: Link,
    found: PhantomData<Kind<'t>>,
}

/// What a node is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind<'t> {
    Leaf(Live<'t, Leaf>),
    Inner(Live<'t, Inner>),
}

const LEAF: usize = 1;

impl<'t> Node<'t> {
    /// # Safety
    ///
    /// It leads to a node, which stays for as long as `'t`, as [`Live`] says.
    #[inline(always)]
    pub unsafe fn of(link: Link) -> Self {
        Self {
            link,
            found: PhantomData,
        }
    }

    pub fn leaf(leaf: Live<'t, Leaf>) -> Self {
        // SAFETY: it stays for as long.
        unsafe { Self::of(Link::leaf(leaf.pointer())) }
    }

    pub fn inner(inner: Live<'t, Inner>) -> Self {
        // SAFETY: it stays for as long.
        unsafe { Self::of(Link::inner(inner.pointer())) }
    }

    pub fn link(self) -> Link {
        self.link
    }

    #[inline(always)]
    pub fn kind(self) -> Kind<'t> {
        let start = self.link.0.map_addr(|address| address & !LEAF);
        // SAFETY: that of `of`.
        unsafe {
            let start = NonNull::new_unchecked(start);
            if self.link.0.addr() & LEAF == 0 {
                Kind::Inner(Live::of(start.cast()))
            } else {
                Kind::Leaf(Live::of(start.cast()))
            }
        }
    }

    pub fn gate(self) -> &'t Gate {
        match self.kind() {
            Kind::Leaf(leaf) => &leaf.get().gate,
            Kind::Inner(inner) => &inner.get().gate,
        }
    }

    /// # Safety
    ///
    /// No other thread uses it, nor does the caller any more. It is a box, or lies in a slab and says so.
    pub unsafe fn free(self) {
        let is_in_slab = self.gate().is_in_slab();
        // SAFETY: from an arena, or allocated as a box is; the caller's promise.
        unsafe {
            match self.kind() {
                Kind::Leaf(leaf) if is_in_slab => UsedSlot::of(leaf.pointer().cast()).free(),
                Kind::Leaf(leaf) => drop(Box::from_raw(leaf.pointer().as_ptr())),
                Kind::Inner(inner) if is_in_slab => UsedSlot::of(inner.pointer().cast()).free(),
                Kind::Inner(inner) => drop(Box::from_raw(inner.pointer().as_ptr())),
            }
        }
    }
}
