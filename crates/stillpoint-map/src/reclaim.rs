//! Where a map's domain takes what is no longer used, until readers have left.

use crate::{
    bucket::Bucket,
    core::Reclaim,
    table::{Kind, Table},
};
use std::{
    alloc::{Layout, dealloc},
    cell::RefCell,
    ptr::NonNull,
};
use stillpoint::{Domain, global, internal::try_call};

/// What a domain reclaims; `None`: the global one, which is looked up where something is retired.
pub struct To<'d>(pub Option<&'d Domain>);

impl To<'_> {
    fn domain(&self) -> &Domain {
        self.0.unwrap_or_else(|| global())
    }
}

impl Reclaim for To<'_> {
    fn bucket(&self, bucket: NonNull<Bucket>) {
        // SAFETY: made of a box; it has left its chain, or that has moved, so that no reader from now on
        // finds it.
        unsafe {
            self.domain()
                .retire_sized(bucket.cast(), Layout::new::<Bucket>())
        };
    }

    fn table(&self, table: Table<'_>) {
        // SAFETY: no reader from now on finds the table.
        unsafe { retire_table(self.domain(), table) };
    }
}

/// Frees a table after a grace period.
///
/// # Safety
///
/// No reader from now on finds it, and its chains have been retired.
pub unsafe fn retire_table<S: Kind + 'static>(domain: &Domain, table: Table<'_, S>) {
    if let Some((block, layout)) = table.as_block() {
        // SAFETY: allocated with that layout; the caller's promise.
        unsafe { domain.retire_sized(block, layout) };
    } else {
        // SAFETY: the caller's promise.
        unsafe { free_table_later(domain, table) };
    }
}

/// Frees a table by a callback: a large block would count against the budget. Without memory for the
/// callback the table is never freed: readers may still be in it.
///
/// # Safety
///
/// As for [`retire_table`].
pub unsafe fn free_table_later<S: Kind + 'static>(domain: &Domain, table: Table<'_, S>) {
    struct Old<S: Kind + 'static>(Table<'static, S>);
    // SAFETY: an address; after a grace period no other thread uses the table.
    unsafe impl<S: Kind> Send for Old<S> {}
    // SAFETY: it is not used before the grace period has ended.
    let table = Old(unsafe { table.forget_lifetime() });
    try_call(domain, move || {
        let table = table;
        // SAFETY: the grace period has ended.
        unsafe { table.0.free_memory() };
    });
}

/// What a domain reclaims for its own service thread, which must not run user code in a slice, as a retire
/// may: a destructor may drop the map, which waits for the slice. One callback frees all that a slice has
/// left.
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

    /// Frees a block after a grace period.
    ///
    /// # Safety
    ///
    /// Allocated with that layout; no reader from now on finds it. What is in it needs no drop.
    pub unsafe fn block(&self, block: NonNull<u8>, layout: Layout) {
        let block = Block(block, layout);
        let mut blocks = self.blocks.borrow_mut();
        if blocks.try_reserve(1).is_ok() {
            blocks.push(block);
        } else {
            free_later(self.domain, [block]);
        }
    }
}

impl Reclaim for Later<'_> {
    fn bucket(&self, bucket: NonNull<Bucket>) {
        // SAFETY: made of a box; it has left its chain, or that has moved.
        unsafe { self.block(bucket.cast(), Layout::new::<Bucket>()) };
    }

    fn table(&self, table: Table<'_>) {
        // SAFETY: no reader from now on finds the table.
        unsafe { free_table_later(self.domain, table) };
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
