//! Random programs against the model; `scripts/fuzz` runs them without a limit.
#![cfg(all(target_os = "linux", target_pointer_width = "64", not(miri)))]

#[path = "../../stillpoint/tests/models/mod.rs"]
#[allow(dead_code, reason = "the steps alone")]
mod models;
#[path = "models/vmap.rs"]
mod vmap;

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_vmap_programs(program in prop::collection::vec(any::<u8>(), 0..300)) {
        vmap::run(&program);
    }
}
