//! Why something was not stored, changed, created or deleted.

use super::config::KEY_MAX;
use std::{error::Error, fmt, sync::Arc};

/// Why there is no memory for an item.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// The key is empty or longer than [`KEY_MAX`].
    Key {
        /// Its length, in bytes.
        len: usize,
    },
    /// The value is longer than [`Config::item_max`](super::Config::item_max).
    TooLarge {
        /// Its length, in bytes.
        len: usize,
        /// The longest that is stored.
        max: usize,
    },
    /// A limit is reached, and nothing under it can be evicted.
    Limit {
        /// The tenant that has the limit; empty for the whole store.
        tenant: Arc<str>,
        /// The limit, in bytes.
        limit: u64,
    },
    /// The system has no memory.
    OutOfMemory,
    /// The tenant has been deleted.
    Deleted,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key { len } => {
                write!(f, "a key of {len} bytes; use one of 1 to {KEY_MAX} bytes")
            }
            Self::TooLarge { len, max } => write!(
                f,
                "a value of {len} bytes; the most that is stored is {max} bytes"
            ),
            Self::Limit { tenant, limit } if tenant.is_empty() => write!(
                f,
                "the store's limit of {limit} bytes is reached; raise it, or delete items"
            ),
            Self::Limit { tenant, limit } => write!(
                f,
                "the limit of {limit} bytes of tenant {tenant} is reached; raise it, or delete items"
            ),
            Self::OutOfMemory => f.write_str("the system has no memory; lower the store's limit"),
            Self::Deleted => f.write_str("the tenant has been deleted; create it again"),
        }
    }
}

impl Error for Refused {}

/// Why a command changed nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// There is such an item already ([`Mode::Add`](super::Mode::Add)), or there is none
    /// ([`Mode::Replace`](super::Mode::Replace), [`Mode::Append`](super::Mode::Append),
    /// [`Mode::Prepend`](super::Mode::Prepend)).
    NotStored,
    /// The item has another CAS value than the caller expects.
    Exists,
    /// There is no item of that key.
    NotFound,
    /// The item's value is not a decimal number of 64 bits.
    NotANumber,
    /// There is no memory for the new item. The old one is as before.
    Refused(Refused),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotStored => {
                f.write_str("not stored: the mode asks for an item that is there, or for none")
            }
            Self::Exists => {
                f.write_str("the item has been changed since its CAS value was read; read it again")
            }
            Self::NotFound => f.write_str("there is no item of that key"),
            Self::NotANumber => {
                f.write_str("the value is not a decimal number of 64 bits; store one first")
            }
            Self::Refused(refused) => refused.fmt(f),
        }
    }
}

impl Error for Outcome {}

impl From<Refused> for Outcome {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

/// Why a tenant was not created or deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TenantError {
    /// There is one of that name.
    Exists,
    /// There is none of that name.
    NotFound,
    /// The tenant of the empty name, which is the default one, cannot be deleted.
    Default,
    /// The system has no memory.
    OutOfMemory,
}

impl fmt::Display for TenantError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exists => "there is a tenant of that name; choose another, or delete it first",
            Self::NotFound => "there is no tenant of that name; create it first",
            Self::Default => "the default tenant cannot be deleted; flush it",
            Self::OutOfMemory => "the system has no memory for a tenant; delete others first",
        })
    }
}

impl Error for TenantError {}
