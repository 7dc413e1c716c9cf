//! Checks of the documents beyond the manual's Rust code, which are doc tests: links and commands lead to
//! files and headings, C and C++ compile and run, figures are those of the lab.
//!
//! Each check is a function from texts to complaints, so that a test can give it broken ones.

mod awaits;
mod book;
mod dependents;
mod figures;
mod links;
mod programs;

/// Fails with all complaints at once.
#[track_caller]
fn assert_none(complaints: &[String]) {
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}
