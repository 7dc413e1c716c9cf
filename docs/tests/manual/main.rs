//! Checks of the manual beyond its Rust code, which are doc tests: that each chapter is in the
//! summary, that links lead somewhere, that the library's names exist, that C and C++ compile and
//! run, that commands do.
//!
//! Each check is a function from texts to complaints, so that it can be shown broken ones; the
//! tests in each file do that too.

mod book;
mod clippy;
mod commands;
mod documents;
mod fences;
mod figures;
mod limits;
mod links;
mod names;
mod programs;
mod readme;
mod words;

/// Fails with all complaints at once.
#[track_caller]
fn assert_none(complaints: &[String]) {
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}
