//! Arguments and results of the methods of a tenant and of a store, and the counts that statistics are
//! read from.

use std::sync::atomic::{AtomicU64, Ordering};

/// How [`Draft::store`](super::Draft::store) treats the item that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Replaces the item, or stores a new one.
    Set,
    /// Stores only if there is none.
    Add,
    /// Stores only if there is one.
    Replace,
    /// Adds the draft's bytes behind the value that is there; its flags and expiry stay.
    Append,
    /// Adds them before it.
    Prepend,
}

/// The CAS value on which a change depends. An item that is stored gets one that was never used before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Condition {
    /// The change is made only if the item has this CAS value.
    pub compare: Option<u64>,
    /// Also if the item's CAS value is higher than `compare`: the new value is then marked as
    /// stale, and keeps the expiry and the win mark of the item that is there. (`ms` with `I`.)
    pub or_stale: bool,
}

impl Condition {
    /// Returns the condition that the item has the CAS value `compare`, if there is one.
    #[must_use]
    pub fn of(compare: Option<u64>) -> Self {
        Self {
            compare,
            or_stale: false,
        }
    }
}

/// What [`Tenant::arithmetic`](super::Tenant::arithmetic) does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arithmetic {
    /// The number that is added, modulo 2^64, or subtracted, down to 0.
    pub delta: u64,
    /// Whether it is subtracted.
    pub decrement: bool,
    /// The number that is stored if there is no item, and the second in which it expires.
    pub initial: Option<(u64, u32)>,
    /// When the item expires from now on; `None` leaves that as it is.
    pub exptime: Option<u32>,
    /// The CAS values.
    pub condition: Condition,
}

impl Arithmetic {
    /// Adds to an item that must be there.
    #[must_use]
    pub fn increment(delta: u64) -> Self {
        Self {
            delta,
            decrement: false,
            initial: None,
            exptime: None,
            condition: Condition::default(),
        }
    }
}

/// What [`Tenant::arithmetic`](super::Tenant::arithmetic) has stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Number {
    /// The number.
    pub value: u64,
    /// The item's CAS value.
    pub cas: u64,
    /// The second of [`Store::now`](super::Store::now) in which the item expires, 0 for never.
    pub exptime: u32,
    /// Whether the item is new.
    pub created: bool,
}

/// What [`Tenant::invalidate`](super::Tenant::invalidate) changes beside marking an item as stale.
/// (`md` with `I`, `T`.)
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Invalidate {
    /// When it expires from now on; `None` leaves that as it is.
    pub exptime: Option<u32>,
    /// The CAS values.
    pub condition: Condition,
}

/// The position of a walk by [`Tenant::keys`](super::Tenant::keys).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cursor {
    pub(super) at: u64,
}

macro_rules! figures {
    (
        gauges { $($(#[$of_gauge:meta])* $gauge:ident;)* }
        counters { $($(#[$of_counter:meta])* $counter:ident;)* }
    ) => {
        /// A tenant's figures: sums over all threads, exact while no thread changes them.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct TenantStatistics {
            $($(#[$of_gauge])* pub $gauge: u64,)*
            $($(#[$of_counter])* pub $counter: u64,)*
        }

        impl TenantStatistics {
            /// Adds the figures of another tenant.
            pub fn add(&mut self, other: &Self) {
                $(self.$gauge += other.$gauge;)*
                $(self.$counter += other.$counter;)*
            }

            /// Returns these figures, with what has been counted since those of `then`.
            pub(crate) fn since(&self, then: &Self) -> Self {
                Self {
                    $($counter: self.$counter.saturating_sub(then.$counter),)*
                    ..*self
                }
            }
        }

        /// Counts of events.
        #[derive(Debug, Default)]
        pub struct Events {
            $(pub(super) $counter: AtomicU64,)*
        }

        impl Events {
            /// Returns the counts, without gauges.
            pub(super) fn counted(&self) -> TenantStatistics {
                TenantStatistics {
                    $($counter: self.$counter.load(Ordering::Relaxed),)*
                    ..TenantStatistics::default()
                }
            }
        }
    };
}

figures! {
    gauges {
        /// Items, including expired ones that have not been removed yet.
        items;
        /// Bytes of these items in segments: headers, keys, values.
        item_bytes;
        /// Bytes of the tenant's segments and index, which its limits bound.
        segment_bytes;
        /// Number of these segments.
        segments;
        /// Bytes of its index.
        index_bytes;
        /// Bytes of pinned segments.
        pinned_bytes;
    }
    counters {
        /// Items that were ever stored.
        stored;
        /// Items that were evicted to make room.
        evicted;
        /// Of those, how many no reader had asked for.
        evicted_unfetched;
        /// Items that were removed because they had expired.
        expired;
        /// Of those, how many no reader had asked for.
        expired_unfetched;
        /// Items that a flush has removed.
        flushed;
        /// Reads that found an item which had expired.
        get_expired;
        /// Reads that found nothing, but for an item that was flushed and not freed yet.
        get_flushed;
        /// Items that the search for expired ones has looked at.
        searched;
        /// Items that eviction or compaction has copied to another segment.
        copied;
        /// Stores that were refused for a limit or without memory.
        refused;
    }
}

/// The figures of a whole store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreStatistics {
    /// Limit in bytes of all segments and indexes.
    pub limit: u64,
    /// Bytes of all segments and indexes.
    pub segment_bytes: u64,
    /// Bytes of evicted and freed segments, and of flushed key spaces, that readers may still use.
    pub limbo_bytes: u64,
    /// Bytes of free memory that is kept for new segments.
    pub spare_bytes: u64,
    /// Number of tenants, including the default one.
    pub tenants: u64,
    /// Sums over all tenants.
    pub all: TenantStatistics,
}
