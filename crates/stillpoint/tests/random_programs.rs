//! Random programs against the models; `scripts/fuzz` runs them without a limit.
//!
//! Detects a walk of copies that visits keys again in the first bucket of a smaller table.
#![cfg(not(miri))]

mod models;

use proptest::prelude::*;

/// Not random: full pages under a section, then pages of destructors under a younger one, which
/// stays.
#[test]
fn older_pages_of_an_idle_thread_go_before_younger_ones() {
    models::kvfree::run(&[0x01, 0xF5, 0xF5, 0x01, 0xF4, 0xF4]);
}

fn programs() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..300)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn cookies_are_as_in_the_model(program in programs()) {
        models::sequence::run(&program);
    }

    #[test]
    fn deferred_frees_are_as_in_the_model(program in programs()) {
        models::kvfree::run(&program);
    }
}
