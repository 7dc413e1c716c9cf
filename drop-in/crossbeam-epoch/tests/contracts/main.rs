//! What the interface promises beyond its signatures, and its users rely on.

#[path = "../common/mod.rs"]
mod common;
mod deferred;
mod floods;
mod guards;
mod pointers;
#[cfg(all(feature = "reports", not(miri)))]
mod reports;
