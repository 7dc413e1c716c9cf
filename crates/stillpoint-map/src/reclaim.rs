//! Frees what a map no longer uses, once readers have left it.

use crate::{
    driver::{Driven, Shared},
    growth::World,
    table::{Kind, Old, OldTable},
};
use std::{
    alloc::{Layout, dealloc},
    cell::RefCell,
    ptr::NonNull,
};
use stillpoint::{Domain, internal::try_call};

/// A map in a section of its domain, which is the world of its changes.
///
/// # Safety
///
/// The domain is the map's, and so is what it shares with its callback, which is in an `Arc` that the map owns.
pub unsafe trait InDomain {
    type Core;

    fn domain(&self) -> &Domain;
    /// What it shares with its callback, if it has a table.
    fn shared(&self) -> Option<NonNull<Shared<Self::Core>>>;
}

impl<M: InDomain, S: Kind + 'static> World<S> for &M
where
    M::Core: Driven<Kind = S>,
{
    fn retire(self, old: S::Old) {
        let (block, layout) = old.block();
        // SAFETY: no reader from now on finds it, and it needs no drop.
        unsafe { self.domain().retire_sized(block, layout) };
    }

    fn retire_table(self, old: OldTable<S>) {
        match old.as_block() {
            // SAFETY: no reader from now on finds it.
            Some((block, layout)) => unsafe { self.domain().retire_sized(block, layout) },
            None => free_table_later(self.domain(), old),
        }
    }

    fn drive_later(self) {
        if let Some(shared) = self.shared() {
            // SAFETY: of an `Arc` that the map owns; the domain is the map's.
            unsafe { Shared::queue_driver(shared, self.domain()) };
        }
    }
}

/// Frees a table by a callback: a large block would count against the budget. Without memory for the
/// callback the table is never freed: readers may still be in it.
fn free_table_later<S: Kind + 'static>(domain: &Domain, old: OldTable<S>) {
    try_call(domain, move || {
        // SAFETY: the grace period has ended.
        unsafe { old.free() };
    });
}

/// The world of a map that the service thread moves. A slice must not run user code: a destructor may drop the
/// map, which waits for the slice. A retire may run some, so this collects what a slice leaves, and frees it by
/// one callback.
pub struct Later<'d> {
    pub domain: &'d Domain,
    blocks: RefCell<Vec<Block>>,
}

/// A block of the allocator's that no thread uses after a grace period.
struct Block(NonNull<u8>, Layout);

// SAFETY: an address.
unsafe impl Send for Block {}

impl<'d> Later<'d> {
    pub fn on(domain: &'d Domain) -> Self {
        Self {
            domain,
            blocks: RefCell::default(),
        }
    }
}

impl<S: Kind + 'static> World<S> for &Later<'_> {
    fn retire(self, old: S::Old) {
        let (block, layout) = old.block();
        let block = Block(block, layout);
        let mut blocks = self.blocks.borrow_mut();
        if blocks.try_reserve(1).is_ok() {
            blocks.push(block);
        } else {
            free_later(self.domain, [block]);
        }
    }

    fn retire_table(self, old: OldTable<S>) {
        free_table_later(self.domain, old);
    }

    fn drive_later(self) {
        // `Writer::drive` returns whether there is more.
    }
}

impl Drop for Later<'_> {
    fn drop(&mut self) {
        let blocks = self.blocks.take();
        if !blocks.is_empty() {
            free_later(self.domain, blocks);
        }
    }
}

/// Without memory for the callback they are never freed.
fn free_later(domain: &Domain, blocks: impl IntoIterator<Item = Block> + Send + 'static) {
    try_call(domain, move || {
        for Block(block, layout) in blocks {
            // SAFETY: allocated with that layout; the grace period has ended.
            unsafe { dealloc(block.as_ptr(), layout) };
        }
    });
}
