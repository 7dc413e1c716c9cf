//! Errors of creating, deleting and charging tenants, and of registering shrinkers.

use crate::{levels::MAX_CHARGE, shrinker_map::MAX_SHRINKERS};
use std::{error::Error, fmt};

/// The reason why a tenant was not created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CreateError {
    /// The parent has been deleted: create it below one that has not.
    ParentDeleted,
    /// There was no memory for larger arrays: free some, or delete other tenants, and try again.
    OutOfMemory,
}

impl fmt::Display for CreateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ParentDeleted => "the parent has been deleted; create the tenant below one that has not",
            Self::OutOfMemory => "no memory for arrays with room for one more tenant; free some, or delete other tenants first",
        })
    }
}

impl Error for CreateError {}

/// The reason why a tenant was not deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeleteError {
    /// The root goes with its hierarchy.
    Root,
    /// There are children: delete them first.
    HasChildren,
}

impl fmt::Display for DeleteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Root => {
                "the root cannot be deleted; it goes with the last handle of its hierarchy"
            }
            Self::HasChildren => {
                "the tenant has children that have not been deleted; delete them first"
            }
        })
    }
}

impl Error for DeleteError {}

/// The reason why nothing was charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChargeError {
    /// The charge would pass a max, and not enough could be reclaimed: free something, or raise the
    /// limit.
    OverLimit {
        /// Bytes of the charge.
        requested: u64,
        /// Usage in bytes of the tenant whose limit it is, and of its descendants, when the charge
        /// was refused.
        usage: u64,
        /// That limit in bytes, less than `usage + requested`.
        max: u64,
    },
    /// The charge would pass a max, and the calling thread is inside a read-side critical section of
    /// the global domain, or a callback, where nothing can be reclaimed. Charge before the section
    /// begins.
    InSection,
    /// The charge would pass a max, and the calling thread is inside a shrinker, which cannot
    /// reclaim.
    InShrinker,
    /// More bytes than any memory has.
    TooLarge,
    /// A charge of 0 bytes cannot grow, because it has no tenant. Make a new one.
    NoTenant,
}

impl fmt::Display for ChargeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OverLimit { requested, usage, max } => write!(
                f,
                "{requested} bytes beside the {usage} in use would pass the limit of {max}, and not enough could be reclaimed; free \
                 something or raise the limit"
            ),
            Self::InSection => f.write_str(
                "the limit is reached, and nothing can be reclaimed inside a read-side critical section or a callback; charge outside of it",
            ),
            Self::InShrinker => f.write_str("the limit is reached, and a shrinker cannot reclaim for itself; charge outside of it"),
            Self::TooLarge => write!(f, "a charge may be of at most {MAX_CHARGE} bytes"),
            Self::NoTenant => f.write_str("a charge of 0 bytes cannot grow; make a new one"),
        }
    }
}

impl Error for ChargeError {}

/// The reason why a shrinker was not registered: the hierarchy has as many as it can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooManyShrinkers;

impl fmt::Display for TooManyShrinkers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a hierarchy has at most {} shrinkers; let one serve several caches",
            MAX_SHRINKERS
        )
    }
}

impl Error for TooManyShrinkers {}
