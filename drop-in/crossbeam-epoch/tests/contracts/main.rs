//! Promises of the interface beyond its signatures, on which its users rely.

#[path = "../common/mod.rs"]
mod common;
mod deferred;
mod floods;
mod guards;
mod pointers;
#[cfg(all(feature = "reports", not(miri)))]
mod reports;
