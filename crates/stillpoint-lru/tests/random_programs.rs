//! Random programs against the model; `scripts/fuzz` runs them without a limit.
#![cfg(not(miri))]

#[path = "models/list_lru.rs"]
mod list_lru;
#[path = "../../stillpoint/tests/models/mod.rs"]
#[allow(dead_code, reason = "the steps alone")]
mod models;

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_list_lru_programs(program in prop::collection::vec(any::<u8>(), 0..300)) {
        list_lru::run(&program);
    }
}
