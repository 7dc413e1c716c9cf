//! Random programs against std's map; `scripts/fuzz` runs them without a limit.
#![allow(clippy::borrowed_box, reason = "the values are boxes")]

#[path = "models/hashers.rs"]
mod hashers;
#[path = "models/map.rs"]
mod map;
#[path = "../../stillpoint/tests/models/mod.rs"]
#[allow(dead_code, reason = "the steps alone")]
mod models;

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 96,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_map_programs(program in prop::collection::vec(any::<u8>(), 0..300)) {
        map::run(&program);
    }
}

/// A long program of each hasher, which grows the table and shrinks it many times.
#[test]
fn long_map_programs() {
    let steps = if cfg!(miri) { 20 } else { 600 };
    for kind in 0..4 {
        let mut random = 0x2545_f491_4f6c_dd1d_u64;
        let mut program = vec![kind];
        for _ in 0..steps * 3 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            program.push((random >> 32) as u8);
        }
        map::run(&program);
    }
}
