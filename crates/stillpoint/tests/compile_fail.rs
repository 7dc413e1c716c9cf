//! What the types must refuse. Each file under `ui/` is a program that must not compile, with what the compiler says to it.
//!
//! The compiler's words change from release to release; `TRYBUILD=overwrite` writes them anew, to be looked at.
#![cfg(not(miri))]

#[test]
fn what_would_be_unsound_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
