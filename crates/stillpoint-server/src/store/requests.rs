//! Arguments and results of the methods of a tenant and of a store.

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

    /// Subtracts from an item that must be there.
    #[must_use]
    pub fn decrement(delta: u64) -> Self {
        Self {
            decrement: true,
            ..Self::increment(delta)
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

/// A tenant's figures: sums over all threads, exact while no thread changes them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TenantStatistics {
    /// Items, including expired ones that have not been removed yet.
    pub items: u64,
    /// Bytes of these items in segments: headers, keys, values.
    pub item_bytes: u64,
    /// Bytes of the tenant's segments and index, which its limits bound.
    pub segment_bytes: u64,
    /// Number of these segments.
    pub segments: u64,
    /// Bytes of its index.
    pub index_bytes: u64,
    /// Items that were ever stored.
    pub stored: u64,
    /// Items that were evicted to make room.
    pub evicted: u64,
    /// Of those, how many no reader had asked for.
    pub evicted_unfetched: u64,
    /// Items that were removed because they had expired.
    pub expired: u64,
    /// Of those, how many no reader had asked for.
    pub expired_unfetched: u64,
    /// Items that a flush has removed.
    pub flushed: u64,
    /// Reads that found an item which had expired.
    pub get_expired: u64,
    /// Reads that found nothing, but for an item that was flushed and not freed yet.
    pub get_flushed: u64,
    /// Items that the search for expired ones has looked at.
    pub searched: u64,
    /// Items that eviction or compaction has copied to another segment.
    pub copied: u64,
    /// Stores that were refused for a limit or without memory.
    pub refused: u64,
    /// Bytes of pinned segments.
    pub pinned_bytes: u64,
}

impl TenantStatistics {
    /// Adds the figures of another tenant.
    pub fn add(&mut self, other: &Self) {
        self.items += other.items;
        self.item_bytes += other.item_bytes;
        self.segment_bytes += other.segment_bytes;
        self.segments += other.segments;
        self.index_bytes += other.index_bytes;
        self.stored += other.stored;
        self.evicted += other.evicted;
        self.evicted_unfetched += other.evicted_unfetched;
        self.expired += other.expired;
        self.expired_unfetched += other.expired_unfetched;
        self.flushed += other.flushed;
        self.get_expired += other.get_expired;
        self.get_flushed += other.get_flushed;
        self.searched += other.searched;
        self.copied += other.copied;
        self.refused += other.refused;
        self.pinned_bytes += other.pinned_bytes;
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
