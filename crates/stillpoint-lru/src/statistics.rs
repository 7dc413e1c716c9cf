//! Counts of tenants and passes. C's structs are these, with these comments.

/// A tenant's usage, limits (in bytes) and event counts, its descendants included. Each field is read
/// separately.
// C programs pass the size that they know: a new field is a u64 at the end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
#[repr(C)]
pub struct TenantStatistics {
    /// Bytes charged.
    pub usage: u64,
    /// Most bytes charged at once, including bytes in stock, but not refused charges.
    pub peak: u64,
    /// The min limit.
    pub min: u64,
    /// The low limit.
    pub low: u64,
    /// The high limit.
    pub high: u64,
    /// The max limit.
    pub max: u64,
    /// Passes that reclaimed from the tenant although it was under its low limit.
    pub low_events: u64,
    /// Times that charges exceeded the high limit.
    pub high_events: u64,
    /// Charges that hit the max: those that failed, and those for which memory was reclaimed.
    pub max_events: u64,
    /// Charges that failed because of this tenant's max.
    pub failed_charges: u64,
    /// Objects that shrinkers have freed for it.
    pub objects_reclaimed: u64,
}

/// What a pass over a hierarchy has freed.
// C programs do not pass its size: it does not grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
#[repr(C)]
pub struct Reclaimed {
    /// Objects that shrinkers have freed.
    pub objects: u64,
    /// Bytes by which the usage has fallen; bytes freed after a grace period may be missing.
    pub bytes: u64,
}
