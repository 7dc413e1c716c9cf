//! Why an entry has left the cache, and why one was not let in.

use std::{error::Error, fmt, sync::Arc};

/// Why an entry has left the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// It made room, below a limit.
    Evicted,
    /// Its time was over.
    Expired,
    /// An entry with its key was inserted.
    Replaced,
    /// It was removed or invalidated, its tenant was deleted, or an insert with its key was refused.
    Removed,
    /// It was not let in ([`InsertError`]): there was no room for it.
    Refused,
}

/// Why an insert was refused, and by whose limit.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum InsertError {
    /// The entry weighs more than the tenant's max (for the whole cache: `max_bytes`).
    #[non_exhaustive]
    TooLarge {
        /// Name of the tenant whose limit it is; empty for the whole cache.
        tenant: Arc<str>,
        /// The limit, in bytes.
        limit: u64,
        /// The entry's weight, in bytes.
        weight: u64,
    },
    /// All that could make room below the tenant's max is pinned, or protected by the min of other
    /// tenants, or is in entries so large that a tenant would fall below its min by one. Of a tenant near its
    /// min, a try looks at the oldest entries, 128 or more, and the next try at others.
    ///
    /// Mostly nothing has been evicted. What may go has gone if only the sizes of entries, or pins in a tenant
    /// together with minima below it, keep the rest.
    #[non_exhaustive]
    Full {
        /// Name of the tenant whose limit it is; empty for the whole cache.
        tenant: Arc<str>,
        /// The limit, in bytes.
        limit: u64,
        /// The entry's weight, in bytes.
        weight: u64,
    },
    /// There is no memory for the bytes of [`insert_bytes`](crate::Cache::insert_bytes).
    #[non_exhaustive]
    NoMemory {
        /// Size of the value, in bytes.
        weight: u64,
    },
}

impl fmt::Display for InsertError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = |tenant: &Arc<str>| match &**tenant {
            "" => "the cache".to_owned(),
            name => format!("tenant {name:?}"),
        };
        match self {
            Self::TooLarge {
                tenant,
                limit,
                weight,
            } => write!(
                f,
                "the entry weighs {weight} bytes, more than the limit of {}, {limit} bytes",
                whose(tenant)
            ),
            Self::Full {
                tenant,
                limit,
                weight,
            } => write!(
                f,
                "no room for {weight} bytes below the limit of {}, {limit} bytes: what is there is \
                 pinned, or protected by the min of other tenants",
                whose(tenant)
            ),
            Self::NoMemory { weight } => write!(
                f,
                "no memory for a value of {weight} bytes: the system has no more, so lower the \
                 limit of the cache, or free something else"
            ),
        }
    }
}

impl Error for InsertError {}
