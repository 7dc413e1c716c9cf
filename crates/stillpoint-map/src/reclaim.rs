//! Where a map's domain takes what is no longer used, until readers have left.

use crate::{bucket::Bucket, core::Reclaim, table::Table};
use std::{alloc::Layout, cell::RefCell, ptr::NonNull};
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
        if let Some((block, layout)) = table.as_block() {
            // SAFETY: allocated with that layout; no reader from now on finds the table.
            unsafe { self.domain().retire_sized(block, layout) };
            return;
        }
        free_later(self.domain(), table);
    }
}

/// What a domain reclaims for its own service thread, which must not run user code meanwhile, as a
/// retire may: one callback for all that a slice has left.
pub struct Later<'d> {
    domain: &'d Domain,
    buckets: RefCell<Vec<Unused<Bucket>>>,
}

/// What no thread uses after a grace period.
struct Unused<T>(NonNull<T>);

// SAFETY: an address.
unsafe impl<T> Send for Unused<T> {}

impl<'d> Later<'d> {
    pub fn on(domain: &'d Domain) -> Self {
        Self {
            domain,
            buckets: RefCell::default(),
        }
    }
}

impl Reclaim for Later<'_> {
    fn bucket(&self, bucket: NonNull<Bucket>) {
        let mut buckets = self.buckets.borrow_mut();
        if buckets.try_reserve(1).is_ok() {
            buckets.push(Unused(bucket));
        } else {
            // A retire might run a destructor that drops this map, which waits for this slice.
            free_buckets_later(self.domain, [Unused(bucket)]);
        }
    }

    fn table(&self, table: Table<'_>) {
        free_later(self.domain, table);
    }
}

impl Drop for Later<'_> {
    fn drop(&mut self) {
        let buckets = self.buckets.take();
        if !buckets.is_empty() {
            free_buckets_later(self.domain, buckets);
        }
    }
}

fn free_buckets_later(
    domain: &Domain,
    buckets: impl IntoIterator<Item = Unused<Bucket>> + Send + 'static,
) {
    // Without memory for it they are never freed.
    try_call(domain, move || {
        for Unused(bucket) in buckets {
            // SAFETY: made of a box; the grace period has ended.
            drop(unsafe { Box::from_raw(bucket.as_ptr()) });
        }
    });
}

/// By a callback: a large block would count against the budget. Without memory for that the table is
/// never freed: that is the smaller evil, as readers may still be in it.
fn free_later(domain: &Domain, table: Table<'_>) {
    struct Old(Table<'static>);
    // SAFETY: an address; after a grace period no other thread uses the table.
    unsafe impl Send for Old {}
    // SAFETY: it is not used before the grace period has ended.
    let table = Old(unsafe { table.forget_lifetime() });
    try_call(domain, move || {
        let table = table;
        // SAFETY: the grace period has ended.
        unsafe { table.0.free_memory() };
    });
}
