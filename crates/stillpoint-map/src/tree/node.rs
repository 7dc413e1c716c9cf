//! Nodes: leaves, inner nodes, and what both have, a lock and whether they are dead.
//!
//! A node's range of keys never changes, from its first publication to the last reader that has it.
//! What would change a range replaces the nodes by others, and they are dead then. So a thread that
//! has found a node may go on there, whatever others do, and finds what was in the range when the
//! node died, at the least.

use super::order::{Order, SLOTS};
use crate::backoff::Backoff;
use std::{
    alloc::Layout,
    marker::PhantomData,
    ops::Deref,
    ptr::{self, NonNull},
};
use stillpoint_platform::{
    fork,
    memory::try_alloc,
    sync::{AtomicPtr, AtomicU32, AtomicU64, Ordering},
};

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

/// Which process holds a lock: not 0.
fn mine() -> u32 {
    1 + (fork::process().generation() % u64::from(u32::MAX)) as u32
}

/// A node's lock, and what is only changed under it.
#[derive(Debug)]
pub struct Gate {
    /// 0, or the process of the thread that holds it: one that a fork has removed is known by that.
    lock: AtomicU32,
    /// Whether the node is dead, and how many slots of a leaf have been used.
    state: AtomicU32,
}

const DEAD: u32 = 1 << 31;

impl Gate {
    pub fn new(used: usize) -> Self {
        Self {
            lock: AtomicU32::new(0),
            state: AtomicU32::new(used as u32),
        }
    }

    /// Locks it. A thread locks nodes below before those above, and left ones before right ones.
    ///
    /// A holder that a fork has removed has published its change, or none of it: what it has not
    /// marked as dead is not found from the root, and threads that have found it before the fork
    /// look again ([`super::change`]).
    pub fn lock(&self) {
        let mine = mine();
        let mut backoff = Backoff::new();
        let mut seen = 0;
        while let Err(holder) =
            // Acquire, pairs with `unlock`: what the last holder has done.
            self.lock
                    .compare_exchange(seen, mine, Ordering::Acquire, Ordering::Relaxed)
        {
            if holder == mine {
                backoff.wait();
                seen = 0;
            } else {
                seen = holder;
            }
        }
    }

    /// Locks it until the result is dropped.
    pub fn locked(&self) -> Locked<'_> {
        self.lock();
        Locked(self)
    }

    pub fn unlock(&self) {
        // Release, pairs with `lock`: what this thread has done.
        self.lock.store(0, Ordering::Release);
    }

    /// Whether the node has been replaced. Under the lock.
    pub fn is_dead(&self) -> bool {
        self.state.load(Ordering::Relaxed) & DEAD != 0
    }

    /// Under the lock.
    pub fn kill(&self) {
        let state = self.state.load(Ordering::Relaxed);
        self.state.store(state | DEAD, Ordering::Relaxed);
    }

    /// How many slots have been used. Under the lock.
    pub fn used(&self) -> usize {
        (self.state.load(Ordering::Relaxed) & !DEAD) as usize
    }

    fn use_another(&self) {
        let state = self.state.load(Ordering::Relaxed);
        self.state.store(state + 1, Ordering::Relaxed);
    }
}

/// A lock that is held.
#[derive(Debug)]
pub struct Locked<'t>(&'t Gate);

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.0.unlock();
    }
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

    /// Replaces a child. Under the lock.
    pub fn set_child(&self, at: usize, child: Node) {
        // Release, pairs with `child`: it is complete.
        self.children[at].store(child.0, Ordering::Release);
    }
}

/// A node: the lowest bit of its address says which kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Node(pub *mut ());

/// A node that was found, or the tree: its pointer, as it was allocated, valid for `'t`. A node is
/// retired by this pointer. A reference would not do: what is made of one may not free.
#[derive(Debug)]
pub struct Shared<'t, T> {
    pointer: NonNull<T>,
    lasts: PhantomData<&'t T>,
}

impl<T> Clone for Shared<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Shared<'_, T> {}

impl<'t, T> Shared<'t, T> {
    /// # Safety
    ///
    /// It is there for as long as `'t`, and is changed by atomics alone.
    #[inline(always)]
    pub unsafe fn of(pointer: NonNull<T>) -> Self {
        Self {
            pointer,
            lasts: PhantomData,
        }
    }

    /// As it was allocated.
    pub fn pointer(self) -> NonNull<T> {
        self.pointer
    }

    #[inline(always)]
    pub fn get(self) -> &'t T {
        // SAFETY: that of `of`.
        unsafe { self.pointer.as_ref() }
    }
}

impl<T> Deref for Shared<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        self.get()
    }
}

/// What a node is.
#[derive(Debug)]
pub enum Kind<'t> {
    Leaf(Shared<'t, Leaf>),
    Inner(Shared<'t, Inner>),
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
                Ok(leaf) => Kind::Leaf(Shared::of(leaf)),
                Err(inner) => Kind::Inner(Shared::of(inner)),
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
        // SAFETY: from `room`, which allocates as a box does; the caller's promise.
        unsafe {
            match self.pointer() {
                Ok(leaf) => drop(Box::from_raw(leaf.as_ptr())),
                Err(inner) => drop(Box::from_raw(inner.as_ptr())),
            }
        }
    }
}

/// Memory for a node, as a box's; `None` without memory.
pub fn room<T>() -> Option<NonNull<T>> {
    // SAFETY: nodes are not of size 0.
    NonNull::new(unsafe { try_alloc(Layout::new::<T>()) }.cast())
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
